/// Sorting along one dimension, the largest or smallest elements, and the gradient of both.
///
/// values = input in ascending (descending) order along `dim`, indices = where they were. NaN counts as the largest
/// number. Always stable: equal elements keep their order, so `stable` changes nothing; of equal elements topk takes
/// the first. Topk's results are sorted also where that is not asked for. The gradient puts grad_output back to the
/// places in `indices`, zero elsewhere. Real dtypes and bool; indices are int64. Outputs are not the input.
#include "engine/sort.h"

#include <string.h>

#include "sort.h"

/// Is `view` shaped like `in` with `keep` along `dim`?
static bool has_shape(const struct dit_tensor_view *view, const struct dit_tensor_view *in, int dim, int64_t keep) {
  bool same = view->ndim == in->ndim;
  for (int d = 0; same && d < in->ndim; d++) {
    same = view->sizes[d] == (d == dim ? keep : in->sizes[d]);
  }
  return same;
}

static diopiError_t check_result(struct frame *frame, const char *name, const struct dit_tensor_view *out, int dtype,
                                 const struct dit_tensor_view *in, int dim, int64_t keep) {
  if (out->dtype != dtype) {
    return frame_fail_dtype(frame, name, out->dtype);
  }
  FRAME_CHECK(frame, has_shape(out, in, dim, keep),
              "'%s' must have the shape of 'input' with size %lld in dimension %d", name, (long long)keep, dim);
  return frame_check_output(frame, name, out, (const struct dit_tensor_view *[]){in}, 1, false);
}

static diopiError_t launch(struct frame *frame, diopiTensorHandle_t values, const char *index_name,
                           diopiTensorHandle_t indices, diopiConstTensorHandle_t input, int64_t dim, int64_t keep,
                           bool all, bool descending) {
  struct dit_tensor_view v = {0}, i, x;
  struct shaped moved[3];
  int d;
  if (values || strcmp(index_name, "indices") == 0) {
    FRAME_TAKE(frame, values, &v);
  }
  FRAME_TRY(frame_take(frame, index_name, indices, &i));
  FRAME_TAKE(frame, input, &x);
  if (!sort_is_supported(x.dtype)) {
    return frame_fail_dtype(frame, "input", x.dtype);
  }
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, x.ndim, &d));
  const int64_t length = x.ndim > 0 ? x.sizes[d] : 1;
  keep = all ? length : keep;
  FRAME_CHECK(frame, keep >= 0 && keep <= length, "'k' is %lld; valid: 0 to %lld", (long long)keep, (long long)length);
  if (v.handle) {
    FRAME_TRY(check_result(frame, "values", &v, x.dtype, &x, d, keep));
    FRAME_TRY(frame_check_output(frame, "values", &v, (const struct dit_tensor_view *[]){&i}, 1, false));
  }
  FRAME_TRY(check_result(frame, index_name, &i, DIT_DTYPE_I64, &x, d, keep));
  if (i.numel == 0) {
    return diopiSuccess;
  }
  const uint32_t mask = x.ndim > 0 ? 1u << d : 0;
  shaped_move_last(&moved[0], &x, mask);
  shaped_move_last(&moved[1], &i, mask);
  if (v.handle) {
    shaped_move_last(&moved[2], &v, mask);
  }
  struct sort_task task = {.frame = frame,
                           .v_values = v.handle ? moved[2].view : v,
                           .v_indices = moved[1].view,
                           .v_in = moved[0].view,
                           .rows = x.numel / length,
                           .length = length,
                           .keep = keep,
                           .descending = descending,
                           .dtype = x.dtype,
                           .width = (int)dit_dtype_get_size(x.dtype)};
  return sort_run(&task);
}

diopiError_t diopiSort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *pStable) {
  struct frame frame;
  (void)pStable;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, values, "indices", indices, input, dim, 0, true, descending);
}

diopiError_t diopiTopk(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t k, int64_t dim, bool largest, bool sorted) {
  struct frame frame;
  (void)sorted;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, values, "indices", indices, input, dim, k, false, largest);
}

/// `dim` NULL: the last one.
diopiError_t diopiArgsort(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          bool stable, const int64_t *dim, bool descending) {
  struct frame frame;
  (void)stable;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, NULL, "out", out, input, dim ? *dim : -1, 0, true, descending);
}

// Gradient

/// grad_output and indices as they are with `dim` kept; without keepdim they come without it and get it back here.
static void restore_dim(struct shaped *shaped, const struct dit_tensor_view *view, int dim, bool insert) {
  shaped_init(shaped, view, false);
  if (insert) {
    for (int d = shaped->view.ndim; d > dim; d--) {
      shaped->sizes[d] = shaped->sizes[d - 1];
      shaped->strides[d] = shaped->strides[d - 1];
    }
    shaped->sizes[dim] = 1;
    shaped->strides[dim] = 1;
    shaped->view.ndim++;
  }
}

diopiError_t diopiSortBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                               diopiConstTensorHandle_t grad_output, int64_t dim, diopiConstTensorHandle_t indices,
                               diopiSize_t sizes, bool keepdim) {
  struct back_task task;
  struct frame *frame = &task.frame;
  struct dit_tensor_view gi, go, index;
  struct shaped grad, place, moved[3];
  int d;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, grad_input, &gi);
  FRAME_TAKE(frame, grad_output, &go);
  FRAME_TAKE(frame, indices, &index);
  if (go.dtype != gi.dtype) {
    return frame_fail_dtype(frame, "grad_output", go.dtype);
  }
  if (index.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(frame, "indices", index.dtype);
  }
  FRAME_CHECK(frame,
              sizes.len == gi.ndim && (gi.ndim == 0 || (sizes.data && memcmp(sizes.data, gi.sizes,
                                                                             sizeof(int64_t) * (size_t)gi.ndim) == 0)),
              "'grad_input' does not have the shape 'sizes'");
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, gi.ndim, &d));
  FRAME_CHECK(frame, frame_is_same_shape(&go, &index), "'grad_output' and 'indices' have different shapes");
  const bool insert = !keepdim && go.ndim + 1 == gi.ndim;
  restore_dim(&grad, &go, d, insert);
  restore_dim(&place, &index, d, insert);
  task.keep = gi.ndim > 0 && grad.view.ndim > d ? grad.sizes[d] : 1;
  FRAME_CHECK(frame, has_shape(&grad.view, &gi, d, task.keep),
              "'grad_output' must have the shape 'sizes' except in dimension %d", d);
  FRAME_TRY(frame_check_output(frame, "grad_input", &gi, (const struct dit_tensor_view *[]){&go, &index}, 2, false));
  if (gi.numel == 0) {
    return diopiSuccess;
  }
  const uint32_t mask = gi.ndim > 0 ? 1u << d : 0;
  shaped_move_last(&moved[0], &gi, mask);
  shaped_move_last(&moved[1], &grad.view, mask);
  shaped_move_last(&moved[2], &place.view, mask);
  task.v_out = &moved[0].view;
  task.v_grad = &moved[1].view;
  task.v_indices = &moved[2].view;
  task.length = gi.ndim > 0 ? gi.sizes[d] : 1;
  task.rows = gi.numel / task.length;
  return sort_run_back(&task);
}
