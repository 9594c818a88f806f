/// Where the largest or smallest element of each line lies: the first of equal ones, the first NaN over all.
#include "line.h"

#include "kernel.cuh"
#include "pointwise.cuh"

/// Is (a, i) before (b, k)?
template <class A>
KERNEL_INLINE bool is_better(A a, int64_t i, A b, int64_t k, bool is_largest) {
  const bool nan_a = a != a, nan_b = b != b;
  if (nan_a || nan_b) {
    return nan_a && (!nan_b || i < k);
  }
  return a == b ? i < k : is_largest ? a > b : a < b;
}

template <class A>
KERNEL_INLINE void join_pair(A *value, int64_t *at, A other, int64_t other_at, bool is_largest) {
  if (other_at >= 0 && (*at < 0 || is_better(other, other_at, *value, *at, is_largest))) {
    *value = other;
    *at = other_at;
  }
}
template <class A>
KERNEL_INLINE void join_warp(A *value, int64_t *at, bool is_largest) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes >>= 1) {
    const A other = __shfl_xor_sync(WARP_ALL, *value, lanes);
    const int64_t other_at = __shfl_xor_sync(WARP_ALL, *at, lanes);
    join_pair(value, at, other, other_at, is_largest);
  }
}

template <class A>
KERNEL_INLINE void store_pick(const pick_kernel &p, const int64_t *offsets, int64_t at) {
  *(int64_t *)(void *)(p.lines.data[0] + offsets[0]) = at;
  if (p.has_values) {
    const char *from = p.lines.data[2] + offsets[2] + at * p.step;
    char *to = p.lines.data[1] + offsets[1];
    switch (dtype_width(p.dtype)) {
      case 1:
        *to = *from;
        return;
      case 2:
        *(uint16_t *)(void *)to = *(const uint16_t *)(const void *)from;
        return;
      case 4:
        *(uint32_t *)(void *)to = *(const uint32_t *)(const void *)from;
        return;
      default:
        *(uint64_t *)(void *)to = *(const uint64_t *)(const void *)from;
    }
  }
}

template <class A>
KERNEL_INLINE void pick(const pick_kernel &p) {
  __shared__ A values[32];
  __shared__ int64_t places[32];
  const int lane = threadIdx.x % p.lanes, group = threadIdx.x / p.lanes, groups = blockDim.x / p.lanes;
  const int64_t begin = (int64_t)blockIdx.y * p.part, end = begin + p.part < p.length ? begin + p.part : p.length;
  const bool is_largest = p.is_largest != 0;
  for (int64_t first = (int64_t)blockIdx.x * groups; first < p.lines.numel; first += (int64_t)gridDim.x * groups) {
    const bool is_mine = first + group < p.lines.numel;
    const int64_t line = is_mine ? first + group : p.lines.numel - 1;
    int64_t offsets[3], at = -1;
    find_offsets<3>(p.lines, line, offsets);
    const char *in = p.lines.data[2] + offsets[2];
    A best = A();
    for (int64_t i = begin + lane; i < end; i += p.lanes) {
      join_pair(&best, &at, load_as<A>(in + i * p.step, p.dtype, false), i, is_largest);
    }
    if (p.lanes >= 32) {
      join_warp(&best, &at, is_largest);
    }
    if (p.lanes > 32) {
      __syncthreads();
      if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = best;
        places[threadIdx.x / 32] = at;
      }
      __syncthreads();
      const int warps = blockDim.x / 32;
      best = values[threadIdx.x % 32 % warps];
      at = places[threadIdx.x % 32 % warps];
      join_warp(&best, &at, is_largest);
    }
    if (is_mine && lane == 0 && p.splits > 1) {
      ((A *)p.best)[line * p.splits + blockIdx.y] = best;
      p.found[line * p.splits + blockIdx.y] = at;
    } else if (is_mine && lane == 0) {
      store_pick<A>(p, offsets, at);
    }
  }
}
/// A thread per line: the best of its parts.
template <class A>
KERNEL_INLINE void join_parts(const pick_kernel &p) {
  for (int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; line < p.lines.numel;
       line += (int64_t)gridDim.x * blockDim.x) {
    A best = A();
    int64_t at = -1, offsets[3];
    for (int split = 0; split < p.splits; split++) {
      join_pair(&best, &at, ((const A *)p.best)[line * p.splits + split], p.found[line * p.splits + split],
                p.is_largest != 0);
    }
    find_offsets<3>(p.lines, line, offsets);
    store_pick<A>(p, offsets, at);
  }
}
#define PICK(tag, A)                                              \
  KERNEL_BLOCK(LINE_KERNEL_THREADS, pick_##tag, pick_kernel) {    \
    pick<A>(p);                                                   \
  }                                                               \
  KERNEL(LINE_KERNEL_THREADS, pick_join_##tag, pick_kernel) {     \
    join_parts<A>(p);                                             \
  }
PICK(f32, float)
PICK(f64, double)
PICK(i64, int64_t)
