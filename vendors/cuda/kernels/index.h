/// Parameters of the kernels that follow index tensors. Plain C.
///
/// As in vendors/host/engine/index.h: a target, positions (values of up to INDEX_KERNEL_COLUMNS index tensors of one
/// shape), another tensor that holds the same elements in plain order, and the rest: the dimensions that are not
/// indexed. A scatter's positions also move along the target by themselves: `base`.
#ifndef DIT_CUDA_KERNELS_INDEX_H
#define DIT_CUDA_KERNELS_INDEX_H

#include "pointwise.h"

#define INDEX_KERNEL_THREADS 256
#define INDEX_KERNEL_DIMS 6
#define INDEX_KERNEL_COLUMNS 6
#define INDEX_KERNEL_CHUNK 32  ///< positions that one thread adds up

/// Innermost dimension first.
struct index_dims {
  int32_t ndim, is_wide;
  struct pointwise_divisor divisors[INDEX_KERNEL_DIMS];
  int64_t sizes[INDEX_KERNEL_DIMS];
};

struct index_kernel_column {
  const char *data;
  int64_t strides[INDEX_KERNEL_DIMS];  ///< bytes
  int64_t size, step;                  ///< of the indexed dimension in the target, step in bytes
  uint32_t factor;                     ///< of its values in the key of a position
  int32_t is_wide;                     ///< int64, else int32
};

struct index_kernel {
  char *target, *other;
  int64_t count, rest;  ///< positions; elements (or vectors) per position
  struct pointwise_divisor count_divisor, rest_divisor;
  struct index_dims positions, rests;
  int64_t other_strides[INDEX_KERNEL_DIMS], base_strides[INDEX_KERNEL_DIMS];  ///< of positions, bytes
  uint32_t base_factors[INDEX_KERNEL_DIMS];
  int64_t rest_strides[INDEX_KERNEL_DIMS][2];  ///< target, other
  struct index_kernel_column column[INDEX_KERNEL_COLUMNS];
  int32_t columns, is_wide, is_positions_first, is_strict, is_number;
  DIT_KERNEL_ALIGN char number[16];  ///< stands for the other tensor
  // adding, over positions sorted by key
  const uint32_t *keys, *places;
  uint32_t *key_room, *place_room;
  void *partials;  ///< [chunk][first, last][rest] in the work type
  int32_t is_multiply, is_mean;
  uint64_t keys_limit;  ///< keys are below
  int64_t skipped;      ///< key whose sum is not written; -1: none
};

/// Smallest and largest value of an index tensor.
struct index_range {
  struct pointwise_strided index;
  int64_t *result;
};

/// Rows of a table that positions name: norms above the limit are scaled down.
struct index_renorm {
  char *table;
  const char *index;
  int64_t rows, columns, row_step, column_step;  ///< bytes
  const uint32_t *keys;
  int64_t count;
  double max_norm, norm_type;
};

#endif
