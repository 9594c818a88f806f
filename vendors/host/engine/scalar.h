/// Conversions of single elements, branch-free so that loops over them vectorise: half, bfloat16, the float8 family.
///
/// All round to nearest even and agree with PyTorch's own conversions bit for bit (NaN payloads aside).
#ifndef DIT_HOST_OPS_SCALAR_H
#define DIT_HOST_OPS_SCALAR_H

#include <stdint.h>
#include <string.h>

#include "simd.h"

KERNEL_INLINE float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
KERNEL_INLINE uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

KERNEL_INLINE float half_to_float(uint16_t half) {
  const uint32_t word = (uint32_t)half << 16, sign = word & 0x80000000u, twice = word + word;
  const float normal = float_from_bits((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = float_from_bits((twice >> 17) | (126u << 23)) - 0.5f;
  return float_from_bits(sign | (twice < (1u << 27) ? float_to_bits(subnormal) : float_to_bits(normal)));
}

KERNEL_INLINE uint16_t half_from_float(float value) {
  const uint32_t word = float_to_bits(value), twice = word + word, sign = word & 0x80000000u;
  float base = (float_from_bits(word & 0x7FFFFFFFu) * 0x1.0p+112f) * 0x1.0p-110f;
  uint32_t bias = twice & 0xFF000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  base = float_from_bits((bias >> 1) + 0x07800000u) + base;
  const uint32_t bits = float_to_bits(base);
  const uint32_t magnitude = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
  return (uint16_t)((sign >> 16) | (twice > 0xFF000000u ? 0x7E00u : magnitude));
}

KERNEL_INLINE float bfloat_to_float(uint16_t value) {
  return float_from_bits((uint32_t)value << 16);
}

KERNEL_INLINE uint16_t bfloat_from_float(float value) {
  const uint32_t word = float_to_bits(value);
  const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  return (uint16_t)((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

/// The float8 formats: mantissa bits, exponent bias, and what the top codes mean.
struct float8_format {
  int mantissa;
  int bias;
  uint8_t nan;            ///< without sign
  uint8_t overflow;       ///< what a value beyond the largest finite one becomes
  uint8_t largest;        ///< largest finite code
  uint8_t unsigned_zero;  ///< 1: -0 does not exist (its code is NaN)
};
static const struct float8_format float8_e5m2 = {2, 15, 0x7F, 0x7C, 0x7B, 0};
static const struct float8_format float8_e4m3fn = {3, 7, 0x7F, 0x7E, 0x7E, 0};  // saturates, infinity too
static const struct float8_format float8_e5m2fnuz = {2, 16, 0x80, 0x80, 0x7F, 1};
static const struct float8_format float8_e4m3fnuz = {3, 8, 0x80, 0x80, 0x7F, 1};

static inline float float8_to_float(const struct float8_format *format, uint8_t code) {
  const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
  const int exponent = (code & 0x7F) >> format->mantissa;
  const int fraction = code & ((1 << format->mantissa) - 1);
  if (format->unsigned_zero ? code == 0x80 : (code & 0x7F) > format->largest) {
    const int infinite = format->overflow == 0x7C && (code & 0x7F) == 0x7C;
    return float_from_bits(sign | (infinite ? 0x7F800000u : 0x7FC00000u));
  }
  float value = (float)fraction;
  int scale = 1 - format->bias - format->mantissa;
  if (exponent > 0) {
    value += (float)(1 << format->mantissa);
    scale += exponent - 1;
  }
  value *= float_from_bits((uint32_t)(scale + 127) << 23);
  return float_from_bits(float_to_bits(value) | sign);
}

static inline uint8_t float8_from_float(const struct float8_format *format, float value) {
  const uint32_t word = float_to_bits(value), magnitude = word & 0x7FFFFFFFu;
  const uint8_t sign = (uint8_t)(word >> 24 & 0x80u);
  uint32_t code;
  if (magnitude > 0x7F800000u) {
    return format->unsigned_zero ? 0x80 : (uint8_t)(format->nan | sign);
  }
  const int drop = 23 - format->mantissa;
  const int exponent = (int)(magnitude >> 23) - 127 + format->bias;
  if (exponent >= 1) {
    const uint32_t rebased = magnitude - ((uint32_t)(127 - format->bias) << 23);
    code = (rebased + ((1u << (drop - 1)) - 1) + (rebased >> drop & 1u)) >> drop;
  } else {
    // below the smallest normal number: an addition lets the processor round at the right bit
    const float anchor = float_from_bits((uint32_t)(127 + (1 - format->bias) + drop) << 23);
    code = float_to_bits(float_from_bits(magnitude) + anchor) - float_to_bits(anchor);
  }
  if (code > format->largest) {
    return format->unsigned_zero ? 0x80 : (uint8_t)(format->overflow | sign);
  }
  return (uint8_t)(code == 0 && format->unsigned_zero ? 0 : code | sign);
}

#endif
