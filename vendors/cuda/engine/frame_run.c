/// How the CUDA library does the work of a call (see vendors/host/ops/frame.h): the work launches kernels, so nothing
/// waits.
#include "launch.h"
#include "ops/layout.h"

diopiError_t frame_run(struct frame *frame, frame_work *work, void *task) {
  (void)frame;
  return work(task);
}

struct frame frame_get_inner(const struct frame *frame) {
  return *frame;
}

diopiError_t layout_read_element(struct frame *frame, const struct dit_tensor_view *view, void *out) {
  struct dit_error err = {.message = ""};
  return frame_get_code(frame, launch_read(frame->stream, out, view->data, dit_dtype_get_size(view->dtype), &err),
                        &err);
}
