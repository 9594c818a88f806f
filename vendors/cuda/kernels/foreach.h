/// Parameters of the list operators: one launch for many tensors. Plain C.
#ifndef DIT_CUDA_KERNELS_FOREACH_H
#define DIT_CUDA_KERNELS_FOREACH_H

#include "pointwise.h"

#define FOREACH_LIST_TENSORS 64
#define FOREACH_LIST_CHUNK 8192  ///< elements of one block

/// Contiguous, one dtype for all of a launch.
struct foreach_tensor {
  char *out;
  const char *in;
  int64_t numel;
  int32_t is_aligned, reserved;  ///< is_aligned: both to 16 bytes
};

/// Block i belongs to the last tensor whose first block is not beyond i.
struct foreach_kernel {
  struct foreach_tensor tensors[FOREACH_LIST_TENSORS];
  int32_t first[FOREACH_LIST_TENSORS];
  const char *other;  ///< one element of the dtype, or NULL for `number`
  double number;
  int32_t count, is_product;
};

#endif
