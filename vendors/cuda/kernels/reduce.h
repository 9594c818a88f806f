/// Parameters of reductions over any set of dimensions. Plain C.
#ifndef DIT_CUDA_KERNELS_REDUCE_H
#define DIT_CUDA_KERNELS_REDUCE_H

#include "pointwise.h"

#define REDUCE_KERNEL_THREADS 256
#define REDUCE_KERNEL_RESIDENT 5  ///< blocks of a multiprocessor at once, of the kernels of vectors
#define REDUCE_KERNEL_DIMS 8

struct reduce_dims {
  int32_t ndim, is_wide;
  struct pointwise_divisor divisors[REDUCE_KERNEL_DIMS];
  int64_t sizes[REDUCE_KERNEL_DIMS];
  int64_t strides[REDUCE_KERNEL_DIMS][2];  ///< bytes of the input and of the output
};

/// A block reduces `columns` outputs with 256 / columns threads each. `is_column`: neighbouring threads have
/// neighbouring outputs; else neighbouring elements of one output.
/// The kernels of vectors of 16 bytes: `vectors` and `part` of them in a row; or `vectors` of outputs, the innermost
/// dimension of `kept` and `columns` count them too, and `step` bytes lead from row to row.
struct reduce_kernel {
  const char *in;
  char *out;
  void *partials;
  uint32_t *tickets;                ///< zero between kernels
  int64_t outputs, count, part;     ///< `part` elements of an output per block
  int64_t vectors, step, out_step;  ///< `out_step`: bytes between the outputs of one vector
  int32_t kind;                     ///< enum reduce_kind
  int16_t in_dtype, out_dtype;
  int32_t columns, is_column, is_vector, splits;
  double parameter;
  struct reduce_dims kept, reduced;
};

#endif
