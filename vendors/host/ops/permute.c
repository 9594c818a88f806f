/// Other orders and repetitions of the same elements: transpose, permute, expand, repeat.
///
/// The standard gives these a tensor to write, so each is a copy from a view of input. transpose swaps dim0 and dim1;
/// permute takes dims as PyTorch does; expand broadcasts input to the shape of out; repeat tiles input, with
/// dimensions in front where repeats has more than input. Every dtype; out shares no memory with input.
#include "layout.h"

static diopiError_t finish(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *input,
                           const struct layout *view) {
  FRAME_TRY(layout_check_sizes(frame, "out", out, view->view.ndim, view->view.sizes));
  FRAME_TRY(layout_check_dtype(frame, "out", out, "input", input));
  FRAME_TRY(frame_check_output(frame, "out", out, &input, 1, false));
  return layout_copy(frame, out, &view->view);
}

diopiError_t diopiTranspose(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            int64_t dim0, int64_t dim1) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout view;
  int a, b;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(frame_wrap_dim(&frame, "dim0", dim0, x.ndim, &a));
  FRAME_TRY(frame_wrap_dim(&frame, "dim1", dim1, x.ndim, &b));
  layout_init(&view, &x);
  if (x.ndim > 0) {
    view.sizes[a] = x.sizes[b];
    view.sizes[b] = x.sizes[a];
    view.strides[a] = x.strides[b];
    view.strides[b] = x.strides[a];
  }
  layout_finish(&view);
  return finish(&frame, &o, &x, &view);
}

diopiError_t diopiPermute(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiSize_t dims) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout view;
  uint32_t mask;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, dims.len == x.ndim && (dims.data || dims.len == 0),
              "'dims' has %lld entries; it must have %d, as many as 'input' has dimensions", (long long)dims.len,
              x.ndim);
  FRAME_TRY(frame_get_mask(&frame, "dims", dims, x.ndim, false, &mask));
  layout_init(&view, &x);
  for (int i = 0; i < x.ndim; i++) {
    const int dim = (int)(dims.data[i] < 0 ? dims.data[i] + x.ndim : dims.data[i]);
    view.sizes[i] = x.sizes[dim];
    view.strides[i] = x.strides[dim];
  }
  layout_finish(&view);
  return finish(&frame, &o, &x, &view);
}

diopiError_t diopiExpand(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  struct frame frame;
  struct dit_tensor_view o, x, wide;
  int64_t strides[DIT_MAX_DIMS];
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, frame_expand(&x, o.ndim, o.sizes, strides, &wide),
              "'input' has shape %s, which does not broadcast to that of 'out', %s", layout_print(x.ndim, x.sizes),
              layout_print(o.ndim, o.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, false));
  return layout_copy(&frame, &o, &wide);
}

/// out as [repeat, size] per dimension and input likewise, standing still along the repeats. Dimensions of size 1 are
/// left out; false when more than DIT_MAX_DIMS remain.
static bool split_repeats(const struct dit_tensor_view *out, const struct dit_tensor_view *in, struct layout *to,
                          struct layout *from) {
  const int lead = out->ndim - in->ndim;
  int n = 0;
  layout_init(to, out);
  layout_init(from, in);
  for (int dim = 0; dim < out->ndim; dim++) {
    const int64_t size = dim < lead ? 1 : in->sizes[dim - lead], stride = dim < lead ? 0 : in->strides[dim - lead];
    const int64_t count = size > 0 ? out->sizes[dim] / size : 0;
    const int64_t parts[2][3] = {{count, out->strides[dim] * size, 0}, {size, out->strides[dim], stride}};
    for (int i = 0; i < 2; i++) {
      if (parts[i][0] == 1) {
        continue;
      }
      if (n == DIT_MAX_DIMS) {
        return false;
      }
      to->sizes[n] = from->sizes[n] = parts[i][0];
      to->strides[n] = parts[i][1];
      from->strides[n++] = parts[i][2];
    }
  }
  to->view.ndim = from->view.ndim = n;
  layout_finish(to);
  layout_finish(from);
  return true;
}

diopiError_t diopiRepeat(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         diopiSize_t repeats_size) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout to, from;
  int64_t sizes[DIT_MAX_DIMS];
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(
      &frame,
      repeats_size.len >= x.ndim && repeats_size.len <= DIT_MAX_DIMS && (repeats_size.data || repeats_size.len == 0),
      "'repeats_size' has %lld entries; valid: %d (the dimensions of 'input') to %d", (long long)repeats_size.len,
      x.ndim, DIT_MAX_DIMS);
  const int ndim = (int)repeats_size.len, lead = ndim - x.ndim;
  for (int dim = 0; dim < ndim; dim++) {
    FRAME_CHECK(&frame, repeats_size.data[dim] >= 0, "'repeats_size[%d]' is %lld; valid: 0 and more", dim,
                (long long)repeats_size.data[dim]);
    FRAME_CHECK(&frame,
                !__builtin_mul_overflow(dim < lead ? 1 : x.sizes[dim - lead], repeats_size.data[dim], &sizes[dim]),
                "'repeats_size[%d]' is %lld, too large", dim, (long long)repeats_size.data[dim]);
  }
  FRAME_TRY(layout_check_sizes(&frame, "out", &o, ndim, sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, false));
  if (o.numel == 0) {
    return diopiSuccess;
  }
  if (!split_repeats(&o, &x, &to, &from)) {
    return frame_fail(&frame, diopiForceFallbackToCPU, "repeats of this shape need more than %d dimensions",
                      DIT_MAX_DIMS);
  }
  return layout_copy(&frame, &to.view, &from.view);
}
