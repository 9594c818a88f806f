/// Parameters of layer norm and RMS norm. Plain C.
#ifndef DIT_CUDA_KERNELS_LAYER_H
#define DIT_CUDA_KERNELS_LAYER_H

#include <stdint.h>

#define LAYER_KERNEL_THREADS 256
#define LAYER_KERNEL_COLUMNS 32

/// Rows of `length` elements, contiguous. Absent operands are NULL. `mean` and `scale` are written by the forward pass
/// and read by the backward one.
struct layer_kernel {
  const char *input, *grad, *weight, *bias;
  char *out, *mean, *scale, *grad_weight, *grad_bias;
  void *partials;  ///< [split][weight, bias][length] in the work type
  int64_t rows, length, part;
  double eps;
  int16_t weight_dtype, bias_dtype, mean_dtype, scale_dtype, grad_weight_dtype, grad_bias_dtype;
  int32_t is_rms, splits, is_cached, lanes;  ///< `lanes`: threads of a row that waits in registers
};

#endif
