/// Parameters of the rotary embedding and the masked softmax. Plain C.
#ifndef DIT_CUDA_KERNELS_ROTARY_H
#define DIT_CUDA_KERNELS_ROTARY_H

#include "pointwise.h"

#define ROTARY_KERNEL_THREADS 256

/// Operands: out, x, cos, sin. `lines` walks the first element of each line, `steps` are bytes along it.
struct rotary_kernel {
  struct pointwise_strided lines;
  int64_t steps[4];
  int32_t width, is_conj, is_interleaved, is_full;
  int32_t cosine_dtype, sine_dtype;
};

/// Contiguous rows of `length`; the mask is bool, with strides for the dimensions of the rows, innermost first.
struct masked_softmax_kernel {
  char *out;
  const char *x, *y;
  const uint8_t *mask;
  int64_t rows, length, mask_step, triangle;  ///< triangle: rows of one triangle, 0 without
  int64_t sizes[POINTWISE_KERNEL_DIMS], mask_strides[POINTWISE_KERNEL_DIMS];
  double scale, masked;
  int32_t ndim, is_backward;
};

#endif
