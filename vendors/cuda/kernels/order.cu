/// Stable radix sort, eight bits a pass: counts of digits per tile, their running sums, then every item to its place.
///
/// A warp has neighbouring items of its tile, so that equal digits keep their order without atomics: the same input
/// gives the same result.
#include "order.h"

#include "kernel.cuh"
#include "scan.cuh"

template <class K>
KERNEL_INLINE uint32_t get_digit(const order_kernel &p, int64_t at) {
  if (p.length > 0) {
    return (uint32_t)((int64_t)p.places[at] / p.length >> p.shift) & (ORDER_KERNEL_DIGITS - 1);
  }
  return (uint32_t)(((const K *)p.keys)[at] >> p.shift) & (ORDER_KERNEL_DIGITS - 1);
}

/// Digits of each warp's items; a lane adds for all lanes that hold the same digit.
template <class K>
KERNEL_INLINE void count_digits(const order_kernel &p, uint32_t (*counts)[ORDER_KERNEL_DIGITS]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t begin = (int64_t)blockIdx.x * ORDER_KERNEL_TILE + warp * 32 * ORDER_KERNEL_ITEMS;
  for (int i = threadIdx.x; i < ORDER_KERNEL_THREADS / 32 * ORDER_KERNEL_DIGITS; i += ORDER_KERNEL_THREADS) {
    counts[i / ORDER_KERNEL_DIGITS][i % ORDER_KERNEL_DIGITS] = 0;
  }
  __syncthreads();
  for (int i = 0; i < ORDER_KERNEL_ITEMS; i++) {
    const int64_t at = begin + i * 32 + lane;
    if (begin + i * 32 >= p.count) {
      break;
    }
    const uint32_t digit = at < p.count ? get_digit<K>(p, at) : ORDER_KERNEL_DIGITS + lane;
    const unsigned same = __match_any_sync(WARP_ALL, digit);
    if (at < p.count && (same & ((1u << lane) - 1)) == 0) {
      counts[warp][digit] += (uint32_t)__popc(same);
    }
    __syncwarp();
  }
  __syncthreads();
}

template <class K>
KERNEL_INLINE void count_tile(const order_kernel &p) {
  __shared__ uint32_t counts[ORDER_KERNEL_THREADS / 32][ORDER_KERNEL_DIGITS];
  count_digits<K>(p, counts);
  uint32_t sum = 0;
  for (int warp = 0; warp < ORDER_KERNEL_THREADS / 32; warp++) {
    sum += counts[warp][threadIdx.x];
  }
  p.counts[(int64_t)threadIdx.x * p.tiles + blockIdx.x] = sum;
}
KERNEL_BLOCK(ORDER_KERNEL_THREADS, order_count_u32, order_kernel) {
  count_tile<uint32_t>(p);
}
KERNEL_BLOCK(ORDER_KERNEL_THREADS, order_count_u64, order_kernel) {
  count_tile<uint64_t>(p);
}

/// Where the items of each tile begin among those of their digit. Few tiles: a thread per digit.
KERNEL(ORDER_KERNEL_THREADS, order_scan_few, order_kernel) {
  uint32_t *counts = p.counts + (int64_t)threadIdx.x * p.tiles, done = 0;
  for (int tile = 0; tile < p.tiles; tile++) {
    const uint32_t count = counts[tile];
    counts[tile] = done;
    done += count;
  }
  p.counts[(int64_t)ORDER_KERNEL_DIGITS * p.tiles + threadIdx.x] = done;
}
/// A block per digit: where its items of each tile begin among all of its items.
KERNEL_BLOCK(ORDER_KERNEL_THREADS, order_scan, order_kernel) {
  __shared__ uint32_t room[33];
  uint32_t *counts = p.counts + (int64_t)blockIdx.x * p.tiles, done = 0;
  for (int64_t first = 0; first < p.tiles; first += ORDER_KERNEL_THREADS) {
    const int64_t at = first + threadIdx.x;
    uint32_t total;
    const uint32_t before = block_scan(at < p.tiles ? counts[at] : 0u, 0u, room, join_sum(), &total);
    if (at < p.tiles) {
      counts[at] = done + before;
    }
    done += total;
  }
  if (threadIdx.x == 0) {
    p.counts[(int64_t)ORDER_KERNEL_DIGITS * p.tiles + blockIdx.x] = done;
  }
}

template <class K>
KERNEL_INLINE void move_tile(const order_kernel &p) {
  __shared__ uint32_t counts[ORDER_KERNEL_THREADS / 32][ORDER_KERNEL_DIGITS];
  __shared__ uint32_t room[33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t total;
  const uint32_t *totals = p.counts + (int64_t)ORDER_KERNEL_DIGITS * p.tiles;
  const uint32_t digits = block_scan(totals[threadIdx.x], 0u, room, join_sum(), &total);
  count_digits<K>(p, counts);
  uint32_t next = digits + p.counts[(int64_t)threadIdx.x * p.tiles + blockIdx.x];
  for (int i = 0; i < ORDER_KERNEL_THREADS / 32; i++) {
    const uint32_t count = counts[i][threadIdx.x];
    counts[i][threadIdx.x] = next;
    next += count;
  }
  __syncthreads();
  const int64_t begin = (int64_t)blockIdx.x * ORDER_KERNEL_TILE + warp * 32 * ORDER_KERNEL_ITEMS;
  for (int i = 0; i < ORDER_KERNEL_ITEMS; i++) {
    const int64_t at = begin + i * 32 + lane;
    if (begin + i * 32 >= p.count) {
      break;
    }
    const bool is_item = at < p.count;
    const uint32_t digit = is_item ? get_digit<K>(p, at) : ORDER_KERNEL_DIGITS + lane;
    const unsigned same = __match_any_sync(WARP_ALL, digit), before = same & ((1u << lane) - 1);
    if (is_item) {
      const uint32_t to = counts[warp][digit] + (uint32_t)__popc(before);
      ((K *)p.keys_out)[to] = ((const K *)p.keys)[at];
      p.places_out[to] = p.places[at];
    }
    __syncwarp();
    if (is_item && before == 0) {
      counts[warp][digit] += (uint32_t)__popc(same);
    }
    __syncwarp();
  }
}
KERNEL_BLOCK(ORDER_KERNEL_THREADS, order_move_u32, order_kernel) {
  move_tile<uint32_t>(p);
}
KERNEL_BLOCK(ORDER_KERNEL_THREADS, order_move_u64, order_kernel) {
  move_tile<uint64_t>(p);
}
