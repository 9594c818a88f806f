/// Parameters of norms whose statistics belong to channels: batch, group and instance norm. Plain C.
///
/// A tensor is samples x channels x area (planes), or samples x area x channels (lines: channels lie together). Group
/// norm sees one sample of many channels: a group of one sample is a channel of the statistics, a channel of one sample
/// is one of the gradients.
#ifndef DIT_CUDA_KERNELS_CHANNEL_H
#define DIT_CUDA_KERNELS_CHANNEL_H

#include "pointwise.h"

#define CHANNEL_KERNEL_THREADS 256
#define CHANNEL_KERNEL_COLUMNS 32  ///< channels of a block in lines
#define CHANNEL_KERNEL_FACTORS 4

/// Numbers of channels, packed; `data` NULL: absent.
struct channel_numbers {
  char *data;
  int32_t dtype, reserved;
};

struct channel_kernel {
  const char *x, *g;
  char *out;
  int64_t samples, channels, area, count;  ///< count: elements per channel
  int64_t part;                            ///< elements of a channel per block
  int32_t splits, is_lines, is_vector, has_gradient;
  void *partials;  ///< [split][channel][2]: mean and squares, or sums of g and g * (x - mean)
  void *factors;   ///< [channel][4]: out = f0 * g + f1 * (x - f2) + f3
  int64_t width;   ///< channels that share statistics
  struct channel_numbers mean, scale;
  // the kernels of vectors: vectors of a plane, channels; columns of threads in a block of lines
  struct pointwise_divisor plane, over;
  int32_t wide;
};

/// From partials to numbers of channels and factors.
struct channel_finish {
  const void *partials;
  void *factors;
  int64_t channels, count, part, splits;
  int64_t samples, groups, width, size;  ///< group norm: channels are samples x groups x width, size elements a group
  struct channel_numbers mean, scale, weight, bias, running_mean, running_var, grad_weight, grad_bias;
  struct channel_numbers sums, dots, counts;  ///< pieces of synchronised batch norm
  struct channel_numbers mean_all, scale_all;
  int64_t processes;
  double momentum, eps;
  int32_t is_training, is_variance;  ///< `scale` holds the variance
};

#endif
