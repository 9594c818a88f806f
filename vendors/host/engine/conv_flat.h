/// Convolution with stride 1 without columns: the padded image itself is the matrix.
#ifndef DIT_HOST_ENGINE_CONV_FLAT_H
#define DIT_HOST_ENGINE_CONV_FLAT_H

#include "conv.h"

/// Does it pay for this shape?
bool conv_flat_is_good(const struct conv_shape *shape);
/// conv_forward for such a shape. False without memory.
bool conv_flat_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight, const void *bias);
/// The shape of the convolution that gives the gradient of the input: channels and sizes change places. False where it
/// has negative padding.
bool conv_flat_reverse(const struct conv_shape *shape, struct conv_shape *out);
/// The weights for it, kernels turned around: (in_channels, out_channels / groups, kernel...).
void conv_flat_turn(const struct conv_shape *shape, void *turned, const void *weight);

#endif
