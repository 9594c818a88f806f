/// Numbers that lie on the device, for the optimizers that are given their step count so.
#include "engine/kernels.h"
#include "optimizer.h"

struct read_task {
  const struct dit_tensor_view *view;
  double value;
};
static diopiError_t read_number(void *argument) {
  struct read_task *task = argument;
  const struct dit_tensor_view *view = task->view;
  struct dit_tensor_view host = *view;
  struct dit_error err;
  static const int64_t one = 1;
  host.data = &task->value;
  host.dtype = DIT_DTYPE_F64;
  host.sizes = host.strides = &one;
  host.ndim = 1;
  struct dit_tensor_view flat = *view;
  flat.sizes = flat.strides = &one;
  flat.ndim = 1;
  return kernel_copy(NULL, &host, &flat, &err) == DIT_OK ? diopiSuccess : diopiDtypeNotSupported;
}

diopiError_t optimizer_read_number(struct frame *frame, const struct dit_tensor_view *view, double *out) {
  struct read_task task = {view, 0};
  FRAME_TRY(frame_run(frame, read_number, &task));
  *out = task.value;
  return diopiSuccess;
}
