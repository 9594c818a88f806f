/// One index or a slice of one dimension: select and slice, their gradients, and writing into such a part.
///
/// select: out = input without dimension dim, at index (-size to size - 1). slice: out = input[start:end:step] along
/// dim, with Python's rules for negative and too large ends; step is at least 1. Backward: zeros, with grad_output at
/// that part. select_scatter, slice_scatter: input with src at that part; out may be input itself. Copies of parts;
/// every dtype; out shares no memory with the inputs otherwise.
#include "fail.h"
#include "layout.h"

/// The part of one dimension; count -1: select.
struct part {
  int dim;
  int64_t start, count, step;
};

static void take_part(struct layout *layout, const struct dit_tensor_view *view, const struct part *part) {
  layout_init(layout, view);
  if (part->count < 0) {
    layout_select(layout, part->dim, part->start);
  } else {
    layout_narrow(layout, part->dim, part->start, part->count, part->step);
  }
}

static diopiError_t find_select(struct frame *frame, const struct dit_tensor_view *whole, int64_t dim, int64_t index,
                                struct part *part) {
  FRAME_CHECK(frame, whole->ndim > 0, "the tensor has 0 dimensions; it must have at least 1");
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, whole->ndim, &part->dim));
  const int64_t size = whole->sizes[part->dim];
  FRAME_CHECK_RANGE(frame, index >= -size && index < size,
                    "'index' is %lld; valid for a dimension of size %lld: %lld to %lld", (long long)index,
                    (long long)size, (long long)-size, (long long)size - 1);
  part->start = index < 0 ? index + size : index;
  part->count = -1;
  part->step = 1;
  return diopiSuccess;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

static diopiError_t find_slice(struct frame *frame, const struct dit_tensor_view *whole, int64_t dim, int64_t start,
                               int64_t end, int64_t step, struct part *part) {
  FRAME_CHECK(frame, whole->ndim > 0, "the tensor has 0 dimensions; it must have at least 1");
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, whole->ndim, &part->dim));
  FRAME_CHECK(frame, step > 0, "'step' is %lld; valid: 1 and more", (long long)step);
  const int64_t size = whole->sizes[part->dim];
  part->start = clamp(start < 0 ? start + size : start, 0, size);
  const int64_t stop = clamp(end < 0 ? end + size : end, part->start, size);
  part->count = stop > part->start ? (stop - part->start - 1) / step + 1 : 0;
  part->step = step;
  return diopiSuccess;
}

/// out = the part of input.
static diopiError_t read_part(struct frame *frame, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *input, const struct part *part) {
  struct layout from;
  take_part(&from, input, part);
  FRAME_TRY(layout_check_sizes(frame, "out", out, from.view.ndim, from.view.sizes));
  FRAME_TRY(layout_check_dtype(frame, "out", out, "input", input));
  FRAME_TRY(frame_check_output(frame, "out", out, &input, 1, false));
  return layout_copy(frame, out, &from.view);
}

/// out = input (zeros where it has no handle) with src at the part.
static diopiError_t write_part(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                               const struct dit_tensor_view *input, const char *src_name,
                               const struct dit_tensor_view *src, const struct part *part) {
  struct layout to;
  take_part(&to, out, part);
  FRAME_TRY(layout_check_sizes(frame, src_name, src, to.view.ndim, to.view.sizes));
  FRAME_TRY(layout_check_dtype(frame, src_name, src, name, out));
  FRAME_TRY(frame_check_output(frame, name, out, &src, 1, false));
  if (!input->handle) {
    FRAME_TRY(layout_zero(frame, out));
  } else {
    FRAME_TRY(layout_check_sizes(frame, name, out, input->ndim, input->sizes));
    FRAME_TRY(layout_check_dtype(frame, name, out, "input", input));
    FRAME_TRY(frame_check_output(frame, name, out, &input, 1, true));
    if (!layout_is_same(input, out)) {
      FRAME_TRY(layout_copy(frame, out, input));
    }
  }
  return layout_copy(frame, &to.view, src);
}

diopiError_t diopiSelect(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input, int64_t dim,
                         int64_t index) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(find_select(&frame, &x, dim, index, &part));
  return read_part(&frame, &o, &x, &part);
}

diopiError_t diopiSlice(diopiContextHandle_t ctx, diopiTensorHandle_t null_out, diopiConstTensorHandle_t input,
                        int64_t dim, int64_t start, int64_t end, int64_t step) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, null_out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(find_slice(&frame, &x, dim, start, end, step, &part));
  return read_part(&frame, &o, &x, &part);
}

diopiError_t diopiSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                 int64_t index) {
  struct frame frame;
  struct dit_tensor_view o, g;
  const struct dit_tensor_view none = {.handle = NULL};
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &o);
  FRAME_TAKE(&frame, grad_output, &g);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &o, (int)input_sizes.len, input_sizes.data));
  FRAME_TRY(find_select(&frame, &o, dim, index, &part));
  return write_part(&frame, "grad_input", &o, &none, "grad_output", &g, &part);
}

diopiError_t diopiSliceBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                int64_t start, int64_t end, int64_t step) {
  struct frame frame;
  struct dit_tensor_view o, g;
  const struct dit_tensor_view none = {.handle = NULL};
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &o);
  FRAME_TAKE(&frame, grad_output, &g);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &o, (int)input_sizes.len, input_sizes.data));
  FRAME_TRY(find_slice(&frame, &o, dim, start, end, step, &part));
  return write_part(&frame, "grad_input", &o, &none, "grad_output", &g, &part);
}

diopiError_t diopiSelectScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t src, int64_t dim, int64_t index) {
  struct frame frame;
  struct dit_tensor_view o, x, s;
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, src, &s);
  FRAME_TRY(find_select(&frame, &o, dim, index, &part));
  return write_part(&frame, "out", &o, &x, "src", &s, &part);
}

diopiError_t diopiSliceScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t src, int64_t dim, int64_t start, int64_t end, int64_t step) {
  struct frame frame;
  struct dit_tensor_view o, x, s;
  struct part part;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, src, &s);
  FRAME_TRY(find_slice(&frame, &o, dim, start, end, step, &part));
  return write_part(&frame, "out", &o, &x, "src", &s, &part);
}
