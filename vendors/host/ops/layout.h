/// Views that own their sizes and strides, and copies between parts of tensors: what operators on shapes share.
#ifndef DIT_HOST_OPS_LAYOUT_H
#define DIT_HOST_OPS_LAYOUT_H

#include "frame.h"

/// A part of a tensor, or the tensor seen in another shape. Strides may be 0 or negative on the reading side.
struct layout {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

void layout_init(struct layout *layout, const struct dit_tensor_view *view);
/// Sizes and strides were changed: count elements again, set flags, point the view at them.
void layout_finish(struct layout *layout);
/// `count` elements of dimension `dim`, from `start` on, every `step`-th (negative: backwards; 0: the same one).
void layout_narrow(struct layout *layout, int dim, int64_t start, int64_t count, int64_t step);
/// Without dimension `dim`, at `index`.
void layout_select(struct layout *layout, int dim, int64_t index);

/// A 0-d tensor counts as one of 1 dimension.
void layout_raise(struct dit_tensor_view *view);

/// Are these the same elements in the same order?
bool layout_is_same(const struct dit_tensor_view *a, const struct dit_tensor_view *b);
/// Copy (and convert) on the frame's stream; equal sizes.
diopiError_t layout_copy(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in);
diopiError_t layout_zero(struct frame *frame, const struct dit_tensor_view *out);

/// `view` has the dtype of `like`, whose name is `other`.
diopiError_t layout_check_dtype(struct frame *frame, const char *name, const struct dit_tensor_view *view,
                                const char *other, const struct dit_tensor_view *like);
/// `view` has these sizes.
diopiError_t layout_check_sizes(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                                const int64_t *sizes);
/// "[2, 3]" of sizes, in the calling thread's room; up to four texts at a time.
const char *layout_print(int ndim, const int64_t *sizes);

/// Is `value` one of 0 to size - 1 (with `wrap` also -size to -1) for every element of `index`? Reads the tensor: only
/// inside of frame_run. Also checks that it is int32 or int64.
diopiError_t layout_check_index(struct frame *frame, const char *name, const struct dit_tensor_view *index,
                                int64_t size, bool wrap);
/// A number as an element of `dtype`, PyTorch's way: a value that does not fit is an argument error.
diopiError_t layout_get_value(struct frame *frame, const char *name, struct dit_scalar scalar, int dtype, void *out);
/// The only element of a 0-d tensor (or one with one element) as a number. Reads it: waits for the stream.
diopiError_t layout_read_scalar(struct frame *frame, const char *name, const struct dit_tensor_view *view,
                                struct dit_scalar *out);
/// The first element's bytes, at most 16. Waits for the stream.
diopiError_t layout_read_element(struct frame *frame, const struct dit_tensor_view *view, void *out);

#endif
