/// Vectorisable float functions: straight-line polynomials without table or branch, so that loops over them become
/// SIMD.
///
/// Errors against the exact value with FMA: exp_f32 <= 1 ulp, tanh_f32 <= 2 ulp, erf_f32 <= 2 ulp (tested against
/// libm). Overflow gives infinity, underflow goes through subnormals to 0, NaN stays NaN.
#ifndef DIT_HOST_OPS_MATHF_H
#define DIT_HOST_OPS_MATHF_H

#include <math.h>

#include "scalar.h"

KERNEL_INLINE float exp_f32(float x) {
  x = x > 100.0f ? 100.0f : x;
  x = x < -110.0f ? -110.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low mantissa bits become round(x / ln 2)
  const float n = shifted - 12582912.0f;
  float r = n * -6.93145752e-1f + x;
  r = n * -1.42860677e-6f + r;
  float p = 1.37805939e-3f;
  p = p * r + 8.37312452e-3f;
  p = p * r + 4.16695364e-2f;
  p = p * r + 1.66664720e-1f;
  p = p * r + 4.99999851e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors: n reaches beyond the exponent range at both ends
  const uint32_t whole = float_to_bits(shifted) - 0x4B400000u + 1024u;  // n + 1024, positive
  const uint32_t half = whole >> 1;
  const float scale1 = float_from_bits((half - 512u + 127u) << 23);
  const float scale2 = float_from_bits((whole - half - 512u + 127u) << 23);
  return p * scale1 * scale2;
}

KERNEL_INLINE float tanh_f32(float x) {
  const float s = x * x, magnitude = fabsf(x);
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float small = copysignf(p * s * x + x, x);
  const float large = copysignf(1.0f - 2.0f / (exp_f32(2.0f * magnitude) + 1.0f), x);
  return magnitude < 0.625f ? small : large;
}

KERNEL_INLINE float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

KERNEL_INLINE float erf_f32(float x) {
  const float t = fabsf(x), s = x * x;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  r = r * s + u;
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  const float large = copysignf(1.0f - exp_f32(r), x);
  float p = -5.96761703e-4f;
  p = p * s + 4.99119423e-3f;
  p = p * s - 2.67681349e-2f;
  p = p * s + 1.12819925e-1f;
  p = p * s - 3.76125336e-1f;
  p = p * s + 1.28379166e-1f;
  const float small = p * x + x;
  return t > 0.927734375f ? large : small;
}

#endif
