/// Timing events of host memory: the monotonic clock, read where the work ends.
///
/// Work of the CPU and of the default stream of the embedded device is done when it was called: the clock is read at
/// once. On a side stream a host function is queued that reads it when the stream gets there, so both kinds of events
/// share one clock. Every recording has a number; the last one that was asked for is the one that counts, and a pending
/// one keeps the event's memory alive. Depends on src/device (streams), pthread.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "dit/alloc.h"
#include "dit/runtime.h"
#include "helper/helper_internal.h"

struct host_event {
  int device;
  atomic_int references;
  _Atomic uint64_t asked;   ///< number of the last recording
  _Atomic uint64_t passed;  ///< number of the last recording that has passed; `nanoseconds` belongs to it
  _Atomic int64_t nanoseconds;
  pthread_mutex_t lock;  ///< around completion, for the waiters
  pthread_cond_t changed;
};

/// One queued recording.
struct recording {
  struct host_event *event;
  uint64_t number;
};

static int64_t get_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

enum dit_status helper_event_create(int device, void **event, struct dit_error *err) {
  struct host_event *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a timing event");
  }
  fresh->device = device;
  atomic_init(&fresh->references, 1);
  pthread_mutex_init(&fresh->lock, NULL);
  pthread_cond_init(&fresh->changed, NULL);
  *event = fresh;
  return DIT_OK;
}

void helper_event_destroy(void *handle) {
  struct host_event *event = handle;
  if (event && atomic_fetch_sub_explicit(&event->references, 1, memory_order_acq_rel) == 1) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    dit_free(event);
  }
}

/// On the stream's worker, or inline when the vendor runs host functions there.
static void run_recording(void *context) {
  struct recording *recording = context;
  struct host_event *event = recording->event;
  int64_t now = get_time();
  pthread_mutex_lock(&event->lock);
  if (recording->number == atomic_load(&event->asked)) {
    atomic_store(&event->nanoseconds, now);
    atomic_store(&event->passed, recording->number);
  }
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->lock);
  helper_event_destroy(event);
  dit_free(recording);
}

static enum dit_status record_queued(struct host_event *event, void *stream, struct dit_error *err) {
  if (!dit_runtime_is_active()) {
    return dit_error_set(err, DIT_ERR_INVALID, "stream %p: no device is active whose stream it could be", stream);
  }
  struct recording *recording = dit_malloc(sizeof *recording);
  if (!recording) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to record a timing event");
  }
  atomic_fetch_add(&event->references, 1);
  uint64_t before = atomic_load(&event->asked);
  *recording = (struct recording){event, before + 1};
  atomic_store(&event->asked, before + 1);
  enum dit_status status =
      dit_runtime_get_vtable()->stream_launch_host(event->device, stream, run_recording, recording, err);
  if (status != DIT_OK) {
    atomic_store(&event->asked, before);
    dit_free(recording);
    helper_event_destroy(event);
  }
  return status;
}

enum dit_status helper_event_record(void *handle, void *stream, struct dit_error *err) {
  struct host_event *event = handle;
  if (stream) {
    return record_queued(event, stream, err);
  }
  // A recording that still waits in a queue may be about to pass: keep it out.
  uint64_t asked = atomic_load_explicit(&event->asked, memory_order_relaxed);
  bool pending = asked != atomic_load_explicit(&event->passed, memory_order_acquire);
  if (pending) {
    pthread_mutex_lock(&event->lock);
  }
  atomic_store_explicit(&event->asked, asked + 1, memory_order_relaxed);
  atomic_store_explicit(&event->nanoseconds, get_time(), memory_order_relaxed);
  atomic_store_explicit(&event->passed, asked + 1, memory_order_release);
  if (pending) {
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
  }
  return DIT_OK;
}

static bool has_passed(struct host_event *event) {
  return atomic_load(&event->passed) == atomic_load(&event->asked);
}

enum dit_status helper_event_query(void *handle, bool *passed, struct dit_error *err) {
  (void)err;
  *passed = has_passed(handle);
  return DIT_OK;
}

enum dit_status helper_event_wait(void *handle, struct dit_error *err) {
  struct host_event *event = handle;
  (void)err;
  if (!has_passed(event)) {
    pthread_mutex_lock(&event->lock);
    while (!has_passed(event)) {
      pthread_cond_wait(&event->changed, &event->lock);
    }
    pthread_mutex_unlock(&event->lock);
  }
  return DIT_OK;
}

static enum dit_status get_nanoseconds(struct host_event *event, const char *which, int64_t *nanoseconds,
                                       struct dit_error *err) {
  if (atomic_load(&event->asked) == 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "the %s event was never recorded; record both before asking for times",
                         which);
  }
  if (!has_passed(event)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the %s event has not passed yet; wait for it first", which);
  }
  *nanoseconds = atomic_load(&event->nanoseconds);
  return DIT_OK;
}

enum dit_status helper_event_get_elapsed(void *start, void *end, double *milliseconds, struct dit_error *err) {
  int64_t from, to;
  DIT_RETURN_IF_NOT_OK(get_nanoseconds(start, "start", &from, err));
  DIT_RETURN_IF_NOT_OK(get_nanoseconds(end, "end", &to, err));
  *milliseconds = (double)(to - from) * 1e-6;
  return DIT_OK;
}
