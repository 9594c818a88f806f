/// What the files of the embedded accelerator share: device table, streams, marks (one recording of an event).
///
/// Files: device.c (vtable, copies), properties.c (what the machine has), memory.c (device and pinned blocks), status.c
/// (memory in use, for other processes), stream.c (queues and workers), event.c (events and marks). Kernels (engine/,
/// ops/) see host.h alone.
#ifndef DIT_VENDORS_HOST_HOST_INTERNAL_H
#define DIT_VENDORS_HOST_HOST_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/device.h"
#include "lend.h"

// properties.c: options and the machine

enum dit_status host_count(int *count, struct dit_error *err);
enum dit_status host_get_properties(int device, struct dit_device_properties *out, struct dit_error *err);
/// Bytes one device has: DITORCH_HOST_MEMORY, or what this process may use of the machine. `chosen`: set by the user.
uint64_t host_memory_limit(bool *chosen);
/// Bytes the machine could give now; UINT64_MAX when it does not say.
uint64_t host_memory_available(void);
/// An option's value by name; `fallback` when the option does not exist.
int64_t host_option_get(const char *name, int64_t fallback);

// memory.c

/// Read the limit. Blocks that are still live stay valid and stay counted.
void host_memory_init(void);
/// Bytes each device has, as read by host_memory_init.
uint64_t host_memory_get_total(void);
enum dit_status host_get_memory(int device, struct dit_device_memory *out, struct dit_error *err);
enum dit_status host_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err);
enum dit_status host_memory_free(int device, void *ptr, struct dit_error *err);
enum dit_status host_pinned_alloc(size_t size, void **ptr, struct dit_error *err);
enum dit_status host_pinned_free(void *ptr, struct dit_error *err);

/// The device's live block that contains `ptr`; `mapped`: it consists of whole pages of its own.
bool host_memory_find(int device, const void *ptr, void **base, size_t *size, bool *mapped);

// share.c: blocks that other processes can map

enum dit_status host_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                   struct dit_error *err);
enum dit_status host_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err);
enum dit_status host_memory_close(int device, void *base, size_t size, struct dit_error *err);
/// The block at `base` is about to be unmapped.
void host_share_forget(const void *base);

// status.c; memory.c's lock is held

void host_status_init(uint64_t limit);
void host_status_set_used(int device, uint64_t bytes);

// stream.c

struct host_stream;

enum dit_status host_stream_create(int device, int priority, void **stream, struct dit_error *err);
enum dit_status host_stream_destroy(int device, void *stream, struct dit_error *err);
enum dit_status host_stream_synchronize(int device, void *stream, struct dit_error *err);
enum dit_status host_stream_query(int device, void *stream, bool *idle, struct dit_error *err);
enum dit_status host_stream_get_priority_range(int device, int *least, int *greatest, struct dit_error *err);
enum dit_status host_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                        struct dit_error *err);
enum dit_status host_synchronize(int device, struct dit_error *err);
enum host_task_kind {
  HOST_TASK_KERNEL,    ///< left out when the stream's owner says so
  HOST_TASK_QUICK,     ///< waits for nothing
  HOST_TASK_BLOCKING,  ///< may wait for anything: runs in the worker alone
};
/// Queue without the wait that CUDA_LAUNCH_BLOCKING asks for: events and host functions.
enum dit_status host_stream_push(struct host_stream *stream, enum host_task_kind kind, void (*run)(void *arguments),
                                 const void *arguments, size_t size, struct dit_error *err);

// event.c

enum dit_status host_event_create(int device, unsigned flags, void **event, struct dit_error *err);
void host_event_destroy(int device, void *event);
enum dit_status host_event_record(int device, void *event, void *stream, struct dit_error *err);
enum dit_status host_event_query(int device, void *event, bool *done, struct dit_error *err);
enum dit_status host_event_synchronize(int device, void *event, struct dit_error *err);
enum dit_status host_event_get_elapsed(int device, void *start, void *end, double *milliseconds, struct dit_error *err);
enum dit_status host_stream_wait_event(int device, void *stream, void *event, struct dit_error *err);

#endif
