/// What the embedded accelerator lends to devices made of host memory (vendors/opaque): its queues, events and kernels.
///
/// Depends on host.h, for how work is queued.
#ifndef DIT_VENDORS_HOST_LEND_H
#define DIT_VENDORS_HOST_LEND_H

#include "dit/device.h"
#include "dit/kernel.h"
#include "host.h"

/// Whoever made a stream for a device of its own (vendors/opaque): asked before each piece of queued work, which is
/// left out when the answer is not DIT_OK, and after each wait; told about work that failed. Both come from any thread.
struct dit_host_stream_owner {
  enum dit_status (*check)(void *context, struct dit_error *err);
  void (*fail)(void *context, const char *text);
  void *context;
};
/// Before the first work is queued; `owner` lives as long as the stream.
DIT_API void dit_host_stream_set_owner(void *stream, const struct dit_host_stream_owner *owner);
/// Streams for another vendor's devices are those of the embedded one: its table of device functions, its kernels, and
/// what its init and finalize do for streams. One vendor of a process is active, so they are never used for both.
DIT_API const struct dit_device_vtable *dit_host_get_device(void);
DIT_API const struct dit_kernel_vtable *dit_host_get_kernels(void);
DIT_API void dit_host_stream_init(bool launch_blocking);
DIT_API void dit_host_stream_finalize(void);  ///< drains and destroys every stream that is left

#endif
