/// The process-wide thread pool for kernels: one parallel loop, shared by libdit and the vendor libraries.
#ifndef DIT_PARALLEL_H
#define DIT_PARALLEL_H

#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// Calls `body(context, b, e)` for ranges [b, e) that together cover [begin, end) exactly once, and returns when all
/// are done; what the bodies wrote is then visible to the caller. The caller takes part. Every inner border lies at
/// begin + k * grain, so a body that treats each block of `grain` indices alone gives the same result on any number of
/// threads. A range of at most one grain, a call from inside a body, and a call while another thread has the workers
/// run inline in the caller, in one piece, without locking. grain < 1 counts as 1. A body must not fork or exit its
/// thread.
DIT_API void dit_parallel_for(int64_t begin, int64_t end, int64_t grain,
                              void (*body)(void *context, int64_t begin, int64_t end), void *context);

/// Threads a loop may use, the caller included. Default: DITORCH_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this
/// process may use (affinity mask and cgroup quota).
DIT_API int dit_parallel_get_threads(void);
/// 1 to 1024; 0 or less goes back to the default. Takes effect at the next loop.
DIT_API void dit_parallel_set_threads(int threads);

DIT_EXTERN_C_END

#endif
