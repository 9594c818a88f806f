/// The work of losses of class numbers, after loss_class.c has checked everything but the numbers.
#ifndef DIT_HOST_OPS_LOSS_CLASS_H
#define DIT_HOST_OPS_LOSS_CLASS_H

#include "lines.h"

struct class_task {
  struct frame frame;
  diopiReduction_t reduction;
  bool softmax, backward;
  int64_t ignore;
  double smoothing;
  struct dit_tensor_view v_out, v_x, v_target, v_weight, v_grad, v_total;
  bool total_given;  ///< the backward pass has the sum of weights
  struct line_shape shape;
  int64_t points, chunks;
  int work;
  const void *x, *grad, *target_p;
  const int64_t *target;
  void *out;
  double *weight, weight_sum;
  double scale;
  double *sums;  ///< per chunk: losses, weights
};

diopiError_t class_run(struct class_task *task);

#endif
