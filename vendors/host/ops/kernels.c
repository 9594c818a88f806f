/// The vendor's kernel table and the choice of instruction set.
#include "kernels.h"

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

static const struct dit_kernel_vtable kernels = {
    .abi_version = DIT_KERNEL_ABI_VERSION,
    .struct_size = sizeof(struct dit_kernel_vtable),
    .binary = kernel_binary,
    .unary = kernel_unary,
    .gemm = kernel_gemm,
    .softmax = kernel_softmax,
    .reduce = kernel_reduce,
    .copy = kernel_copy,
    .fill = kernel_fill,
    .dropout = kernel_dropout,
    .lstm_cell = kernel_lstm_cell,
    .lstm_cell_backward = kernel_lstm_cell_backward,
    .gru_cell = kernel_gru_cell,
    .gru_cell_backward = kernel_gru_cell_backward,
    .histogram = kernel_histogram,
};

DIT_API const struct dit_kernel_vtable *dit_vendor_get_kernels(void);

const struct dit_kernel_vtable *dit_vendor_get_kernels(void) {
  return &kernels;
}
