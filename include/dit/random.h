/// Philox 4x32-10 counter-based random numbers: a generator is (seed, offset); any element can be computed alone, so
/// results do not depend on the number of threads.
#ifndef DIT_RANDOM_H
#define DIT_RANDOM_H

#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// Four 32-bit numbers for (seed, subsequence, offset): key = seed, counter = {offset lo, offset hi, subsequence lo,
/// subsequence hi}.
DIT_API void dit_philox_generate(uint64_t seed, uint64_t subsequence, uint64_t offset, uint32_t out[4]);
/// Mix (seed, offset) into one 64-bit seed for a borrowed CPU generator (splitmix64 finaliser; never the plain sum).
DIT_API uint64_t dit_random_mix(uint64_t seed, uint64_t offset);

DIT_EXTERN_C_END

#endif
