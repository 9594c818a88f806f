/// The matrix instruction of tensor cores for half types with float sums: mma.m16n8k16.
///
/// Lane l of a warp holds of a (16 x 16) rows l / 4 and l / 4 + 8, of b (16 x 8) column l / 4, each at depths
/// l % 4 * 2 + {0, 1, 8, 9}; of d (16 x 8) rows l / 4 and l / 4 + 8 at columns l % 4 * 2 + {0, 1}.
#ifndef DIT_CUDA_MATRIX_CUH
#define DIT_CUDA_MATRIX_CUH

#include "kernel.cuh"
#ifndef __CUDACC__
#include "emulator_matrix.h"
#endif

KERNEL_INLINE void multiply_matrices(half_bits, float *d, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulator_multiply_matrices(d, a, b, half_to_float);
#endif
}
KERNEL_INLINE void multiply_matrices(bfloat_bits, float *d, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulator_multiply_matrices(d, a, b, bfloat_to_float);
#endif
}

#endif
