/// Parameters of losses between elements, and of losses of class numbers. Plain C.
#ifndef DIT_CUDA_KERNELS_LOSS_H
#define DIT_CUDA_KERNELS_LOSS_H

#include "pointwise.h"

#define LOSS_KERNEL_THREADS 256
#define LOSS_KERNEL_OPERANDS 6
#define LOSS_KERNEL_DIMS 8

/// Operands as in vendors/host/ops/loss.h: out, input, target, weight, pos_weight, grad_output; NULL: absent. Strides
/// in bytes, innermost dimension first.
struct loss_kernel {
  char *data[LOSS_KERNEL_OPERANDS];
  int16_t dtype[LOSS_KERNEL_OPERANDS];
  int16_t ndim, is_wide;
  int64_t numel;
  struct pointwise_divisor divisors[LOSS_KERNEL_DIMS];
  int64_t sizes[LOSS_KERNEL_DIMS];
  int64_t strides[LOSS_KERNEL_DIMS][LOSS_KERNEL_OPERANDS];
  int32_t kind, is_backward, is_mean;
  double a, b, scale;
  double *partials;  ///< a sum per block
  int32_t blocks;
};

/// Points are (outer, inner), elements [outer][class][inner]; everything is packed. `lanes` threads work on a point.
struct class_kernel {
  const char *x, *target, *weight, *grad;
  char *out, *total;  ///< total: the sum of weights; read by the gradient of a mean
  int16_t target_dtype, weight_dtype, grad_dtype, out_dtype, total_dtype;
  int16_t has_softmax, has_probabilities, is_mean, is_reduced, reserved;
  int64_t points, classes, inner, ignored;
  double smoothing;
  double *partials;  ///< [block][loss, weight]
  int32_t lanes, blocks;
  int64_t *wrong;  ///< a class number that is not valid
};

#endif
