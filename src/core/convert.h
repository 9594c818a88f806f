/// Conversions between float and the short float types, bit for bit as PyTorch does them (c10/util: Half, BFloat16,
/// Float8_*).
///
/// Rounding is to nearest, ties to even. What PyTorch does beyond the range differs by type and is kept: float16,
/// bfloat16 and float8_e5m2 go to infinity; float8_e4m3fn saturates at 448 (older PyTorch: NaN); the fnuz types
/// go to NaN; float8_e8m0fnu drops the sign and has no zero. A NaN stays a NaN: float16 keeps its upper payload bits as
/// the hardware does, bfloat16 is 0x7FC0 as in c10's scalar code (its vector code gives 0xFFFF). Everything is plain
/// integer arithmetic: independent of the rounding mode and of flush-to-zero. Depends on nothing.
#ifndef DIT_CORE_CONVERT_H
#define DIT_CORE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t dit_float_get_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float dit_float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Magnitude bits of a float (below 2^31, finite, and below what `mantissa` and `bias` can hold) to the short format's
/// bits, rounded to nearest even. A carry out of the mantissa moves into the exponent by itself. `mantissa`: stored
/// bits; `bias`: of the exponent.
static inline uint32_t dit_float_round_bits(uint32_t magnitude, int mantissa, int bias) {
  int exponent = (int)(magnitude >> 23) - 127 + bias;  // the short format's exponent field
  uint32_t significand = magnitude & 0x7FFFFF;
  int shift = 23 - mantissa;
  uint32_t kept = 0;
  if (exponent >= 1) {
    kept = (uint32_t)exponent << 23 | significand;
  } else {
    shift += 1 - exponent;  // subnormal in the short format: the leading 1 becomes visible and moves right
    kept = magnitude >> 23 ? significand | 0x800000 : significand << 1;
    if (shift > 24) {
      return 0;  // less than half of the smallest subnormal
    }
  }
  uint32_t half = UINT32_C(1) << (shift - 1);
  uint32_t result = kept >> shift;
  uint32_t rest = kept & (half * 2 - 1);
  return result + (rest > half || (rest == half && (result & 1)));
}

/// Bits of a finite short float without its sign to float. `mantissa`: stored bits; `bias`: of the exponent.
static inline uint32_t dit_float_widen_bits(uint32_t magnitude, int mantissa, int bias) {
  if (magnitude == 0) {
    return 0;
  }
  int shift = 23 - mantissa;
  uint32_t exponent = magnitude >> mantissa;
  if (exponent == 0) {
    int lift = __builtin_clz(magnitude) - (31 - mantissa);  // until the leading 1 stands where the exponent begins
    return ((uint32_t)(128 - bias - lift) << 23) | ((magnitude << (lift + shift)) & 0x7FFFFF);
  }
  return (magnitude << shift) + ((uint32_t)(127 - bias) << 23);
}

/// float16: sign, 5 exponent, 10 mantissa bits.
static inline uint16_t dit_float_to_f16(float value) {
  uint32_t bits = dit_float_get_bits(value), magnitude = bits & 0x7FFFFFFF;
  uint32_t sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7F800000) {
    return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x1FF));
  }
  if (magnitude >= 0x47800000) {  // 65536
    return (uint16_t)(sign | 0x7C00);
  }
  return (uint16_t)(sign | dit_float_round_bits(magnitude, 10, 15));
}

static inline float dit_float_from_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7FFF;
  if (magnitude >= 0x7C00) {
    uint32_t quiet = magnitude > 0x7C00 ? 0x400000 : 0;  // as the hardware does
    return dit_float_from_bits(sign | 0x7F800000 | quiet | (magnitude & 0x3FF) << 13);
  }
  return dit_float_from_bits(sign | dit_float_widen_bits(magnitude, 10, 15));
}

/// bfloat16: the upper half of a float.
static inline uint16_t dit_float_to_bf16(float value) {
  uint32_t bits = dit_float_get_bits(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) {
    return 0x7FC0;
  }
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float dit_float_from_bf16(uint16_t brain) {
  return dit_float_from_bits((uint32_t)brain << 16);
}

/// float8_e5m2: IEEE-like, infinity 0x7C, NaN 0x7D to 0x7F.
static inline uint8_t dit_float_to_f8_e5m2(float value) {
  uint32_t bits = dit_float_get_bits(value), magnitude = bits & 0x7FFFFFFF;
  uint32_t sign = bits >> 24 & 0x80;
  if (magnitude >= 0x47800000) {  // 65536
    return (uint8_t)(sign | (magnitude > 0x7F800000 ? 0x7F : 0x7C));
  }
  return (uint8_t)(sign | dit_float_round_bits(magnitude, 2, 15));
}

static inline float dit_float_from_f8_e5m2(uint8_t byte) {
  return dit_float_from_f16((uint16_t)(byte << 8));
}

/// float8_e4m3fn: no infinity, NaN 0x7F, largest number 448 (0x7E), where everything larger ends.
static inline uint8_t dit_float_to_f8_e4m3fn(float value) {
  uint32_t bits = dit_float_get_bits(value), magnitude = bits & 0x7FFFFFFF;
  uint32_t sign = bits >> 24 & 0x80;
  if (magnitude >= 0x43E00000) {  // 448
    return (uint8_t)(sign | (magnitude > 0x7F800000 ? 0x7F : 0x7E));
  }
  return (uint8_t)(sign | dit_float_round_bits(magnitude, 3, 7));
}

static inline float dit_float_from_f8_e4m3fn(uint8_t byte) {
  uint32_t sign = (uint32_t)(byte & 0x80) << 24, magnitude = byte & 0x7F;
  if (magnitude == 0x7F) {
    return dit_float_from_bits(sign | 0x7FF00000);
  }
  return dit_float_from_bits(sign | dit_float_widen_bits(magnitude, 3, 7));
}

/// The fnuz types: no infinity, no negative zero, one NaN (0x80). `limit`: first magnitude beyond the range.
static inline uint8_t dit_float_to_f8_fnuz(float value, int mantissa, int bias, uint32_t limit) {
  uint32_t bits = dit_float_get_bits(value), magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= limit) {
    return 0x80;
  }
  uint32_t result = dit_float_round_bits(magnitude, mantissa, bias);
  return (uint8_t)(result == 0 ? 0 : result | (bits >> 24 & 0x80));
}

static inline float dit_float_from_f8_fnuz(uint8_t byte, int mantissa, int bias) {
  if (byte == 0x80) {
    return dit_float_from_bits(0x7F800001);
  }
  uint32_t sign = (uint32_t)(byte & 0x80) << 24;
  return dit_float_from_bits(sign | dit_float_widen_bits(byte & 0x7F, mantissa, bias));
}

static inline uint8_t dit_float_to_f8_e5m2fnuz(float value) {
  return dit_float_to_f8_fnuz(value, 2, 16, 0x47800000);  // 65536
}

static inline float dit_float_from_f8_e5m2fnuz(uint8_t byte) {
  return dit_float_from_f8_fnuz(byte, 2, 16);
}

static inline uint8_t dit_float_to_f8_e4m3fnuz(float value) {
  return dit_float_to_f8_fnuz(value, 3, 8, 0x43800000);  // 256
}

static inline float dit_float_from_f8_e4m3fnuz(uint8_t byte) {
  return dit_float_from_f8_fnuz(byte, 3, 8);
}

/// float8_e8m0fnu: a power of two, 2^(byte - 127); 0xFF is NaN. The sign is dropped; infinity becomes NaN. A tie goes
/// up, except between 0 and 2^-126 where the float is subnormal (PyTorch's rule).
static inline uint8_t dit_float_to_f8_e8m0fnu(float value) {
  uint32_t bits = dit_float_get_bits(value);
  uint32_t exponent = bits >> 23 & 0xFF, rest = bits & 0x7FFFFF;
  if (exponent == 0xFF) {
    return 0xFF;
  }
  bool up = rest > 0x400000 || (rest == 0x400000 && exponent > 0);
  return (uint8_t)(exponent + up);
}

static inline float dit_float_from_f8_e8m0fnu(uint8_t byte) {
  if (byte == 0xFF) {
    return dit_float_from_bits(0x7F800001);
  }
  return dit_float_from_bits(byte == 0 ? 0x00400000 : (uint32_t)byte << 23);
}

/// float4_e2m1fn_x2: two numbers in a byte, the first in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
/// negatives. PyTorch has no conversion for it; this is the OCP microscaling definition. `index` is 0 or 1.
static inline float dit_float_from_f4_e2m1(uint8_t pair, int index) {
  uint32_t nibble = (uint32_t)pair >> (index ? 4 : 0) & 0xF;
  return dit_float_from_bits((nibble & 8) << 28 | dit_float_widen_bits(nibble & 7, 1, 1));
}

/// The low four bits for `value`: to nearest even; what is beyond 6, infinity included, becomes 6 (OCP: saturate); NaN
/// becomes 6 with its sign, because the type has none.
static inline uint8_t dit_float_to_f4_e2m1(float value) {
  uint32_t bits = dit_float_get_bits(value), magnitude = bits & 0x7FFFFFFF;
  uint32_t sign = bits >> 28 & 8;
  if (magnitude >= 0x40C00000) {  // 6
    return (uint8_t)(sign | 7);
  }
  return (uint8_t)(sign | dit_float_round_bits(magnitude, 1, 1));
}

#endif
