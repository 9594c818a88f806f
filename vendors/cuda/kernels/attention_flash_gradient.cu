/// The gradients of attention for float16 and bfloat16 in the common form, heads of up to 128 elements.
///
/// Eight warps that a multiprocessor has at a time, by registers: two blocks of four warps with 32 keys each for heads
/// of 64, one block of eight warps with 16 keys each for 128.
#include "attention_flash_gradient.cuh"

#define GRADIENT_BOUNDS(width) ATTENTION_GRADIENT_THREADS(width), (width) <= 64 ? 2 : 1
#define GRADIENT(tag, E, WIDTH, BANDS)                                                     \
  KERNEL_BLOCK(ATTENTION_DELTA_THREADS, attention_flash_prepare_##tag, attention_kernel) { \
    run_prepare<E, ATTENTION_GRADIENT_QUERIES(WIDTH), WIDTH>(p);                           \
  }                                                                                        \
  KERNEL_BLOCK(GRADIENT_BOUNDS(WIDTH), attention_flash_gradient_##tag, attention_kernel) { \
    run_flash_gradient<gradient_tiles<E, BANDS, WIDTH>>(p);                                \
  }                                                                                        \
  KERNEL_BLOCK(ATTENTION_DELTA_THREADS, attention_flash_finish_##tag, attention_kernel) {  \
    run_finish<E, ATTENTION_GRADIENT_QUERIES(WIDTH), WIDTH>(p);                            \
  }
GRADIENT(f16_64, half_bits, 64, 2)
GRADIENT(f16_128, half_bits, 128, 1)
GRADIENT(bf16_64, bfloat_bits, 64, 2)
GRADIENT(bf16_128, bfloat_bits, 128, 1)
