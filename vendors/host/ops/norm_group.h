/// The work of group and instance norm, after norm_group.c has checked the arguments.
#ifndef DIT_HOST_OPS_NORM_GROUP_H
#define DIT_HOST_OPS_NORM_GROUP_H

#include "engine/rows.h"
#include "lines.h"

struct group_task {
  struct frame frame;
  struct dit_tensor_view v_x, v_g, v_out, v_weight, v_bias, v_mean, v_scale, v_grad_weight, v_grad_bias;
  int64_t samples, groups, width, area;
  double eps;
  int work;
  bool recompute;  ///< the backward pass has no statistics
  struct row_data x, g, out;
  const void *weight, *bias;
  void *mean, *scale;
  double *sums;  ///< [sample][channel][sum of g, sum of g * (x - mean)]
};

/// On the frame's stream.
diopiError_t group_forward(struct group_task *task);
diopiError_t group_backward(struct group_task *task);

#endif
