/// The gradients of attention for float16 and bfloat16. Heads wider than 128 have their columns in two parts, in blocks
/// of their own: the sums of keys and values together would not fit into the registers.
#include "attention_matrix.cuh"

#define MATRIX(tag, E, WIDTH, OUT)                                                         \
  KERNEL_BLOCK(ATTENTION_MATRIX_THREADS, attention_gradient_q_##tag, attention_kernel) {   \
    run_gradient_q<matrix_tiles<E, 32, WIDTH, WIDTH>>(p);                                  \
  }                                                                                        \
  KERNEL_BLOCK(ATTENTION_MATRIX_THREADS, attention_gradient_kv_##tag, attention_kernel) {  \
    run_gradient_kv<matrix_tiles<E, 32, WIDTH, OUT>>(p);                                   \
  }
MATRIX(f16_64, half_bits, 64, 64)
MATRIX(f16_128, half_bits, 128, 128)
MATRIX(f16_256, half_bits, 256, 128)
MATRIX(bf16_64, bfloat_bits, 64, 64)
MATRIX(bf16_128, bfloat_bits, 128, 128)
MATRIX(bf16_256, bfloat_bits, 256, 128)
