/// What the files of the CUDA device functions share (libdit_vendor_cuda.so).
///
/// Every function enters the primary context of its device for the time of the call and leaves the thread as it was, so
/// that a program may use PyTorch's own CUDA build in the same process and the same thread.
#ifndef DIT_CUDA_DEVICE_H
#define DIT_CUDA_DEVICE_H

#include "dit/device.h"
#include "driver.h"

#define DEVICE_ENTER(device)  \
  struct context_guard guard; \
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, device, err))
/// The end of a function that entered: leave, and the driver's answer in words.
#define DEVICE_LEAVE(error, what) return device_leave(&guard, error, what, err)
DIT_NODISCARD enum dit_status device_leave(const struct context_guard *guard, int error, const char *what,
                                           struct dit_error *err);
static inline driver_pointer device_address(const void *memory) {
  return (driver_pointer)(uintptr_t)memory;
}

// device_memory.c
enum dit_status cuda_get_memory(int device, struct dit_device_memory *out, struct dit_error *err);
enum dit_status cuda_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err);
enum dit_status cuda_memory_free(int device, void *ptr, struct dit_error *err);
enum dit_status cuda_memory_set(int device, void *stream, void *ptr, int value, size_t size, struct dit_error *err);
enum dit_status cuda_host_alloc(size_t size, void **ptr, struct dit_error *err);
enum dit_status cuda_host_free(void *ptr, struct dit_error *err);
enum dit_status cuda_host_register(void *ptr, size_t size, struct dit_error *err);
enum dit_status cuda_host_unregister(void *ptr, struct dit_error *err);
enum dit_status cuda_copy(const struct dit_copy *copy, struct dit_error *err);
enum dit_status cuda_copy_async(const struct dit_copy *copy, int device, void *stream, struct dit_error *err);
bool cuda_can_access_peer(int device, int peer);
enum dit_status cuda_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                   struct dit_error *err);
enum dit_status cuda_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err);
enum dit_status cuda_memory_close(int device, void *base, size_t size, struct dit_error *err);

// device_stream.c
enum dit_status cuda_synchronize(int device, struct dit_error *err);
enum dit_status cuda_check_last_error(int device, struct dit_error *err);
enum dit_status cuda_stream_create(int device, int priority, void **stream, struct dit_error *err);
enum dit_status cuda_stream_destroy(int device, void *stream, struct dit_error *err);
enum dit_status cuda_stream_synchronize(int device, void *stream, struct dit_error *err);
enum dit_status cuda_stream_query(int device, void *stream, bool *idle, struct dit_error *err);
enum dit_status cuda_stream_wait_event(int device, void *stream, void *event, struct dit_error *err);
enum dit_status cuda_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                        struct dit_error *err);
enum dit_status cuda_stream_get_priority_range(int device, int *least, int *greatest, struct dit_error *err);
enum dit_status cuda_device_event_create(int device, unsigned flags, void **event, struct dit_error *err);
void cuda_device_event_destroy(int device, void *event);
enum dit_status cuda_device_event_record(int device, void *event, void *stream, struct dit_error *err);
enum dit_status cuda_device_event_query(int device, void *event, bool *done, struct dit_error *err);
enum dit_status cuda_device_event_synchronize(int device, void *event, struct dit_error *err);
enum dit_status cuda_device_event_get_elapsed(int device, void *start, void *end, double *milliseconds,
                                              struct dit_error *err);

#endif
