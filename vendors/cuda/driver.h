/// The CUDA driver as found at run time: the types, constants and functions that our libraries use, and contexts.
///
/// Compiled into each library that needs it (the tools' helper, the device functions, the operators): primary contexts
/// are counted by the driver, so that all of them, and PyTorch's own CUDA build, share one context per device.
///
/// Declared here in our own words so that no CUDA header is needed to build; names and numbers are those of the
/// driver's stable interface (cuda.h). Invariant: `driver` is complete once driver_load has returned DIT_OK.
#ifndef DIT_CUDA_DRIVER_H
#define DIT_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

#define DRIVER_MAX_DEVICES 64

enum {
  DRIVER_SUCCESS = 0,
  DRIVER_INVALID_VALUE = 1,
  DRIVER_OUT_OF_MEMORY = 2,
  DRIVER_PEER_ENABLED = 704,  ///< peer access was enabled before
  DRIVER_NOT_READY = 600,
};

enum {
  DRIVER_STREAM_NON_BLOCKING = 1,  ///< does not wait for the default stream
  DRIVER_EVENT_BLOCKING = 1,
  DRIVER_EVENT_NO_TIMING = 2,
  DRIVER_EVENT_INTERPROCESS = 4,
  DRIVER_IPC_LAZY_PEER = 1,
  DRIVER_SHARED_LIMIT = 8,  ///< function attribute: dynamic shared memory
};

/// Attributes of a device, by cuda.h's numbers.
enum {
  DRIVER_MAX_THREADS_PER_BLOCK = 1,
  DRIVER_SHARED_PER_BLOCK = 8,
  DRIVER_WARP_SIZE = 10,
  DRIVER_CLOCK_RATE = 13,
  DRIVER_MULTIPROCESSORS = 16,
  DRIVER_INTEGRATED = 18,
  DRIVER_PCI_BUS = 33,
  DRIVER_PCI_DEVICE = 34,
  DRIVER_MEMORY_CLOCK_RATE = 36,
  DRIVER_MEMORY_BUS_WIDTH = 37,
  DRIVER_L2_SIZE = 38,
  DRIVER_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  DRIVER_PCI_DOMAIN = 50,
  DRIVER_MAJOR = 75,
  DRIVER_MINOR = 76,
  DRIVER_SHARED_PER_MULTIPROCESSOR = 81,
  DRIVER_REGISTERS_PER_MULTIPROCESSOR = 82,
  DRIVER_SHARED_OPTIN = 97,
};

enum {
  DRIVER_HOST_PORTABLE = 1,      ///< pinned for all contexts
  DRIVER_POINTER_ORDINAL = 9,    ///< pointer attribute: device
  DRIVER_CAPTURE_RELAXED = 2,    ///< capture mode of a thread
  DRIVER_JIT_ERROR_LOG = 5,      ///< option: buffer
  DRIVER_JIT_ERROR_LOG_SIZE = 6  ///< option: its size
};

typedef uint64_t driver_pointer;  ///< CUdeviceptr

struct driver_ipc {
  char bytes[64];  ///< CUipcMemHandle
};

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

/// What the device functions and the operators need besides; driver_require_device says which one is missing.
#define DRIVER_DEVICE(X)                                                                                        \
  X(device_get_name, cuDeviceGetName, (char *name, int length, int device))                                     \
  X(device_get_uuid, cuDeviceGetUuid, (unsigned char *uuid, int device))                                        \
  X(device_get_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))                        \
  X(device_get_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                                       \
  X(device_can_access, cuDeviceCanAccessPeer, (int *can, int device, int peer))                                 \
  X(context_set, cuCtxSetCurrent, (void *context))                                                              \
  X(context_synchronize, cuCtxSynchronize, (void))                                                              \
  X(context_reset, cuDevicePrimaryCtxReset_v2, (int device))                                                    \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                                \
  X(context_enable_peer, cuCtxEnablePeerAccess, (void *peer, unsigned flags))                                   \
  X(priority_get_range, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                               \
  X(memory_get_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                          \
  X(memory_get_range, cuMemGetAddressRange_v2, (driver_pointer * base, size_t * size, driver_pointer memory))   \
  X(host_register, cuMemHostRegister_v2, (void *memory, size_t size, unsigned flags))                           \
  X(host_unregister, cuMemHostUnregister, (void *memory))                                                       \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (driver_pointer device, const void *host, size_t size, void *stream)) \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, (driver_pointer to, driver_pointer from, size_t size, void *stream))  \
  X(copy_peer, cuMemcpyPeerAsync,                                                                               \
    (driver_pointer to, void *to_context, driver_pointer from, void *from_context, size_t size, void *stream))  \
  X(stream_create, cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority))                   \
  X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                                         \
  X(stream_query, cuStreamQuery, (void *stream))                                                                \
  X(stream_wait_event, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                          \
  X(stream_launch_host, cuLaunchHostFunc, (void *stream, void (*function)(void *), void *argument))             \
  X(ipc_get, cuIpcGetMemHandle, (struct driver_ipc * handle, driver_pointer memory))                            \
  X(ipc_open, cuIpcOpenMemHandle_v2, (driver_pointer * memory, struct driver_ipc handle, unsigned flags))       \
  X(ipc_close, cuIpcCloseMemHandle, (driver_pointer memory))                                                    \
  X(function_set_attribute, cuFuncSetAttribute, (void *function, int attribute, int value))                     \
  X(profiler_start, cuProfilerStart, (void))                                                                    \
  X(profiler_stop, cuProfilerStop, (void))

/// Functions that older drivers lack.
#define DRIVER_OPTIONAL(X) X(stream_get_id, cuStreamGetId, (void *stream, unsigned long long *id))

struct driver {
#define DRIVER_FIELD(field, symbol, parameters) int(*field) parameters;
  DRIVER_FUNCTIONS(DRIVER_FIELD)
  DRIVER_DEVICE(DRIVER_FIELD)
  DRIVER_OPTIONAL(DRIVER_FIELD)
#undef DRIVER_FIELD
  int device_count;
};

extern struct driver driver;

/// Find libcuda and start it. DIT_ERR_UNSUPPORTED with what is missing. Called once.
DIT_NODISCARD enum dit_status driver_load(struct dit_error *err);
/// DIT_OK when the driver has all of DRIVER_DEVICE too. After driver_load.
DIT_NODISCARD enum dit_status driver_require_device(struct dit_error *err);
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
/// The primary context of a device, retained when first asked for.
DIT_NODISCARD enum dit_status context_find(int device, void **context, struct dit_error *err);
/// Give the context of a device back after a reset: the next use retains it anew.
void context_forget(int device);

/// DIT_ERR_UNSUPPORTED when work enqueued on the stream would land in a CUDA graph.
DIT_NODISCARD enum dit_status stream_check(void *stream, struct dit_error *err);

#endif
