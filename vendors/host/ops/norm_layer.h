/// The work of layer and RMS norm, after norm_layer.c has checked the arguments.
#ifndef DIT_HOST_OPS_NORM_LAYER_H
#define DIT_HOST_OPS_NORM_LAYER_H

#include "engine/rows.h"
#include "frame.h"

/// Views first (handle NULL: absent), then what they became in the work type.
struct layer_task {
  struct frame frame;
  struct dit_tensor_view v_out, v_mean, v_scale, v_input, v_weight, v_bias, v_grad, v_grad_weight, v_grad_bias;
  int64_t rows, length;
  int64_t chunk, chunks;  ///< rows per chunk of the backward pass
  double eps;
  int work;
  bool rms;
  struct row_data from, to;  ///< input and output of the forward pass
  const void *input, *grad, *weight, *bias;
  void *out, *mean, *scale;
  void *partial;  ///< [chunk][grad_weight, grad_bias]
};

/// On the frame's stream; every view is checked, `rows`, `length` and `work` are set.
diopiError_t layer_forward(struct layer_task *task);
diopiError_t layer_backward(struct layer_task *task);

#endif
