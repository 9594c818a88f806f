/// The gradients of matmul, after matmul_backward.c has checked the arguments.
#ifndef DIT_HOST_OPS_MATMUL_BACKWARD_H
#define DIT_HOST_OPS_MATMUL_BACKWARD_H

#include "matmul_shape.h"

/// Gradients that are not wanted have no handle.
struct matmul_task {
  struct frame *frame;
  struct matmul_shape shape;
  struct dit_tensor_view grad, a, b, grad_a, grad_b;
};

/// grad_a = grad @ b^T, or with `of_b` grad_b = a^T @ grad, as a product that may add up over the batch; x is the other
/// operand.
struct product matmul_get_gradient(const struct matmul_task *task, bool of_b, const struct dit_tensor_view *target,
                                   const struct dit_tensor_view *grad, const struct dit_tensor_view *x);
/// On the frame's stream.
diopiError_t matmul_run_backward(struct matmul_task *task);

#endif
