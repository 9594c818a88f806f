/// Parameters of the kernel that puts a tensor together of pieces of another one. Plain C.
#ifndef DIT_CUDA_KERNELS_PAD_H
#define DIT_CUDA_KERNELS_PAD_H

#include "pointwise.h"

#define PAD_KERNEL_THREADS 256
#define PAD_KERNEL_PIECES 3

/// Elements [to, to + count) of a dimension are those of the input from `from` on, in steps of `step`.
struct pad_kernel_piece {
  int64_t to, from, count, step;
};

/// Dimensions innermost first; strides in bytes.
struct pad_kernel {
  char *out;
  const char *in;
  int64_t numel;
  int32_t ndim, is_wide;
  int64_t sizes[POINTWISE_KERNEL_DIMS], out_strides[POINTWISE_KERNEL_DIMS], in_strides[POINTWISE_KERNEL_DIMS];
  struct pointwise_divisor divisors[POINTWISE_KERNEL_DIMS];
  int32_t counts[POINTWISE_KERNEL_DIMS];
  struct pad_kernel_piece pieces[POINTWISE_KERNEL_DIMS][PAD_KERNEL_PIECES];
  DIT_KERNEL_ALIGN char element[16];  ///< where there is no piece
};

#endif
