/// Streams by number: the pools of each device, external streams, the current stream of a thread.
///
/// Ids: 0 the default stream; 1..32 the pool of normal priority, 33..64 the pool of high priority (created when first
/// named); an even number above 64 is the handle of a stream made elsewhere, which the vendor is asked to confirm.
/// Invariant: dit_thread.raw[d] is always the resolved handle of dit_thread.stream[d], so the hot path is two loads.
/// Depends on runtime.c.
#include <inttypes.h>
#include <pthread.h>

#include "device/device_internal.h"
#include "dit/log.h"

#define POOL_IDS (2 * DIT_STREAM_POOL_SIZE)

struct stream_pool {
  _Atomic(void *) raw[POOL_IDS];  // by id - 1
  atomic_uint next[2];            // round robin, by priority level
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // creation of pool streams
static struct stream_pool pools[DIT_MAX_DEVICES];
// Has any thread made a side stream current since init? Until then every answer is NULL and the thread's state need not
// be looked up.
static atomic_bool side_stream_seen;

void *dit_stream_get_current_raw(int device) {
  if (DIT_LIKELY(!atomic_load_explicit(&side_stream_seen, memory_order_relaxed))) {
    return NULL;
  }
  if (!dit_thread_is_current() || DIT_UNLIKELY((unsigned)device >= DIT_MAX_DEVICES)) {
    return NULL;
  }
  return dit_thread.raw[device];
}

int64_t dit_stream_get_current(int device) {
  if (!dit_thread_is_current() || DIT_UNLIKELY((unsigned)device >= DIT_MAX_DEVICES)) {
    return 0;
  }
  return dit_thread.stream[device];
}

int dit_stream_get_priority(int device, int64_t stream) {
  (void)device;
  return stream > DIT_STREAM_POOL_SIZE && stream <= POOL_IDS ? -1 : 0;
}

static enum dit_status create_pool_stream(int device, int64_t stream, void **raw, struct dit_error *err) {
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&lock);
  void *found = atomic_load(&pools[device].raw[stream - 1]);
  if (!found) {
    dit_runtime_note_use();
    status = dit_runtime_get_vtable()->stream_create(device, dit_stream_get_priority(device, stream), &found, err);
    if (status == DIT_OK) {
      atomic_store(&pools[device].raw[stream - 1], found);
    }
  }
  pthread_mutex_unlock(&lock);
  if (status == DIT_OK) {
    *raw = found;
  }
  return status;
}

static enum dit_status check_external(int device, int64_t stream, void **raw, struct dit_error *err) {
  bool idle;
  void *handle = (void *)(intptr_t)stream;
  if (stream < 0 || stream % 2 != 0) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "%" PRId64
                         " is no stream of device %d; valid: 0 (default), 1 to %d (pool), or the handle of a "
                         "stream made elsewhere (an even number above %d)",
                         stream, device, POOL_IDS, POOL_IDS);
  }
  DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->stream_query(device, handle, &idle, err));
  *raw = handle;
  return DIT_OK;
}

// The device was checked.
static enum dit_status resolve(int device, int64_t stream, void **raw, struct dit_error *err) {
  if (stream == 0) {
    *raw = NULL;
    return DIT_OK;
  }
  if (stream < 0 || stream > POOL_IDS) {
    return check_external(device, stream, raw, err);
  }
  void *found = atomic_load_explicit(&pools[device].raw[stream - 1], memory_order_acquire);
  if (!found) {
    return create_pool_stream(device, stream, raw, err);
  }
  *raw = found;
  return DIT_OK;
}

enum dit_status dit_stream_get_raw(int device, int64_t stream, void **raw, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  return resolve(device, stream, raw, err);
}

enum dit_status dit_stream_set_current(int device, int64_t stream, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  struct dit_thread *thread = dit_thread_get();
  if (raw) {
    atomic_store_explicit(&side_stream_seen, true, memory_order_relaxed);
  }
  thread->stream[device] = stream;
  thread->raw[device] = raw;
  return DIT_OK;
}

enum dit_status dit_stream_acquire(int device, int priority, int64_t *stream, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  int level = priority < 0 ? 1 : 0;
  unsigned turn = atomic_fetch_add_explicit(&pools[device].next[level], 1, memory_order_relaxed);
  int64_t id = 1 + level * DIT_STREAM_POOL_SIZE + (int64_t)(turn % DIT_STREAM_POOL_SIZE);
  void *raw;
  DIT_RETURN_IF_NOT_OK(resolve(device, id, &raw, err));
  *stream = id;
  return DIT_OK;
}

enum dit_status dit_stream_query(int device, int64_t stream, bool *idle, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  return dit_runtime_get_vtable()->stream_query(device, raw, idle, err);
}

enum dit_status dit_stream_synchronize(int device, int64_t stream, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  return dit_runtime_get_vtable()->stream_synchronize(device, raw, err);
}

enum dit_status dit_stream_launch_host(int device, int64_t stream, void (*function)(void *), void *argument,
                                       struct dit_error *err) {
  void *raw;
  if (!function) {
    return dit_error_set(err, DIT_ERR_INVALID, "dit_stream_launch_host: function is NULL");
  }
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  return dit_runtime_get_vtable()->stream_launch_host(device, raw, function, argument, err);
}

void dit_stream_shutdown(void) {
  atomic_store(&side_stream_seen, false);
  for (int device = 0; device < DIT_MAX_DEVICES; device++) {
    for (int i = 0; i < POOL_IDS; i++) {
      void *raw = atomic_exchange(&pools[device].raw[i], NULL);
      struct dit_error err = {0};
      if (raw && dit_runtime_get_vtable()->stream_destroy(device, raw, &err) != DIT_OK) {
        dit_log_write(DIT_LOG_WARNING, "shutdown: stream %d of device %d: %s", i + 1, device, err.message);
      }
    }
    atomic_store(&pools[device].next[0], 0);
    atomic_store(&pools[device].next[1], 0);
  }
}
