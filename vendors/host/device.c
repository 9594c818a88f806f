/// The embedded accelerator's device functions: the vtable that include/dit/device.h asks for, process start and end,
/// copies.
///
/// Devices are address ranges of one memory: any pointer may be read by the host, peers reach each other, a copy is
/// memmove. Options are read at init: DITORCH_HOST_MEMORY, CUDA_LAUNCH_BLOCKING. Depends on the other files here and
/// libdit's core.
#include <stdio.h>
#include <string.h>

#include "engine/blas.h"
#include "engine/onednn.h"
#include "host_internal.h"

static enum dit_status host_init(struct dit_error *err) {
  int count;
  DIT_RETURN_IF_NOT_OK(host_count(&count, err));
  host_memory_init();
  dit_host_stream_init(host_option_get("launch_blocking", 0) != 0);
  return DIT_OK;
}

static void host_finalize(void) {
  dit_host_stream_finalize();
}

// What torch.version.cuda answers too: libraries parse it and refuse None.
static enum dit_status host_get_version(int *version, struct dit_error *err) {
  (void)err;
  *version = 12040;
  return DIT_OK;
}

static bool host_can_access_peer(int device, int peer) {
  return device != peer;
}

static void run_copy(void *arguments) {
  const struct dit_copy *copy = arguments;
  memmove(copy->dst, copy->src, copy->size);
}

static enum dit_status host_copy(const struct dit_copy *copy, struct dit_error *err) {
  (void)err;
  dit_memory_access_begin();
  memmove(copy->dst, copy->src, copy->size);
  dit_memory_access_end();
  return DIT_OK;
}

static enum dit_status host_copy_async(const struct dit_copy *copy, int stream_device, void *stream,
                                       struct dit_error *err) {
  (void)stream_device;
  return host_stream_launch(stream, run_copy, copy, sizeof *copy, err);
}

struct set_arguments {
  void *ptr;
  int value;
  size_t size;
};

static void run_set(void *arguments) {
  const struct set_arguments *set = arguments;
  memset(set->ptr, set->value, set->size);
}

static enum dit_status host_memory_set(int device, void *stream, void *ptr, int value, size_t size,
                                       struct dit_error *err) {
  (void)device;
  struct set_arguments set = {ptr, value, size};
  return host_stream_launch(stream, run_set, &set, sizeof set, err);
}

// All host memory is reachable as it is; the runtime keeps the list of registered ranges.
static enum dit_status host_register(void *ptr, size_t size, struct dit_error *err) {
  (void)ptr;
  (void)size;
  (void)err;
  return DIT_OK;
}

static enum dit_status host_unregister(void *ptr, struct dit_error *err) {
  (void)ptr;
  (void)err;
  return DIT_OK;
}

static void describe(char *text, size_t size) {
  const char *path = blas_get_path();
  snprintf(text, size, "matrix products by %s; %s", *path ? path : "built-in code (no BLAS found)", onednn_describe());
}

static const struct dit_device_vtable vtable = {
    .abi_version = DIT_DEVICE_ABI_VERSION,
    .struct_size = sizeof(struct dit_device_vtable),
    .name = "host",
    .version = DIT_VERSION_TEXT,
    .init = host_init,
    .finalize = host_finalize,
    .get_driver_version = host_get_version,
    .get_runtime_version = host_get_version,
    .count = host_count,
    .counts_by_option = true,
    .get_properties = host_get_properties,
    .get_memory = host_get_memory,
    .synchronize = host_synchronize,
    .can_access_peer = host_can_access_peer,
    .memory_alloc = host_memory_alloc,
    .memory_free = host_memory_free,
    .memory_set = host_memory_set,
    .host_alloc = host_pinned_alloc,
    .host_free = host_pinned_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .copy = host_copy,
    .copy_async = host_copy_async,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_synchronize = host_stream_synchronize,
    .stream_query = host_stream_query,
    .stream_wait_event = host_stream_wait_event,
    .stream_launch_host = host_stream_launch_host,
    .stream_get_priority_range = host_stream_get_priority_range,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_query = host_event_query,
    .event_synchronize = host_event_synchronize,
    .event_get_elapsed = host_event_get_elapsed,
    .describe = describe,
    .memory_export = host_memory_export,
    .memory_import = host_memory_import,
    .memory_close = host_memory_close,
};

const struct dit_device_vtable *dit_host_get_device(void) {
  return &vtable;
}

DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);

const struct dit_device_vtable *dit_vendor_get_device(void) {
  return &vtable;
}
