/// Lists of kernel sizes, strides, paddings and dilations of convolution, pooling and unfold: read and checked.
#ifndef DIT_HOST_OPS_WINDOW_H
#define DIT_HOST_OPS_WINDOW_H

#include "frame.h"

/// The last `ndim` entries of `values` (three; those before are `other`) from a list with one entry for all dimensions
/// or one for each. An absent list takes `fallback` (three values) where that is not NULL. Entries below `least` or
/// above 2^31 - 1 are an error.
diopiError_t window_read(struct frame *frame, const char *name, diopiSize_t list, int ndim, int64_t least,
                         int64_t other, const int64_t *fallback, int64_t values[3]);
/// The sizes of a tensor (N, C, spatial...) or (C, spatial...): batch (1 without), channels and three spatial sizes.
diopiError_t window_split(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                          int64_t *batch, int64_t *channels, int64_t spatial[3]);
/// Is `view` (batch, channels, spatial...) with the batch dimension `has_batch`? Else an argument error.
diopiError_t window_check(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                          bool has_batch, int64_t batch, int64_t channels, const int64_t spatial[3]);

#endif
