/// What the host side and the kernels of the CUDA helper share: launch parameters, scratch memory, the hash step.
///
/// C11 and CUDA C++ both read this file. Parameters travel by value in the launch (at most 4 KiB), so a launch needs no
/// allocation and no copy. Scratch memory belongs to one stream, whose kernels run one after the other; every kernel
/// leaves `ticket` and `flags` zero.
#ifndef DIT_CUDA_HELPER_KERNELS_H
#define DIT_CUDA_HELPER_KERNELS_H

#include <stdint.h>

#include "dit/helper.h"

#if defined(__CUDACC__)
#define HELPER_INLINE static __host__ __device__ __forceinline__
#else
#define HELPER_INLINE static inline
#endif

#if !defined(HELPER_THREADS)  // tests on the CPU have smaller blocks
#define HELPER_THREADS 256
#define HELPER_BLOCK_BYTES 32768  ///< of a tensor, before another block takes part
#endif
#define HELPER_BLOCKS 512           ///< of one tensor, at most: the cut does not depend on the device
#define HELPER_POOL_DIMS 200        ///< dimensions of all strided tensors of one launch together
#define HELPER_PAIR_DIMS 128        ///< the same of pairs
#define HELPER_CHUNK 1024           ///< elements of a block of the hash (src/numerics/walk.h: WALK_CHUNK)
#define HELPER_HASH_SLOTS 64        ///< WALK_SLOTS
#define HELPER_HASH_SLOT_MIN 32768  ///< WALK_SLOT_MIN

/// One tensor of a launch. Dimensions are in the pool, innermost first; none: flat memory, `numel` elements.
struct kernel_tensor {
  const char *data;
  int64_t numel;
  uint32_t blocks;  ///< at least 1
  uint32_t slot;    ///< index into the result
  int16_t dtype;    ///< enum dit_dtype
  uint16_t ndim;
  uint16_t first_dim;
  uint16_t reserved;
};

struct kernel_dim {
  int64_t size;
  int64_t stride;  ///< bytes
};

struct kernel_batch {
  struct kernel_tensor tensor[DIT_HELPER_BATCH];
  void *out;
  struct kernel_scratch *scratch;
  uint64_t mark;       ///< flags: left where one is set; statistics: only where it was left; 0: nothing of that
  uint32_t has_stats;  ///< flags: slots are statistics
  uint32_t marking;    ///< flags: the first slot that leaves the mark
};

struct kernel_batch_strided {
  struct kernel_batch batch;
  struct kernel_dim dims[HELPER_POOL_DIMS];
};

/// 128 bits of the hash's state.
struct hash_state {
  uint64_t s, t;
};

struct kernel_hash {
  struct kernel_batch batch;
  int64_t slot_size[DIT_HELPER_BATCH];         ///< elements per slot, a multiple of HELPER_CHUNK
  struct hash_state prefix[DIT_HELPER_BATCH];  ///< after dtype and shape
};

struct kernel_hash_strided {
  struct kernel_hash hash;
  struct kernel_dim dims[HELPER_POOL_DIMS - 48];
};

struct kernel_pair_dim {
  int64_t size;
  int64_t stride[2];
};

struct kernel_compare {
  struct kernel_tensor tensor[2];
  struct kernel_pair_dim dims[DIT_MAX_DIMS];
  double rtol, atol;
  int32_t equal_nan;
  int32_t is_flat;  ///< both packed, one dtype
  struct dit_compare_result *out;
  struct kernel_scratch *scratch;
};

/// One pair of tensors. Dimensions are in the pool, innermost first; none: both packed in the same order.
struct kernel_near_pair {
  const char *a, *b;
  int64_t numel;
  double relative;
  uint32_t blocks;
  uint16_t ndim, first_dim;
  int16_t dtype_a, dtype_b;
};

struct kernel_near {
  struct kernel_near_pair pair[DIT_HELPER_BATCH];
  struct dit_near_result *out;
  struct kernel_scratch *scratch;
  struct kernel_pair_dim dims[HELPER_PAIR_DIMS];
};

/// What one block found out about its part of a tensor. Moments are of the finite values, in units of `bin` (see
/// helper_kernels.cu).
struct stats_partial {
  int64_t count, zero, nan, pos_inf, neg_inf;
  double min, max;
  double mean, spread, mean_imag, spread_imag, square;
  int64_t min_int, max_int;
  uint64_t sum_low, sum_high;  ///< 128-bit sum of 64-bit integers
  int64_t bin;
};

struct compare_partial {
  int64_t finite, unequal, over, mismatch;
  double max_diff, rel, rel_sym;
  double min_a, max_a, min_b, max_b;
  double dot, square_a, square_b, abs_diff;
  int32_t bin_a, bin_b;
};

struct kernel_scratch {
  uint32_t ticket[DIT_HELPER_BATCH];  ///< blocks of the tensor that are done
  uint32_t flags[DIT_HELPER_BATCH];
  struct hash_state states[DIT_HELPER_BATCH][HELPER_HASH_SLOTS];
  uint64_t marks[DIT_HELPER_MARKS];    ///< the last of each remainder
  uint64_t near[DIT_HELPER_BATCH][4];  ///< bits of excess, largest, difference; mismatches. Zero between kernels
  struct hash_state sums[DIT_HELPER_BATCH][HELPER_BLOCKS];
  struct compare_partial pairs[HELPER_BLOCKS];
  struct stats_partial partials[DIT_HELPER_BATCH][HELPER_BLOCKS];
};

// The hash of src/numerics/hash.c

#define HASH_K0 UINT64_C(0x6A09E667F3BCC909)
#define HASH_K1 UINT64_C(0xBB67AE8584CAA73B)
#define HASH_K2 UINT64_C(0x3C6EF372FE94F82B)
#define HASH_K3 UINT64_C(0xA54FF53A5F1D36F1)
#define HASH_K4 UINT64_C(0x510E527FADE682D1)
#define HASH_K5 UINT64_C(0x9B05688C2B3E6C1F)
#define HASH_K6 UINT64_C(0x1F83D9ABFB41BD6B)
#define HASH_K7 UINT64_C(0x5BE0CD19137E2179)
#define HASH_K8 UINT64_C(0xCBBB9D5DC1059ED9)
#define HASH_K9 UINT64_C(0x629A292A367CD507)

HELPER_INLINE uint64_t hash_rotate(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

HELPER_INLINE uint64_t hash_multiply_high(uint64_t x, uint64_t y) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(x, y);
#else
  __extension__ typedef unsigned __int128 wide;
  return (uint64_t)((wide)x * y >> 64);
#endif
}

HELPER_INLINE void hash_take(struct hash_state *state, uint64_t u, uint64_t v) {
  uint64_t x = state->s ^ u, y = state->t ^ v;
  uint64_t p = x ^ HASH_K8, q = y ^ HASH_K9;
  state->s = p * q + hash_rotate(y, 32);
  state->t = hash_multiply_high(p, q) ^ hash_rotate(x, 23);
}

HELPER_INLINE uint64_t hash_avalanche(uint64_t x) {
  x ^= x >> 33;
  x *= UINT64_C(0xFF51AFD7ED558CCD);
  x ^= x >> 33;
  x *= UINT64_C(0xC4CEB9FE1A85EC53);
  return x ^ x >> 33;
}

HELPER_INLINE void hash_finish(struct hash_state *state) {
  hash_take(state, HASH_K2, HASH_K5);
  uint64_t s = hash_avalanche(state->s + state->t), t = hash_avalanche(state->t ^ hash_rotate(state->s, 17));
  state->s = s + t;
  state->t = t ^ hash_rotate(s, 41);
  hash_take(state, HASH_K6, HASH_K3);
}

#endif
