/// Short float conversions against a slow reference: all values of a format in a sorted table made with ldexp, and
/// rounding by search.
#include <math.h>

#include "check.h"
#include "core/convert.h"

enum overflow { OVERFLOW_INFINITY, OVERFLOW_NAN, OVERFLOW_SATURATE };

struct format {
  const char *name;
  int bits, mantissa, bias;
  uint32_t largest;   ///< code of the largest number
  uint32_t overflow;  ///< code beyond it
  uint32_t nan;       ///< code of a NaN
  bool one_zero;      ///< no negative zero: 0x80 is the NaN
  enum overflow rule;
  uint32_t (*to)(float value);
  float (*from)(uint32_t code);
};

#define WRAP(name)                            \
  static uint32_t to_##name(float value) {    \
    return dit_float_to_##name(value);        \
  }                                           \
  static float from_##name(uint32_t code) {   \
    return dit_float_from_##name((CODE)code); \
  }
#define CODE uint16_t
WRAP(f16)
WRAP(bf16)
#undef CODE
#define CODE uint8_t
WRAP(f8_e5m2)
WRAP(f8_e4m3fn)
WRAP(f8_e5m2fnuz)
WRAP(f8_e4m3fnuz)
static uint32_t to_f4(float value) {
  return dit_float_to_f4_e2m1(value);
}
static float from_f4(uint32_t code) {
  return dit_float_from_f4_e2m1((uint8_t)code, 0);
}

static const struct format formats[] = {
    {"float16", 16, 10, 15, 0x7BFF, 0x7C00, 0x7E00, false, OVERFLOW_INFINITY, to_f16, from_f16},
    {"bfloat16", 16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, false, OVERFLOW_INFINITY, to_bf16, from_bf16},
    {"float8_e5m2", 8, 2, 15, 0x7B, 0x7C, 0x7F, false, OVERFLOW_INFINITY, to_f8_e5m2, from_f8_e5m2},
    {"float8_e4m3fn", 8, 3, 7, 0x7E, 0x7E, 0x7F, false, OVERFLOW_SATURATE, to_f8_e4m3fn, from_f8_e4m3fn},
    {"float8_e5m2fnuz", 8, 2, 16, 0x7F, 0x80, 0x80, true, OVERFLOW_NAN, to_f8_e5m2fnuz, from_f8_e5m2fnuz},
    {"float8_e4m3fnuz", 8, 3, 8, 0x7F, 0x80, 0x80, true, OVERFLOW_NAN, to_f8_e4m3fnuz, from_f8_e4m3fnuz},
    {"float4_e2m1", 4, 1, 1, 0x7, 0x7, 0x7, false, OVERFLOW_SATURATE, to_f4, from_f4},
};

static double decode(const struct format *format, uint32_t magnitude) {
  int exponent = (int)(magnitude >> format->mantissa);
  double digits = (double)(magnitude & ((1u << format->mantissa) - 1));
  if (exponent == 0) {
    return ldexp(digits, 1 - format->bias - format->mantissa);
  }
  return ldexp(digits + ldexp(1, format->mantissa), exponent - format->bias - format->mantissa);
}

/// All non-negative numbers of a format; the index is the code.
static double table[1 << 15];

static void fill_table(const struct format *format) {
  for (uint32_t code = 0; code <= format->largest; code++) {
    table[code] = decode(format, code);
  }
}

/// The code of `value` by search in the table; NaN is not asked for.
static uint32_t encode(const struct format *format, float value) {
  double magnitude = fabs((double)value);
  uint32_t sign = signbit(value) ? 1u << (format->bits - 1) : 0;
  uint32_t low = 0, high = format->largest;
  while (low < high) {  // the last number <= magnitude
    uint32_t middle = (low + high + 1) / 2;
    if (table[middle] <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  uint32_t code = low;
  if (low == format->largest) {
    double step = table[low] - table[low - 1];
    double border = table[low] + step / 2;
    bool beyond = magnitude > border || (magnitude == border && (low & 1));
    if (format->rule != OVERFLOW_SATURATE && beyond) {
      return format->rule == OVERFLOW_NAN ? format->overflow : (sign | format->overflow);
    }
  } else {
    double below = magnitude - table[low], above = table[low + 1] - magnitude;
    code += above < below || (above == below && (low & 1));
  }
  return code == 0 && format->one_zero ? 0 : sign | code;
}

static void check_to(const struct format *format, float value) {
  uint32_t expected = encode(format, value), result = format->to(value);
  if (result != expected) {
    fprintf(stderr, "%s: %a gives 0x%x, expected 0x%x\n", format->name, (double)value, result, expected);
  }
  CHECK(result == expected);
}

static void check_both_signs(const struct format *format, float value) {
  check_to(format, value);
  check_to(format, -value);
}

static void test_from(void) {
  for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
    const struct format *format = &formats[f];
    uint32_t sign_bit = 1u << (format->bits - 1);
    for (uint32_t code = 0; code < sign_bit * 2; code++) {
      uint32_t magnitude = code & (sign_bit - 1);
      float result = format->from(code);
      bool infinite = format->rule == OVERFLOW_INFINITY && magnitude == format->overflow;
      bool is_nan = format->one_zero ? code == format->nan : magnitude > format->largest && !infinite;
      if (is_nan) {
        CHECK(isnan(result));
        continue;
      }
      double expected = infinite ? (double)INFINITY : decode(format, magnitude);
      CHECK((double)fabsf(result) == expected);
      CHECK(!!signbit(result) == !!(code & sign_bit));
      CHECK(format->to(result) == code);
    }
  }
}

/// Every number, every midpoint between neighbours, and the floats next to those.
static void test_neighbours(void) {
  for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
    const struct format *format = &formats[f];
    fill_table(format);
    for (uint32_t code = 0; code <= format->largest; code++) {
      double step = code ? table[code] - table[code - 1] : table[1];
      double next = code < format->largest ? table[code + 1] : table[code] + step;
      float points[2] = {(float)table[code], (float)((table[code] + next) / 2)};
      for (int i = 0; i < 2; i++) {
        check_both_signs(format, points[i]);
        check_both_signs(format, nextafterf(points[i], INFINITY));
        check_both_signs(format, fabsf(nextafterf(points[i], -INFINITY)));
      }
    }
  }
}

static uint64_t state;

static uint32_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

/// Any float, and floats whose exponent lies in the formats' range.
static void test_random_values(void) {
  state = 20250101;
  printf("seed %llu\n", (unsigned long long)state);
  for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
    const struct format *format = &formats[f];
    fill_table(format);
    for (int i = 0; i < 200000; i++) {
      uint32_t bits = draw();
      if (i & 1) {
        bits = (bits & 0x807FFFFF) | (90 + draw() % 60) << 23;
      }
      float value = dit_float_from_bits(bits);
      if (isnan(value)) {
        CHECK(format->bits == 4 || isnan(format->from(format->to(value))));
      } else {
        check_to(format, value);
      }
    }
    check_both_signs(format, INFINITY);
    check_both_signs(format, 3.4028235e38f);
    check_both_signs(format, 1e-45f);
  }
}

static void test_nan_bits(void) {
  CHECK(dit_float_to_f16(dit_float_from_bits(0x7FC00000)) == 0x7E00);
  CHECK(dit_float_to_f16(dit_float_from_bits(0xFF802000)) == 0xFE01);
  CHECK(dit_float_get_bits(dit_float_from_f16(0x7C01)) == 0x7FC02000);
  CHECK(dit_float_to_bf16(dit_float_from_bits(0xFF800001)) == 0x7FC0);
  CHECK(dit_float_to_f8_e5m2(NAN) == 0x7F && dit_float_to_f8_e4m3fn(-NAN) == 0xFF);
  CHECK(dit_float_get_bits(dit_float_from_f8_e4m3fn(0x7F)) == 0x7FF00000);
  CHECK(dit_float_to_f8_e5m2fnuz(-NAN) == 0x80 && dit_float_to_f8_e4m3fnuz(NAN) == 0x80);
  CHECK(dit_float_get_bits(dit_float_from_f8_e4m3fnuz(0x80)) == 0x7F800001);
}

/// A power of two; the tie at 1.5 goes up; below 2^-126 only 2^-127 is left.
static uint32_t encode_power(float value) {
  double magnitude = fabs((double)value);
  if (magnitude < ldexp(1, -126)) {
    return magnitude > ldexp(1, -127);
  }
  int exponent = 0;
  double digits = frexp(magnitude, &exponent);
  return (uint32_t)(exponent - 1 + 127 + (digits >= 0.75));
}

static void test_power_of_two(void) {
  for (uint32_t code = 0; code < 255; code++) {
    float value = dit_float_from_f8_e8m0fnu((uint8_t)code);
    CHECK((double)value == ldexp(1, (int)code - 127));
    CHECK(dit_float_to_f8_e8m0fnu(value) == code && dit_float_to_f8_e8m0fnu(-value) == code);
  }
  CHECK(isnan(dit_float_from_f8_e8m0fnu(255)));
  CHECK(dit_float_to_f8_e8m0fnu(NAN) == 255 && dit_float_to_f8_e8m0fnu(-INFINITY) == 255);
  CHECK(dit_float_to_f8_e8m0fnu(0) == 0);
  state = 7;
  for (int i = 0; i < 200000; i++) {
    uint32_t bits = draw();
    bits = i & 1 ? bits & 0xFFE00000 : bits;  // half of them near ties
    float value = dit_float_from_bits(bits);
    if (isfinite(value)) {
      CHECK(dit_float_to_f8_e8m0fnu(value) == encode_power(value));
    }
  }
}

static void test_pair(void) {
  static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t pair = 0; pair < 256; pair++) {
    float low = dit_float_from_f4_e2m1((uint8_t)pair, 0), high = dit_float_from_f4_e2m1((uint8_t)pair, 1);
    CHECK(fabsf(low) == values[pair & 7] && !!signbit(low) == !!(pair & 8));
    CHECK(fabsf(high) == values[pair >> 4 & 7] && !!signbit(high) == !!(pair & 128));
  }
}

int main(void) {
  RUN(test_from);
  RUN(test_neighbours);
  RUN(test_random_values);
  RUN(test_nan_bits);
  RUN(test_power_of_two);
  RUN(test_pair);
  return 0;
}
