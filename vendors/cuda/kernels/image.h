/// Tensors of images (batch, channel, z, y, x) as kernels of windows walk them. Plain C.
#ifndef DIT_CUDA_KERNELS_IMAGE_H
#define DIT_CUDA_KERNELS_IMAGE_H

#include "pointwise.h"

#define IMAGE_KERNEL_THREADS 256

/// Neighbouring threads have neighbouring x, or with `is_last` neighbouring channels. Innermost first.
struct image_walk {
  int64_t numel;
  int64_t sizes[4];
  struct pointwise_divisor divisors[4];
  int32_t is_last, is_wide;  ///< is_wide: more than 31 bits of elements, `sizes` instead of `divisors`
};

/// Strides in bytes: batch, channel, z, y, x.
struct image_data {
  char *data;
  int64_t strides[5];
};

struct pool_kernel_axis {
  int32_t in, out, kernel, stride, padding, dilation;
};

/// A thread per element of the result: `walk` is over it.
struct pool_kernel {
  struct image_walk walk;
  struct image_data pooled, x, indices;  ///< indices.data NULL: none. Backward: x is the gradient that is written
  struct pool_kernel_axis axis[3];
  int64_t divisor;  ///< 0: the product of the extents
  int16_t dtype, index_dtype;
  int32_t is_adaptive, counts_padding;
};

enum resize_kernel_mode { RESIZE_KERNEL_NEAREST, RESIZE_KERNEL_LINEAR, RESIZE_KERNEL_CUBIC };
struct resize_kernel {
  struct image_walk walk;
  struct image_data large, small;
  int32_t in[3], out[3];
  int32_t is_used[3];  ///< dimensions that are resized
  int32_t mode, align;
};

/// Places (batch, y, x, 2) and images (batch, channel, y, x), contiguous.
struct grid_sample_kernel {
  char *out;
  const char *input, *grid;
  int64_t batch, points;
  int32_t channels, height, width;
  int32_t mode;  ///< 0 bilinear, 1 nearest, 2 bicubic
};

/// Windows of images as columns (batch, channel and tap, position), and back. `walk` is over the result; of columns x,
/// y are a position, z the tap.
struct columns_kernel {
  struct image_walk walk;
  struct image_data image;
  char *columns;
  int64_t strides[3];  ///< of columns, in bytes
  int32_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
};

#endif
