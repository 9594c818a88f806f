/// Contiguous copies in the order of the stream (see packed.h).
#include "packed.h"

#include "engine/kernels.h"
#include "launch.h"
#include "ops/fail.h"

diopiError_t packed_reserve(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view) {
  packed->view = *view;
  packed->is_copy = view->handle && !(view->flags & DIT_TENSOR_CONTIGUOUS);
  if (!packed->is_copy) {
    packed->view.data = view->handle ? view->data : NULL;
    return diopiSuccess;
  }
  dit_shape_set_contiguous(view->ndim, view->sizes, packed->strides);
  packed->view.strides = packed->strides;
  packed->view.flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  packed->view.data = scratch_take(frame->context, (size_t)view->numel * dit_dtype_get_size(view->dtype));
  return packed->view.data ? diopiSuccess : frame_fail_device(frame, "no device memory for a contiguous copy");
}

static diopiError_t copy(struct frame *frame, const struct dit_tensor_view *to, const struct dit_tensor_view *from) {
  struct dit_error err = {.message = ""};
  return frame_get_code(frame, kernel_copy(frame->stream, to, from, &err), &err);
}

diopiError_t packed_read(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view) {
  FRAME_TRY(packed_reserve(packed, frame, view));
  return packed->is_copy ? copy(frame, &packed->view, view) : diopiSuccess;
}

diopiError_t packed_store(const struct packed *packed, struct frame *frame, const struct dit_tensor_view *view) {
  return packed->is_copy ? copy(frame, view, &packed->view) : diopiSuccess;
}
