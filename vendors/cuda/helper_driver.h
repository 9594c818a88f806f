/// The CUDA driver as found at run time: the types, constants and functions that the helper uses, and contexts.
///
/// Declared here in our own words so that no CUDA header is needed to build; names and numbers are those of the
/// driver's stable interface (cuda.h). Invariant: `driver` is complete once driver_load has returned DIT_OK.
#ifndef DIT_CUDA_HELPER_DRIVER_H
#define DIT_CUDA_HELPER_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

#define DRIVER_MAX_DEVICES 64

enum {
  DRIVER_SUCCESS = 0,
  DRIVER_INVALID_VALUE = 1,
  DRIVER_OUT_OF_MEMORY = 2,
  DRIVER_NOT_READY = 600,
};

enum {
  DRIVER_HOST_PORTABLE = 1,      ///< pinned for all contexts
  DRIVER_POINTER_ORDINAL = 9,    ///< pointer attribute: device
  DRIVER_CAPTURE_RELAXED = 2,    ///< capture mode of a thread
  DRIVER_JIT_ERROR_LOG = 5,      ///< option: buffer
  DRIVER_JIT_ERROR_LOG_SIZE = 6  ///< option: its size
};

typedef uint64_t driver_pointer;  ///< CUdeviceptr

/// X(field, exported symbol, parameters); all return an error number. The driver keeps old symbols for old callers, so
/// the versioned names are fixed.
#define DRIVER_FUNCTIONS(X)                                                                                 \
  X(init, cuInit, (unsigned flags))                                                                         \
  X(get_version, cuDriverGetVersion, (int *version))                                                        \
  X(get_error_name, cuGetErrorName, (int error, const char **text))                                         \
  X(get_error_string, cuGetErrorString, (int error, const char **text))                                     \
  X(device_get_count, cuDeviceGetCount, (int *count))                                                       \
  X(device_get, cuDeviceGet, (int *device, int ordinal))                                                    \
  X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                                 \
  X(context_get, cuCtxGetCurrent, (void **context))                                                         \
  X(context_push, cuCtxPushCurrent_v2, (void *context))                                                     \
  X(context_pop, cuCtxPopCurrent_v2, (void **context))                                                      \
  X(module_load, cuModuleLoadData, (void **module, const void *image))                                      \
  X(module_load_text, cuModuleLoadDataEx,                                                                   \
    (void **module, const void *image, unsigned count, int *options, void **values))                        \
  X(module_get_function, cuModuleGetFunction, (void **function, void *module, const char *name))            \
  X(launch, cuLaunchKernel,                                                                                 \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra))                     \
  X(event_create, cuEventCreate, (void **event, unsigned flags))                                            \
  X(event_destroy, cuEventDestroy_v2, (void *event))                                                        \
  X(event_record, cuEventRecord, (void *event, void *stream))                                               \
  X(event_query, cuEventQuery, (void *event))                                                               \
  X(event_synchronize, cuEventSynchronize, (void *event))                                                   \
  X(event_get_elapsed, cuEventElapsedTime, (float *milliseconds, void *start, void *end))                   \
  X(memory_allocate, cuMemAlloc_v2, (driver_pointer * memory, size_t size))                                 \
  X(memory_free, cuMemFree_v2, (driver_pointer memory))                                                     \
  X(memory_set, cuMemsetD8Async, (driver_pointer memory, unsigned char value, size_t size, void *stream))   \
  X(host_allocate, cuMemHostAlloc, (void **memory, size_t size, unsigned flags))                            \
  X(host_free, cuMemFreeHost, (void *memory))                                                               \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void *host, driver_pointer device, size_t size, void *stream))     \
  X(stream_synchronize, cuStreamSynchronize, (void *stream))                                                \
  X(stream_is_capturing, cuStreamIsCapturing, (void *stream, int *status))                                  \
  X(capture_exchange, cuThreadExchangeStreamCaptureMode, (int *mode))                                       \
  X(pointer_get, cuPointerGetAttribute, (void *value, int attribute, driver_pointer pointer))

/// Functions that older drivers lack.
#define DRIVER_OPTIONAL(X) X(stream_get_id, cuStreamGetId, (void *stream, unsigned long long *id))

struct driver {
#define DRIVER_FIELD(field, symbol, parameters) int(*field) parameters;
  DRIVER_FUNCTIONS(DRIVER_FIELD)
  DRIVER_OPTIONAL(DRIVER_FIELD)
#undef DRIVER_FIELD
  int device_count;
};

extern struct driver driver;

/// Find libcuda and start it. DIT_ERR_UNSUPPORTED with what is missing. Called once.
DIT_NODISCARD enum dit_status driver_load(struct dit_error *err);
/// DIT_OK, or the driver's own words: NOMEM for memory, else DEVICE. `what` is the function or the deed.
DIT_NODISCARD enum dit_status driver_check(int error, const char *what, struct dit_error *err);

/// Make the primary context of `device` current for a few calls. Every successful enter needs a leave.
struct context_guard {
  void *context;  ///< pushed; NULL: it was current already
};
DIT_NODISCARD enum dit_status context_enter(struct context_guard *guard, int device, struct dit_error *err);
/// Any context will do: the current one, else one that is in use, else device 0's.
DIT_NODISCARD enum dit_status context_enter_any(struct context_guard *guard, struct dit_error *err);
void context_leave(const struct context_guard *guard);

/// DIT_ERR_UNSUPPORTED when work enqueued on the stream would land in a CUDA graph.
DIT_NODISCARD enum dit_status stream_check(void *stream, struct dit_error *err);

#endif
