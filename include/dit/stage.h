/// Several pieces of device memory on the host at once, for code that computes there what a device cannot.
///
/// Depends on dit/runtime.h.
#ifndef DIT_STAGE_H
#define DIT_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

struct dit_stage_piece {
  void *host;    ///< pinned memory, so that the pieces travel without a wait between them
  void *device;  ///< of the device that dit_stage_fetch is called for
  size_t size;   ///< 0: nothing to do
};

/// Copy the pieces to the host in the order of the stream, and wait for it once. With nothing to copy it does not wait.
DIT_API DIT_NODISCARD enum dit_status dit_stage_fetch(int device, int64_t stream, const struct dit_stage_piece *pieces,
                                                      size_t count, struct dit_error *err);

/// May the host read and write the memory of the active vendor's devices (dit_device_properties.host_accessible)? True
/// when no vendor is active.
DIT_API bool dit_stage_is_host_accessible(void);

DIT_EXTERN_C_END

#endif
