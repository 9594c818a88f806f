/// The opaque device's functions: the vtable that include/dit/device.h asks for, and copies.
///
/// A copy between device and host memory is work of the device. One that touches host memory which is not pinned blocks
/// the caller until it is done, as the device cannot read such memory by itself. Options: DITORCH_HOST_DEVICES and
/// DITORCH_HOST_MEMORY as for the embedded device (one device and 4 GiB when they are not set), DITORCH_OPAQUE.
#include <stdio.h>
#include <string.h>

#include "dit/options.h"
#include "opaque.h"

#define MEMORY ((uint64_t)4 << 30)

static uint64_t memory_size;

/// Queues and events are the embedded device's.
static const struct dit_device_vtable *get_host(void) {
  return dit_host_get_device();
}

static int64_t get_option(const char *name, int64_t fallback) {
  const int index = dit_option_find(name);
  return index >= 0 && dit_option_get_source(index) != DIT_SOURCE_DEFAULT ? dit_option_get_int(index) : fallback;
}

static enum dit_status opaque_count(int *count, struct dit_error *err) {
  (void)err;
  const int64_t devices = get_option("host_devices", 1);
  *count = devices < 0 ? 0 : devices > DIT_MAX_DEVICES ? DIT_MAX_DEVICES : (int)devices;
  return DIT_OK;
}

static enum dit_status opaque_init(struct dit_error *err) {
  int count = 0;
  DIT_RETURN_IF_NOT_OK(opaque_count(&count, err));
  DIT_RETURN_IF_NOT_OK(opaque_mishap_init(err));
  DIT_RETURN_IF_NOT_OK(opaque_missing_init(err));
  memory_size = (uint64_t)get_option("host_memory", 0);
  memory_size = memory_size > 0 ? memory_size : MEMORY;
  opaque_memory_init(memory_size);
  dit_host_stream_init(get_option("launch_blocking", 0) != 0);
  return opaque_work_init(count, err);
}

static enum dit_status opaque_get_version(int *version, struct dit_error *err) {
  (void)err;
  *version = 12040;
  return DIT_OK;
}

static enum dit_status opaque_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  (void)err;
  *out = (struct dit_device_properties){
      .name = "ditorch opaque device",
      .vendor = "ditorch",
      .architecture = "box",
      .total_memory = memory_size,
      .major = 8,
      .multi_processor_count = 2,
      .warp_size = 32,
      .max_threads_per_multi_processor = 2048,
      .max_threads_per_block = 1024,
      .regs_per_multiprocessor = 65536,
      .pci_bus = device,
      .shared_memory_per_block = 48 << 10,
      .shared_memory_per_multiprocessor = 64 << 10,
      .l2_cache_size = 4 << 20,
      .host_accessible = false,
  };
  snprintf(out->uuid, sizeof out->uuid, "6f706171-7565-4000-8000-%012x", (unsigned)device);
  return DIT_OK;
}

static bool opaque_can_access_peer(int device, int peer) {
  return device != peer;
}

// Copies

/// The bytes of a copy as the device sees them. Device addresses were checked when it was asked for.
static bool run_copy(void *arguments, struct dit_error *err) {
  const struct dit_copy *copy = arguments;
  void *dst = copy->kind == DIT_COPY_DEVICE_TO_HOST ? copy->dst : dit_opaque_open(copy->dst, copy->size);
  const void *src = copy->kind == DIT_COPY_HOST_TO_DEVICE ? copy->src : dit_opaque_open(copy->src, copy->size);
  if (!dst || !src) {
    (void)dit_error_set(err, DIT_ERR_DEVICE, "an illegal address: %zu bytes from %p to %p", copy->size, copy->src,
                        copy->dst);
    return false;
  }
  memmove(dst, src, copy->size);
  return true;
}

static const char *get_copy_name(const struct dit_copy *copy) {
  static const char *const names[] = {"a copy to the device", "a copy from the device", "a copy on the device"};
  return names[copy->kind];
}

static bool is_asynchronous(const struct dit_copy *copy) {
  return copy->kind == DIT_COPY_DEVICE_TO_DEVICE ||
         opaque_is_pinned(copy->kind == DIT_COPY_HOST_TO_DEVICE ? copy->src : copy->dst, copy->size);
}

static enum dit_status opaque_stream_synchronize(int device, void *stream, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(get_host()->stream_synchronize(device, dit_opaque_get_queue(device, stream), err));
  return dit_opaque_check(device, err);
}

static enum dit_status opaque_copy_async(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  if (copy->size == 0) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(opaque_launch(device, stream, get_copy_name(copy), run_copy, copy, sizeof *copy, err));
  return is_asynchronous(copy) ? DIT_OK : opaque_stream_synchronize(device, stream, err);
}

static enum dit_status opaque_copy(const struct dit_copy *copy, struct dit_error *err) {
  const int device = copy->kind == DIT_COPY_DEVICE_TO_HOST ? copy->src_device : copy->dst_device;
  DIT_RETURN_IF_NOT_OK(opaque_copy_async(copy, device, NULL, err));
  return opaque_stream_synchronize(device, NULL, err);
}

struct set_arguments {
  void *ptr;
  int value;
  size_t size;
};

static bool run_set(void *arguments, struct dit_error *err) {
  const struct set_arguments *set = arguments;
  void *open = dit_opaque_open(set->ptr, set->size);
  if (!open) {
    (void)dit_error_set(err, DIT_ERR_DEVICE, "an illegal address: %zu bytes at %p", set->size, set->ptr);
    return false;
  }
  memset(open, set->value, set->size);
  return true;
}

static enum dit_status opaque_memory_set(int device, void *stream, void *ptr, int value, size_t size,
                                         struct dit_error *err) {
  const struct set_arguments set = {ptr, value, size};
  return size == 0 ? DIT_OK : opaque_launch(device, stream, "a fill", run_set, &set, sizeof set, err);
}

// Streams and events: the queues of vendors/host, and what they report of the device

static enum dit_status opaque_synchronize(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(get_host()->synchronize(device, err));
  return dit_opaque_check(device, err);
}

static enum dit_status opaque_stream_create(int device, int priority, void **stream, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_opaque_check(device, err));
  return opaque_queue_create(device, priority, stream, err);
}

static enum dit_status opaque_stream_query(int device, void *stream, bool *idle, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_opaque_check(device, err));
  return get_host()->stream_query(device, dit_opaque_get_queue(device, stream), idle, err);
}

static enum dit_status opaque_stream_wait_event(int device, void *stream, void *event, struct dit_error *err) {
  return get_host()->stream_wait_event(device, dit_opaque_get_queue(device, stream), event, err);
}

static enum dit_status opaque_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                                 struct dit_error *err) {
  return get_host()->stream_launch_host(device, dit_opaque_get_queue(device, stream), function, argument, err);
}

static enum dit_status opaque_event_record(int device, void *event, void *stream, struct dit_error *err) {
  return get_host()->event_record(device, event, dit_opaque_get_queue(device, stream), err);
}

static enum dit_status opaque_event_synchronize(int device, void *event, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(get_host()->event_synchronize(device, event, err));
  return dit_opaque_check(device, err);
}

static enum dit_status opaque_stream_destroy(int device, void *stream, struct dit_error *err) {
  return get_host()->stream_destroy(device, stream, err);
}

static enum dit_status opaque_get_priority_range(int device, int *least, int *greatest, struct dit_error *err) {
  return get_host()->stream_get_priority_range(device, least, greatest, err);
}

static enum dit_status opaque_event_create(int device, unsigned flags, void **event, struct dit_error *err) {
  return get_host()->event_create(device, flags, event, err);
}

static void opaque_event_destroy(int device, void *event) {
  get_host()->event_destroy(device, event);
}

static enum dit_status opaque_event_query(int device, void *event, bool *done, struct dit_error *err) {
  return get_host()->event_query(device, event, done, err);
}

static enum dit_status opaque_event_get_elapsed(int device, void *start, void *end, double *milliseconds,
                                                struct dit_error *err) {
  return get_host()->event_get_elapsed(device, start, end, milliseconds, err);
}

static void describe(char *text, size_t size) {
  snprintf(text, size, "a test device whose memory the host cannot read");
}

static const struct dit_device_vtable vtable = {
    .abi_version = DIT_DEVICE_ABI_VERSION,
    .struct_size = sizeof(struct dit_device_vtable),
    .name = "opaque",
    .version = DIT_VERSION_TEXT,
    .init = opaque_init,
    .finalize = opaque_work_finalize,
    .get_driver_version = opaque_get_version,
    .get_runtime_version = opaque_get_version,
    .count = opaque_count,
    .counts_by_option = true,
    .get_properties = opaque_get_properties,
    .get_memory = opaque_get_memory,
    .reset = opaque_reset,
    .synchronize = opaque_synchronize,
    .check_last_error = dit_opaque_check,
    .can_access_peer = opaque_can_access_peer,
    .memory_alloc = opaque_memory_alloc,
    .memory_free = opaque_memory_free,
    .memory_set = opaque_memory_set,
    .host_alloc = opaque_pinned_alloc,
    .host_free = opaque_pinned_free,
    .host_register = opaque_register,
    .host_unregister = opaque_unregister,
    .copy = opaque_copy,
    .copy_async = opaque_copy_async,
    .stream_create = opaque_stream_create,
    .stream_destroy = opaque_stream_destroy,
    .stream_synchronize = opaque_stream_synchronize,
    .stream_query = opaque_stream_query,
    .stream_wait_event = opaque_stream_wait_event,
    .stream_launch_host = opaque_stream_launch_host,
    .stream_get_priority_range = opaque_get_priority_range,
    .event_create = opaque_event_create,
    .event_destroy = opaque_event_destroy,
    .event_record = opaque_event_record,
    .event_query = opaque_event_query,
    .event_synchronize = opaque_event_synchronize,
    .event_get_elapsed = opaque_event_get_elapsed,
    .describe = describe,
    .memory_export = opaque_memory_export,
    .memory_import = opaque_memory_import,
    .memory_close = opaque_memory_close,
};

DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);

const struct dit_device_vtable *dit_vendor_get_device(void) {
  return &vtable;
}
