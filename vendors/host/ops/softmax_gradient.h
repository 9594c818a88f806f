/// The work of softmax's gradients, after softmax.c has checked the arguments.
#ifndef DIT_HOST_OPS_SOFTMAX_GRADIENT_H
#define DIT_HOST_OPS_SOFTMAX_GRADIENT_H

#include "frame.h"

/// On the frame's stream; the views have one shape, with at least one element.
diopiError_t softmax_gradient(struct frame *frame, const struct dit_tensor_view *grad_input,
                              const struct dit_tensor_view *grad_output, const struct dit_tensor_view *output, int dim,
                              bool log);

#endif
