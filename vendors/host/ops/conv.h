/// A convolution's call, as the operators check it and the device or oneDNN takes it.
#ifndef DIT_HOST_OPS_CONV_H
#define DIT_HOST_OPS_CONV_H

#include "engine/conv.h"
#include "frame.h"

/// The tensors; those that a call does not have are absent. `out` is the result, or its gradient.
struct conv_call {
  struct frame *frame;
  struct conv_shape shape;  ///< of the convolution whose result or gradient this is
  struct dit_tensor_view out, x, weight, bias, grad_x, grad_weight, grad_bias;
  bool transposed;
};

/// The result, or the gradients that are wanted, on the frame's stream; everything is checked.
diopiError_t conv_run_forward(struct conv_call *call);
diopiError_t conv_run_backward(struct conv_call *call);

/// The result by oneDNN. False where that is missing or not good at it: then it is to be computed otherwise.
bool conv_onednn_forward(const struct conv_call *call);
/// The gradients that oneDNN is good at; those that it computed are absent in the call afterwards.
void conv_onednn_backward(struct conv_call *call);

#endif
