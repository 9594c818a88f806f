/// Checks with several threads: allocations, one stream, a device for each thread.
#include <pthread.h>
#include <stdlib.h>

#include "doctor.h"

enum { THREADS = 8, ROUNDS = 150, HELD = 6 };

struct worker {
  struct bench *b;
  pthread_t thread;
  int number;
  void *stream;
  atomic_int *counter;
  const char *slot;  ///< of the call that failed
  enum dit_status status;
  struct dit_error err;
  char text[200];  ///< what else was wrong
};

static bool run_all(struct bench *b, struct worker *workers, void *(*run)(void *)) {
  for (int i = 0; i < THREADS; i++) {
    workers[i].b = b;
    workers[i].number = i;
    workers[i].err = bench_make_error();
    WANT(b, pthread_create(&workers[i].thread, NULL, run, &workers[i]) == 0, "threads", "ulimit -u", "no thread");
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
  }
  for (int i = 0; i < THREADS; i++) {
    if (workers[i].status != DIT_OK) {
      return bench_blame(b, workers[i].slot, "DIT_OK from every thread", "what the function shares without a lock",
                         "with %d threads at work %s returned %s: %.400s", THREADS, workers[i].slot,
                         dit_status_get_name(workers[i].status), workers[i].err.message);
    }
    WANT(b, !workers[i].text[0], "the same as with one thread", "what the function shares without a lock", "%s",
         workers[i].text);
  }
  return true;
}

/// Note the first call that fails.
static bool is_fine(struct worker *w, const char *slot, enum dit_status status) {
  if (status != DIT_OK && w->status == DIT_OK) {
    w->slot = slot;
    w->status = status;
  }
  return status == DIT_OK;
}

// Allocations

/// Live blocks of all threads, to see two that overlap.
static struct {
  pthread_mutex_t lock;
  uintptr_t first[THREADS * HELD], end[THREADS * HELD];
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_block(struct worker *w, int place, const void *ptr, size_t size) {
  const uintptr_t first = (uintptr_t)ptr, end = first + size;
  pthread_mutex_lock(&live.lock);
  for (int i = 0; i < THREADS * HELD; i++) {
    if (i != place && live.first[i] < end && first < live.end[i]) {
      snprintf(w->text, sizeof w->text, "with %d threads, two live blocks overlap at %p", THREADS, ptr);
    }
  }
  live.first[place] = first;
  live.end[place] = end;
  pthread_mutex_unlock(&live.lock);
}

static void *allocate(void *argument) {
  struct worker *w = argument;
  void *held[HELD] = {NULL};
  const int device = w->number % w->b->count;
  for (int i = 0; i < ROUNDS && !w->text[0]; i++) {
    const int k = i % HELD, place = w->number * HELD + k;
    const size_t size = (size_t)1 << (6 + (i * 7 + w->number) % 12);
    if (held[k]) {
      note_block(w, place, NULL, 0);
      if (!is_fine(w, "memory_free", w->b->v.memory_free(device, held[k], &w->err))) {
        return NULL;
      }
    }
    if (!is_fine(w, "memory_alloc", w->b->v.memory_alloc(device, size, &held[k], &w->err))) {
      return NULL;
    }
    note_block(w, place, held[k], size);
  }
  for (int k = 0; k < HELD; k++) {
    note_block(w, w->number * HELD + k, NULL, 0);
    is_fine(w, "memory_free", w->b->v.memory_free(device, held[k], &w->err));
  }
  return NULL;
}

static bool check_allocations(struct bench *b) {
  static struct worker workers[THREADS];
  return run_all(b, workers, allocate);
}

// One stream

static void add_one(void *argument) {
  atomic_fetch_add((atomic_int *)argument, 1);
}

static void *launch(void *argument) {
  struct worker *w = argument;
  for (int i = 0; i < ROUNDS; i++) {
    if (!is_fine(w, "stream_launch_host", w->b->v.stream_launch_host(0, w->stream, add_one, w->counter, &w->err))) {
      break;
    }
  }
  is_fine(w, "stream_synchronize", w->b->v.stream_synchronize(0, w->stream, &w->err));
  return NULL;
}

static bool check_one_stream(struct bench *b) {
  static struct worker workers[THREADS];
  static atomic_int counter;
  void *stream = NULL;
  CALL(b, stream_create, 0, 0, &stream);
  for (int i = 0; i < THREADS; i++) {
    workers[i].stream = stream;
    workers[i].counter = &counter;
  }
  TRY(run_all(b, workers, launch));
  WANT(b, atomic_load(&counter) == THREADS * ROUNDS, "every host function runs once", "the queue's lock",
       "%d threads put %d host functions on a stream, and %d ran", THREADS, THREADS * ROUNDS, atomic_load(&counter));
  CALL(b, stream_destroy, 0, stream);
  return true;
}

// A device, a stream and memory for each thread

static bool work_once(struct worker *w, void *stream, void *memory, unsigned char *bytes, size_t size, int round) {
  const struct dit_device_vtable *v = &w->b->v;
  const int device = w->number % w->b->count;
  const struct dit_copy in = bench_copy_in(device, memory, bytes, size),
                        out = bench_copy_out(device, bytes, memory, size);
  void *event = NULL;
  bench_fill(bytes, size, (unsigned)(w->number * 31 + round));
  bool fine = is_fine(w, "event_create", v->event_create(device, 0, &event, &w->err)) &&
              is_fine(w, "copy_async", v->copy_async(&in, device, stream, &w->err)) &&
              is_fine(w, "event_record", v->event_record(device, event, stream, &w->err)) &&
              is_fine(w, "event_synchronize", v->event_synchronize(device, event, &w->err));
  if (fine) {
    memset(bytes, 0, size);
    fine = is_fine(w, "copy_async", v->copy_async(&out, device, stream, &w->err)) &&
           is_fine(w, "stream_synchronize", v->stream_synchronize(device, stream, &w->err));
    v->event_destroy(device, event);
  }
  if (fine && bench_compare(bytes, size, (unsigned)(w->number * 31 + round)) != size) {
    snprintf(w->text, sizeof w->text, "with %d threads on %d devices, thread %d read back other bytes than it put",
             THREADS, w->b->count, w->number);
    fine = false;
  }
  return fine;
}

static void *work(void *argument) {
  struct worker *w = argument;
  const struct dit_device_vtable *v = &w->b->v;
  const int device = w->number % w->b->count;
  const size_t size = 20000 + (size_t)w->number * 1111;
  void *stream = NULL, *memory = NULL;
  unsigned char *bytes = malloc(size);
  bool fine = bytes && (!v->bind_thread || is_fine(w, "bind_thread", v->bind_thread(device, &w->err))) &&
              is_fine(w, "stream_create", v->stream_create(device, 0, &stream, &w->err)) &&
              is_fine(w, "memory_alloc", v->memory_alloc(device, size, &memory, &w->err));
  for (int i = 0; i < 40 && fine; i++) {
    fine = work_once(w, stream, memory, bytes, size, i);
  }
  if (fine) {
    is_fine(w, "memory_free", v->memory_free(device, memory, &w->err));
    is_fine(w, "stream_destroy", v->stream_destroy(device, stream, &w->err));
  }
  free(bytes);
  return NULL;
}

static bool check_devices(struct bench *b) {
  static struct worker workers[THREADS];
  return run_all(b, workers, work);
}

#define BASE "memory_alloc memory_free stream_create stream_destroy stream_synchronize"

static const struct check checks[] = {
    {"memory_alloc", "many threads", "memory_free", check_allocations, 0},
    {"stream_launch_host", "many threads, one stream", BASE, check_one_stream, 0},
    {"copy_async", "many threads, each with its device, stream, memory and events",
     "event_create event_record event_synchronize event_destroy " BASE, check_devices, 0},
};
const struct check_group thread_group = {checks, sizeof checks / sizeof checks[0]};
