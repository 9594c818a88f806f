/// How long the vendor takes to give pinned host memory and to take it back. Depends on nothing; thread-safe.
#ifndef DIT_HOST_TIMES_H
#define DIT_HOST_TIMES_H

#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// Nanoseconds; all 0 before the first call.
struct dit_host_times {
  uint64_t count, total, max, min;
};

/// Of the vendor's allocations and of its frees since the start.
DIT_API void dit_host_get_times(struct dit_host_times *allocations, struct dit_host_times *frees);

DIT_EXTERN_C_END

#endif
