/// Parameters of softmax and its gradient. Plain C.
#ifndef DIT_CUDA_KERNELS_SOFTMAX_H
#define DIT_CUDA_KERNELS_SOFTMAX_H

#include "pointwise.h"

#define SOFTMAX_KERNEL_THREADS 256

/// Lines along one dimension. Operands: 0 the result, 1 the input (gradient: the forward's result), 2 the gradient of
/// the result. `lines` walks the first element of each line; `steps` are bytes along it.
struct softmax_kernel {
  struct pointwise_strided lines;
  int64_t length;
  int64_t steps[3];
  int32_t columns, is_column, is_log, reserved;
};

#endif
