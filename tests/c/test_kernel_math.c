/// The polynomials of mathf.h against libm in double, and the small float formats of scalar.h against their definition.
#include <math.h>

#include "check.h"
#include "engine/mathd.h"
#include "engine/mathf.h"

/// Distance in units of the last place of the exact result.
static double count_ulp(float got, double want) {
  if (isnan(want)) {
    return isnan(got) ? 0 : 1e9;
  }
  if ((float)want == got) {
    return 0;
  }
  if (isnan(got) || isinf(got) || isinf((float)want)) {
    return 1e9;
  }
  int exponent;
  frexp(want, &exponent);
  double unit = ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
  return fabs((double)got - want) / unit;
}

/// Every 1009th float and its negative.
static double get_worst(float (*function)(float), double (*exact)(double), float limit) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 1009) {
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

/// X(function, largest argument, largest error in ulp): what mathf.h states.
#define FUNCTIONS(X)        \
  X(log, INFINITY, 2)       \
  X(log2, INFINITY, 2)      \
  X(log10, INFINITY, 2)     \
  X(log1p, INFINITY, 2)     \
  X(expm1, 120.0f, 2)       \
  X(sin, MATHF_TRIG_MAX, 3) \
  X(cos, MATHF_TRIG_MAX, 3) \
  X(tan, MATHF_TRIG_MAX, 5) \
  X(asin, 1.5f, 3)          \
  X(acos, 1.5f, 2)          \
  X(atan, INFINITY, 3)      \
  X(sinh, 120.0f, 2)        \
  X(cosh, 120.0f, 2)        \
  X(asinh, INFINITY, 3)     \
  X(acosh, INFINITY, 3)     \
  X(atanh, 1.5f, 3)
#define CALL(name, limit, ulp)        \
  static float name##_call(float x) { \
    return name##_f32(x);             \
  }
FUNCTIONS(CALL)
CALL(exp, , )
CALL(tanh, , )
CALL(erf, , )

static void test_functions(void) {
#define MEASURE(name, limit, ulp)                       \
  {                                                     \
    double worst = get_worst(name##_call, name, limit); \
    printf(#name ": worst %.3f ulp\n", worst);          \
    CHECK(worst <= (ulp));                              \
    CHECK(isnan(name##_f32(NAN)));                      \
  }
  FUNCTIONS(MEASURE)
  CHECK(log_f32(0) == -INFINITY && log_f32(INFINITY) == INFINITY && isnan(log_f32(-1)));
  CHECK(log1p_f32(-1) == -INFINITY && isnan(log1p_f32(-2)) && signbit(log1p_f32(-0.0f)));
  CHECK(expm1_f32(-INFINITY) == -1 && expm1_f32(INFINITY) == INFINITY && signbit(expm1_f32(-0.0f)));
  CHECK(signbit(sin_f32(-0.0f)) && signbit(tan_f32(-0.0f)) && signbit(asin_f32(-0.0f)) && signbit(atan_f32(-0.0f)));
  CHECK(sinh_f32(89.4f) < INFINITY && cosh_f32(-89.4f) < INFINITY && sinh_f32(-100) == -INFINITY);
  CHECK(atanh_f32(1) == INFINITY && isnan(atanh_f32(1.5f)) && isnan(acosh_f32(-3)) && acosh_f32(1) == 0);
}

/// Random pairs, and every pair of special values: sign and kind as C's pow.
static void test_pow(void) {
  static const float special[] = {0.0f,  -0.0f,    1.0f,      -1.0f, 2.0f,   -2.0f, 0.5f,        -0.5f, 3.0f,
                                  -3.0f, INFINITY, -INFINITY, NAN,   1e-40f, 1e38f, 16777216.0f, -2.5f, 3e9f};
  const int count = sizeof special / sizeof special[0];
  double worst = 0;
  uint64_t state = 88172645463325252u;
  for (int i = 0; i < 1000000; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const float x = float_from_bits((uint32_t)state);
    const float y = (float)((int)(state >> 40) % 100000 - 50000) * (i % 3 ? 1e-3f : 1e-4f);
    const double error = count_ulp(pow_f32(x, y), pow((double)x, (double)y));
    worst = error > worst ? error : worst;
  }
  printf("pow: worst %.3f ulp\n", worst);
  CHECK(worst <= 1);
  for (int i = 0; i < count * count; i++) {
    const float x = special[i / count], y = special[i % count];
    const float got = pow_f32(x, y), want = powf(x, y);
    CHECK(isnan(want) ? isnan(got) : count_ulp(got, pow((double)x, (double)y)) <= 1 && signbit(got) == signbit(want));
  }
}

static long double sigmoid_exact(long double x) {
  return 1 / (1 + expl(-x));
}

/// Doubles of every exponent and sign with random mantissas, against long double.
static double get_worst_double(double (*function)(double), long double (*exact)(long double), double limit) {
  double worst = 0;
  uint64_t state = 88172645463325252u;
  for (int i = 0; i < 400000; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double x = i % 2 ? double_from_bits(state) : ldexp((double)(int64_t)state, -63) * limit;
    if (!(fabs(x) <= limit)) {
      continue;
    }
    const double got = function(x);
    const long double want = exact((long double)x);
    if ((double)want == got || (isnan(got) && isnan((double)want))) {
      continue;
    }
    int exponent;
    frexp((double)want, &exponent);
    const double unit = ldexp(1, exponent - 53 < -1074 ? -1074 : exponent - 53);
    const double error = isfinite(got) && isfinite((double)want) ? (double)fabsl((long double)got - want) / unit : 1e9;
    worst = error > worst ? error : worst;
  }
  return worst;
}

static double exp_call_double(double x) {
  return exp_f64(x);
}
static double log_call_double(double x) {
  return log_f64(x);
}
static double tanh_call_double(double x) {
  return tanh_f64(x);
}
static double sigmoid_call_double(double x) {
  return sigmoid_f64(x);
}

static void test_doubles(void) {
  const double exp_worst = get_worst_double(exp_call_double, expl, 760);
  const double log_worst = get_worst_double(log_call_double, logl, 1.7e308);
  const double tanh_worst = get_worst_double(tanh_call_double, tanhl, 100);
  const double sigmoid_worst = get_worst_double(sigmoid_call_double, sigmoid_exact, 700);
  printf("double: exp %.3f, log %.3f, tanh %.3f, sigmoid %.3f ulp\n", exp_worst, log_worst, tanh_worst, sigmoid_worst);
  CHECK(exp_worst <= 1.5 && log_worst <= 1.5 && tanh_worst <= 2 && sigmoid_worst <= 2.5);
  CHECK(exp_f64(INFINITY) == INFINITY && exp_f64(-INFINITY) == 0 && isnan(exp_f64(NAN)) && exp_f64(0) == 1);
  CHECK(log_f64(0) == -INFINITY && log_f64(INFINITY) == INFINITY && isnan(log_f64(-1)) && isnan(log_f64(NAN)));
  CHECK(tanh_f64(INFINITY) == 1 && tanh_f64(-INFINITY) == -1 && isnan(tanh_f64(NAN)) && signbit(tanh_f64(-0.0)));
}

static void test_exp_negative(void) {
  double worst = 0;
  for (int i = -8600000; i <= 0; i++) {
    const float x = (float)i * 1e-5f;
    const double error = count_ulp(exp_negative_f32(x), exp((double)x));
    worst = error > worst ? error : worst;
  }
  printf("exp of negative numbers: %.3f ulp\n", worst);
  CHECK(worst <= 2 && exp_negative_f32(0) == 1 && exp_negative_f32(-INFINITY) == 0 && isnan(exp_negative_f32(NAN)));
  CHECK(exp_negative_f32(-87) == 0 && exp_negative_f32(-3.4e38f) == 0);
}

static void test_cdf(void) {
  double worst = 0;
  for (int i = -2000000; i <= 2000000; i++) {
    const float x = (float)i * 1e-5f;
    const double error = fabs((double)cdf_f32(x) - 0.5 * erfc(-(double)x * 0.70710678118654752440));
    worst = error > worst ? error : worst;
  }
  printf("cdf: worst absolute error %g\n", worst);
  CHECK(worst <= 1e-7 && cdf_f32(INFINITY) == 1 && cdf_f32(-INFINITY) == 0 && isnan(cdf_f32(NAN)));
}

static void test_erfinv(void) {
  double worst = 0;
  for (int i = -99999; i < 100000; i++) {
    const float x = (float)i / 100000.0f, y = erfinv_f32(x);
    const double error = fabs(erf((double)y) - (double)x) / (1 - fabs((double)x));
    worst = error > worst ? error : worst;
  }
  printf("erfinv: worst relative error of 1 - erf(y) %g\n", worst);
  CHECK(worst < 1e-2 && erfinv_f32(1) == INFINITY && erfinv_f32(-1) == -INFINITY && isnan(erfinv_f32(1.5f)));
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
  RUN(test_functions);
  RUN(test_pow);
  RUN(test_doubles);
  RUN(test_exp_negative);
  RUN(test_cdf);
  RUN(test_erfinv);
  RUN(test_half);
  RUN(test_bfloat);
  RUN(test_float8);
  return 0;
}
