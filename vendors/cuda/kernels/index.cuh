/// Positions of index tensors, for the kernels that move and add by them.
#ifndef DIT_CUDA_INDEX_CUH
#define DIT_CUDA_INDEX_CUH

#include "index.h"
#include "kernel.cuh"
#include "pointwise.cuh"

/// Coordinates of element `index`; the outermost one needs no division.
KERNEL_INLINE void find_places(const index_dims &dims, int64_t index, int64_t *places) {
#pragma unroll
  for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
    places[dim] = 0;
    if (dim < dims.ndim) {
      if (dim == dims.ndim - 1) {
        places[dim] = index;
      } else if (dims.is_wide) {
        const int64_t rest = index / dims.sizes[dim];
        places[dim] = index - rest * dims.sizes[dim];
        index = rest;
      } else {
        const uint32_t rest = divide_fast((uint32_t)index, dims.divisors[dim]);
        places[dim] = (uint32_t)index - rest * dims.divisors[dim].divisor;
        index = rest;
      }
    }
  }
}

/// The value of one index tensor; one that is out of range stops the device, as in PyTorch.
KERNEL_INLINE int64_t read_position(const index_kernel &p, const index_kernel_column &column, const int64_t *places) {
  int64_t offset = 0;
#pragma unroll
  for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
    offset += places[dim] * column.strides[dim];
  }
  int64_t value = column.is_wide ? *(const int64_t *)(const void *)(column.data + offset)
                                 : *(const int32_t *)(const void *)(column.data + offset);
  value += value < 0 && !p.is_strict ? column.size : 0;
  if (value < 0 || value >= column.size) {
    __trap();
    value = 0;
  }
  return value;
}

/// Byte offsets of a position in the target and in the other tensor.
KERNEL_INLINE void find_position(const index_kernel &p, int64_t number, int64_t *target, int64_t *other) {
  int64_t places[INDEX_KERNEL_DIMS];
  find_places(p.positions, number, places);
  *target = *other = 0;
#pragma unroll
  for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
    *target += places[dim] * p.base_strides[dim];
    *other += places[dim] * p.other_strides[dim];
  }
  for (int i = 0; i < p.columns; i++) {
    *target += read_position(p, p.column[i], places) * p.column[i].step;
  }
}
KERNEL_INLINE void find_rest(const index_kernel &p, int64_t number, int64_t *target, int64_t *other) {
  int64_t places[INDEX_KERNEL_DIMS];
  find_places(p.rests, number, places);
#pragma unroll
  for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
    *target += places[dim] * p.rest_strides[dim][0];
    *other += places[dim] * p.rest_strides[dim][1];
  }
}

/// `index` as a pair of what varies fast and what varies slowly.
KERNEL_INLINE int64_t split_index(int64_t index, int64_t size, pointwise_divisor by, bool is_wide, int64_t *slow) {
  if (is_wide) {
    *slow = index / size;
    return index - *slow * size;
  }
  const uint32_t quotient = divide_fast((uint32_t)index, by);
  *slow = quotient;
  return (uint32_t)index - quotient * by.divisor;
}

#endif
