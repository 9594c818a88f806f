/// Vectorisable float functions: straight-line polynomials without table or branch, so that loops over them become
/// SIMD.
///
/// Errors against the exact value (tested against libm, tests/c/test_kernel_math.c): pow <= 1 ulp; exp, expm1, log,
/// log2, log10, log1p, sinh, cosh, acos <= 2; tanh, erf <= 2.5; sin, cos, asin, atan, asinh, acosh, atanh <= 3; tan
/// <= 5. Overflow gives infinity, underflow goes through subnormals to 0, NaN stays NaN. sin, cos and tan are for |x|
/// <= MATHF_TRIG_MAX; loops over them take libm beyond.
#ifndef DIT_HOST_OPS_MATHF_H
#define DIT_HOST_OPS_MATHF_H

#include <math.h>
#include <stdbool.h>

#include "scalar.h"

/// exp(x) = the result * 2^n, n from -152 to 144: `shifted` is n + 1.5 * 2^23, so that its low mantissa bits are n.
KERNEL_INLINE float exp_fraction_f32(float x, float *shifted) {
  *shifted = x * 1.44269504f + 12582912.0f;
  const float n = *shifted - 12582912.0f;
  float r = n * -6.93145752e-1f + x;
  r = n * -1.42860677e-6f + r;
  float p = 1.37805939e-3f;
  p = p * r + 8.37312452e-3f;
  p = p * r + 4.16695364e-2f;
  p = p * r + 1.66664720e-1f;
  p = p * r + 4.99999851e-1f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

/// 2^shift * exp(x), without overflow on the way; |shift| <= 2.
KERNEL_INLINE float exp_scaled_f32(float x, int shift) {
  float shifted;
  x = x > 100.0f ? 100.0f : x;
  x = x < -110.0f ? -110.0f : x;
  const float p = exp_fraction_f32(x, &shifted);
  // 2^n in two factors: n reaches beyond the exponent range at both ends
  const uint32_t whole = float_to_bits(shifted) - 0x4B400000u + 1024u + (uint32_t)shift;  // n + 1024, positive
  const uint32_t half = whole >> 1;
  const float scale1 = float_from_bits((half - 512u + 127u) << 23);
  const float scale2 = float_from_bits((whole - half - 512u + 127u) << 23);
  return p * scale1 * scale2;
}

KERNEL_INLINE float exp_f32(float x) {
  return exp_scaled_f32(x, 0);
}

/// exp(x) for x <= 0 with an error <= 2 units in the last place, in half the instructions; below exp(-86.6) it is 0.
KERNEL_INLINE float exp_negative_f32(float x) {
  float shifted;
  const float p = exp_fraction_f32(x, &shifted);
  return x < -86.6f ? 0.0f : p * float_from_bits((float_to_bits(shifted) + 127u) << 23);
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

/// The normal distribution function, erfc(-x / sqrt(2)) / 2, with an absolute error <= 1e-7: what gelu needs. With t =
/// |x|, erfc(t / sqrt(2)) / 2 is 2 to the power of a polynomial, so that small values for negative x do not come from a
/// difference; what is below 2^-125 becomes 0.
KERNEL_INLINE float cdf_f32(float x) {
  const float t = fabsf(x);
  float r = -2.8350571e-6f;
  r = r * t + 3.9379138e-5f;
  r = r * t - 1.8618589e-4f;
  r = r * t - 1.3692534e-4f;
  r = r * t + 7.0634084e-3f;
  r = r * t - 5.2496172e-2f;
  r = r * t - 4.5920821e-1f;
  r = r * t - 1.1511053f;
  const float power = r * t - 1.0f;
  const float shifted = power + 12582912.0f;  // 1.5 * 2^23: the low mantissa bits become the rounded power
  const float f = power - (shifted - 12582912.0f);
  float p = 1.5353361e-4f;
  p = p * f + 1.3398875e-3f;
  p = p * f + 9.6184369e-3f;
  p = p * f + 5.5503324e-2f;
  p = p * f + 2.4022648e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  const float half = power < -125.0f ? 0.0f : p * float_from_bits((float_to_bits(shifted) + 127u) << 23);
  return x < 0 ? half : 1.0f - half;
}

/// x = 2^e * (1 + f) with 1 + f from sqrt(1/2) to sqrt(2); x positive and finite.
KERNEL_INLINE float split_f32(float x, float *e) {
  const float tiny = x < 0x1p-126f ? 1.0f : 0.0f;
  const uint32_t bits = float_to_bits(tiny != 0 ? x * 0x1p24f : x);
  const uint32_t shifted = bits - 0x3F3504F3u;  // below sqrt(1/2): the exponent borrows
  *e = (float)((int32_t)shifted >> 23) - tiny * 24.0f;
  return float_from_bits((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
}

/// log(1 + f) = f + the result, for f of split_f32.
KERNEL_INLINE float log_rest_f32(float f) {
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return f * f * (p * f - 0.5f);
}

/// The values that a logarithm has outside of the positive finite numbers.
KERNEL_INLINE float log_special_f32(float x, float value) {
  value = x == 0 ? -INFINITY : value;
  value = x < 0 ? NAN : value;
  return x < INFINITY ? value : x;  // infinity and NaN are themselves
}

KERNEL_INLINE float log_f32(float x) {
  float e;
  const float f = split_f32(x, &e), rest = log_rest_f32(f);
  return log_special_f32(x, e * 0.693359375f + (f + (e * -2.12194440e-4f + rest)));
}

KERNEL_INLINE float log2_f32(float x) {
  float e;
  const float f = split_f32(x, &e), rest = log_rest_f32(f);
  return log_special_f32(x, rest * 0.44269504f + f * 0.44269504f + rest + f + e);
}

KERNEL_INLINE float log10_f32(float x) {
  float e;
  const float f = split_f32(x, &e), rest = log_rest_f32(f);
  const float low = (f + rest) * 7.00731903251827651129e-4f + rest * 4.3359375e-1f + f * 4.3359375e-1f;
  return log_special_f32(x, low + e * 2.48745663981195213739e-4f + e * 3.0078125e-1f);
}

KERNEL_INLINE float log1p_f32(float x) {
  const float u = 1.0f + x, lost = x - (u - 1.0f);
  const float value = log_f32(u) + (u > 0 && u < INFINITY ? lost / u : 0.0f);
  return fabsf(x) < 0x1p-24f ? x : value;
}

KERNEL_INLINE float expm1_f32(float x) {
  const float y = x < -20.0f ? -20.0f : x > 89.0f ? 89.0f : x;
  const float shifted = y * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
  float r = n * -6.93145752e-1f + y;
  r = n * -1.42860677e-6f + r;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333377e-3f;
  p = p * r + 4.16666642e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 5.0e-1f;
  p = p * r * r + r;
  const float half = float_from_bits((float_to_bits(shifted) - 0x4B400000u + 126u) << 23);  // 2^(n - 1)
  const float value = (half * p + (half - 0.5f)) * 2.0f;
  return n == 0 ? (p == 0 ? x : p) : value;
}

#define MATHF_TRIG_MAX 4096.0f

/// r = x - n * pi / 2; returns the quadrant n.
KERNEL_INLINE uint32_t reduce_f32(float x, float *r) {
  const float shifted = x * 0.636619772f + 12582912.0f, n = shifted - 12582912.0f;
  float y = n * -1.5703125f + x;
  y = n * -0.00048351287841796875f + y;
  y = n * -3.1385570764541626e-07f + y;
  *r = n * -6.07710063e-11f + y;
  return float_to_bits(shifted);
}

KERNEL_INLINE float sin_part_f32(float r) {
  const float s = r * r;
  float p = -1.9515295891e-4f;
  p = p * s + 8.3321608736e-3f;
  p = p * s - 1.6666654611e-1f;
  return p * s * r + r;
}

KERNEL_INLINE float cos_part_f32(float r) {
  const float s = r * r;
  float p = 2.443315711809948e-5f;
  p = p * s - 1.388731625493765e-3f;
  p = p * s + 4.166664568298827e-2f;
  return p * s * s - 0.5f * s + 1.0f;
}

KERNEL_INLINE float sin_f32(float x) {
  float r;
  const uint32_t n = reduce_f32(x, &r);
  const float value = n & 1 ? cos_part_f32(r) : sin_part_f32(r);
  const float signed_value = float_from_bits(float_to_bits(value) ^ (n & 2) << 30);
  return x == 0 ? x : signed_value;
}

KERNEL_INLINE float cos_f32(float x) {
  float r;
  const uint32_t n = reduce_f32(x, &r) + 1;
  const float value = n & 1 ? cos_part_f32(r) : sin_part_f32(r);
  return float_from_bits(float_to_bits(value) ^ (n & 2) << 30);
}

KERNEL_INLINE float tan_f32(float x) {
  float r;
  const uint32_t n = reduce_f32(x, &r);
  const float s = sin_part_f32(r), c = cos_part_f32(r);
  const float value = (n & 1 ? -c : s) / (n & 1 ? s : c);
  return x == 0 ? x : value;
}

/// asin(sqrt(z)) = s + s * the result, z = s * s from 0 to 1/4.
KERNEL_INLINE float asin_rest_f32(float z) {
  float p = 4.2163199048e-2f;
  p = p * z + 2.4181311049e-2f;
  p = p * z + 4.5470025998e-2f;
  p = p * z + 7.4953002686e-2f;
  p = p * z + 1.6666752422e-1f;
  return p * z;
}

KERNEL_INLINE float asin_f32(float x) {
  const float a = fabsf(x);
  const float z = a > 0.5f ? 0.5f * (1.0f - a) : a * a;
  const float s = a > 0.5f ? sqrtf(z) : a;
  const float t = s * asin_rest_f32(z) + s;
  return x != x ? x : copysignf(a > 0.5f ? 1.57079632679f - 2.0f * t : t, x);
}

KERNEL_INLINE float acos_f32(float x) {
  const float a = fabsf(x);
  const float z = a > 0.5f ? 0.5f * (1.0f - a) : a * a;
  const float s = a > 0.5f ? sqrtf(z) : a;
  const float t = s * asin_rest_f32(z) + s;
  const float small = 1.57079632679f - (copysignf(t, x) - -4.37113883e-8f);
  const float large = x < 0 ? 3.14159265359f - (2.0f * t + 8.74227766e-8f) : 2.0f * t;
  return a > 0.5f ? large : small;
}

KERNEL_INLINE float atan_f32(float x) {
  const float a = fabsf(x);
  const float base = a > 2.414213562373095f ? 1.57079632679f : a > 0.4142135623730950f ? 0.78539816339f : 0.0f;
  const float up = a > 2.414213562373095f ? -1.0f : a > 0.4142135623730950f ? a - 1.0f : a;
  const float down = a > 2.414213562373095f ? a : a > 0.4142135623730950f ? a + 1.0f : 1.0f;
  const float t = up / down, s = t * t;
  float p = 8.05374449538e-2f;
  p = p * s - 1.38776856032e-1f;
  p = p * s + 1.99777106478e-1f;
  p = p * s - 3.33329491539e-1f;
  return copysignf(base + (p * s * t + t), x);
}

KERNEL_INLINE float sinh_f32(float x) {
  const float a = fabsf(x), s = x * x;
  float p = 2.03721912945e-4f;
  p = p * s + 8.33028376239e-3f;
  p = p * s + 1.66667160211e-1f;
  const float half = exp_scaled_f32(a, -1);
  return a < 1.0f ? p * s * x + x : copysignf(half - 0.25f / half, x);
}

KERNEL_INLINE float cosh_f32(float x) {
  const float half = exp_scaled_f32(fabsf(x), -1);
  return half + 0.25f / half;
}

KERNEL_INLINE float asinh_f32(float x) {
  const float a = fabsf(x), large = log_f32(a) + 0.69314718056f;
  const float small = log1p_f32(a + a * a / (1.0f + sqrtf(1.0f + a * a)));
  return copysignf(a > 1e9f ? large : small, x);
}

KERNEL_INLINE float acosh_f32(float x) {
  const float t = x - 1.0f, large = log_f32(x) + 0.69314718056f;
  const float small = log1p_f32(t + sqrtf(t * t + 2.0f * t));
  return x < 1.0f ? NAN : x > 1e9f ? large : small;
}

KERNEL_INLINE float atanh_f32(float x) {
  const float a = fabsf(x);
  return x != x ? x : copysignf(0.5f * log1p_f32(2.0f * a / (1.0f - a)), x);
}

/// PyTorch's way: a rational start and two steps of Newton's method.
KERNEL_INLINE float erfinv_f32(float x) {
  const float a = fabsf(x), z = x * x, w = sqrtf(-log_f32((1.0f - a) * 0.5f));
  const float inner = x * (((-0.140543331f * z + 0.914624893f) * z - 1.645349621f) * z + 0.886226899f) /
                      ((((0.012229801f * z - 0.329097515f) * z + 1.442710462f) * z - 2.118377725f) * z + 1.0f);
  const float outer = copysignf(((1.641345311f * w + 3.429567803f) * w - 1.624906493f) * w - 1.970840454f, x) /
                      ((1.637067800f * w + 3.543889200f) * w + 1.0f);
  float y = a <= 0.7f ? inner : outer;
  y = y - (erf_f32(y) - x) / (1.12837917f * exp_f32(-y * y));
  y = y - (erf_f32(y) - x) / (1.12837917f * exp_f32(-y * y));
  return a < 1.0f ? y : a == 1.0f ? copysignf(INFINITY, x) : NAN;
}

KERNEL_INLINE float select_f32(uint32_t condition, float a, float b) {
  const uint32_t mask = 0u - condition;
  return float_from_bits((float_to_bits(a) & mask) | (float_to_bits(b) & ~mask));
}

/// x^y in double: log2 by a series in (m - 1) / (m + 1), 2^t by its Taylor series; the result is rounded once.
KERNEL_INLINE float pow_f32(float x, float y) {
  const double a = fabs((double)x);
  uint64_t bits;
  memcpy(&bits, &a, sizeof bits);
  const uint64_t shifted = bits - 0x3FE6A09E00000000u;
  const uint64_t high = shifted >> 52;  // 12 bits with wrap-around: the exponent, as a positive number
  const double e = (double)(int32_t)(((uint32_t)high + 1024u) & 0xFFFu) - 1024.0;
  const uint64_t mantissa = (shifted & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E00000000u;
  double m;
  memcpy(&m, &mantissa, sizeof m);
  const double f = (m - 1.0) / (m + 1.0), s = f * f;
  double p = 2.0 / 13;
  p = p * s + 2.0 / 11;
  p = p * s + 2.0 / 9;
  p = p * s + 2.0 / 7;
  p = p * s + 2.0 / 5;
  p = p * s + 2.0 / 3;
  p = (p * s + 2.0) * f;
  double t = (p * 1.4426950408889634074 + e) * (double)y;
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted_t = t + magic, r = (t - (shifted_t - magic)) * 0.69314718055994530942;
  double q = 1.0 / 5040;
  q = q * r + 1.0 / 720;
  q = q * r + 1.0 / 120;
  q = q * r + 1.0 / 24;
  q = q * r + 1.0 / 6;
  q = q * r + 0.5;
  q = q * r + 1.0;
  q = q * r + 1.0;
  uint64_t scale;
  memcpy(&scale, &shifted_t, sizeof scale);
  scale = (scale + 1023u) << 52;
  double factor;
  memcpy(&factor, &scale, sizeof factor);
  const double value = q * factor;
  // selections by bits: with branches the loop would not become SIMD
  const float whole = truncf(y), half = y * 0.5f, size = fabsf(x);
  const uint32_t is_whole = whole == y, is_odd = is_whole & (truncf(half) != half);  // from 2^24 on all are even
  const uint32_t sign = float_to_bits(x) & is_odd << 31;
  float result = float_from_bits(float_to_bits((float)value) | sign);
  result = select_f32((x < 0) & (is_whole ^ 1), NAN, result);
  const uint32_t grows = (size > 1) ^ (y < 0);  // |x|^y at an end of the range: infinity or 0
  const float end = float_from_bits((0u - grows) & 0x7F800000u);
  result = select_f32((x == 0) | (size == INFINITY), float_from_bits(float_to_bits(end) | sign), result);
  result = select_f32(fabsf(y) == INFINITY, select_f32(size == 1, 1.0f, end), result);
  result = select_f32((x != x) | (y != y), x + y, result);
  return select_f32((y == 0) | (x == 1), 1.0f, result);
}

#endif
