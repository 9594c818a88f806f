/// The work of losses between elements, after loss.c has checked the arguments.
#ifndef DIT_HOST_OPS_LOSS_H
#define DIT_HOST_OPS_LOSS_H

#include "frame.h"
#include "loss_kinds.h"

enum { LOSS_OUT, LOSS_X, LOSS_TARGET, LOSS_WEIGHT, LOSS_POS_WEIGHT, LOSS_GRAD, LOSS_OPERANDS };

struct loss_task {
  struct frame frame;
  enum loss_kind kind;
  diopiReduction_t reduction;
  bool backward;
  bool one_gradient;  ///< grad_output is one number
  double a, b, scale;
  int ndim;
  int64_t sizes[DIT_MAX_DIMS], numel;
  int work;
  struct dit_tensor_view views[LOSS_OPERANDS];  ///< handle NULL: absent
  int64_t strides[LOSS_OPERANDS][DIT_MAX_DIMS];
  void *p[LOSS_OPERANDS];
  double *sum;  ///< per chunk, for a mean or sum
};

/// On the frame's stream: every view but those of one element has the task's sizes.
diopiError_t loss_run(struct loss_task *task);

#endif
