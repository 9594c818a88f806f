/// NVIDIA devices by C: the vtable that include/dit/device.h asks for, and what a device says about itself.
///
/// The driver library is found at run time; without it the vendor has no devices, and init says why. A failure of a
/// kernel is the context's from then on: every later call reports it in the driver's words.
#include "device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dit_error load_failure;

static void load(void) {
  load_failure.status = driver_load(&load_failure);
  if (load_failure.status == DIT_OK) {
    load_failure.status = driver_require_device(&load_failure);
  }
}

static enum dit_status cuda_init(struct dit_error *err) {
  pthread_once(&once, load);
  return load_failure.status == DIT_OK ? DIT_OK : dit_error_set(err, load_failure.status, "%s", load_failure.message);
}

enum dit_status device_leave(const struct context_guard *guard, int error, const char *what, struct dit_error *err) {
  context_leave(guard);
  return driver_check(error, what, err);
}

static enum dit_status cuda_count(int *count, struct dit_error *err) {
  (void)err;
  pthread_once(&once, load);
  *count = load_failure.status == DIT_OK ? driver.device_count : 0;
  *count = *count > DIT_MAX_DEVICES ? DIT_MAX_DEVICES : *count;
  return DIT_OK;
}

static enum dit_status cuda_get_version(int *version, struct dit_error *err) {
  return driver_check(driver.get_version(version), "cuDriverGetVersion", err);
}

static enum dit_status read_attributes(int handle, struct dit_device_properties *out, struct dit_error *err) {
  int shared = 0, shared_all = 0, l2 = 0, integrated = 0;
  const struct {
    int attribute, *place;
  } rows[] = {{DRIVER_MAJOR, &out->major},
              {DRIVER_MINOR, &out->minor},
              {DRIVER_MULTIPROCESSORS, &out->multi_processor_count},
              {DRIVER_WARP_SIZE, &out->warp_size},
              {DRIVER_MAX_THREADS_PER_MULTIPROCESSOR, &out->max_threads_per_multi_processor},
              {DRIVER_MAX_THREADS_PER_BLOCK, &out->max_threads_per_block},
              {DRIVER_REGISTERS_PER_MULTIPROCESSOR, &out->regs_per_multiprocessor},
              {DRIVER_PCI_DOMAIN, &out->pci_domain},
              {DRIVER_PCI_BUS, &out->pci_bus},
              {DRIVER_PCI_DEVICE, &out->pci_device},
              {DRIVER_CLOCK_RATE, &out->clock_rate_khz},
              {DRIVER_MEMORY_CLOCK_RATE, &out->memory_clock_rate_khz},
              {DRIVER_MEMORY_BUS_WIDTH, &out->memory_bus_width},
              {DRIVER_SHARED_PER_BLOCK, &shared},
              {DRIVER_SHARED_PER_MULTIPROCESSOR, &shared_all},
              {DRIVER_L2_SIZE, &l2},
              {DRIVER_INTEGRATED, &integrated}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get_attribute(rows[i].place, rows[i].attribute, handle),
                                      "cuDeviceGetAttribute", err));
  }
  out->shared_memory_per_block = (uint64_t)shared;
  out->shared_memory_per_multiprocessor = (uint64_t)shared_all;
  out->l2_cache_size = (uint64_t)l2;
  out->integrated = integrated != 0;
  return DIT_OK;
}

static enum dit_status cuda_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  struct dit_device_properties found = {.vendor = "NVIDIA", .host_accessible = false};
  unsigned char uuid[16] = {0};
  int handle = 0;
  size_t total = 0;
  DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get(&handle, device), "cuDeviceGet", err));
  DIT_RETURN_IF_NOT_OK(
      driver_check(driver.device_get_name(found.name, (int)sizeof found.name, handle), "cuDeviceGetName", err));
  DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get_memory(&total, handle), "cuDeviceTotalMem", err));
  DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get_uuid(uuid, handle), "cuDeviceGetUuid", err));
  DIT_RETURN_IF_NOT_OK(read_attributes(handle, &found, err));
  found.name[sizeof found.name - 1] = '\0';
  found.total_memory = total;
  snprintf(found.architecture, sizeof found.architecture, "sm_%d%d", (int)found.major, (int)found.minor);
  char *text = found.uuid;
  for (int i = 0; i < 16; i++) {
    text += sprintf(text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  }
  *out = found;
  return DIT_OK;
}

static enum dit_status cuda_bind_thread(int device, struct dit_error *err) {
  void *context = NULL;
  DIT_RETURN_IF_NOT_OK(context_find(device, &context, err));
  return driver_check(driver.context_set(context), "cuCtxSetCurrent", err);
}

static enum dit_status cuda_reset(int device, struct dit_error *err) {
  int handle = 0;
  DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get(&handle, device), "cuDeviceGet", err));
  const int error = driver.context_reset(handle);
  context_forget(device);
  return driver_check(error, "cuDevicePrimaryCtxReset", err);
}

static enum dit_status switch_profiler(int (*function)(void), const char *name, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(context_enter_any(&guard, err));
  const int error = function();
  context_leave(&guard);
  return driver_check(error, name, err);
}

static enum dit_status cuda_profiler_start(const char *path, unsigned flags, struct dit_error *err) {
  (void)path, (void)flags;
  return switch_profiler(driver.profiler_start, "cuProfilerStart", err);
}

static enum dit_status cuda_profiler_stop(struct dit_error *err) {
  return switch_profiler(driver.profiler_stop, "cuProfilerStop", err);
}

static void describe(char *text, size_t size) {
  int version = 0;
  pthread_once(&once, load);
  if (load_failure.status != DIT_OK) {
    snprintf(text, size, "%s", load_failure.message);
    return;
  }
  (void)driver.get_version(&version);
  snprintf(text, size, "CUDA driver for %d.%d, %d device%s", version / 1000, version % 1000 / 10, driver.device_count,
           driver.device_count == 1 ? "" : "s");
}

static const struct dit_device_vtable vtable = {
    .abi_version = DIT_DEVICE_ABI_VERSION,
    .struct_size = sizeof(struct dit_device_vtable),
    .name = "cuda",
    .version = DIT_VERSION_TEXT,
    .init = cuda_init,
    .get_driver_version = cuda_get_version,
    .get_runtime_version = cuda_get_version,
    .count = cuda_count,
    .get_properties = cuda_get_properties,
    .get_memory = cuda_get_memory,
    .bind_thread = cuda_bind_thread,
    .reset = cuda_reset,
    .synchronize = cuda_synchronize,
    .check_last_error = cuda_check_last_error,
    .can_access_peer = cuda_can_access_peer,
    .memory_alloc = cuda_memory_alloc,
    .memory_free = cuda_memory_free,
    .memory_set = cuda_memory_set,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .copy = cuda_copy,
    .copy_async = cuda_copy_async,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_query = cuda_stream_query,
    .stream_wait_event = cuda_stream_wait_event,
    .stream_launch_host = cuda_stream_launch_host,
    .stream_get_priority_range = cuda_stream_get_priority_range,
    .event_create = cuda_device_event_create,
    .event_destroy = cuda_device_event_destroy,
    .event_record = cuda_device_event_record,
    .event_query = cuda_device_event_query,
    .event_synchronize = cuda_device_event_synchronize,
    .event_get_elapsed = cuda_device_event_get_elapsed,
    .profiler_start = cuda_profiler_start,
    .profiler_stop = cuda_profiler_stop,
    .collectives = &cuda_collectives,
    .describe = describe,
    .memory_export = cuda_memory_export,
    .memory_import = cuda_memory_import,
    .memory_close = cuda_memory_close,
};

DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);

const struct dit_device_vtable *dit_vendor_get_device(void) {
  return &vtable;
}
