/// Elements by positions from index tensors: gather, scatter, index, index_select, embedding (see index.h).
///
/// Moving: a thread per vector, neighbouring threads along what lies together in the other tensor. Of several writes
/// to one element any may stay, as in PyTorch.
#include "index.cuh"

struct wide {
  uint64_t part[2];
};

template <class V, bool TAKE>
KERNEL_INLINE void move(const index_kernel &p) {
  const int64_t total = p.count * p.rest;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t number, rest, target, other;
    if (p.is_positions_first) {
      number = split_index(i, p.count, p.count_divisor, p.is_wide, &rest);
    } else {
      rest = split_index(i, p.rest, p.rest_divisor, p.is_wide, &number);
    }
    find_position(p, number, &target, &other);
    find_rest(p, rest, &target, &other);
    if (TAKE) {
      *(V *)(void *)(p.other + other) = *(const V *)(const void *)(p.target + target);
    } else {
      *(V *)(void *)(p.target + target) =
          p.is_number ? *(const V *)(const void *)p.number : *(const V *)(const void *)(p.other + other);
    }
  }
}
#define INDEX_MOVE(width, V)                                       \
  KERNEL(INDEX_KERNEL_THREADS, index_take_##width, index_kernel) { \
    move<V, true>(p);                                              \
  }                                                                \
  KERNEL(INDEX_KERNEL_THREADS, index_put_##width, index_kernel) {  \
    move<V, false>(p);                                             \
  }
INDEX_MOVE(1, uint8_t)
INDEX_MOVE(2, uint16_t)
INDEX_MOVE(4, uint32_t)
INDEX_MOVE(8, uint64_t)
INDEX_MOVE(16, wide)

/// The key of a position is the number of its target among all targets: equal keys are one target.
KERNEL(INDEX_KERNEL_THREADS, index_keys, index_kernel) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t places[INDEX_KERNEL_DIMS];
    find_places(p.positions, i, places);
    uint32_t key = 0;
#pragma unroll
    for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
      key += (uint32_t)places[dim] * p.base_factors[dim];
    }
    for (int k = 0; k < p.columns; k++) {
      key += (uint32_t)read_position(p, p.column[k], places) * p.column[k].factor;
    }
    p.key_room[i] = key;
    p.place_room[i] = (uint32_t)i;
  }
}

/// The least and the largest value, by one block.
KERNEL_BLOCK(INDEX_KERNEL_THREADS, index_get_bounds, index_range) {
  __shared__ int64_t room[33];
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t i = threadIdx.x; i < p.index.numel; i += blockDim.x) {
    int64_t offset;
    find_offsets<1>(p.index, i, &offset);
    const char *data = p.index.data[0] + offset;
    const int64_t value = p.index.dtype[0] == DIT_DTYPE_I64 ? *(const int64_t *)(const void *)data
                                                            : *(const int32_t *)(const void *)data;
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  low = block_reduce(low, (int64_t)INT64_MAX, room, join_min());
  high = block_reduce(high, (int64_t)INT64_MIN, room, join_max());
  if (threadIdx.x == 0) {
    p.result[0] = low;
    p.result[1] = high;
  }
}
