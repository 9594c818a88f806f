/// The gradients of the linear layer, after linear_backward.c has checked the arguments.
#ifndef DIT_HOST_OPS_LINEAR_BACKWARD_H
#define DIT_HOST_OPS_LINEAR_BACKWARD_H

#include "frame.h"

/// Gradients that are not wanted have no handle.
struct linear_task {
  struct frame *frame;
  void *stream;  ///< of the work: NULL inside frame_run
  struct dit_tensor_view grad, x, w, grad_x, grad_w, grad_b;
};

/// On the frame's stream; calls linear_add_gradients.
diopiError_t linear_run_backward(struct linear_task *task);
/// grad_w, which adds over all rows.
diopiError_t linear_run_weight(struct linear_task *task);
/// All gradients, on the task's stream (linear_backward.c).
diopiError_t linear_add_gradients(struct linear_task *task);

#endif
