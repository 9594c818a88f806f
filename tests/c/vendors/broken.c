/// Vendor libraries for tests of the registry. Compiled once per defect; BROKEN_<defect> selects it
/// (see tests/c/CMakeLists.txt). Every function works well enough for a machine with two devices and no side streams.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/device.h"
#include "dit/graph.h"
#include "dit/kernel.h"

static enum dit_status do_init(struct dit_error *err) {
#ifdef BROKEN_init_fails
  if (err) {
    snprintf(err->message, sizeof err->message, "the driver says no");
    err->status = DIT_ERR_DEVICE;
  }
  return DIT_ERR_DEVICE;
#else
  (void)err;
  return DIT_OK;
#endif
}

static enum dit_status do_count(int *count, struct dit_error *err) {
  (void)err;
#if defined(BROKEN_too_many)
  *count = DIT_MAX_DEVICES + 1;
#elif defined(BROKEN_no_devices)
  *count = 0;
#else
  *count = 2;
#endif
  return DIT_OK;
}

static enum dit_status do_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  (void)err;
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "test device %d", device);
  return DIT_OK;
}

static enum dit_status do_get_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  (void)device;
  (void)err;
  out->free = out->total = 1 << 20;
  return DIT_OK;
}

static enum dit_status do_synchronize(int device, struct dit_error *err) {
  (void)device;
  (void)err;
  return DIT_OK;
}

static enum dit_status do_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  (void)device;
  (void)err;
  *ptr = malloc(size);
  return *ptr ? DIT_OK : DIT_ERR_NOMEM;
}

static enum dit_status do_memory_free(int device, void *ptr, struct dit_error *err) {
  (void)device;
  (void)err;
  free(ptr);
  return DIT_OK;
}

static enum dit_status do_memory_set(int device, void *stream, void *ptr, int value, size_t size,
                                     struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  memset(ptr, value, size);
  return DIT_OK;
}

static enum dit_status do_host_alloc(size_t size, void **ptr, struct dit_error *err) {
  return do_memory_alloc(0, size, ptr, err);
}

static enum dit_status do_host_free(void *ptr, struct dit_error *err) {
  return do_memory_free(0, ptr, err);
}

static enum dit_status do_copy(const struct dit_copy *copy, struct dit_error *err) {
  (void)err;
  memmove(copy->dst, copy->src, copy->size);
  return DIT_OK;
}

static enum dit_status do_copy_async(const struct dit_copy *copy, int stream_device, void *stream,
                                     struct dit_error *err) {
  (void)stream_device;
  (void)stream;
  return do_copy(copy, err);
}

static enum dit_status do_handle_create(int device, int priority, void **stream, struct dit_error *err) {
  (void)priority;
  return do_memory_alloc(device, 16, stream, err);
}

static enum dit_status do_event_create(int device, unsigned flags, void **event, struct dit_error *err) {
  (void)flags;
  return do_memory_alloc(device, 16, event, err);
}

static enum dit_status do_handle(int device, void *handle, struct dit_error *err) {
  (void)device;
  (void)handle;
  (void)err;
  return DIT_OK;
}

static enum dit_status do_query(int device, void *handle, bool *idle, struct dit_error *err) {
  *idle = true;
  return do_handle(device, handle, err);
}

static enum dit_status do_two_handles(int device, void *first, void *second, struct dit_error *err) {
  (void)second;
  return do_handle(device, first, err);
}

static enum dit_status do_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                      struct dit_error *err) {
  function(argument);
  return do_handle(device, stream, err);
}

static void do_event_destroy(int device, void *event) {
  (void)device;
  free(event);
}

static enum dit_status do_get_elapsed(int device, void *start, void *end, double *milliseconds, struct dit_error *err) {
  (void)end;
  *milliseconds = 0;
  return do_handle(device, start, err);
}

/// A vendor built against a later header: a longer struct.
struct longer_table {
  struct dit_device_vtable table;
  void (*future[4])(void);
};

static struct longer_table longer = {
    .table = {.abi_version = DIT_DEVICE_ABI_VERSION,
              .struct_size = sizeof(struct dit_device_vtable),
              .name = "test",
              .version = "1",
              .init = do_init,
              .count = do_count,
              .get_properties = do_get_properties,
              .get_memory = do_get_memory,
              .synchronize = do_synchronize,
              .memory_alloc = do_memory_alloc,
              .memory_free = do_memory_free,
              .memory_set = do_memory_set,
              .host_alloc = do_host_alloc,
              .host_free = do_host_free,
              .copy = do_copy,
              .copy_async = do_copy_async,
              .stream_create = do_handle_create,
              .stream_destroy = do_memory_free,
              .stream_synchronize = do_handle,
              .stream_query = do_query,
              .stream_wait_event = do_two_handles,
              .stream_launch_host = do_launch_host,
              .event_create = do_event_create,
              .event_destroy = do_event_destroy,
              .event_record = do_two_handles,
              .event_query = do_query,
              .event_synchronize = do_handle,
              .event_get_elapsed = do_get_elapsed},
};

static void break_table(struct dit_device_vtable *table) {
#if defined(BROKEN_wrong_abi)
  table->abi_version = 77;
#elif defined(BROKEN_small_struct)
  table->struct_size = 16;
#elif defined(BROKEN_null_slots)
  table->memory_free = NULL;
  table->event_record = NULL;
#elif defined(BROKEN_no_name)
  table->name = NULL;
#elif defined(BROKEN_old_struct)
  // What lies beyond struct_size is not the vendor's and must not be read: a pointer that is no function.
  table->struct_size = offsetof(struct dit_device_vtable, profiler_start);
  memset((char *)table + table->struct_size, 0x5a, sizeof *table - table->struct_size);
#elif defined(BROKEN_grown_struct)
  table->struct_size = sizeof(struct longer_table);
#else
  (void)table;
#endif
}

DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);
#ifndef BROKEN_no_symbol
const struct dit_device_vtable *dit_vendor_get_device(void) {
  break_table(&longer.table);
#ifdef BROKEN_null_table
  return NULL;
#else
  return &longer.table;
#endif
}
#else
DIT_API const void *dit_test_use(void);
const void *dit_test_use(void) {
  break_table(&longer.table);
  return &longer;
}
#endif

#ifdef BROKEN_bad_kernels
static const struct dit_kernel_vtable kernels = {.abi_version = 9, .struct_size = sizeof(struct dit_kernel_vtable)};
DIT_API const struct dit_kernel_vtable *dit_vendor_get_kernels(void);
const struct dit_kernel_vtable *dit_vendor_get_kernels(void) {
  return &kernels;
}
#endif

#if defined(BROKEN_old_engine) || defined(BROKEN_half_engine)
static enum dit_status make_region(const struct dit_region *region, int device, void **out, struct dit_error *err) {
  (void)region;
  (void)device;
  (void)out;
  (void)err;
  return DIT_ERR_UNSUPPORTED;
}
static enum dit_status run_region(void *executable, int device, void *stream, void *const *data,
                                  struct dit_error *err) {
  (void)executable;
  (void)device;
  (void)stream;
  (void)data;
  (void)err;
  return DIT_OK;
}
static void release_region(void *executable) {
  (void)executable;
}

DIT_API const struct dit_graph_engine *dit_vendor_get_graph_engine(void);
const struct dit_graph_engine *dit_vendor_get_graph_engine(void) {
  static struct dit_graph_engine engine = {.abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
                                           .struct_size = sizeof(struct dit_graph_engine),
                                           .name = "old",
                                           .version = "0",
                                           .compile = make_region,
                                           .release = release_region,
                                           .run = run_region};
#ifdef BROKEN_old_engine
  // As it was before engines could take subgraphs: what lies beyond is not the vendor's.
  engine.struct_size = offsetof(struct dit_graph_engine, supports_node);
  memset((char *)&engine + engine.struct_size, 0x5a, sizeof engine - engine.struct_size);
#else
  engine.release_graph = release_region;
#endif
  return &engine;
}
#endif
