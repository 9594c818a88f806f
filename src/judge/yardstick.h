/// Yardsticks of earlier judgements: how far off a right result of this operator and signature may be.
#ifndef DIT_JUDGE_YARDSTICK_H
#define DIT_JUDGE_YARDSTICK_H

#include "dit/verdict.h"

/// Nothing is kept without a memory or with key 0; an older entry in the same place is forgotten.
void yardstick_put(struct dit_verdict_memory *memory, uint64_t key, double relative, double residual);

#endif
