/// Reading the one element of a tensor (see layout.h).
#include <string.h>

#include "layout.h"

struct read_task {
  const struct dit_tensor_view *view;
  void *out;
};

static diopiError_t read_element(void *argument) {
  const struct read_task *task = argument;
  memcpy(task->out, task->view->data, dit_dtype_get_size(task->view->dtype));
  return diopiSuccess;
}

diopiError_t layout_read_element(struct frame *frame, const struct dit_tensor_view *view, void *out) {
  struct read_task task = {view, out};
  return frame_run(frame, read_element, &task);
}
