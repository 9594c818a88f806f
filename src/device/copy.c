/// Contiguous copies and fills in stream order.
///
/// Host memory counts as asynchronous only when the whole range lies in one live pinned block: the block then remembers
/// the stream, so that it is not handed out again while the copy may run. With pageable memory (either direction) the
/// copy is queued and waited for, which is what CUDA's contract amounts to: the source is consumed, the destination
/// valid, on return. CUDA_LAUNCH_BLOCKING waits always. Depends on runtime.c, stream.c, host_memory.c.
#include <string.h>

#include "device/memory_watch.h"

static enum dit_status check_place(int device, struct dit_error *err) {
  return device == -1 ? DIT_OK : dit_device_check(device, err);
}

static enum dit_status check_copy(const void *dst, int dst_device, const void *src, int src_device, size_t size,
                                  int stream_device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_place(dst_device, err));
  DIT_RETURN_IF_NOT_OK(check_place(src_device, err));
  DIT_RETURN_IF_NOT_OK(dit_device_check(stream_device, err));
  if (size > 0 && (!dst || !src)) {
    return dit_error_set(err, DIT_ERR_INVALID, "copy of %zu bytes: the %s pointer is NULL", size,
                         dst ? "source" : "destination");
  }
  return DIT_OK;
}

static enum dit_status copy_on_host(void *dst, const void *src, size_t size, int device, void *stream,
                                    struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->stream_synchronize(device, stream, err));
  if (size > 0) {
    memmove(dst, src, size);
  }
  return DIT_OK;
}

// May the caller go on before the copy is done? Marks the pinned block as used by the stream.
static enum dit_status allow_async(const struct dit_copy *copy, int device, int64_t stream, bool *allowed,
                                   struct dit_error *err) {
  if (copy->kind == DIT_COPY_DEVICE_TO_DEVICE) {
    *allowed = true;
    return DIT_OK;
  }
  const void *host = copy->kind == DIT_COPY_HOST_TO_DEVICE ? copy->src : copy->dst;
  return dit_host_use_range(host, copy->size, device, stream, allowed, err);
}

enum dit_status dit_memory_copy(void *dst, int dst_device, const void *src, int src_device, size_t size,
                                int stream_device, int64_t stream, bool async, struct dit_error *err) {
  void *raw;
  bool go_on = false;
  DIT_RETURN_IF_NOT_OK(check_copy(dst, dst_device, src, src_device, size, stream_device, err));
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(stream_device, stream, &raw, err));
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (dst_device == -1 && src_device == -1) {
    return copy_on_host(dst, src, size, stream_device, raw, err);
  }
  if (size == 0) {
    return async ? DIT_OK : vtable->stream_synchronize(stream_device, raw, err);
  }
  struct dit_copy copy = {.dst = dst, .src = src, .size = size, .dst_device = dst_device, .src_device = src_device};
  copy.kind = src_device == -1   ? DIT_COPY_HOST_TO_DEVICE
              : dst_device == -1 ? DIT_COPY_DEVICE_TO_HOST
                                 : DIT_COPY_DEVICE_TO_DEVICE;
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_range(dst_device >= 0 ? dst : NULL, dst_device >= 0 ? size : 0, "a copy");
    dit_watch_range(src_device >= 0 ? src : NULL, src_device >= 0 ? size : 0, "a copy");
  }
  if (async) {
    DIT_RETURN_IF_NOT_OK(allow_async(&copy, stream_device, stream, &go_on, err));
  }
  if (!go_on && !raw) {
    return vtable->copy(&copy, err);
  }
  DIT_RETURN_IF_NOT_OK(vtable->copy_async(&copy, stream_device, raw, err));
  if (!go_on || (raw && dit_runtime_is_launch_blocking())) {
    return vtable->stream_synchronize(stream_device, raw, err);
  }
  return DIT_OK;
}

enum dit_status dit_memory_set(void *dst, int device, int value, size_t size, int64_t stream, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  if (size == 0) {
    return DIT_OK;
  }
  if (!dst) {
    return dit_error_set(err, DIT_ERR_INVALID, "fill of %zu bytes on device %d: the pointer is NULL", size, device);
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_range(dst, size, "a fill");
  }
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  DIT_RETURN_IF_NOT_OK(vtable->memory_set(device, raw, dst, value, size, err));
  return raw && dit_runtime_is_launch_blocking() ? vtable->stream_synchronize(device, raw, err) : DIT_OK;
}
