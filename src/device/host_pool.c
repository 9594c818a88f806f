/// Pinned host memory under the algorithms BF, BS and RAW: an allocator of the device kind (allocator.h) over the
/// vendor's pinned memory.
///
/// The allocator knows streams by one number, pinned memory is used by streams of all devices: `keys` numbers the
/// pairs. Key 0 is the host itself, which owns every block and has never work pending. Invariant: a key, once given,
/// keeps its meaning; the table grows with the streams that ever used pinned memory, not with calls. Depends on
/// allocator_core, stream.c, event.c.
#include <pthread.h>

#include "device/allocator_impl.h"
#include "device/memory_watch.h"
#include "dit/alloc.h"

struct stream_key {
  int device;
  int64_t stream;
};

/// An event is made for the device of the stream it is recorded on. NULL: recorded on the host.
struct pool_event {
  struct dit_event *event;
  int device;
};

static pthread_mutex_t keys_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream_key *keys;
static size_t key_count, key_capacity;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dit_allocator pool;
static atomic_bool ready;
static struct dit_allocator_config pool_config;
static atomic_int algorithm = DIT_ALGORITHM_TORCH;

// Keys

/// The number of the pair, from 1; 0 when host memory is exhausted.
static int64_t get_key(int device, int64_t stream) {
  int64_t key = 0;
  pthread_mutex_lock(&keys_lock);
  for (size_t i = 0; i < key_count && key == 0; i++) {
    key = keys[i].device == device && keys[i].stream == stream ? (int64_t)i + 1 : 0;
  }
  if (key == 0 && key_count == key_capacity) {
    size_t capacity = key_capacity ? 2 * key_capacity : 16;
    struct stream_key *grown = dit_realloc(keys, capacity * sizeof *grown);
    if (grown) {
      keys = grown;
      key_capacity = capacity;
    }
  }
  if (key == 0 && key_count < key_capacity) {
    keys[key_count++] = (struct stream_key){device, stream};
    key = (int64_t)key_count;
  }
  pthread_mutex_unlock(&keys_lock);
  return key;
}

static struct stream_key find_key(int64_t key) {
  pthread_mutex_lock(&keys_lock);
  struct stream_key found = keys[key - 1];
  pthread_mutex_unlock(&keys_lock);
  return found;
}

// The vendor's pinned memory as the allocator sees it

static enum dit_status pool_memory_alloc(void *context, size_t size, void **ptr, struct dit_error *err) {
  (void)context;
  dit_runtime_note_use();
  enum dit_status status = dit_host_vendor_alloc(size, ptr, err);
  if (status == DIT_OK) {
    dit_host_count_reserved((int64_t)size);
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(true, -1, status == DIT_OK ? *ptr : NULL, size, status);
  }
  return status;
}

static enum dit_status pool_memory_free(void *context, void *ptr, size_t size, struct dit_error *err) {
  (void)context;
  enum dit_status status = dit_host_vendor_free(ptr, err);
  dit_host_count_reserved(-(int64_t)size);
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(false, -1, ptr, size, status);
  }
  return status;
}

/// The host's memory has no limit of its own.
static enum dit_status pool_get_memory(void *context, struct dit_device_memory *out, struct dit_error *err) {
  (void)context;
  (void)err;
  *out = (struct dit_device_memory){0};
  return DIT_OK;
}

static enum dit_status pool_synchronize(void *context, struct dit_error *err) {
  (void)context;
  for (int device = 0; device < dit_device_get_count(); device++) {
    DIT_RETURN_IF_NOT_OK(dit_device_synchronize(device, err));
  }
  return DIT_OK;
}

static enum dit_status pool_stream_query(void *context, int64_t key, bool *idle, struct dit_error *err) {
  (void)context;
  if (key == 0) {
    *idle = true;
    return DIT_OK;
  }
  struct stream_key stream = find_key(key);
  return dit_stream_query(stream.device, stream.stream, idle, err);
}

static enum dit_status pool_event_create(void *context, void **event, struct dit_error *err) {
  (void)context;
  *event = dit_calloc(1, sizeof(struct pool_event));
  return *event ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no host memory for an event of pinned memory");
}

static void pool_event_destroy(void *context, void *handle) {
  struct pool_event *event = handle;
  (void)context;
  dit_event_destroy(event->event);
  dit_free(event);
}

static enum dit_status pool_event_record(void *context, void *handle, int64_t key, struct dit_error *err) {
  struct pool_event *event = handle;
  struct stream_key stream = key ? find_key(key) : (struct stream_key){-1, 0};
  (void)context;
  if (event->event && event->device != stream.device) {
    dit_event_destroy(event->event);
    event->event = NULL;
  }
  if (key == 0) {
    return DIT_OK;
  }
  if (!event->event) {
    DIT_RETURN_IF_NOT_OK(dit_event_create(stream.device, 0, &event->event, err));
    event->device = stream.device;
  }
  return dit_event_record(event->event, stream.device, stream.stream, err);
}

static enum dit_status pool_event_query(void *context, void *handle, bool *done, struct dit_error *err) {
  struct pool_event *event = handle;
  (void)context;
  if (!event->event) {
    *done = true;
    return DIT_OK;
  }
  return dit_event_query(event->event, done, err);
}

static const struct dit_allocator_vtable pool_vtable = {
    .memory_alloc = pool_memory_alloc,
    .memory_free = pool_memory_free,
    .get_memory = pool_get_memory,
    .synchronize = pool_synchronize,
    .stream_query = pool_stream_query,
    .event_create = pool_event_create,
    .event_destroy = pool_event_destroy,
    .event_record = pool_event_record,
    .event_query = pool_event_query,
    .capacity_hint = "",
};

// The pool

void dit_host_pool_configure(const struct dit_allocator_config *config) {
  pthread_mutex_lock(&pool_lock);
  pool_config = *config;
  if (atomic_load(&ready)) {
    dit_allocator_set_config(&pool, config);
  }
  atomic_store(&algorithm, (int)config->algorithm);
  pthread_mutex_unlock(&pool_lock);
}

int dit_host_pool_get_algorithm(void) {
  return atomic_load_explicit(&algorithm, memory_order_relaxed);
}

static enum dit_status open_pool(struct dit_error *err) {
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&pool_lock);
  if (!atomic_load(&ready)) {
    status = dit_allocator_init(&pool, -1, &pool_vtable, NULL, err);
    if (status == DIT_OK) {
      dit_allocator_set_config(&pool, &pool_config);
      atomic_store(&ready, true);
    }
  }
  pthread_mutex_unlock(&pool_lock);
  return status;
}

enum dit_status dit_host_pool_alloc(size_t size, void **ptr, struct dit_error *err) {
  if (DIT_UNLIKELY(!atomic_load_explicit(&ready, memory_order_acquire))) {
    DIT_RETURN_IF_NOT_OK(open_pool(err));
  }
  enum dit_status status = dit_allocator_alloc(&pool, 0, size, ptr, err);
  if (status == DIT_ERR_NOMEM) {
    struct dit_host_stats stats;
    dit_host_get_stats(&stats);
    return dit_error_set(err, DIT_ERR_NOMEM,
                         "pinned host memory: the system has no room for %zu more bytes; %llu are handed out, %llu "
                         "held (algorithm %s)",
                         size, (unsigned long long)stats.allocated_current, (unsigned long long)stats.reserved_current,
                         dit_algorithm_get_name((enum dit_memory_algorithm)dit_host_pool_get_algorithm()));
  }
  return status;
}

enum dit_status dit_host_pool_record(const void *ptr, int device, int64_t stream, struct dit_error *err) {
  int64_t key = get_key(device, stream);
  if (key == 0) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to record stream %lld on a pinned block",
                         (long long)stream);
  }
  return dit_allocator_record_pinned(ptr, key, err);
}

void dit_host_pool_empty_cache(void) {
  if (atomic_load(&ready)) {
    enum dit_status ignored = dit_allocator_empty_cache(&pool, NULL);
    (void)ignored;  // a device that fails to drain says so to whoever uses it
  }
}

void dit_host_pool_shutdown(void) {
  pthread_mutex_lock(&pool_lock);
  if (atomic_exchange(&ready, false)) {
    dit_allocator_reset(&pool);
  }
  pthread_mutex_unlock(&pool_lock);
  pthread_mutex_lock(&keys_lock);
  dit_free(keys);
  keys = NULL;
  key_count = key_capacity = 0;
  pthread_mutex_unlock(&keys_lock);
}
