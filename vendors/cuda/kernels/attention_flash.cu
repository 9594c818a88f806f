/// The forward pass of attention for float16 and bfloat16 in its common form, heads of up to 128 elements.
///
/// Blocks that a multiprocessor has at a time, by registers: three for heads of 64 (168 each), two for 128 (255 each).
#include "attention_flash.cuh"

#define FLASH(tag, E, WIDTH, RESIDENT)                                            \
  KERNEL_BLOCK(FLASH_BOUNDS(RESIDENT), attention_flash_##tag, attention_kernel) { \
    run_flash<flash_tiles<E, ATTENTION_FLASH_COLUMNS, WIDTH>>(p);                 \
  }
#define FLASH_BOUNDS(resident) ATTENTION_MATRIX_THREADS, resident
FLASH(f16_64, half_bits, 64, 3)
FLASH(f16_128, half_bits, 128, 2)
FLASH(bf16_64, bfloat_bits, 64, 3)
FLASH(bf16_128, bfloat_bits, 128, 2)
