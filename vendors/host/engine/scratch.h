/// Working memory of one operator call that stays mapped for the next one.
///
/// Fresh memory costs a page fault per 4 KiB, more than most loops over it. Blocks that are given back are kept, at
/// most SCRATCH_KEPT bytes in the process; small ones come from malloc and go back to it.
#ifndef DIT_HOST_ENGINE_SCRATCH_H
#define DIT_HOST_ENGINE_SCRATCH_H

#include <stddef.h>

#define SCRATCH_KEPT ((size_t)64 << 20)

/// Uninitialised, aligned to 64 bytes; NULL when there is no memory. Any thread.
void *scratch_take(size_t bytes);
/// NULL is allowed. Any thread.
void scratch_give(void *block);

#endif
