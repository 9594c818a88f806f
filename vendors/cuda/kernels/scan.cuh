/// Running sums over the threads of a block.
#ifndef DIT_CUDA_SCAN_CUH
#define DIT_CUDA_SCAN_CUH

#include "kernel.cuh"

/// Join of the values of all threads before this one, in their order; `total` is that of all. `room` has 33 places and
/// may be used again at once. blockDim.x is a multiple of 32.
template <class T, class Join>
KERNEL_INLINE T block_scan(T value, T identity, T *room, Join join, T *total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  T sum = value;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const T other = __shfl_up_sync(WARP_ALL, sum, step);
    sum = lane >= step ? join(other, sum) : sum;
  }
  T before = __shfl_up_sync(WARP_ALL, sum, 1);
  before = lane == 0 ? identity : before;
  __syncthreads();
  if (lane == 31) {
    room[warp] = sum;
  }
  __syncthreads();
  T offset = identity;
  T all = identity;
  for (int i = 0; i < warps; i++) {
    offset = i == warp ? all : offset;
    all = join(all, room[i]);
  }
  *total = all;
  return join(offset, before);
}

#endif
