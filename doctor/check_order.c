/// Checks of the order between streams: stream_wait_event on one device and across devices.
#include "doctor.h"

struct mark {
  struct gate *gate;
  atomic_int done;
  atomic_bool early;
};

/// Notes whether the gate of the other stream was still closed.
static void run_mark(void *argument) {
  struct mark *mark = argument;
  atomic_store(&mark->early, !atomic_load(&mark->gate->passed));
  atomic_store(&mark->done, 1);
}

/// A gate on `first`, an event behind it, `second` waits for the event: nothing there runs before the gate opens.
static bool expect_held(struct bench *b, int first_device, void *first, int second_device, void *second,
                        const char *what) {
  static struct gate gate;
  static struct mark mark;
  void *event = NULL;
  bool queued;
  TRY(bench_is_queued(b, &queued));
  if (!queued) {
    return true;  // work that was asked for is done: there is nothing to wait for
  }
  atomic_store(&gate.open, false);
  atomic_store(&gate.passed, false);
  atomic_store(&gate.reached, false);
  atomic_store(&mark.done, 0);
  mark.gate = &gate;
  CALL(b, event_create, first_device, 0, &event);
  CALL(b, stream_launch_host, first_device, first, gate_wait, &gate);
  CALL(b, event_record, first_device, event, first);
  CALL(b, stream_wait_event, second_device, second, event);
  CALL(b, stream_launch_host, second_device, second, run_mark, &mark);
  (void)bench_await(&mark.done, 1, 0.1);
  atomic_store(&gate.open, true);
  CALL(b, stream_synchronize, second_device, second);
  WANT(b, atomic_load(&mark.done) == 1, "the work behind the wait runs when the event is done",
       "who wakes the waiting stream", "%s: the work behind the wait did not run", what);
  WANT(b, !atomic_load(&mark.early), "work behind the wait runs when the event is done, not before",
       "what the waiting stream is told", "%s: a host function behind the wait ran first", what);
  CALL(b, stream_synchronize, first_device, first);
  b->v.event_destroy(first_device, event);
  return true;
}

static bool check_wait(struct bench *b) {
  void *first = NULL, *second = NULL;
  CALL(b, stream_create, 0, 0, &first);
  CALL(b, stream_create, 0, -1, &second);
  TRY(expect_held(b, 0, first, 0, second, "two streams of device 0"));
  CALL(b, stream_destroy, 0, first);
  CALL(b, stream_destroy, 0, second);
  return true;
}

static bool check_wait_across(struct bench *b) {
  void *first = NULL, *second = NULL;
  if (b->count < 2) {
    return true;
  }
  CALL(b, stream_create, 0, 0, &first);
  CALL(b, stream_create, 1, 0, &second);
  TRY(expect_held(b, 0, first, 1, second, "a stream of device 1 waits for an event of device 0"));
  TRY(expect_held(b, 1, second, 0, first, "a stream of device 0 waits for an event of device 1"));
  CALL(b, stream_destroy, 0, first);
  CALL(b, stream_destroy, 1, second);
  return true;
}

/// Waits for what is done, for an event that is recorded again, and on the own stream: none of them stands still.
static bool check_wait_done(struct bench *b) {
  static struct slow slow;
  void *event = NULL, *first = NULL, *second = NULL;
  CALL(b, stream_create, 0, 0, &first);
  CALL(b, stream_create, 0, 0, &second);
  CALL(b, event_create, 0, 0, &event);
  CALL(b, event_record, 0, event, first);
  CALL(b, stream_synchronize, 0, first);
  CALL(b, stream_wait_event, 0, second, event);
  CALL(b, stream_wait_event, 0, first, event);
  CALL(b, stream_wait_event, 0, NULL, event);
  for (int i = 0; i < 20; i++) {  // the same event, to and fro
    CALL(b, event_record, 0, event, i % 2 ? second : first);
    CALL(b, stream_wait_event, 0, i % 2 ? first : second, event);
  }
  CALL(b, stream_launch_host, 0, first, slow_run, &slow);
  CALL(b, stream_launch_host, 0, second, slow_run, &slow);
  CALL(b, stream_synchronize, 0, first);
  CALL(b, stream_synchronize, 0, second);
  WANT(b, atomic_load(&slow.done) == 2, "streams go on when their events are done", "who wakes the waiting stream",
       "%d of 2 host functions ran", atomic_load(&slow.done));
  b->v.event_destroy(0, event);
  CALL(b, stream_destroy, 0, first);
  CALL(b, stream_destroy, 0, second);
  return true;
}

/// Produce on one stream, consume on another: what data loaders and optimizers do.
static bool check_hand_over(struct bench *b) {
  enum { ROUNDS = 20 };
  const size_t size = 256 * KIB;
  void *memory = NULL, *pinned = NULL, *first = NULL, *second = NULL, *ready = NULL, *taken = NULL;
  CALL(b, memory_alloc, 0, size, &memory);
  CALL(b, host_alloc, size * ROUNDS, &pinned);
  CALL(b, stream_create, 0, 0, &first);
  CALL(b, stream_create, 0, 0, &second);
  CALL(b, event_create, 0, 0, &ready);
  CALL(b, event_create, 0, 0, &taken);
  for (int i = 0; i < ROUNDS; i++) {
    const struct dit_copy out = bench_copy_out(0, (char *)pinned + (size_t)i * size, memory, size);
    if (i > 0) {
      CALL(b, stream_wait_event, 0, first, taken);
    }
    CALL(b, memory_set, 0, first, memory, i + 1, size);
    CALL(b, event_record, 0, ready, first);
    CALL(b, stream_wait_event, 0, second, ready);
    CALL(b, copy_async, &out, 0, second);
    CALL(b, event_record, 0, taken, second);
  }
  CALL(b, stream_synchronize, 0, second);
  const unsigned char *bytes = pinned;
  for (size_t i = 0; i < size * ROUNDS; i++) {
    WANT(b, bytes[i] == i / size + 1, "each stream sees what the event says is done",
         "a wait is for the recording "
         "that was the latest when stream_wait_event was called",
         "in round %zu the reader saw %u", i / size + 1, bytes[i]);
  }
  b->v.event_destroy(0, ready);
  b->v.event_destroy(0, taken);
  CALL(b, stream_destroy, 0, first);
  CALL(b, stream_destroy, 0, second);
  CALL(b, host_free, pinned);
  CALL(b, memory_free, 0, memory);
  return true;
}

#define BASE                                                                                                    \
  "event_create event_record event_destroy stream_create stream_destroy stream_launch_host stream_synchronize " \
  "stream_query"

static const struct check checks[] = {
    {"stream_wait_event", "a stream waits for another one", BASE, check_wait, 0},
    {"stream_wait_event", "across devices", BASE, check_wait_across, 0},
    {"stream_wait_event", "nothing waits for what is done", BASE, check_wait_done, 0},
    {"stream_wait_event", "data handed from stream to stream",
     "memory_alloc memory_free memory_set copy_async host_alloc host_free " BASE, check_hand_over, 0},
};
const struct check_group order_group = {checks, sizeof checks / sizeof checks[0]};
