/// Row-major copies of tensors in a work type (see dense.h).
#include "dense.h"

#include "engine/kernels.h"
#include "engine/scratch.h"

/// The copy as a view of the tensor's shape; `strides` has room for its dimensions.
static void set_copy_view(const struct dense *dense, int64_t *strides, struct dit_tensor_view *out) {
  *out = dense->view;
  dit_shape_set_contiguous(out->ndim, out->sizes, strides);
  out->data = dense->data;
  out->strides = strides;
  out->dtype = (int16_t)dense->dtype;
  out->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
}

bool dense_reserve(struct dense *dense, const struct dit_tensor_view *view, int dtype) {
  *dense = (struct dense){.view = *view, .dtype = dtype};
  if (!view->handle || view->numel == 0) {
    return true;
  }
  if (view->dtype == dtype && view->flags & DIT_TENSOR_CONTIGUOUS) {
    dense->data = view->data;
    return true;
  }
  dense->data = scratch_take((size_t)view->numel * dit_dtype_get_size(dtype));
  dense->owned = dense->data != NULL;
  return dense->owned;
}

bool dense_read(struct dense *dense, const struct dit_tensor_view *view, int dtype) {
  if (!dense_reserve(dense, view, dtype)) {
    return false;
  }
  if (dense->owned) {
    int64_t strides[DIT_MAX_DIMS];
    struct dit_tensor_view copy;
    set_copy_view(dense, strides, &copy);
    enum dit_status status = kernel_copy(NULL, &copy, view, NULL);
    (void)status;  // conversions to a work type always exist
  }
  return true;
}

static int get_data_dtype(const struct dit_tensor_view *view, int dtype) {
  return view->handle && (view->dtype == DIT_DTYPE_F16 || view->dtype == DIT_DTYPE_BF16) ? view->dtype : dtype;
}

bool dense_read_data(struct dense *dense, const struct dit_tensor_view *view, int dtype) {
  return dense_read(dense, view, get_data_dtype(view, dtype));
}

bool dense_reserve_data(struct dense *dense, const struct dit_tensor_view *view, int dtype) {
  return dense_reserve(dense, view, get_data_dtype(view, dtype));
}

void dense_store(struct dense *dense) {
  if (dense->owned) {
    int64_t strides[DIT_MAX_DIMS];
    struct dit_tensor_view copy;
    set_copy_view(dense, strides, &copy);
    enum dit_status status = kernel_copy(NULL, &dense->view, &copy, NULL);
    (void)status;
  }
}

void dense_close(struct dense *dense) {
  if (dense->owned) {
    scratch_give(dense->data);
  }
  dense->data = NULL;
  dense->owned = false;
}

diopiError_t dense_fail(struct frame *frame) {
  return frame_fail(frame, diopiErrorOccurred, "no memory for copies of the arguments");
}
