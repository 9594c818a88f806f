/// Parameters of copies, conversions, fills and ramps. Plain C.
#ifndef DIT_CUDA_KERNELS_COPY_H
#define DIT_CUDA_KERNELS_COPY_H

#include "pointwise.h"

struct copy_flat {
  char *to;
  const char *from;
  int64_t numel;
};

struct fill_flat {
  char *to;
  int64_t numel;
  DIT_KERNEL_ALIGN char value[16];
};

struct ramp_kernel {
  char *data;
  int64_t stride, count, steps;
  int32_t dtype, is_integer, is_linspace;
  int64_t istart, istep;
  double start, end, step;
};

#endif
