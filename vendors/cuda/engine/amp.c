/// Automatic mixed precision on CUDA (vendors/host/ops/amp.h): many gradients in one launch, nothing waits.
#include "ops/amp.h"

#include "kernels/amp.h"
#include "launch.h"
#include "packed.h"

KERNEL_REFERENCE(amp_unscale_list, amp);
KERNEL_REFERENCE(amp_update_scale, amp);

static void add_tensor(struct amp_kernel *kernel, const struct dit_tensor_view *view) {
  const int i = kernel->count++;
  kernel->data[i] = view->data;
  kernel->numel[i] = view->numel;
  kernel->dtype[i] = view->dtype;
  kernel->first[i] = kernel->chunks;
  kernel->chunks += (view->numel + AMP_KERNEL_CHUNK - 1) / AMP_KERNEL_CHUNK;
}

static diopiError_t launch_list(struct frame *frame, struct amp_kernel *kernel) {
  struct dit_error err = {.message = ""};
  const struct kernel_grid grid = {.x = kernel_get_blocks(kernel->chunks, 1), .threads = AMP_KERNEL_THREADS};
  if (kernel->count > 0) {
    FRAME_TRY(frame_get_code(frame, kernel_launch(&amp_unscale_list, frame->stream, grid, kernel, &err), &err));
  }
  kernel->count = 0;
  kernel->chunks = 0;
  return diopiSuccess;
}

/// Memory with gaps is copied and goes alone.
static diopiError_t unscale_copy(struct frame *frame, struct amp_kernel *kernel, const struct dit_tensor_view *grad) {
  struct packed packed;
  FRAME_TRY(packed_read(&packed, frame, grad));
  FRAME_TRY(launch_list(frame, kernel));
  add_tensor(kernel, &packed.view);
  FRAME_TRY(launch_list(frame, kernel));
  return packed_store(&packed, frame, grad);
}

diopiError_t amp_unscale(struct frame *frame, const struct amp_unscale *task) {
  struct amp_kernel kernel = {.found_inf = task->found_inf, .inv_scale = task->inv_scale};
  for (int64_t i = 0; i < task->count; i++) {
    struct dit_tensor_view grad;
    FRAME_TRY(frame_take(frame, "scaled_grads", task->grads[i], &grad));
    if (grad.numel == 0) {
      continue;
    }
    if (!(grad.flags & (DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE))) {
      FRAME_TRY(unscale_copy(frame, &kernel, &grad));
      continue;
    }
    add_tensor(&kernel, &grad);
    if (kernel.count == AMP_KERNEL_TENSORS) {
      FRAME_TRY(launch_list(frame, &kernel));
    }
  }
  return launch_list(frame, &kernel);
}

diopiError_t amp_update(struct frame *frame, const struct amp_update *task) {
  const struct amp_update_kernel kernel = {.scale = task->scale,
                                           .tracker = task->tracker,
                                           .found = task->found,
                                           .growth = task->growth,
                                           .backoff = task->backoff,
                                           .interval = task->interval};
  struct dit_error err = {.message = ""};
  const struct kernel_grid grid = {.x = 1, .threads = 32};
  return frame_get_code(frame, kernel_launch(&amp_update_scale, frame->stream, grid, &kernel, &err), &err);
}
