/// Events of the embedded accelerator.
///
/// Each recording is an object of its own, a mark, counted by the event (its latest recording), the task that will
/// complete it and everybody who waits. So a wait keeps the recording it saw when the event is recorded again or
/// destroyed, as in CUDA. Invariant: a mark is completed exactly once, because a task that was queued always runs; a
/// wait can only be queued after its mark's recording was, so waits never form a circle. Depends on stream.c, libdit's
/// core, pthread.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "dit/alloc.h"
#include "host_internal.h"

struct host_mark {
  atomic_int references;
  pthread_mutex_t lock;
  pthread_cond_t completed;
  bool done;
  int64_t nanoseconds;  // CLOCK_MONOTONIC at completion
};

struct host_event {
  pthread_mutex_t lock;
  unsigned flags;
  struct host_mark *mark;  // NULL: never recorded
};

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static struct host_mark *mark_create(int references) {
  struct host_mark *mark = dit_malloc(sizeof *mark);
  if (mark) {
    atomic_init(&mark->references, references);
    pthread_mutex_init(&mark->lock, NULL);
    pthread_cond_init(&mark->completed, NULL);
    mark->done = false;
    mark->nanoseconds = 0;
  }
  return mark;
}

static void mark_release(struct host_mark *mark) {
  if (mark && atomic_fetch_sub_explicit(&mark->references, 1, memory_order_acq_rel) == 1) {
    pthread_cond_destroy(&mark->completed);
    pthread_mutex_destroy(&mark->lock);
    dit_free(mark);
  }
}

static void mark_complete(struct host_mark *mark) {
  pthread_mutex_lock(&mark->lock);
  mark->done = true;
  mark->nanoseconds = now();
  pthread_cond_broadcast(&mark->completed);
  pthread_mutex_unlock(&mark->lock);
}

static bool mark_is_done(struct host_mark *mark, int64_t *nanoseconds) {
  pthread_mutex_lock(&mark->lock);
  bool done = mark->done;
  if (nanoseconds) {
    *nanoseconds = mark->nanoseconds;
  }
  pthread_mutex_unlock(&mark->lock);
  return done;
}

static void mark_wait(struct host_mark *mark) {
  pthread_mutex_lock(&mark->lock);
  while (!mark->done) {
    pthread_cond_wait(&mark->completed, &mark->lock);
  }
  pthread_mutex_unlock(&mark->lock);
}

// The latest recording, retained; NULL when there is none.
static struct host_mark *event_get_mark(struct host_event *event) {
  pthread_mutex_lock(&event->lock);
  struct host_mark *mark = event->mark;
  if (mark) {
    atomic_fetch_add_explicit(&mark->references, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&event->lock);
  return mark;
}

enum dit_status host_event_create(int device, unsigned flags, void **out, struct dit_error *err) {
  struct host_event *event = dit_malloc(sizeof *event);
  if (!event) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for an event of device %d", device);
  }
  pthread_mutex_init(&event->lock, NULL);
  event->flags = flags;
  event->mark = NULL;
  *out = event;
  return DIT_OK;
}

void host_event_destroy(int device, void *handle) {
  (void)device;
  struct host_event *event = handle;
  if (event) {
    mark_release(event->mark);
    pthread_mutex_destroy(&event->lock);
    dit_free(event);
  }
}

static void run_record(void *arguments) {
  struct host_mark *mark = *(struct host_mark **)arguments;
  mark_complete(mark);
  mark_release(mark);
}

static void run_wait(void *arguments) {
  struct host_mark *mark = *(struct host_mark **)arguments;
  mark_wait(mark);
  mark_release(mark);
}

// On the default stream all work is done when we get here. A mark that nobody else holds is used again.
static enum dit_status record_inline(struct host_event *event, struct dit_error *err) {
  struct host_mark *mark = event->mark;
  if (!mark || atomic_load_explicit(&mark->references, memory_order_acquire) != 1) {
    mark = mark_create(1);
    if (!mark) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to record an event");
    }
    mark_release(event->mark);
    event->mark = mark;
  }
  mark_complete(mark);
  return DIT_OK;
}

static enum dit_status record_queued(struct host_event *event, void *stream, struct dit_error *err) {
  struct host_mark *mark = mark_create(2);
  if (!mark) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to record an event");
  }
  enum dit_status status = host_stream_push(stream, HOST_TASK_QUICK, run_record, &mark, sizeof mark, err);
  if (status != DIT_OK) {
    mark_release(mark);
    mark_release(mark);
    return status;
  }
  mark_release(event->mark);
  event->mark = mark;
  return DIT_OK;
}

enum dit_status host_event_record(int device, void *handle, void *stream, struct dit_error *err) {
  (void)device;
  struct host_event *event = handle;
  pthread_mutex_lock(&event->lock);
  enum dit_status status = stream ? record_queued(event, stream, err) : record_inline(event, err);
  pthread_mutex_unlock(&event->lock);
  return status;
}

enum dit_status host_event_query(int device, void *handle, bool *done, struct dit_error *err) {
  (void)device;
  (void)err;
  struct host_mark *mark = event_get_mark(handle);
  *done = !mark || mark_is_done(mark, NULL);
  mark_release(mark);
  return DIT_OK;
}

enum dit_status host_event_synchronize(int device, void *handle, struct dit_error *err) {
  (void)device;
  (void)err;
  struct host_mark *mark = event_get_mark(handle);
  if (mark) {
    mark_wait(mark);
    mark_release(mark);
  }
  return DIT_OK;
}

enum dit_status host_stream_wait_event(int device, void *stream, void *handle, struct dit_error *err) {
  (void)device;
  struct host_mark *mark = event_get_mark(handle);
  if (!mark) {
    return DIT_OK;
  }
  enum dit_status status = DIT_OK;
  if (mark_is_done(mark, NULL)) {
    mark_release(mark);
  } else if (!stream) {
    mark_wait(mark);
    mark_release(mark);
  } else {
    status = host_stream_push(stream, HOST_TASK_BLOCKING, run_wait, &mark, sizeof mark, err);
    if (status != DIT_OK) {
      mark_release(mark);
    }
  }
  return status;
}

// Completion time of the latest recording.
static enum dit_status event_get_time(struct host_event *event, const char *which, int64_t *nanoseconds,
                                      struct dit_error *err) {
  if (!(event->flags & DIT_EVENT_TIMING)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the %s event was created without timing; create it with enable_timing=True", which);
  }
  struct host_mark *mark = event_get_mark(event);
  if (!mark) {
    return dit_error_set(err, DIT_ERR_INVALID, "the %s event was never recorded; record it before asking for times",
                         which);
  }
  int64_t time;
  bool done = mark_is_done(mark, &time);
  mark_release(mark);
  if (!done) {
    return dit_error_set(err, DIT_ERR_DEVICE, "the %s event is not complete yet; synchronize with it first", which);
  }
  *nanoseconds = time;
  return DIT_OK;
}

enum dit_status host_event_get_elapsed(int device, void *start, void *end, double *milliseconds,
                                       struct dit_error *err) {
  (void)device;
  int64_t first, last;
  DIT_RETURN_IF_NOT_OK(event_get_time(start, "start", &first, err));
  DIT_RETURN_IF_NOT_OK(event_get_time(end, "end", &last, err));
  *milliseconds = (double)(last - first) / 1e6;
  return DIT_OK;
}
