/// Parameters of the convolution kernels. Plain C.
#ifndef DIT_CUDA_KERNELS_CONV_H
#define DIT_CUDA_KERNELS_CONV_H

#include "image.h"

#define CONV_KERNEL_THREADS 256

/// Which product: the result from weight and input; the input's gradient from weight and the result's gradient; the
/// weight's gradient from the result's gradient and input.
enum conv_kernel_mode { CONV_KERNEL_FORWARD, CONV_KERNEL_INPUT, CONV_KERNEL_WEIGHT };

/// c = a * b per group, [rows, depth] x [depth, columns], where rows, columns and depth are made of channels, batch and
/// positions (conv.cuh). A weight's strides are those of out channel, in channel and kernel position.
struct conv_kernel {
  struct image_data a, b, c;
  const char *bias;  ///< one per row and group, or NULL
  void *partials;    ///< [split][group][row][column] in the work type, where splits > 1
  int64_t rows, columns, depth;
  int64_t part;  ///< of the depth, per split
  int32_t splits, groups;
  int32_t mode;
  int32_t in_channels, out_channels;  ///< of a group
  int32_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  int32_t has_stride, is_wide;                     ///< is_wide: rows, columns or depth do not fit 31 bits
  struct pointwise_divisor positions[3], taps[3];  ///< sizes z, y, x of the walked positions, and of the kernel
  struct image_walk walk;                          ///< direct kernels: over c
  int64_t batch;
};

#endif
