/// The polynomials of mathf.h against libm in double, and the small float formats of scalar.h against their definition.
#include <math.h>

#include "check.h"
#include "engine/mathf.h"

/// Distance in units of the last place of the exact result.
static double count_ulp(float got, double want) {
  if (isnan(want)) {
    return isnan(got) ? 0 : 1e9;
  }
  if ((float)want == got) {
    return 0;
  }
  int exponent;
  frexp(want, &exponent);
  double unit = ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
  return fabs((double)got - want) / unit;
}

/// Every 251st float and its negative.
static double get_worst(float (*function)(float), double (*exact)(double), float limit) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 251) {
    float x = float_from_bits(bits);
    if (x > limit) {
      break;
    }
    double up = count_ulp(function(x), exact((double)x)), down = count_ulp(function(-x), exact(-(double)x));
    worst = up > worst ? up : worst;
    worst = down > worst ? down : worst;
  }
  return worst;
}

static float exp_call(float x) {
  return exp_f32(x);
}
static float tanh_call(float x) {
  return tanh_f32(x);
}
static float erf_call(float x) {
  return erf_f32(x);
}

static void test_exp(void) {
  double worst = get_worst(exp_call, exp, 120.0f);
  printf("exp: worst %.3f ulp\n", worst);
  CHECK(worst <= 2);
  CHECK(exp_f32(INFINITY) == INFINITY && exp_f32(-INFINITY) == 0 && isnan(exp_f32(NAN)) && exp_f32(0) == 1);
}

static void test_tanh(void) {
  double worst = get_worst(tanh_call, tanh, 100.0f);
  printf("tanh: worst %.3f ulp\n", worst);
  CHECK(worst <= 2.5);
  CHECK(tanh_f32(INFINITY) == 1 && tanh_f32(-INFINITY) == -1 && isnan(tanh_f32(NAN)));
  CHECK(signbit(tanh_f32(-0.0f)));
}

static void test_erf(void) {
  double worst = get_worst(erf_call, erf, 100.0f);
  printf("erf: worst %.3f ulp\n", worst);
  CHECK(worst <= 2.5);
  CHECK(erf_f32(INFINITY) == 1 && erf_f32(-INFINITY) == -1 && isnan(erf_f32(NAN)));
}

static double decode(unsigned bits, int mantissa, int exponent_bits, int bias) {
  int exponent = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
  double fraction = (double)(bits & ((1u << mantissa) - 1));
  return ldexp(exponent ? fraction + ldexp(1, mantissa) : fraction, (exponent ? exponent : 1) - bias - mantissa);
}

/// Every code comes back; a number between two neighbours goes to the nearer one, a tie to the even code.
static void test_half(void) {
  for (unsigned code = 0; code < 0x7C00; code++) {
    double low = decode(code, 10, 5, 15), high = decode(code + 1, 10, 5, 15);
    CHECK((double)half_to_float((uint16_t)code) == low);
    CHECK((double)half_to_float((uint16_t)(code | 0x8000)) == -low);
    CHECK(half_from_float((float)low) == code);
    float middle = (float)((low + high) / 2);
    unsigned even = code & 1 ? code + 1 : code;
    CHECK(half_from_float(middle) == even);
    CHECK(half_from_float(nextafterf(middle, 0)) == (code | 0) || low == 0);
    CHECK(half_from_float(nextafterf(middle, INFINITY)) == code + 1);
    CHECK(half_from_float(-middle) == (even | 0x8000));
  }
  CHECK(half_to_float(0x7C00) == INFINITY && isnan(half_to_float(0x7E00)));
  CHECK(half_from_float(65520.0f) == 0x7C00 && half_from_float(1e30f) == 0x7C00 && half_from_float(INFINITY) == 0x7C00);
  CHECK((half_from_float(NAN) & 0x7FFF) > 0x7C00);
}

static void test_bfloat(void) {
  for (unsigned code = 0; code < 0x7F80; code++) {
    double low = decode(code, 7, 8, 127), high = decode(code + 1, 7, 8, 127);
    CHECK((double)bfloat_to_float((uint16_t)code) == low);
    CHECK(bfloat_from_float((float)low) == code);
    if (code < 0x7F7F) {
      CHECK(bfloat_from_float((float)((low + high) / 2)) == (code & 1 ? code + 1 : code));
    }
  }
  CHECK(bfloat_from_float(INFINITY) == 0x7F80 && (bfloat_from_float(NAN) & 0x7FFF) > 0x7F80);
}

static void check_float8(const struct float8_format *format, int exponent_bits) {
  for (unsigned code = 0; code <= format->largest; code++) {
    double low = decode(code, format->mantissa, exponent_bits, format->bias);
    CHECK((double)float8_to_float(format, (uint8_t)code) == low);
    CHECK(float8_from_float(format, (float)low) == code);
    if (code > 0) {
      CHECK(float8_from_float(format, -(float)low) == (code | 0x80));
    }
    if (code < format->largest) {
      double high = decode(code + 1, format->mantissa, exponent_bits, format->bias);
      CHECK(float8_from_float(format, (float)((low + high) / 2)) == (code & 1 ? code + 1 : code));
    }
  }
  CHECK(isnan(float8_to_float(format, float8_from_float(format, NAN))));
  CHECK(float8_from_float(format, 1e30f) == format->overflow);
}

static void test_float8(void) {
  check_float8(&float8_e5m2, 5);
  check_float8(&float8_e4m3fn, 4);
  check_float8(&float8_e5m2fnuz, 5);
  check_float8(&float8_e4m3fnuz, 4);
}

int main(void) {
  RUN(test_exp);
  RUN(test_tanh);
  RUN(test_erf);
  RUN(test_half);
  RUN(test_bfloat);
  RUN(test_float8);
  return 0;
}
