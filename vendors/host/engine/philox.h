/// Blocks of random numbers: what dit/random.h computes one counter at a time, vectorised.
#ifndef DIT_HOST_ENGINE_PHILOX_H
#define DIT_HOST_ENGINE_PHILOX_H

#include <stdint.h>

/// out[4 * i + j] = word j of philox(seed, subsequence 0, offset + i), for i < counters.
void philox_fill(uint64_t seed, uint64_t offset, int64_t counters, uint32_t *out);
/// out[i] = two standard normal numbers for words 2i and 2i + 1 (Box-Muller in float), count even.
void philox_normal(const uint32_t *words, float *out, int64_t count);
/// The same in double from 64-bit numbers: words 4i .. 4i + 3 give out[2i] and out[2i + 1].
void philox_normal_double(const uint32_t *words, double *out, int64_t count);

#endif
