/// The kernels of the embedded accelerator that its operator library has no functions for, as one table.
#include "engine/kernels.h"
#include "lend.h"

static const struct dit_kernel_vtable kernels = {
    .abi_version = DIT_KERNEL_ABI_VERSION,
    .struct_size = sizeof(struct dit_kernel_vtable),
    .copy = kernel_copy,
    .lstm_cell = kernel_lstm_cell,
    .lstm_cell_backward = kernel_lstm_cell_backward,
    .gru_cell = kernel_gru_cell,
    .gru_cell_backward = kernel_gru_cell_backward,
    .histogram = kernel_histogram,
    .fold = kernel_fold,
    .bitwise_xor = kernel_bitwise_xor,
};

const struct dit_kernel_vtable *dit_host_get_kernels(void) {
  return &kernels;
}

DIT_API const struct dit_kernel_vtable *dit_vendor_get_kernels(void);

const struct dit_kernel_vtable *dit_vendor_get_kernels(void) {
  return &kernels;
}
