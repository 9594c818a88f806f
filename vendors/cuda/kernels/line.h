/// Parameters of operators along the lines of one dimension: where extremes lie, running sums, sorting, norms. Plain C.
#ifndef DIT_CUDA_KERNELS_LINE_H
#define DIT_CUDA_KERNELS_LINE_H

#include "pointwise.h"

#define LINE_KERNEL_THREADS 256

/// Where the largest or smallest element of each line lies. `lines`: operands 0 indices, 1 values (or indices again), 2
/// input, at the beginning of each line. `lanes` threads work on a line, or on one of its `splits`.
struct pick_kernel {
  struct pointwise_strided lines;
  int64_t length, step, part;  ///< step in bytes
  int32_t dtype, is_largest, has_values, lanes, splits;
  void *best;      ///< [line][split], where a line has several
  int64_t *found;  ///< the same
};

/// Packed lines: [outer][length][inner].
struct scan_kernel {
  const char *in;
  char *out;
  int64_t outer, length, inner;
  int32_t in_dtype, out_dtype, is_reverse;
};

/// Packed rows.
struct sort_kernel {
  const char *in;
  char *values;
  int64_t *indices;
  void *keys;
  uint32_t *places;
  int64_t rows, length, keep;
  int32_t dtype, width, is_descending;
};

/// Packed rows. `norm`: gradients of given norms; else normalisation, or with `g` its gradient.
struct norm_kernel {
  const char *x, *g, *norm;
  char *out;
  int64_t rows, length;
  double p, eps;
  int32_t x_dtype, g_dtype, norm_dtype, out_dtype;
};

#endif
