/// Pools of device memory: what a thread allocates while it has chosen one comes from segments of that pool alone,
/// which serve nobody else and stay with it until the pool is released (torch.cuda.MemPool, pools of graphs).
///
/// A pool is a number above 0, chosen by the caller; it exists on every device on which it was chosen.
#ifndef DIT_MEMORY_POOL_H
#define DIT_MEMORY_POOL_H

#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// Until the matching end, this thread's allocations on `device` come from `pool`. Choices nest (to 32), the last one
/// holds. DIT_ERR_INVALID for a pool that is no number above 0, or too many.
DIT_API DIT_NODISCARD enum dit_status dit_memory_pool_begin(int device, int64_t pool, struct dit_error *err);
/// DIT_ERR_INVALID when this thread has no such choice.
DIT_API DIT_NODISCARD enum dit_status dit_memory_pool_end(int device, int64_t pool, struct dit_error *err);
/// Nobody will choose the pool again: what is free of it goes back to the devices at once (they are synchronised), the
/// rest is cached memory as soon as it is free.
DIT_API DIT_NODISCARD enum dit_status dit_memory_pool_release(int64_t pool, struct dit_error *err);
/// The pool of the segment that contains the address; 0: none, or no device memory.
DIT_API int64_t dit_memory_pool_find(const void *address);

DIT_EXTERN_C_END

#endif
