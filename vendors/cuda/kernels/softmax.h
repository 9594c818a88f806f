/// Parameters of softmax and its gradient. Plain C.
#ifndef DIT_CUDA_KERNELS_SOFTMAX_H
#define DIT_CUDA_KERNELS_SOFTMAX_H

#include "pointwise.h"
#include "rows.h"

#define SOFTMAX_KERNEL_THREADS 256
#define SOFTMAX_KERNEL_LONG 1024  ///< threads of a row that is too long for registers

/// Lines along one dimension. Operands: 0 the result, 1 the input (gradient: the forward's result), 2 the gradient of
/// the result. `lines` walks the first element of each line; `steps` are bytes along it. The kernels of rows take
/// packed operands in whole vectors: `lanes` threads for each row, or rows of any length that wait in shared memory
/// where it `is_cached`.
struct softmax_kernel {
  struct pointwise_strided lines;
  int64_t length;
  int64_t steps[3];
  int32_t columns, is_column, is_log, lanes, is_cached, reserved;
};

#endif
