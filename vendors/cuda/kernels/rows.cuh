/// Rows that wait in the registers of their threads, so that device memory is read once.
///
/// A row is whole vectors of 16 bytes, at most ROW_VECTORS for each of its `lanes` threads: 64 bytes in flight per
/// thread and operand, up to 64 KB for a row. Rows of at most a warp share a block and need no barrier; a longer row
/// has a block for itself. Blocks end with their row: the next one's loads begin while others join or write.
#ifndef DIT_CUDA_ROWS_CUH
#define DIT_CUDA_ROWS_CUH

#include "kernel.cuh"
#include "rows.h"

template <class E>
struct row {
  static constexpr int LANES = 16 / sizeof(E);
  typedef pack<E, LANES> vector;
};

/// The thread's part of its row.
struct row_place {
  int64_t number;
  int lane, lanes, vectors;
};
KERNEL_INLINE row_place find_row(int lanes, int vectors) {
  row_place t;
  t.number = lanes <= 32 ? (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes : (int64_t)blockIdx.x;
  t.lane = lanes <= 32 ? (int)(threadIdx.x & (lanes - 1)) : (int)threadIdx.x;
  t.lanes = lanes;
  t.vectors = vectors;
  return t;
}

/// What is read once does not push out what all rows share (weights).
template <class V>
KERNEL_INLINE V load_once(const V *from) {
#ifdef __CUDACC__
  union {
    uint4 bits;
    V value;
  } x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.bits.x), "=r"(x.bits.y), "=r"(x.bits.z), "=r"(x.bits.w)
               : "l"(from));
  return x.value;
#else
  return *from;
#endif
}

template <class E>
KERNEL_INLINE void load_row(const row_place &t, const void *data, typename row<E>::vector *x) {
  const typename row<E>::vector *from = (const typename row<E>::vector *)data + t.number * t.vectors + t.lane;
#pragma unroll
  for (int u = 0; u < ROW_VECTORS; u++) {
    if (t.lane + u * t.lanes < t.vectors) {
      x[u] = load_once(from + u * t.lanes);
    }
  }
}

/// Over the lanes of a row; every one gets the result. `room`: 32 places that no other sum of the row uses.
template <class T, class Join>
KERNEL_INLINE T join_row(const row_place &t, T value, T identity, T *room, Join join) {
  for (int step = t.lanes < 32 ? t.lanes / 2 : 16; step > 0; step /= 2) {
    value = join(value, __shfl_xor_sync(WARP_ALL, value, step));
  }
  if (t.lanes > 32) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
      room[warp] = value;
    }
    __syncthreads();
    value = warp_reduce(lane < t.lanes / 32 ? room[lane] : identity, join);
  }
  return value;
}

#endif
