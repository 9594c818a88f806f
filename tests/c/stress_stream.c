/// Random programs over streams, events and copies, compared with a sequential model.
///
///   stress_stream [seed [programs]]
///
/// The generator keeps a vector clock per stream and, per buffer, who wrote it last and who read it since. An operation
/// is issued only when every earlier conflicting one happens before it; if not, the generator first orders them: by a
/// wait on an event that was recorded late enough (found among old recordings, or recorded now), or by a host
/// synchronisation. All conflicts are thus ordered as the program is written, so executing it one statement after the
/// other (the model) must give the same memory. A wait that does not wait, a wait that means the wrong recording, a
/// queue out of order or a copy that returns early changes the result, and ThreadSanitizer sees it as a race. Several
/// programs run at once in threads of their own, on streams of their own.
#include <sched.h>
#include <stdatomic.h>

#include "device_test.h"

enum {
  DEVICES = 2,
  THREADS = 3,
  SIDE = 4,                      // side streams per device and program
  STREAMS = 1 + DEVICES * SIDE,  // clock 0: the host thread, which is also every default stream
  DEVICE_BUFFERS = 6,
  PINNED_BUFFERS = 2,
  BUFFERS = DEVICE_BUFFERS + PINNED_BUFFERS + 1,  // the last is pageable
  CELLS = 64,
  EVENTS = 5,
  STATEMENTS = 250,
};

typedef uint64_t cell;

struct clock {
  uint32_t time[STREAMS];
};

struct buffer {
  cell *cells;
  cell model[CELLS];
  int device;  // -1: host
  int writer;
  uint32_t written;
  uint32_t read[STREAMS];
};

struct event {
  struct dit_event *event;
  int device;
  bool recorded;
  struct clock clock;
};

struct program {
  uint64_t seed, state;
  int first_stream;
  struct clock clocks[STREAMS];
  struct buffer buffers[BUFFERS];
  struct event events[EVENTS];
  int waits_reused, waits_new, synchronised;
};

static uint32_t draw(struct program *p, uint32_t limit) {
  p->state ^= p->state << 13;
  p->state ^= p->state >> 7;
  p->state ^= p->state << 17;
  return (uint32_t)((p->state >> 16) % limit);
}

// Clocks

static void merge(struct clock *into, const struct clock *from) {
  for (int i = 0; i < STREAMS; i++) {
    if (from->time[i] > into->time[i]) {
      into->time[i] = from->time[i];
    }
  }
}

static int device_of(int stream) {
  return stream == 0 ? -1 : (stream - 1) / SIDE;
}

static int64_t id_of(const struct program *p, int stream) {
  return stream == 0 ? 0 : p->first_stream + (stream - 1) % SIDE;
}

// Queueing orders the task after everything the host has done.
static void enter(struct program *p, int stream) {
  merge(&p->clocks[stream], &p->clocks[0]);
}

// The stream whose access to the buffer is not ordered before an access by `stream`; -1 when there is none.
static int conflict(const struct program *p, const struct buffer *b, int stream, bool write) {
  struct clock now = p->clocks[stream];
  merge(&now, &p->clocks[0]);
  if (b->written > now.time[b->writer]) {
    return b->writer;
  }
  for (int i = 0; write && i < STREAMS; i++) {
    if (b->read[i] > now.time[i]) {
      return i;
    }
  }
  return -1;
}

// Ordering statements

static void record(struct program *p, struct event *e, int stream) {
  struct dit_error err = {0};
  enter(p, stream);
  int device = stream == 0 ? e->device : device_of(stream);
  CHECK_OK(dit_event_record(e->event, device, id_of(p, stream), &err));
  e->recorded = true;
  e->clock = p->clocks[stream];
}

static void wait_event(struct program *p, struct event *e, int stream) {
  struct dit_error err = {0};
  int device = stream == 0 ? (int)draw(p, DEVICES) : device_of(stream);
  CHECK_OK(dit_event_block(e->event, device, id_of(p, stream), &err));
  enter(p, stream);
  if (e->recorded) {
    merge(&p->clocks[stream], &e->clock);
  }
}

static void synchronise(struct program *p, int stream) {
  struct dit_error err = {0};
  p->synchronised++;
  if (stream == 0) {
    return;
  }
  switch (draw(p, 2)) {
    case 0:
      CHECK_OK(dit_stream_synchronize(device_of(stream), id_of(p, stream), &err));
      break;
    default:
      CHECK_OK(dit_device_synchronize(device_of(stream), &err));
      for (int i = 0; i < SIDE; i++) {
        merge(&p->clocks[0], &p->clocks[1 + device_of(stream) * SIDE + i]);
      }
  }
  merge(&p->clocks[0], &p->clocks[stream]);
}

static struct event *pick_event(struct program *p, int device) {
  struct event *e;
  do {
    e = &p->events[draw(p, EVENTS)];
  } while (device >= 0 && e->device != device);
  return e;
}

// Order `stream` after the accesses of `other` up to `time`.
static void order(struct program *p, int stream, int other, uint32_t time) {
  for (int i = 0; i < EVENTS; i++) {
    if (p->events[i].recorded && p->events[i].clock.time[other] >= time) {
      wait_event(p, &p->events[i], stream);
      p->waits_reused++;
      return;
    }
  }
  if (draw(p, 6) == 0) {
    synchronise(p, other);
    return;
  }
  struct event *e = pick_event(p, device_of(other));
  record(p, e, other);
  wait_event(p, e, stream);
  p->waits_new++;
}

static void access_buffer(struct program *p, struct buffer *b, int stream, bool write) {
  for (int other; (other = conflict(p, b, stream, write)) >= 0;) {
    uint32_t time = b->written > b->read[other] && other == b->writer ? b->written : b->read[other];
    order(p, stream, other, time);
  }
}

// After all accesses of a statement are ordered: it happens at a new time of its stream.
static void note_access(struct program *p, struct buffer *b, int stream, bool write) {
  if (write) {
    b->writer = stream;
    b->written = p->clocks[stream].time[stream];
    memset(b->read, 0, sizeof b->read);
  } else {
    b->read[stream] = p->clocks[stream].time[stream];
  }
}

// Working statements

struct kernel {
  cell *cells;
  int start, count, spin;
  cell factor, term;
};

static void apply(cell *cells, const struct kernel *k) {
  for (int i = k->start; i < k->start + k->count; i++) {
    cells[i] = cells[i] * k->factor + k->term;
  }
}

static void run_kernel(void *context) {
  struct kernel *k = context;
  for (int i = 0; i < k->spin; i++) {
    sched_yield();
  }
  apply(k->cells, k);
  free(k);
}

static void tick(struct program *p, int stream) {
  enter(p, stream);
  p->clocks[stream].time[stream]++;
}

static void launch_kernel(struct program *p, int stream) {
  struct dit_error err = {0};
  struct buffer *b = &p->buffers[draw(p, BUFFERS)];
  struct kernel *k = malloc(sizeof *k);
  CHECK(k);
  int start = (int)draw(p, CELLS);
  *k = (struct kernel){.cells = b->cells, .start = start, .count = 1 + (int)draw(p, (uint32_t)(CELLS - start))};
  k->spin = draw(p, 4) == 0 ? (int)draw(p, 20) : 0;
  k->factor = 1 + 2 * draw(p, 1000);
  k->term = draw(p, 1000);
  access_buffer(p, b, stream, true);
  tick(p, stream);
  apply(b->model, k);
  int device = stream == 0 ? 0 : device_of(stream);
  CHECK_OK(dit_stream_launch_host(device, id_of(p, stream), run_kernel, k, &err));
  note_access(p, b, stream, true);
}

static void copy_cells(struct program *p, int stream) {
  struct dit_error err = {0};
  struct buffer *to = &p->buffers[draw(p, BUFFERS)], *from = &p->buffers[draw(p, BUFFERS)];
  if (to == from) {
    return;
  }
  uint32_t count = 1 + draw(p, CELLS), at = draw(p, CELLS - count + 1), source = draw(p, CELLS - count + 1);
  bool async = draw(p, 3) != 0;
  // Ordering one operand may not disturb the other: clocks only grow.
  access_buffer(p, from, stream, false);
  access_buffer(p, to, stream, true);
  tick(p, stream);
  memmove(to->model + at, from->model + source, count * sizeof(cell));
  int device = stream == 0 ? (int)draw(p, DEVICES) : device_of(stream);
  CHECK_OK(dit_memory_copy(to->cells + at, to->device, from->cells + source, from->device, count * sizeof(cell), device,
                           id_of(p, stream), async, &err));
  note_access(p, from, stream, false);
  note_access(p, to, stream, true);
  const struct buffer *pageable = &p->buffers[BUFFERS - 1];
  bool both_host = to->device < 0 && from->device < 0;
  if (!async || to == pageable || from == pageable || both_host) {
    merge(&p->clocks[0], &p->clocks[stream]);  // the call waited
  }
  if (both_host && stream != 0) {  // the host itself copied
    p->clocks[0].time[0]++;
    note_access(p, from, 0, false);
    note_access(p, to, 0, true);
  }
}

static void set_cells(struct program *p, int stream) {
  struct dit_error err = {0};
  struct buffer *b = &p->buffers[draw(p, DEVICE_BUFFERS)];
  uint32_t count = 1 + draw(p, CELLS), at = draw(p, CELLS - count + 1);
  int value = (int)draw(p, 256);
  access_buffer(p, b, stream, true);
  tick(p, stream);
  memset(b->model + at, value, count * sizeof(cell));
  int device = stream == 0 ? 0 : device_of(stream);
  CHECK_OK(dit_memory_set(b->cells + at, device, value, count * sizeof(cell), id_of(p, stream), &err));
  note_access(p, b, stream, true);
}

// Events are destroyed and made anew while recordings and waits are pending.
static void renew_event(struct program *p) {
  struct dit_error err = {0};
  struct event *e = &p->events[draw(p, EVENTS)];
  dit_event_destroy(e->event);
  CHECK_OK(dit_event_create(e->device, DIT_EVENT_TIMING, &e->event, &err));
  e->recorded = false;
  e->clock = (struct clock){{0}};
}

static void statement(struct program *p) {
  struct dit_error err = {0};
  int stream = (int)draw(p, STREAMS);
  switch (draw(p, 16)) {
    case 0:
      record(p, pick_event(p, device_of(stream)), stream);
      break;
    case 1:
      wait_event(p, pick_event(p, -1), stream);
      break;
    case 2: {
      struct event *e = pick_event(p, -1);
      if (draw(p, 3) == 0) {
        CHECK_OK(dit_event_synchronize(e->event, &err));
        merge(&p->clocks[0], &e->clock);
      }
      break;
    }
    case 3:
      if (draw(p, 4) == 0) {
        synchronise(p, stream);
      }
      break;
    case 4:
      renew_event(p);
      break;
    case 5:
    case 6:
    case 7:
    case 8:
      copy_cells(p, stream);
      break;
    case 9:
      set_cells(p, stream);
      break;
    default:
      launch_kernel(p, stream);
  }
}

// One program

static void open_program(struct program *p) {
  struct dit_error err = {0};
  static const int devices[DEVICE_BUFFERS] = {0, 0, 0, 1, 1, 1};
  for (int i = 0; i < BUFFERS; i++) {
    struct buffer *b = &p->buffers[i];
    void *cells;
    b->device = i < DEVICE_BUFFERS ? devices[i] : -1;
    if (i < DEVICE_BUFFERS) {
      cells = take_memory(b->device, CELLS * sizeof(cell));
    } else if (i < BUFFERS - 1) {
      CHECK_OK(dit_host_alloc(CELLS * sizeof(cell), &cells, &err));
    } else {
      cells = malloc(CELLS * sizeof(cell));
      CHECK(cells);
    }
    b->cells = cells;
    for (int j = 0; j < CELLS; j++) {
      b->cells[j] = b->model[j] = (cell)(i * 1000 + j);
    }
  }
  for (int i = 0; i < EVENTS; i++) {
    p->events[i].device = i % DEVICES;
    CHECK_OK(dit_event_create(i % DEVICES, DIT_EVENT_TIMING, &p->events[i].event, &err));
  }
}

static void close_program(struct program *p) {
  for (int i = 0; i < EVENTS; i++) {
    dit_event_destroy(p->events[i].event);
  }
  for (int i = 0; i < BUFFERS; i++) {
    if (i < DEVICE_BUFFERS) {
      give_memory(p->buffers[i].device, p->buffers[i].cells);
    } else if (i < BUFFERS - 1) {
      dit_host_free(p->buffers[i].cells);
    } else {
      free(p->buffers[i].cells);
    }
  }
}

static void check_result(const struct program *p) {
  for (int i = 0; i < BUFFERS; i++) {
    for (int j = 0; j < CELLS; j++) {
      if (p->buffers[i].cells[j] != p->buffers[i].model[j]) {
        fprintf(stderr, "seed %llu: buffer %d cell %d is %llu, the model says %llu\n", (unsigned long long)p->seed, i,
                j, (unsigned long long)p->buffers[i].cells[j], (unsigned long long)p->buffers[i].model[j]);
        exit(1);
      }
    }
  }
}

static atomic_int reused, recorded, synchronised;

static void run_program(uint64_t seed, int thread) {
  struct dit_error err = {0};
  struct program *p = calloc(1, sizeof *p);
  CHECK(p);
  p->seed = seed;
  p->state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  p->first_stream = 1 + thread * SIDE;
  open_program(p);
  for (int i = 0; i < STATEMENTS; i++) {
    statement(p);
  }
  for (int stream = 1; stream < STREAMS; stream++) {
    CHECK_OK(dit_stream_synchronize(device_of(stream), id_of(p, stream), &err));
  }
  check_result(p);
  atomic_fetch_add(&reused, p->waits_reused);
  atomic_fetch_add(&recorded, p->waits_new);
  atomic_fetch_add(&synchronised, p->synchronised);
  close_program(p);
  free(p);
}

struct job {
  uint64_t seed;
  int thread, programs;
};

static void *run_job(void *context) {
  const struct job *job = context;
  double end = check_get_seconds() + 60;
  for (int i = 0; i < job->programs && (!i || check_get_seconds() < end); i++) {
    run_program(job->seed + (uint64_t)(i * THREADS + job->thread), job->thread);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static const char *const two[] = {"host_devices", "2", NULL};
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240601;
  int programs = argc > 2 ? atoi(argv[2]) : 40;
  struct job jobs[THREADS];
  pthread_t threads[THREADS];
  printf("seed %llu, up to %d programs of %d statements in each of %d threads\n", (unsigned long long)seed, programs,
         STATEMENTS, THREADS);
  fflush(stdout);
  start_host(two);
  for (int i = 0; i < THREADS; i++) {
    jobs[i] = (struct job){seed, i, programs};
    CHECK(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  dit_runtime_shutdown();
  printf("ok   waits on old recordings %d, on new ones %d, host synchronisations %d\n", atomic_load(&reused),
         atomic_load(&recorded), atomic_load(&synchronised));
  return 0;
}
