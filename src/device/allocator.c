/// dit/memory.h: one allocator per device over the active vendor.
///
/// Invariant: an allocator is made at the first use of its device and lives in static storage, so that a free from any
/// thread at any time finds its lock. The configuration is process-wide and reaches devices that are first used later.
/// In a forked child frees do nothing. Depends on: allocator_core and the runtime's devices, streams and events.
#include "device/allocator.h"

#include <stdatomic.h>
#include <string.h>

#include "device/allocator_impl.h"
#include "device/memory_watch.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/memory_pool.h"
#include "dit/runtime.h"

static pthread_mutex_t front_lock = PTHREAD_MUTEX_INITIALIZER;  ///< taken before any allocator's lock
static struct dit_allocator allocators[DIT_MAX_DEVICES];
static _Atomic bool ready[DIT_MAX_DEVICES];
static struct dit_allocator_config current_config;  ///< what the allocators follow
static struct dit_allocator_config default_config;  ///< algorithm and its parameters, from the options
static bool has_config, has_default;
static char *config_text;

// The vendor as the allocator sees it; the context is the device number

static int get_device(void *context) {
  return (int)(intptr_t)context;
}

static enum dit_status vendor_memory_alloc(void *context, size_t size, void **ptr, struct dit_error *err) {
  dit_runtime_note_use();
  size_t whole = dit_protect_round(size);
  enum dit_status status = dit_runtime_get_vtable()->memory_alloc(get_device(context), whole, ptr, err);
  if (status == DIT_OK) {
    dit_protect_add(*ptr, whole);
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(true, get_device(context), status == DIT_OK ? *ptr : NULL, size, status);
  }
  return status;
}

static enum dit_status vendor_memory_free(void *context, void *ptr, size_t size, struct dit_error *err) {
  dit_protect_remove(ptr);
  enum dit_status status = dit_runtime_get_vtable()->memory_free(get_device(context), ptr, err);
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(false, get_device(context), ptr, size, status);
  }
  return status;
}

static enum dit_status vendor_get_memory(void *context, struct dit_device_memory *out, struct dit_error *err) {
  return dit_runtime_get_vtable()->get_memory(get_device(context), out, err);
}

static enum dit_status vendor_synchronize(void *context, struct dit_error *err) {
  return dit_device_synchronize(get_device(context), err);
}

static enum dit_status vendor_stream_query(void *context, int64_t stream, bool *idle, struct dit_error *err) {
  return dit_stream_query(get_device(context), stream, idle, err);
}

static enum dit_status vendor_event_create(void *context, void **event, struct dit_error *err) {
  struct dit_event *created = NULL;
  enum dit_status status = dit_event_create(get_device(context), 0, &created, err);
  if (status == DIT_OK) {
    *event = created;
  }
  return status;
}

static void vendor_event_destroy(void *context, void *event) {
  (void)context;
  dit_event_destroy(event);
}

static enum dit_status vendor_event_record(void *context, void *event, int64_t stream, struct dit_error *err) {
  return dit_event_record(event, get_device(context), stream, err);
}

static enum dit_status vendor_event_query(void *context, void *event, bool *done, struct dit_error *err) {
  (void)context;
  return dit_event_query(event, done, err);
}

#define VENDOR_SLOTS                                                                                           \
  .memory_alloc = vendor_memory_alloc, .memory_free = vendor_memory_free, .get_memory = vendor_get_memory,     \
  .synchronize = vendor_synchronize, .stream_query = vendor_stream_query, .event_create = vendor_event_create, \
  .event_destroy = vendor_event_destroy, .event_record = vendor_event_record, .event_query = vendor_event_query

static const struct dit_allocator_vtable vendor_slots = {VENDOR_SLOTS, .capacity_hint = ""};
static const struct dit_allocator_vtable host_slots = {
    VENDOR_SLOTS,
    .capacity_hint =
        "This is the embedded device: DITORCH_HOST_MEMORY (for example DITORCH_HOST_MEMORY=8GiB) sets its capacity.",
};

// Allocators

static enum dit_status open_allocator(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  if (device < 0 || device >= DIT_MAX_DEVICES) {
    return dit_error_set(err, DIT_ERR_INVALID, "device %d is out of range; valid: 0 to %d", device,
                         DIT_MAX_DEVICES - 1);
  }
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&front_lock);
  if (!atomic_load(&ready[device])) {
    bool is_host = strcmp(dit_runtime_get_vtable()->name, "host") == 0;
    status = dit_allocator_init(&allocators[device], device, is_host ? &host_slots : &vendor_slots,
                                (void *)(intptr_t)device, err);
    if (status == DIT_OK) {
      if (has_config) {
        dit_allocator_set_config(&allocators[device], &current_config);
      }
      atomic_store(&ready[device], true);
    }
  }
  pthread_mutex_unlock(&front_lock);
  return status;
}

static bool is_ready(int device) {
  return device >= 0 && device < DIT_MAX_DEVICES && atomic_load_explicit(&ready[device], memory_order_acquire) &&
         !dit_runtime_is_bad_fork();
}

static enum dit_status get_allocator(int device, struct dit_allocator **out, struct dit_error *err) {
  if (DIT_UNLIKELY(!is_ready(device))) {
    DIT_RETURN_IF_NOT_OK(open_allocator(device, err));
  }
  *out = &allocators[device];
  return DIT_OK;
}

enum dit_status dit_memory_alloc(int device, int64_t stream, size_t size, void **ptr, struct dit_error *err) {
  struct dit_allocator *a;
  DIT_RETURN_IF_NOT_OK(get_allocator(device, &a, err));
  if (DIT_UNLIKELY(dit_watch_get())) {
    return dit_watch_alloc(a, device, stream, size, ptr, err);
  }
  return dit_allocator_alloc(a, stream, size, ptr, err);
}

void dit_memory_free(void *ptr) {
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_free(ptr, false);
    return;
  }
  if (!ptr) {
    return;
  }
  if (DIT_UNLIKELY(!dit_allocator_free(ptr)) && dit_runtime_is_active()) {
    dit_log_write_once(
        "allocator.foreign_free", DIT_LOG_WARNING,
        "dit_memory_free: %p is not the start of a live block of device memory (freed twice, or not allocated by "
        "dit_memory_alloc); ignored, and so are further ones",
        ptr);
  }
}

enum dit_status dit_memory_record_stream(const void *ptr, int64_t stream, struct dit_error *err) {
  if (dit_runtime_is_bad_fork()) {
    return dit_device_check(0, err);
  }
  return dit_allocator_record_stream(ptr, stream, err);
}

bool dit_memory_find(const void *ptr, void **base, size_t *size, int *device) {
  void *start;
  size_t length;
  if (dit_runtime_is_bad_fork() || !dit_allocator_find(ptr, &start, &length, device)) {
    return false;
  }
  if (DIT_UNLIKELY(dit_watch_get() & DIT_WATCH_TABLE) && !dit_watch_find(ptr, &start, &length)) {
    return false;
  }
  *base = start;
  *size = length;
  return true;
}

bool dit_memory_is_used(int device) {
  return is_ready(device);
}

enum dit_status dit_memory_empty_cache(int device, struct dit_error *err) {
  if (device >= 0) {
    DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  }
  enum dit_status first = DIT_OK;
  for (int i = device < 0 ? 0 : device; i <= (device < 0 ? DIT_MAX_DEVICES - 1 : device); i++) {
    if (is_ready(i)) {
      enum dit_status status = dit_allocator_empty_cache(&allocators[i], first == DIT_OK ? err : NULL);
      first = first == DIT_OK ? status : first;
    }
  }
  return first;
}

enum dit_status dit_memory_pool_release(int64_t pool, struct dit_error *err) {
  enum dit_status first = DIT_OK;
  for (int i = 0; i < DIT_MAX_DEVICES; i++) {
    if (is_ready(i)) {
      enum dit_status status = dit_allocator_release_pool(&allocators[i], pool, first == DIT_OK ? err : NULL);
      first = first == DIT_OK ? status : first;
    }
  }
  return first;
}

enum dit_status dit_memory_set_fraction(int device, double fraction, struct dit_error *err) {
  struct dit_allocator *a;
  if (!(fraction > 0 && fraction <= 1)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "memory fraction %g of device %d is out of range; valid: 0 < fraction <= 1", fraction, device);
  }
  DIT_RETURN_IF_NOT_OK(get_allocator(device, &a, err));
  dit_allocator_set_fraction(a, fraction);
  return DIT_OK;
}

double dit_memory_get_fraction(int device) {
  return is_ready(device) ? dit_allocator_get_fraction(&allocators[device]) : 1.0;
}

// Configuration

/// What the options say about the algorithm, where the text does not choose one. front_lock is held.
static void add_default(struct dit_allocator_config *config) {
  if (!has_default) {
    return;
  }
  if (!config->algorithm_chosen) {
    config->algorithm = default_config.algorithm;
  }
  config->max_extend = default_config.max_extend;
  config->min_size = default_config.min_size;
  config->max_pending = default_config.max_pending;
  config->adaptable = default_config.adaptable;
}

/// Make `config` that of all allocators. front_lock is held.
static void publish(const struct dit_allocator_config *config) {
  current_config = *config;
  add_default(&current_config);
  has_config = true;
  for (int device = 0; device < DIT_MAX_DEVICES; device++) {
    if (atomic_load(&ready[device])) {
      dit_allocator_set_config(&allocators[device], &current_config);
    }
  }
}

void dit_memory_set_default(const struct dit_allocator_config *config) {
  struct dit_allocator_config plain;
  dit_allocator_config_init(&plain);
  pthread_mutex_lock(&front_lock);
  default_config = *config;
  has_default = true;
  publish(has_config ? &current_config : &plain);
  pthread_mutex_unlock(&front_lock);
}

enum dit_memory_algorithm dit_memory_get_algorithm(void) {
  pthread_mutex_lock(&front_lock);
  enum dit_memory_algorithm algorithm = has_config ? current_config.algorithm : DIT_ALGORITHM_TORCH;
  pthread_mutex_unlock(&front_lock);
  return algorithm;
}

enum dit_status dit_memory_configure(const char *text, struct dit_error *err) {
  struct dit_allocator_config config;
  DIT_RETURN_IF_NOT_OK(dit_allocator_config_parse(text, &config, err));
  char *copy = text && *text ? dit_strdup(text) : NULL;
  if (text && *text && !copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while storing the allocator configuration");
  }
  pthread_mutex_lock(&front_lock);
  dit_free(config_text);
  config_text = copy;
  publish(&config);
  pthread_mutex_unlock(&front_lock);
  return DIT_OK;
}

const char *dit_memory_get_configuration(void) {
  pthread_mutex_lock(&front_lock);
  const char *text = config_text ? config_text : "";
  pthread_mutex_unlock(&front_lock);
  return text;
}

// Statistics and snapshot

enum dit_status dit_memory_get_stats(int device, struct dit_memory_stats *out, struct dit_error *err) {
  struct dit_allocator *a;
  DIT_RETURN_IF_NOT_OK(get_allocator(device, &a, err));
  dit_allocator_get_stats(a, out);
  return DIT_OK;
}

enum dit_status dit_memory_reset_peak(int device, struct dit_error *err) {
  struct dit_allocator *a;
  DIT_RETURN_IF_NOT_OK(get_allocator(device, &a, err));
  dit_allocator_reset_peak(a);
  return DIT_OK;
}

enum dit_status dit_memory_reset_accumulated(int device, struct dit_error *err) {
  struct dit_allocator *a;
  DIT_RETURN_IF_NOT_OK(get_allocator(device, &a, err));
  dit_allocator_reset_accumulated(a);
  return DIT_OK;
}

enum dit_status dit_memory_visit(int device, bool (*visit)(void *context, const struct dit_memory_segment *),
                                 void *context, struct dit_error *err) {
  if (device >= 0) {
    DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  }
  struct dit_allocator_snapshot snapshot = {0};
  enum dit_status status = DIT_OK;
  for (int i = device < 0 ? 0 : device; status == DIT_OK && i <= (device < 0 ? DIT_MAX_DEVICES - 1 : device); i++) {
    if (is_ready(i)) {
      status = dit_allocator_snapshot_append(&snapshot, &allocators[i], err);
    }
  }
  if (status == DIT_OK) {
    dit_allocator_snapshot_visit(&snapshot, visit, context);
  }
  dit_allocator_snapshot_reset(&snapshot);
  return status;
}

void dit_memory_shutdown(void) {
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  pthread_mutex_lock(&front_lock);
  for (int device = 0; device < DIT_MAX_DEVICES; device++) {
    if (atomic_exchange(&ready[device], false)) {
      dit_allocator_reset(&allocators[device]);
    }
  }
  pthread_mutex_unlock(&front_lock);
}
