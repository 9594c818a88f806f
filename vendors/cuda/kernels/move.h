/// Parameters of joining and splitting rows, triangles of matrices, and the gradient of windows. Plain C.
#ifndef DIT_CUDA_KERNELS_MOVE_H
#define DIT_CUDA_KERNELS_MOVE_H

#include "pointwise.h"

#define MOVE_KERNEL_THREADS 256
#define JOIN_KERNEL_UNITS 4  ///< of one thread at a time
#define JOIN_KERNEL_PARTS 16

/// Row r of the whole is row r of every part, one after another; sizes in units of the kernel's vector.
struct join_kernel {
  char *whole;
  int64_t rows, units, total;
  struct pointwise_divisor divisor;  ///< by `units`
  int32_t count, is_split, is_wide;
  char *data[JOIN_KERNEL_PARTS];
  int64_t begin[JOIN_KERNEL_PARTS + 1];  ///< of a part in a row
};

/// `walk`: out and input, matrices without their rows and columns.
struct triangle_kernel {
  struct pointwise_strided walk;
  int64_t rows, columns, diagonal;
  int64_t row_step[2], step[2];  ///< bytes: out, input
  int32_t is_upper, is_in_place;
};

/// `walk`: grad_input and grad_output at window 0, element 0.
struct unfold_kernel {
  struct pointwise_strided walk;
  int64_t length, windows, size, step;
  int64_t out_step, window_step, element_step;  ///< bytes
};

#endif
