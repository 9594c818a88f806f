/// The functions that the shared expressions name (vendors/host/engine/mathf.h and mathd.h), in CUDA's own versions.
#ifndef DIT_CUDA_MATH_CUH
#define DIT_CUDA_MATH_CUH

#include "kernel.cuh"

#define MATH_PAIRS(X)                                                                                        \
  X(exp, expf)                                                                                               \
  X(tanh, tanhf) X(erf, erff) X(log, logf) X(log2, log2f) X(log10, log10f) X(log1p, log1pf) X(expm1, expm1f) \
      X(sin, sinf) X(cos, cosf) X(tan, tanf) X(asin, asinf) X(acos, acosf) X(atan, atanf) X(sinh, sinhf)     \
          X(cosh, coshf) X(asinh, asinhf) X(acosh, acoshf) X(atanh, atanhf)
#define MATH_PAIR(name, single)               \
  KERNEL_INLINE float name##_f32(float x) {   \
    return single(x);                         \
  }                                           \
  KERNEL_INLINE double name##_f64(double x) { \
    return name(x);                           \
  }
MATH_PAIRS(MATH_PAIR)

KERNEL_INLINE float pow_f32(float x, float y) {
  return powf(x, y);
}
KERNEL_INLINE float sigmoid_f32(float x) {
  return 1.0f / (1.0f + expf(-x));
}
KERNEL_INLINE double sigmoid_f64(double x) {
  return 1.0 / (1.0 + exp(-x));
}
KERNEL_INLINE float cdf_f32(float x) {
  return 0.5f * erfcf(-0.70710678118654752440f * x);
}
/// Functions for results that are rounded to a half type: a few instructions, with errors below a tenth of its last
/// digit. An expression that is compiled inside this class finds them by the same names.
struct half_math {
  static __device__ float exp_f32(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896340736f));
    return y;
#else
    return exp2f(x * 1.44269504088896340736f);
#endif
  }
  static __device__ float invert(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
  }
  static __device__ float sigmoid_f32(float x) { return invert(1.0f + exp_f32(-x)); }
  /// The part of the normal distribution below x: of the tail beyond |x|, its density times a polynomial in
  /// 1 / (1 + 0.36 |x|); relative error 9e-7 at any x, for the sake of GELU's slope, which is a difference around -0.75.
  static __device__ float cdf_f32(float x) {
    const float t = invert(1.0f + 0.36f * fabsf(x)), e = exp_f32(-0.5f * x * x);
    const float high = (((0.04705634f * t - 0.17976544f) * t + 0.18095591f) * t + 0.02654737f) * t + 0.13972023f;
    const float tail = e * t * ((high * t + 0.14177223f) * t + 0.14371306f);
    return x < 0 ? tail : 1.0f - tail;
  }
};

/// PyTorch's way: a rational start and two steps of Newton. Near 1 the steps go by erfc and 1 - |x|, which is exact: what
/// erf rounds off there is much of the result.
KERNEL_INLINE float erfinv_f32(float x) {
  const float a = fabsf(x), z = x * x, scale = 1.12837916709551257390f;
  if (!(a < 1)) {
    return a == 1 ? copysignf(INFINITY, x) : NAN;
  }
  if (a <= 0.7f) {
    float y = x * (((-0.140543331f * z + 0.914624893f) * z - 1.645349621f) * z + 0.886226899f) /
              ((((0.012229801f * z - 0.329097515f) * z + 1.442710462f) * z - 2.118377725f) * z + 1.0f);
    y -= (erff(y) - x) / (scale * expf(-y * y));
    return y - (erff(y) - x) / (scale * expf(-y * y));
  }
  const float tail = 1.0f - a, w = sqrtf(-logf(tail * 0.5f));
  float y = (((1.641345311f * w + 3.429567803f) * w - 1.624906493f) * w - 1.970840454f) /
            ((1.637067800f * w + 3.543889200f) * w + 1.0f);
  y += (erfcf(y) - tail) / (scale * expf(-y * y));
  y += (erfcf(y) - tail) / (scale * expf(-y * y));
  return copysignf(y, x);
}

#endif
