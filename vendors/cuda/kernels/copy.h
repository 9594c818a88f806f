/// Parameters of copies, conversions, fills and ramps. Plain C.
#ifndef DIT_CUDA_KERNELS_COPY_H
#define DIT_CUDA_KERNELS_COPY_H

#include "pointwise.h"

#define CONVERT_KERNEL_VECTORS 4  ///< of four elements, for a thread at a time

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

#define TRANSPOSE_KERNEL_TILE 32
#define TRANSPOSE_KERNEL_DIMS 6

/// Columns (dimension 0) are neighbours in `to`, rows are neighbours in `from`; strides in bytes.
struct transpose_kernel {
  char *to;
  const char *from;
  int64_t columns, rows;
  int64_t to_step, from_step;  ///< from row to row in `to`, from column to column in `from`
  int64_t tiles;               ///< of all matrices
  int32_t ndim, reserved;      ///< of the rest
  int64_t sizes[TRANSPOSE_KERNEL_DIMS];
  int64_t strides[TRANSPOSE_KERNEL_DIMS][2];
};

struct ramp_kernel {
  char *data;
  int64_t stride, count, steps;
  int32_t dtype, is_integer, is_linspace;
  int64_t istart, istep;
  double start, end, step;
};

#endif
