/// The device front: what frameworks call. One vendor is active per process; everything here is written once over its
/// vtable.
///
/// Threads: all functions are thread safe. The current device and the current stream of each device are thread-local.
#ifndef DIT_RUNTIME_H
#define DIT_RUNTIME_H

#include "dit/device.h"

DIT_EXTERN_C_BEGIN

struct dit_kernel_vtable;

// Vendor

/// Load a vendor library and make it the process's device. `vendor` is a name ("host": libdit_vendor_host.so, looked up
/// beside libdit and then by the dynamic loader) or a path (contains '/'). A second call with the same vendor does
/// nothing; with another one it fails. Errors name the file tried, the missing symbol or slots, the ABI version found
/// and wanted, or the foreign architecture; after an error nothing is active.
DIT_API DIT_NODISCARD enum dit_status dit_runtime_init(const char *vendor, struct dit_error *err);
DIT_API bool dit_runtime_is_active(void);
/// Borrowed, valid for the process's life; NULL before dit_runtime_init.
DIT_API const struct dit_device_vtable *dit_runtime_get_vtable(void);
DIT_API const struct dit_kernel_vtable *dit_runtime_get_kernels(void);
/// Path of the loaded vendor library ("" before init).
DIT_API const char *dit_runtime_get_path(void);
/// Drain all devices, stop worker threads, give all memory back. For process exit and tests; init may follow.
DIT_API void dit_runtime_shutdown(void);
/// True in a child process forked after the parent had used the device: every other function then fails with
/// DIT_ERR_DEVICE and a message that says so ("Cannot re-initialize CUDA in forked subprocess ...").
DIT_API bool dit_runtime_is_bad_fork(void);

// Devices

DIT_API int dit_device_get_count(void);  ///< 0 before init
DIT_API int dit_device_get_current(void);
/// DIT_ERR_ORDINAL with "CUDA error: invalid device ordinal" and the valid range when out of range.
DIT_API DIT_NODISCARD enum dit_status dit_device_set_current(int device, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_device_check(int device, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_device_get_properties(int device, struct dit_device_properties *out,
                                                                struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_device_synchronize(int device, struct dit_error *err);

// streams: identified by a small number that survives in framework objects. 0 is the default stream; 1 to 32 are
// the pool of normal priority, 33 to 64 the pool of high priority; larger even numbers are handles of external streams.

#define DIT_STREAM_POOL_SIZE 32

DIT_API int64_t dit_stream_get_current(int device);
DIT_API DIT_NODISCARD enum dit_status dit_stream_set_current(int device, int64_t stream, struct dit_error *err);
/// Next stream of the device's round-robin pool (32 per priority level, created lazily). priority 0 normal, < 0 high.
DIT_API DIT_NODISCARD enum dit_status dit_stream_acquire(int device, int priority, int64_t *stream,
                                                         struct dit_error *err);
/// The raw vendor handle; NULL for stream 0. An id that is no pool stream is taken as an external handle (even number >
/// pool ids).
DIT_API DIT_NODISCARD enum dit_status dit_stream_get_raw(int device, int64_t stream, void **raw, struct dit_error *err);
/// The raw handle of the calling thread's current stream: the door's hot path, inlined by caching in TLS; NULL =
/// default.
DIT_API void *dit_stream_get_current_raw(int device);
DIT_API int dit_stream_get_priority(int device, int64_t stream);
DIT_API DIT_NODISCARD enum dit_status dit_stream_query(int device, int64_t stream, bool *idle, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_stream_synchronize(int device, int64_t stream, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_stream_launch_host(int device, int64_t stream, void (*function)(void *),
                                                             void *argument, struct dit_error *err);

// Events

struct dit_event;
DIT_API DIT_NODISCARD enum dit_status dit_event_create(int device, unsigned flags, struct dit_event **out,
                                                       struct dit_error *err);
DIT_API void dit_event_destroy(struct dit_event *event);  ///< NULL allowed; safe while pending
DIT_API DIT_NODISCARD enum dit_status dit_event_record(struct dit_event *event, int device, int64_t stream,
                                                       struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_event_query(struct dit_event *event, bool *done, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_event_synchronize(struct dit_event *event, struct dit_error *err);
/// Make later work of `stream` wait for the event (which may belong to another device).
DIT_API DIT_NODISCARD enum dit_status dit_event_block(struct dit_event *event, int device, int64_t stream,
                                                      struct dit_error *err);
/// DIT_ERR_INVALID when an event has no timing or was not recorded; DIT_ERR_DEVICE when it is not complete yet.
DIT_API DIT_NODISCARD enum dit_status dit_event_get_elapsed(struct dit_event *start, struct dit_event *end,
                                                            double *milliseconds, struct dit_error *err);
DIT_API int dit_event_get_device(const struct dit_event *event);

// Contiguous copies; device -1 is the host

/// Copy `size` bytes in the order of `stream` of `stream_device`. When it returns, host source memory may be reused
/// unless it is pinned and `async` was asked for; host destination memory is valid unless `async` was asked for.
DIT_API DIT_NODISCARD enum dit_status dit_memory_copy(void *dst, int dst_device, const void *src, int src_device,
                                                      size_t size, int stream_device, int64_t stream, bool async,
                                                      struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_memory_set(void *dst, int device, int value, size_t size, int64_t stream,
                                                     struct dit_error *err);

// Pinned host memory: cached; a block is not handed out again while recorded streams still use it

DIT_API DIT_NODISCARD enum dit_status dit_host_alloc(size_t size, void **ptr, struct dit_error *err);
DIT_API void dit_host_free(void *ptr);  ///< NULL allowed
/// Is the address inside a live pinned block (or registered range)?
DIT_API bool dit_host_is_pinned(const void *ptr);
/// The block that contains `ptr` is used by work queued so far on this stream.
DIT_API DIT_NODISCARD enum dit_status dit_host_record_stream(const void *ptr, int device, int64_t stream,
                                                             struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_host_register(void *ptr, size_t size, struct dit_error *err);
DIT_API DIT_NODISCARD enum dit_status dit_host_unregister(void *ptr, struct dit_error *err);
DIT_API void dit_host_empty_cache(void);

struct dit_host_stats {
  uint64_t allocated_current, allocated_peak, allocated_total, freed_total;  ///< bytes handed out
  uint64_t reserved_current, reserved_peak;                                  ///< bytes taken from the vendor
  uint64_t allocations, frees, vendor_allocations, vendor_frees;
};
DIT_API void dit_host_get_stats(struct dit_host_stats *out);
DIT_API void dit_host_reset_peak(void);

DIT_EXTERN_C_END

#endif
