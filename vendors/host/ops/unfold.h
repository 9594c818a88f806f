/// The work of the gradient of unfold and of one_hot, after unfold.c has checked the arguments.
#ifndef DIT_HOST_OPS_UNFOLD_H
#define DIT_HOST_OPS_UNFOLD_H

#include "engine/nest.h"
#include "layout.h"

struct unfold_task {
  struct nest nest;  ///< grad_input, and grad_output at window 0, element 0; dim counts as size 1
  int64_t length;    ///< of dim
  int64_t windows, size, step;
  int64_t out_step;                   ///< of dim in grad_input, in bytes
  int64_t window_step, element_step;  ///< in grad_output, in bytes
  int dtype;
};

/// On the frame's stream; not empty.
diopiError_t unfold_run_backward(struct frame *frame, const struct unfold_task *task);
bool unfold_has_dtype(int dtype);

struct hot_task {
  struct frame *frame;
  struct dit_tensor_view out, input;
  struct nest nest;  ///< input, and out at class 0
  int64_t step;      ///< of the classes in out, in bytes
};

/// Everything but the class numbers is checked.
diopiError_t hot_run(struct hot_task *task);

#endif
