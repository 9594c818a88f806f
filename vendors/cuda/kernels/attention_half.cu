/// The forward pass of attention for float16 and bfloat16.
#include "attention_matrix.cuh"

#define MATRIX(tag, E, WIDTH)                                                         \
  KERNEL_BLOCK(ATTENTION_MATRIX_THREADS, attention_forward_##tag, attention_kernel) { \
    run_forward<matrix_tiles<E, 64, WIDTH, WIDTH>>(p);                                \
  }
MATRIX(f16_64, half_bits, 64)
MATRIX(f16_128, half_bits, 128)
MATRIX(f16_256, half_bits, 256)
MATRIX(bf16_64, bfloat_bits, 64)
MATRIX(bf16_128, bfloat_bits, 128)
MATRIX(bf16_256, bfloat_bits, 256)
