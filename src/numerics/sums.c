/// Sums in fixed lanes (see kernels.h and lanes.h) that are rounded at every step: no contraction here.
#include <string.h>

#include "numerics/kernels.h"
#include "numerics/simd.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define LANES_KERNELS                                                                                       \
  KERNEL void SIMD_NAME(single_sum)(const void *values, int64_t count, bool wide, double shift,             \
                                    struct single_sums *out) {                                              \
    if (wide) {                                                                                             \
      SIMD_NAME(sum_one)(values, count, LANE_DOUBLE, true, shift, out);                                     \
    } else {                                                                                                \
      SIMD_NAME(sum_one)(values, count, LANE_FLOAT, true, shift, out);                                      \
    }                                                                                                       \
  }                                                                                                         \
  KERNEL void SIMD_NAME(pair_sum)(const double *a, const double *b, int64_t count, struct pair_sums *out) { \
    SIMD_NAME(sum_two)(a, b, count, LANE_DOUBLE, out);                                                      \
  }
#define SIMD_BYTES 16
#include "numerics/lanes.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "numerics/lanes.h"
#define SIMD_BYTES 64
#include "numerics/lanes.h"
#endif

SIMD_MULTI_WIDTHS(numeric_level, extern, single_sum,
                  (const void *values, int64_t count, bool wide, double shift, struct single_sums *out),
                  (values, count, wide, shift, out))
SIMD_MULTI_WIDTHS(numeric_level, extern, pair_sum,
                  (const double *a, const double *b, int64_t count, struct pair_sums *out), (a, b, count, out))
