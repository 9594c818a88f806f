/// Philox 4x32-10 as dit/random.h defines it (subsequence 0): four words for a counter.
#ifndef DIT_CUDA_PHILOX_CUH
#define DIT_CUDA_PHILOX_CUH

#include "kernel.cuh"

KERNEL_INLINE void philox(uint64_t seed, uint64_t counter, uint32_t *out) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint32_t p = a * 0xD2511F53u, q = c * 0xCD9E8D57u;
    const uint32_t high_p = __umulhi(a, 0xD2511F53u), high_q = __umulhi(c, 0xCD9E8D57u);
    a = high_q ^ b ^ key0;
    b = q;
    c = high_p ^ d ^ key1;
    d = p;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
}

/// Words 2i and 2i + 1 of a span as one number.
KERNEL_INLINE uint64_t philox_two(uint64_t seed, uint64_t offset, int64_t i) {
  uint32_t words[4];
  philox(seed, offset + (uint64_t)i / 2, words);
  return i % 2 ? (uint64_t)words[2] << 32 | words[3] : (uint64_t)words[0] << 32 | words[1];
}

#endif
