/// Parameters of the optimizers' steps. Plain C.
#ifndef DIT_CUDA_KERNELS_STEP_H
#define DIT_CUDA_KERNELS_STEP_H

#include "pointwise.h"

#define STEP_KERNEL_OPERANDS 5

/// Parameter and states, which are written, then the gradient.
struct step_flat {
  char *data[STEP_KERNEL_OPERANDS];
  int64_t numel;
  DIT_KERNEL_ALIGN char numbers[96];
};

struct step_strided {
  char *data[STEP_KERNEL_OPERANDS];
  int64_t numel;
  int16_t dtype[STEP_KERNEL_OPERANDS];
  int16_t ndim;
  int64_t sizes[POINTWISE_KERNEL_DIMS];
  int64_t strides[POINTWISE_KERNEL_DIMS][STEP_KERNEL_OPERANDS];
  DIT_KERNEL_ALIGN char numbers[96];
};

#endif
