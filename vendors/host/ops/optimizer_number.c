/// Steps whose counts lie on the device (see optimizer.h): each is read before its step.
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

diopiError_t optimizer_run_list(const struct optimizer_list *list) {
  for (int64_t i = 0; i < list->count; i++) {
    struct optimizer_item item;
    FRAME_TRY(list->prepare(list, i, &item));
    struct read_task task = {&item.count, 0};
    FRAME_TRY(frame_run(list->frame, read_number, &task));
    list->set_count(list, &item, task.value);
    FRAME_TRY(elementwise_launch(&item.run));
  }
  return diopiSuccess;
}
