/// What generated C needs besides its operations (region_ops.h): products that are rounded, folds, the call. Text, too.
#ifndef DIT_HOST_ENGINE_REGION_FRAME_H
#define DIT_HOST_ENGINE_REGION_FRAME_H

#include "region_ops.h"

/// A product that the next operation must not be contracted with: eager mode rounds in between. `zero` is 0, which the
/// compiler does not know.
KERNEL_INLINE float keep_f32(float x, uint64_t zero) {
  return float_from_bits(float_to_bits(x) ^ (uint32_t)zero);
}
KERNEL_INLINE double keep_f64(double x, uint64_t zero) {
  return double_from_bits(double_to_bits(x) ^ zero);
}

KERNEL_INLINE double join_sum(double a, double x) {
  return a + x;
}
#define JOIN(tag, type)                               \
  KERNEL_INLINE type join_max_##tag(type a, type x) { \
    return ((x > a) | (x != x)) ? x : a;              \
  }                                                   \
  KERNEL_INLINE type join_min_##tag(type a, type x) { \
    return ((x < a) | (x != x)) ? x : a;              \
  }
JOIN(f32, float)
JOIN(f64, double)
JOIN(i64, int64_t)
JOIN(bool, int32_t)
#pragma omp declare reduction(max_f32:float : omp_out = join_max_f32(omp_out, omp_in)) initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(min_f32:float : omp_out = join_min_f32(omp_out, omp_in)) initializer(omp_priv = INFINITY)
#pragma omp declare reduction(max_f64:double : omp_out = join_max_f64(omp_out, omp_in)) \
    initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(min_f64:double : omp_out = join_min_f64(omp_out, omp_in)) initializer(omp_priv = INFINITY)

union number {
  double real;
  int64_t integer;
};

/// As in region_code.h.
struct region_call {
  void *const *data;
  const int64_t *sizes;
  const int64_t *strides;
  const union number *numbers;
  char *scratch;
  uint64_t zero;
};

#endif
