/// Tensors made of pieces of others on CUDA (vendors/host/engine/pad.h): one kernel over the result.
#include "engine/pad.h"

#include <string.h>

#include "kernels/pad.h"
#include "kinds.h"
#include "launch.h"
#include "plan.h"

#define REFERENCE(width) KERNEL_REFERENCE(pad_##width, pad);
WIDTH_KINDS(REFERENCE)

/// Any strides will do.
bool pad_has_lines(const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  (void)in;
  return out->ndim >= 1 && out->ndim <= POINTWISE_KERNEL_DIMS;
}

enum dit_status pad_lines(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          const struct pieces *pieces, const void *element, struct dit_error *err) {
  const int64_t width = (int64_t)dit_dtype_get_size(out->dtype);
  struct pad_kernel kernel = {
      .out = out->data, .in = in->data, .numel = out->numel, .ndim = out->ndim, .is_wide = out->numel > INT32_MAX};
  if (out->numel == 0) {
    return DIT_OK;
  }
  memcpy(kernel.element, element, (size_t)width);
  for (int i = 0; i < out->ndim; i++) {
    const int dim = out->ndim - 1 - i;
    kernel.sizes[i] = out->sizes[dim];
    kernel.out_strides[i] = out->strides[dim] * width;
    kernel.in_strides[i] = in->strides[dim] * width;
    kernel.counts[i] = pieces->count[dim];
    if (!kernel.is_wide) {
      kernel.divisors[i] = plan_get_divisor(out->sizes[dim]);
    }
    for (int k = 0; k < pieces->count[dim]; k++) {
      const struct piece *piece = &pieces->piece[dim][k];
      kernel.pieces[i][k] = (struct pad_kernel_piece){piece->to, piece->from, piece->count, piece->step};
    }
  }
  struct kernel *chosen = width == 1   ? &pad_1
                          : width == 2 ? &pad_2
                          : width == 4 ? &pad_4
                          : width == 8 ? &pad_8
                                       : &pad_16;
  const struct kernel_grid grid = {.x = kernel_get_blocks(out->numel, PAD_KERNEL_THREADS),
                                   .threads = PAD_KERNEL_THREADS};
  return kernel_launch(chosen, stream, grid, &kernel, err);
}
