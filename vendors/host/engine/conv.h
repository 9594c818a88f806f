/// Convolution over up to three spatial dimensions, on row-major float or double arrays.
///
/// in (batch, in_channels, in...), weight (out_channels, in_channels / groups, kernel...), out (batch, out_channels,
/// out...). Fewer dimensions have leading sizes of 1. A transposed convolution is the gradient of one: its input is
/// grad_out here, its result grad_in. All functions use dit_parallel_for; results do not depend on the number of
/// threads. False without memory, with outputs partly written.
#ifndef DIT_HOST_ENGINE_CONV_H
#define DIT_HOST_ENGINE_CONV_H

#include <stdbool.h>
#include <stdint.h>

struct conv_shape {
  int64_t batch, groups, in_channels, out_channels;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  bool wide;  ///< double
};

/// `bias` (out_channels) may be NULL.
bool conv_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight, const void *bias);
/// grad_in = transposed convolution of grad_out; `bias` (in_channels) is added for a transposed layer, or NULL.
bool conv_backward_input(const struct conv_shape *shape, void *grad_in, const void *grad_out, const void *weight,
                         const void *bias);
bool conv_backward_weight(const struct conv_shape *shape, void *grad_weight, const void *grad_out, const void *in);
/// sums[c] = sum over batch and positions of x (batch, channels, positions).
void conv_sum_channels(bool wide, void *sums, const void *x, int64_t batch, int64_t channels, int64_t positions);

/// Columns of an image and back (unfold and fold): columns (channels * kernel positions, out positions) = the elements
/// of in (channels, in...) under each position of the kernel, 0 outside; scatter adds them where they came from (in is
/// set to 0 first).
void conv_gather(const struct conv_shape *shape, int64_t channels, void *columns, const void *in);
void conv_scatter(const struct conv_shape *shape, int64_t channels, void *in, const void *columns);

#endif
