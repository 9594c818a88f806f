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

#define STEP_LIST_TENSORS 40
#define STEP_LIST_CHUNK 8192  ///< elements of one block

/// One tensor of a list: contiguous, the count of its steps on the device.
struct step_tensor {
  char *data[STEP_KERNEL_OPERANDS];
  const char *count;
  int64_t numel;
  int16_t dtype[STEP_KERNEL_OPERANDS], count_dtype;
  int32_t is_plain;  ///< the work type everywhere, aligned to 16 bytes
};

/// A step of Adam over many tensors: block i belongs to the last tensor whose first block is not beyond i.
struct step_list {
  struct step_tensor tensors[STEP_LIST_TENSORS];
  int32_t first[STEP_LIST_TENSORS];
  int32_t count, reserved;
  double numbers[12];  ///< those that depend on the count are not set
  double lr, beta1, beta2;
};

#endif
