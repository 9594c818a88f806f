/// Random choices: permutations and samples of a distribution (vendors/host/ops/random_choice.c says what they are).
///
/// A permutation of up to CHOICE_KERNEL_SHUFFLE elements is the host's shuffle; a longer one is a keyed bijection of the
/// numbers below a power of two, applied again until the result is below n, so that every thread works alone. Samples
/// with replacement look their number up in running sums; without, they are the smallest keys of a row, found one after
/// the other or by counting the smaller ones.
#include "random.h"

#include "kernel.cuh"
#include "math.cuh"
#include "philox.cuh"

KERNEL_BLOCK(RANDOM_KERNEL_THREADS, permutation_shuffle, permutation_kernel) {
  __shared__ uint32_t words[CHOICE_KERNEL_SHUFFLE];
  __shared__ int32_t places[CHOICE_KERNEL_SHUFFLE];
  for (int i = threadIdx.x; i < (p.n + 3) / 4; i += blockDim.x) {
    philox(p.seed, p.offset + (uint64_t)i, words + 4 * i);
  }
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) {
    places[i] = i;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.n; i++) {
      const int j = i + (int)((uint64_t)words[i] * (uint64_t)(p.n - i) >> 32), swap = places[i];
      places[i] = places[j];
      places[j] = swap;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) {
    store_as(p.out + i * p.stride, p.dtype, (int64_t)places[i]);
  }
}

/// Every bit of the result depends on every bit of x and the key.
KERNEL_INLINE uint32_t mix(uint32_t x, uint32_t key) {
  x = x * 0x9E3779B1u + key;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ x >> 16;
}

KERNEL_BLOCK(RANDOM_KERNEL_THREADS, permutation_cipher, permutation_kernel) {
  __shared__ uint32_t keys[CHOICE_KERNEL_ROUNDS];
  if (threadIdx.x < CHOICE_KERNEL_ROUNDS / 4) {
    philox(p.seed, p.offset + threadIdx.x, keys + 4 * threadIdx.x);
  }
  __syncthreads();
  const uint32_t left_mask = (uint32_t)((UINT64_C(1) << p.left) - 1);
  const uint32_t right_mask = (uint32_t)((UINT64_C(1) << p.right) - 1);
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t place = i;
    do {
      uint32_t left = (uint32_t)(place >> p.right), right = (uint32_t)place & right_mask;
      for (int round = 0; round < CHOICE_KERNEL_ROUNDS; round += 2) {
        left ^= mix(right, keys[round]) & left_mask;
        right ^= mix(left, keys[round + 1]) & right_mask;
      }
      place = (int64_t)((uint64_t)left << p.right | right);
    } while (place >= p.n);
    store_as(p.out + i * p.stride, p.dtype, place);
  }
}

// With replacement

/// Running sums of one row per block.
KERNEL_BLOCK(RANDOM_KERNEL_THREADS, sample_sums, sample_kernel) {
  __shared__ double totals[33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    double before = 0;
    for (int64_t first = 0; first < p.classes; first += blockDim.x) {
      const int64_t at = row * p.classes + first + threadIdx.x;
      const bool inside = first + threadIdx.x < p.classes;
      double sum = inside ? load_as<double>(p.in + at * dtype_width(p.dtype), p.dtype, false) : 0;
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes <<= 1) {
        const double left = __shfl_up_sync(WARP_ALL, sum, lanes);
        sum += lane >= lanes ? left : 0;
      }
      __syncthreads();
      if (lane == 31) {
        totals[warp] = sum;
      }
      __syncthreads();
      double base = before, total = 0;
      for (int i = 0; i < warps; i++) {
        base += i < warp ? totals[i] : 0;
        total += totals[i];
      }
      if (inside) {
        p.room[at] = base + sum;
      }
      before += total;
    }
  }
}

KERNEL(RANDOM_KERNEL_THREADS, sample_with, sample_kernel) {
  const int64_t count = p.rows * p.samples;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = i / p.samples;
    const double *sums = p.room + row * p.classes;
    const double u = (double)(philox_two(p.seed, p.offset, i) >> 11) * 0x1.0p-53 * sums[p.classes - 1];
    int64_t low = 0, high = p.classes - 1;
    while (low < high) {  // the first running sum above u
      const int64_t middle = (low + high) / 2;
      if (sums[middle] > u) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const char *weights = p.in + row * p.classes * dtype_width(p.dtype);
    while (low > 0 && load_as<double>(weights + low * dtype_width(p.dtype), p.dtype, false) == 0) {
      low--;  // rounding of sums: no class of weight 0
    }
    p.out[i] = low;
  }
}

// Without

KERNEL(RANDOM_KERNEL_THREADS, sample_keys, sample_kernel) {
  const int64_t count = p.rows * p.classes;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const double weight = load_as<double>(p.in + i * dtype_width(p.dtype), p.dtype, false);
    const double u = ((double)(philox_two(p.seed, p.offset, i) >> 11) + 0.5) * 0x1.0p-53;
    p.room[i] = weight > 0 ? -log(u) / weight : (double)INFINITY;
  }
}

/// The samples of a row one after the other: each is the smallest key behind the last one; equal ones by their number.
KERNEL_BLOCK(RANDOM_KERNEL_THREADS, sample_smallest, sample_kernel) {
  __shared__ double keys[33];
  __shared__ int64_t numbers[33];
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const double *key = p.room + row * p.classes;
    double last = -1;
    int64_t last_number = -1;
    for (int64_t sample = 0; sample < p.samples; sample++) {
      double best = INFINITY;
      int64_t number = p.classes;
      for (int64_t c = threadIdx.x; c < p.classes; c += blockDim.x) {
        const bool behind = key[c] > last || (key[c] == last && c > last_number);
        if (behind && (key[c] < best || number == p.classes)) {
          best = key[c];
          number = c;
        }
      }
      const double least = block_reduce(best, (double)INFINITY, keys, join_min());
      last_number = block_reduce(best == least ? number : p.classes, p.classes, numbers, join_min());
      last = least;
      if (threadIdx.x == 0) {
        p.out[row * p.samples + sample] = last_number;
      }
    }
  }
}

/// A class is sample number r where r keys of its row come before its own. blockIdx.y is the row.
KERNEL_BLOCK(RANDOM_KERNEL_THREADS, sample_rank, sample_kernel) {
  __shared__ double tile[RANDOM_KERNEL_THREADS];
  for (int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    const double *key = p.room + row * p.classes;
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const double own = c < p.classes ? key[c] : 0;
    int64_t rank = 0;
    for (int64_t first = 0; first < p.classes; first += RANDOM_KERNEL_THREADS) {
      const int64_t at = first + threadIdx.x;
      __syncthreads();
      tile[threadIdx.x] = at < p.classes ? key[at] : 0;
      __syncthreads();
      const int here = (int)(p.classes - first < RANDOM_KERNEL_THREADS ? p.classes - first : RANDOM_KERNEL_THREADS);
      for (int i = 0; i < here; i++) {
        rank += tile[i] < own || (tile[i] == own && first + i < c);
      }
    }
    if (c < p.classes && rank < p.samples) {
      p.out[row * p.samples + rank] = c;
    }
  }
}
