/// Sums over floats whose only products are of two floats, which double holds exactly: contraction to fused
/// multiply-add, which src/CMakeLists.txt turns on for this file, changes no bit and saves an instruction.
#include <string.h>

#include "numerics/kernels.h"
#include "numerics/simd.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#define LANES_KERNELS                                                                                           \
  KERNEL void SIMD_NAME(float_sum)(const void *values, enum lane_source source, int64_t count,                  \
                                   struct single_sums *out) {                                                   \
    if (source == LANE_BRAIN) {                                                                                 \
      SIMD_NAME(sum_one)(values, count, LANE_BRAIN, false, 0, out);                                             \
    } else if (source == LANE_HALF) {                                                                           \
      SIMD_NAME(sum_one)(values, count, LANE_HALF, false, 0, out);                                              \
    } else {                                                                                                    \
      SIMD_NAME(sum_one)(values, count, LANE_FLOAT, false, 0, out);                                             \
    }                                                                                                           \
  }                                                                                                             \
  KERNEL void SIMD_NAME(float_pair_sum)(const float *a, const float *b, int64_t count, struct pair_sums *out) { \
    SIMD_NAME(sum_two)(a, b, count, LANE_FLOAT, out);                                                           \
  }                                                                                                             \
  KERNEL void SIMD_NAME(float_split)(const float *a, const float *b, int64_t count, struct pair_split *out) {   \
    SIMD_NAME(split)(a, b, count, out);                                                                         \
  }
#define SIMD_BYTES 16
#include "numerics/lanes.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "numerics/lanes.h"
#define SIMD_BYTES 64
#include "numerics/lanes.h"
#endif

SIMD_MULTI_WIDTHS(numeric_level, extern, float_sum,
                  (const void *values, enum lane_source source, int64_t count, struct single_sums *out),
                  (values, source, count, out))
SIMD_MULTI_WIDTHS(numeric_level, extern, float_pair_sum,
                  (const float *a, const float *b, int64_t count, struct pair_sums *out), (a, b, count, out))
SIMD_MULTI_WIDTHS(numeric_level, extern, float_split,
                  (const float *a, const float *b, int64_t count, struct pair_split *out), (a, b, count, out))
