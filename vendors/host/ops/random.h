/// What the random operators share: the generator's numbers.
#ifndef DIT_HOST_OPS_RANDOM_H
#define DIT_HOST_OPS_RANDOM_H

#include "frame.h"

/// Counters that belong to one call: four 32-bit numbers each.
struct random_span {
  uint64_t seed, offset;
};

/// Take `words` 32-bit numbers from the generator and move its offset forward; call it when all arguments are checked.
/// An argument error for a NULL generator.
diopiError_t random_reserve(struct frame *frame, diopiGeneratorHandle_t generator, uint64_t words,
                            struct random_span *span);
/// The same check without taking anything.
diopiError_t random_check(struct frame *frame, diopiGeneratorHandle_t generator);

#endif
