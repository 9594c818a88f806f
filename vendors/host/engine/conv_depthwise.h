/// Depthwise convolution: one input channel per group. The functions of conv.h for shapes that conv_is_depthwise takes,
/// with a batch and a result that are not empty.
#ifndef DIT_HOST_ENGINE_CONV_DEPTHWISE_H
#define DIT_HOST_ENGINE_CONV_DEPTHWISE_H

#include "conv.h"

bool conv_is_depthwise(const struct conv_shape *shape);
bool conv_depthwise_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight,
                            const void *bias);
bool conv_depthwise_backward_input(const struct conv_shape *shape, void *grad_in, const void *grad_out,
                                   const void *weight, const void *bias);
bool conv_depthwise_backward_weight(const struct conv_shape *shape, void *grad_weight, const void *grad_out,
                                    const void *in);

#endif
