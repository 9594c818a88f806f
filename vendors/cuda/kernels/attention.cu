/// Attention for float32 and float64, and the sums of grad * out that every gradient needs.
#include "attention_scalar.cuh"

#define SCALAR(tag, E, ROWS, COLUMNS, WIDTH)                                               \
  KERNEL_BLOCK(ATTENTION_SCALAR_THREADS, attention_forward_##tag, attention_kernel) {      \
    run_forward<scalar_tiles<E, ROWS, COLUMNS, WIDTH>>(p);                                 \
  }                                                                                        \
  KERNEL_BLOCK(ATTENTION_SCALAR_THREADS, attention_gradient_q_##tag, attention_kernel) {   \
    run_gradient_q<scalar_tiles<E, ROWS, COLUMNS, WIDTH>>(p);                              \
  }                                                                                        \
  KERNEL_BLOCK(ATTENTION_SCALAR_THREADS, attention_gradient_kv_##tag, attention_kernel) {  \
    run_gradient_kv<scalar_tiles<E, ROWS, COLUMNS, WIDTH>>(p);                             \
  }
SCALAR(f32_64, float, 64, 32, 64)
SCALAR(f32_128, float, 64, 32, 128)
SCALAR(f32_256, float, 32, 32, 256)
SCALAR(f64_64, double, 32, 32, 64)
SCALAR(f64_256, double, 16, 16, 256)

#define DELTA(tag, E, A)                                                          \
  KERNEL_BLOCK(ATTENTION_DELTA_THREADS, attention_delta_##tag, attention_kernel) { \
    run_delta<E, A>(p);                                                           \
  }
DELTA(f32, float, float)
DELTA(f64, double, double)
DELTA(f16, half_bits, float)
DELTA(bf16, bfloat_bits, float)
