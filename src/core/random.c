/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and a seed mixer.
///
/// Invariant: pure functions of their arguments; no state. Depends on nothing.
#include "dit/random.h"

enum { PHILOX_ROUNDS = 10 };

void dit_philox_generate(uint64_t seed, uint64_t subsequence, uint64_t offset, uint32_t out[4]) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)(offset >> 32);
  uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    uint64_t product0 = (uint64_t)UINT32_C(0xD2511F53) * c0;
    uint64_t product1 = (uint64_t)UINT32_C(0xCD9E8D57) * c2;
    c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c1 = (uint32_t)product1;
    c3 = (uint32_t)product0;
    key0 += UINT32_C(0x9E3779B9);
    key1 += UINT32_C(0xBB67AE85);
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

static uint64_t finalise(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

uint64_t dit_random_mix(uint64_t seed, uint64_t offset) {
  return finalise(finalise(seed) ^ offset);
}
