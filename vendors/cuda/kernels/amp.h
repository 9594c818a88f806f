/// Parameters of the kernels of automatic mixed precision. Plain C.
#ifndef DIT_CUDA_KERNELS_AMP_H
#define DIT_CUDA_KERNELS_AMP_H

#include <stdint.h>

#define AMP_KERNEL_THREADS 256
#define AMP_KERNEL_TENSORS 96
#define AMP_KERNEL_CHUNK 8192  ///< elements of one tensor that a block takes at a time

/// Dense tensors. `first`: chunks of the tensors before.
struct amp_kernel {
  char *data[AMP_KERNEL_TENSORS];
  int64_t numel[AMP_KERNEL_TENSORS], first[AMP_KERNEL_TENSORS];
  int16_t dtype[AMP_KERNEL_TENSORS];
  int64_t chunks;
  int32_t count;
  float *found_inf;
  const float *inv_scale;
};

struct amp_update_kernel {
  float *scale;
  int32_t *tracker;
  const float *found;
  double growth, backoff;
  int32_t interval;
};

#endif
