/// Streams of the embedded accelerator: a FIFO queue with one worker thread each.
///
/// Whoever waits for a stream helps: it takes the next task while the worker has not come for it, so that a wait for
/// little work costs no change of threads. One task of a stream runs at a time. Host functions, which may wait for
/// anything, and waits for events stay with the worker.
///
/// The default stream (handle NULL) has no object: its work runs inline in the caller. Other streams behave as CUDA's
/// non-blocking streams: no implicit order between them and the default stream. A worker starts with the first task and
/// ends with the stream. A priority is recorded and has no effect on scheduling: the operating system shares the
/// processors among the workers.
///
/// Invariants: `queued` and `finished` count tasks and only grow; the stream is idle when they are equal; a task that
/// was accepted always runs (destroying a stream drains it). Locks: `streams_lock` is never held while a task runs or a
/// thread waits. Process exit: workers sleep in pthread_cond_wait or run a task, hold nothing that exit handlers need,
/// and nothing is registered with atexit, so a process may end at any time without joining them. Depends on libdit's
/// core, pthread.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/thread.h"
#include "host_internal.h"

struct host_task {
  struct host_task *next;
  enum host_task_kind kind;
  void (*run)(void *arguments);
  _Alignas(max_align_t) unsigned char arguments[];
};

struct host_stream {
  pthread_mutex_t lock;
  pthread_cond_t work;      // a task came, or stop
  pthread_cond_t progress;  // `finished` grew; signalled when somebody waits
  struct host_task *head, *tail;
  uint64_t queued, finished;
  int waiters;
  bool started, stop;
  bool running;       // a task is, in the worker or in somebody who waits
  char failure[256];  // of queued work, until a wait has reported it
  pthread_t thread;
  int device;
  int priority;
  const struct dit_host_stream_owner *owner;  // NULL: none
  // guarded by streams_lock
  struct host_stream *next;
  uint64_t id;  // ascending in list order
  int references;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_stream *streams_head, *streams_tail;
static uint64_t last_stream_id;
static atomic_bool launch_blocking;
static _Thread_local struct host_stream *worker_stream;  // whose task this thread runs

void dit_host_stream_init(bool blocking) {
  atomic_store(&launch_blocking, blocking);
}

void dit_host_stream_set_owner(void *handle, const struct dit_host_stream_owner *owner) {
  struct host_stream *stream = handle;
  stream->owner = owner;
}

static enum dit_status check_owner(const struct host_stream *stream, struct dit_error *err) {
  const struct dit_host_stream_owner *owner = stream->owner;
  return DIT_LIKELY(!owner) ? DIT_OK : owner->check(owner->context, err);
}

// The first task, in the calling thread. With the stream's lock held, which is given up meanwhile.
static void run_head(struct host_stream *stream) {
  struct host_task *task = stream->head;
  struct host_stream *before = worker_stream;
  stream->head = task->next;
  stream->running = true;
  pthread_mutex_unlock(&stream->lock);
  worker_stream = stream;
  if (task->kind != HOST_TASK_KERNEL || check_owner(stream, NULL) == DIT_OK) {
    dit_memory_access_begin();
    task->run(task->arguments);
    dit_memory_access_end();
  }
  worker_stream = before;
  dit_free(task);
  pthread_mutex_lock(&stream->lock);
  stream->running = false;
  stream->finished++;
}

static void *worker_main(void *context) {
  struct host_stream *stream = context;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (stream->running || (!stream->head && !stream->stop)) {
      pthread_cond_wait(&stream->work, &stream->lock);
    }
    if (!stream->head) {
      break;
    }
    run_head(stream);
    if (stream->waiters > 0) {
      pthread_cond_broadcast(&stream->progress);
    }
  }
  pthread_mutex_unlock(&stream->lock);
  return NULL;
}

// With the stream's lock held.
static enum dit_status start_worker(struct host_stream *stream, struct dit_error *err) {
  int code = dit_thread_create(&stream->thread, worker_main, stream);
  if (code != 0) {
    return dit_error_set(err, DIT_ERR_DEVICE,
                         "cannot start the worker thread of a stream on device %d: %s; use fewer streams or raise the "
                         "limit on threads (ulimit -u)",
                         stream->device, strerror(code));
  }
  char name[16];
  snprintf(name, sizeof name, "dit-stream-%u", (unsigned)(stream->id % 1000));
  pthread_setname_np(stream->thread, name);
  stream->started = true;
  return DIT_OK;
}

// Queue a task; `ticket` is the count that `finished` reaches when it is done.
static enum dit_status push(struct host_stream *stream, enum host_task_kind kind, void (*run)(void *),
                            const void *arguments, size_t size, uint64_t *ticket, struct dit_error *err) {
  struct host_task *task = size <= SIZE_MAX - sizeof *task ? dit_malloc(sizeof *task + size) : NULL;
  if (!task) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a task of %zu bytes on a stream of device %d", size,
                         stream->device);
  }
  task->next = NULL;
  task->kind = kind;
  task->run = run;
  if (size > 0) {
    memcpy(task->arguments, arguments, size);
  }
  pthread_mutex_lock(&stream->lock);
  enum dit_status status = stream->started ? DIT_OK : start_worker(stream, err);
  if (status == DIT_OK) {
    if (stream->head) {
      stream->tail->next = task;
    } else {
      stream->head = task;
    }
    stream->tail = task;
    *ticket = ++stream->queued;
    pthread_cond_signal(&stream->work);
  }
  pthread_mutex_unlock(&stream->lock);
  if (status != DIT_OK) {
    dit_free(task);
  }
  return status;
}

// With the stream's lock held.
static void wait_for(struct host_stream *stream, uint64_t ticket) {
  stream->waiters++;
  while (stream->finished < ticket) {
    if (stream->running || stream->head->kind == HOST_TASK_BLOCKING) {
      pthread_cond_wait(&stream->progress, &stream->lock);
      continue;
    }
    run_head(stream);
    if (stream->waiters > 1) {
      pthread_cond_broadcast(&stream->progress);
    }
    if (stream->head || stream->stop) {
      pthread_cond_signal(&stream->work);  // the worker may have found a task running
    }
  }
  stream->waiters--;
}

enum dit_status host_stream_push(struct host_stream *stream, enum host_task_kind kind, void (*run)(void *),
                                 const void *arguments, size_t size, struct dit_error *err) {
  uint64_t ticket;
  return push(stream, kind, run, arguments, size, &ticket, err);
}

enum dit_status dit_host_stream_enqueue(void *handle, void (*run)(void *), const void *arguments, size_t size,
                                        struct dit_error *err) {
  struct host_stream *stream = handle;
  uint64_t ticket;
  DIT_RETURN_IF_NOT_OK(push(stream, HOST_TASK_KERNEL, run, arguments, size, &ticket, err));
  // A worker that launches on its own stream (from a host function) cannot wait for itself.
  if (DIT_UNLIKELY(atomic_load_explicit(&launch_blocking, memory_order_relaxed)) && worker_stream != stream) {
    pthread_mutex_lock(&stream->lock);
    wait_for(stream, ticket);
    pthread_mutex_unlock(&stream->lock);
  }
  return DIT_OK;
}

static enum dit_status check_not_own_worker(const struct host_stream *stream, const char *what, struct dit_error *err) {
  if (worker_stream == stream) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "a host function running on a stream of device %d tried to %s that same stream, which would "
                         "wait for ever; do it from another thread",
                         stream->device, what);
  }
  return DIT_OK;
}

static void link_stream(struct host_stream *stream) {
  pthread_mutex_lock(&streams_lock);
  stream->id = ++last_stream_id;
  stream->references = 1;
  if (streams_tail) {
    streams_tail->next = stream;
  } else {
    streams_head = stream;
  }
  streams_tail = stream;
  pthread_mutex_unlock(&streams_lock);
}

// False when it is not in the list (any more).
static bool unlink_stream(const struct host_stream *stream) {
  bool found = false;
  pthread_mutex_lock(&streams_lock);
  struct host_stream *previous = NULL;
  for (struct host_stream *s = streams_head; s; previous = s, s = s->next) {
    if (s != stream) {
      continue;
    }
    if (previous) {
      previous->next = s->next;
    } else {
      streams_head = s->next;
    }
    if (streams_tail == s) {
      streams_tail = previous;
    }
    found = true;
    break;
  }
  pthread_mutex_unlock(&streams_lock);
  return found;
}

static void release_stream(struct host_stream *stream) {
  pthread_mutex_lock(&streams_lock);
  bool last = --stream->references == 0;
  pthread_mutex_unlock(&streams_lock);
  if (last) {
    pthread_cond_destroy(&stream->progress);
    pthread_cond_destroy(&stream->work);
    pthread_mutex_destroy(&stream->lock);
    dit_free(stream);
  }
}

enum dit_status host_stream_create(int device, int priority, void **out, struct dit_error *err) {
  struct host_stream *stream = dit_calloc(1, sizeof *stream);
  if (!stream) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a stream of device %d", device);
  }
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->progress, NULL);
  stream->device = device;
  stream->priority = priority < 0 ? -1 : 0;
  link_stream(stream);
  *out = stream;
  return DIT_OK;
}

// The stream is out of the list: drain, stop, join, release.
static void close_stream(struct host_stream *stream) {
  pthread_mutex_lock(&stream->lock);
  stream->stop = true;
  bool started = stream->started;
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->lock);
  if (started) {
    pthread_join(stream->thread, NULL);
  }
  release_stream(stream);
}

enum dit_status host_stream_destroy(int device, void *handle, struct dit_error *err) {
  struct host_stream *stream = handle;
  if (stream) {
    DIT_RETURN_IF_NOT_OK(check_not_own_worker(stream, "destroy", err));
  }
  if (!stream || !unlink_stream(stream)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not a live stream of device %d and cannot be destroyed", handle,
                         device);
  }
  close_stream(stream);
  return DIT_OK;
}

void dit_host_stream_finalize(void) {
  for (;;) {
    pthread_mutex_lock(&streams_lock);
    struct host_stream *stream = streams_head;
    pthread_mutex_unlock(&streams_lock);
    if (!stream || !unlink_stream(stream)) {
      return;
    }
    close_stream(stream);
  }
}

enum dit_status host_stream_synchronize(int device, void *handle, struct dit_error *err) {
  (void)device;
  struct host_stream *stream = handle;
  if (!stream) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(check_not_own_worker(stream, "synchronize with", err));
  pthread_mutex_lock(&stream->lock);
  wait_for(stream, stream->queued);
  enum dit_status status = DIT_OK;
  if (DIT_UNLIKELY(stream->failure[0])) {
    status = dit_error_set(err, DIT_ERR_DEVICE, "an operator that was queued on a stream of device %d failed: %s",
                           stream->device, stream->failure);
    stream->failure[0] = 0;
  }
  pthread_mutex_unlock(&stream->lock);
  return status == DIT_OK ? check_owner(stream, err) : status;
}

void dit_host_stream_fail(const char *text) {
  struct host_stream *stream = worker_stream;
  if (!stream) {
    return;
  }
  if (stream->owner) {
    stream->owner->fail(stream->owner->context, text);
    return;
  }
  pthread_mutex_lock(&stream->lock);
  if (!stream->failure[0]) {
    snprintf(stream->failure, sizeof stream->failure, "%s", text);
  }
  pthread_mutex_unlock(&stream->lock);
}

enum dit_status dit_host_stream_wait(void *stream, struct dit_error *err) {
  return host_stream_synchronize(0, stream, err);
}

// Also the check of handles that come from outside: the pointer is followed only when it is in the list.
enum dit_status host_stream_query(int device, void *handle, bool *idle, struct dit_error *err) {
  if (!handle) {
    *idle = true;
    return DIT_OK;
  }
  bool found = false;
  pthread_mutex_lock(&streams_lock);
  for (struct host_stream *s = streams_head; s && !found; s = s->next) {
    if (s == handle && s->device == device) {
      found = true;
      pthread_mutex_lock(&s->lock);
      *idle = s->finished == s->queued;
      pthread_mutex_unlock(&s->lock);
    }
  }
  pthread_mutex_unlock(&streams_lock);
  if (!found) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not a live stream of device %d", handle, device);
  }
  return DIT_OK;
}

enum dit_status host_stream_get_priority_range(int device, int *least, int *greatest, struct dit_error *err) {
  (void)device;
  (void)err;
  *least = 0;
  *greatest = -1;
  return DIT_OK;
}

struct host_call {
  void (*function)(void *);
  void *argument;
};

static void run_host_call(void *arguments) {
  const struct host_call *call = arguments;
  call->function(call->argument);
}

// Never waits, whatever CUDA_LAUNCH_BLOCKING says: the function may need a lock that the caller holds (Python's GIL).
enum dit_status host_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                        struct dit_error *err) {
  (void)device;
  if (!stream) {
    function(argument);
    return DIT_OK;
  }
  struct host_call call = {function, argument};
  return host_stream_push(stream, HOST_TASK_BLOCKING, run_host_call, &call, sizeof call, err);
}

// The stream of `device` with the smallest id in (after, limit], retained; NULL when there is none.
static struct host_stream *next_stream(int device, uint64_t after, uint64_t limit) {
  struct host_stream *found = NULL;
  pthread_mutex_lock(&streams_lock);
  for (struct host_stream *s = streams_head; s && !found; s = s->next) {
    if (s->device == device && s->id > after && s->id <= limit) {
      s->references++;
      found = s;
    }
  }
  pthread_mutex_unlock(&streams_lock);
  return found;
}

enum dit_status host_synchronize(int device, struct dit_error *err) {
  pthread_mutex_lock(&streams_lock);
  uint64_t limit = last_stream_id;
  pthread_mutex_unlock(&streams_lock);
  uint64_t after = 0;
  enum dit_status status = DIT_OK;
  struct host_stream *stream;
  while ((stream = next_stream(device, after, limit)) != NULL) {  // all of them, also after one that failed
    after = stream->id;
    const enum dit_status found = host_stream_synchronize(device, stream, status == DIT_OK ? err : NULL);
    status = status == DIT_OK ? found : status;
    release_stream(stream);
  }
  return status;
}
