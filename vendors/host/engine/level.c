/// The choice of instruction set.
#include "simd.h"

/// Builds with -DKERNEL_LEVEL_MAX=3 or 0 test the code of smaller processors on a larger one.
#ifndef KERNEL_LEVEL_MAX
#define KERNEL_LEVEL_MAX 4
#endif

int kernel_level;

/// Runs when the library is loaded, before any kernel can be called.
__attribute__((constructor)) static void select_level(void) {
  kernel_level = simd_get_level(KERNEL_LEVEL_MAX);
}
