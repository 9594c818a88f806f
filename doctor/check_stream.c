/// Checks of streams: host functions run once and in order, waits wait, queries tell the truth, destroy drains.
#include <stdlib.h>

#include "doctor.h"

enum { POOL = 64, STEPS = 200 };

static bool check_create(struct bench *b) {
  static void *streams[POOL];
  for (int device = 0; device < b->count; device++) {
    for (int i = 0; i < POOL; i++) {
      streams[i] = NULL;
      CALL(b, stream_create, device, i % 2 ? -1 : 0, &streams[i]);
      WANT(b, streams[i], "a handle: NULL means the default stream", "the assignment to *stream",
           "stream %d of device %d is NULL", i, device);
      WANT(b, (uintptr_t)streams[i] % 2 == 0 && (uintptr_t)streams[i] > 64,
           "a handle that is an even number above 64: programs pass it on as a number",
           "handles that are small numbers: give out addresses", "stream %d of device %d is %p", i, device, streams[i]);
      for (int k = 0; k < i; k++) {
        WANT(b, streams[i] != streams[k], "64 streams per device, each with a handle of its own",
             "the assignment to "
             "*stream; a pool that hands a stream out twice",
             "streams %d and %d of device %d are both %p", k, i, device, streams[i]);
      }
    }
    for (int i = 0; i < POOL; i++) {
      CALL(b, stream_destroy, device, streams[i]);
    }
  }
  return true;
}

struct call {
  atomic_int runs;
};

static void count_run(void *argument) {
  struct call *call = argument;
  atomic_fetch_add(&call->runs, 1);
}

static bool check_launch(struct bench *b) {
  for (int device = 0; device < b->count; device++) {
    void *streams[2] = {NULL, NULL};
    CALL(b, stream_create, device, 0, &streams[1]);
    for (int i = 0; i < 2; i++) {
      static struct call call;  // outlives this function if a run comes late
      atomic_store(&call.runs, 0);
      CALL(b, stream_launch_host, device, streams[i], count_run, &call);
      WANT(b, bench_await(&call.runs, 1, 10), "the function runs when earlier work is done",
           "the queue of the stream: is its worker there?", "on %s stream of idle device %d it did not run within 10 s",
           i ? "a created" : "the default", device);
      CALL(b, stream_synchronize, device, streams[i]);
      WANT(b, atomic_load(&call.runs) == 1, "one run per call", "a task that is not taken off the queue",
           "the function ran %d times", atomic_load(&call.runs));
    }
    CALL(b, stream_destroy, device, streams[1]);
  }
  return true;
}

/// `call(b, device, stream)` must not return before a slow host function has ended.
static bool expect_wait(struct bench *b, int device, void *stream, bool (*call)(struct bench *, int, void *),
                        const char *what) {
  static struct slow slow;
  atomic_store(&slow.done, 0);
  for (int i = 0; i < 2; i++) {
    CALL(b, stream_launch_host, device, stream, slow_run, &slow);
  }
  TRY(call(b, device, stream));
  const int done = atomic_load(&slow.done);
  WANT(b, done == 2, "it returns when all work of the stream is done", "what it waits for: the last task's end",
       "%s of device %d returned with %d of 2 slow host functions done", what, device, done);
  return true;
}

static bool call_synchronize(struct bench *b, int device, void *stream) {
  CALL(b, stream_synchronize, device, stream);
  return true;
}

static bool call_destroy(struct bench *b, int device, void *stream) {
  CALL(b, stream_destroy, device, stream);
  return true;
}

static bool check_synchronize(struct bench *b) {
  for (int device = 0; device < b->count; device++) {
    void *stream = NULL;
    CALL(b, stream_create, device, 0, &stream);
    CALL(b, stream_synchronize, device, stream);  // idle
    TRY(expect_wait(b, device, stream, call_synchronize, "stream_synchronize of a created stream"));
    TRY(expect_wait(b, device, NULL, call_synchronize, "stream_synchronize of the default stream"));
    CALL(b, stream_destroy, device, stream);
  }
  return true;
}

static bool check_destroy(struct bench *b) {
  void *stream = NULL;
  CALL(b, stream_create, 0, 0, &stream);
  TRY(expect_wait(b, 0, stream, call_destroy, "stream_destroy"));
  return true;
}

struct order {
  atomic_int next, first_wrong;
};

struct step {
  struct order *order;
  int number;
};

static void take_step(void *argument) {
  struct step *step = argument;
  const int turn = atomic_fetch_add(&step->order->next, 1);
  int none = -1;
  if (turn != step->number) {
    atomic_compare_exchange_strong(&step->order->first_wrong, &none, step->number);
  }
}

static bool expect_order(struct bench *b, void *stream, const char *which) {
  static struct order order;
  static struct step steps[STEPS];
  atomic_store(&order.next, 0);
  atomic_store(&order.first_wrong, -1);
  for (int i = 0; i < STEPS; i++) {
    steps[i] = (struct step){&order, i};
    CALL(b, stream_launch_host, 0, stream, take_step, &steps[i]);
  }
  CALL(b, stream_synchronize, 0, stream);
  WANT(b, atomic_load(&order.next) == STEPS, "every function runs once", "tasks that are lost or repeated",
       "of %d host functions on %s stream %d ran", STEPS, which, atomic_load(&order.next));
  WANT(b, atomic_load(&order.first_wrong) < 0, "work of one stream runs in the order in which it was put there",
       "a stack instead of a queue; more than one worker per stream", "on %s stream host function %d came out of turn",
       which, atomic_load(&order.first_wrong));
  return true;
}

static bool check_order(struct bench *b) {
  void *stream = NULL;
  CALL(b, stream_create, 0, 0, &stream);
  TRY(expect_order(b, stream, "a created"));
  TRY(expect_order(b, NULL, "the default"));
  CALL(b, stream_destroy, 0, stream);
  return true;
}

static bool check_query(struct bench *b) {
  static struct gate gate;
  bool queued, idle = false;
  void *stream = NULL;
  CALL(b, stream_create, 0, 0, &stream);
  CALL(b, stream_query, 0, stream, &idle);
  WANT(b, idle, "true: the stream is new", "what *idle is taken from", "a new stream is not idle");
  TRY(bench_is_queued(b, &queued));
  if (queued) {
    CALL(b, stream_launch_host, 0, stream, gate_wait, &gate);
    CALL(b, stream_query, 0, stream, &idle);
    const bool passed = atomic_load(&gate.passed);
    WANT(b, passed || !idle, "false while work is pending", "a task that is running counts, too",
         "a stream whose host function has not ended is idle");
    atomic_store(&gate.open, true);
  }
  CALL(b, stream_synchronize, 0, stream);
  idle = false;
  CALL(b, stream_query, 0, stream, &idle);
  WANT(b, idle, "true after stream_synchronize", "what *idle is taken from", "a drained stream is not idle");
  idle = false;
  CALL(b, stream_query, 0, NULL, &idle);
  WANT(b, idle, "true: nothing was put there", "the handle NULL is the default stream",
       "the default stream is not idle");
  CALL(b, stream_destroy, 0, stream);
  return true;
}

static bool check_priorities(struct bench *b) {
  for (int device = 0; device < b->count; device++) {
    int least = 12345, greatest = 12345;
    CALL(b, stream_get_priority_range, device, &least, &greatest);
    WANT(b, least != 12345 && greatest != 12345, "both numbers", "the assignments", "it wrote nothing");
    WANT(b, greatest <= least && least >= 0 && greatest <= 0, "least >= 0 >= greatest: lower numbers come first",
         "the order of the two", "device %d: least %d, greatest %d", device, least, greatest);
    for (int priority = greatest; priority <= least && priority - greatest < 8; priority++) {
      void *stream = NULL;
      CALL(b, stream_create, device, priority, &stream);
      CALL(b, stream_destroy, device, stream);
    }
  }
  return true;
}

static bool check_device_wait(struct bench *b) {
  static struct slow slow;
  for (int device = 0; device < b->count; device++) {
    void *streams[3] = {NULL};
    CALL(b, synchronize, device);  // idle
    atomic_store(&slow.done, 0);
    for (int i = 0; i < 3; i++) {
      if (i > 0) {
        CALL(b, stream_create, device, 0, &streams[i]);
      }
      CALL(b, stream_launch_host, device, streams[i], slow_run, &slow);
    }
    CALL(b, synchronize, device);
    const int done = atomic_load(&slow.done);
    WANT(b, done == 3, "it returns when all work on all streams of the device is done",
         "the list of streams that it walks", "device %d: %d of 3 slow host functions were done", device, done);
    CALL(b, stream_destroy, device, streams[1]);
    CALL(b, stream_destroy, device, streams[2]);
  }
  return true;
}

static const struct check checks[] = {
    {"stream_create", "64 streams per device, each of its own", "stream_destroy", check_create, 0},
    {"stream_launch_host", "a host function runs, and once", "stream_create", check_launch, 0},
    {"stream_synchronize", "it waits for the stream's work", "stream_launch_host stream_create", check_synchronize, 0},
    {"stream_launch_host", "host functions run in order", "stream_create stream_synchronize", check_order, 0},
    {"stream_query", "idle or not", "stream_launch_host stream_create stream_synchronize", check_query, 0},
    {"stream_destroy", "it waits for work that is pending", "stream_launch_host stream_create", check_destroy, 0},
    {"stream_get_priority_range", "every priority of the range makes a stream", "stream_create", check_priorities, 0},
    {"synchronize", "it waits for all streams of the device", "stream_launch_host stream_create", check_device_wait, 0},
};
const struct check_group stream_group = {checks, sizeof checks / sizeof checks[0]};
