/// Checks of events: state, waiting, times, reuse, and what they answer when they were never recorded.
#include <math.h>

#include "doctor.h"

static bool check_create(struct bench *b) {
  void *events[16];
  for (unsigned flags = 0; flags < 16; flags++) {
    const unsigned asked = flags & (DIT_EVENT_TIMING | DIT_EVENT_BLOCKING);
    events[flags] = NULL;
    CALL(b, event_create, (int)flags % b->count, asked, &events[flags]);
    WANT(b, events[flags], "a handle", "the assignment to *event", "an event with the flags 0x%x is NULL", asked);
    for (unsigned i = 0; i < flags; i++) {
      WANT(b, events[i] != events[flags], "a handle of its own for each event", "the assignment to *event",
           "two live events are both %p", events[i]);
    }
  }
  for (unsigned flags = 0; flags < 16; flags++) {
    b->v.event_destroy((int)flags % b->count, events[flags]);
  }
  return true;
}

static bool check_unrecorded(struct bench *b) {
  void *event = NULL;
  bool done = false;
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &event);
  CALL(b, event_query, 0, event, &done);
  WANT(b, done, "true: an event that was never recorded is done", "the state of a new event",
       "an event that was never recorded is not done");
  b->v.event_destroy(0, event);
  return true;
}

static bool check_unrecorded_wait(struct bench *b) {
  void *event = NULL;
  CALL(b, event_create, 0, 0, &event);
  CALL(b, event_synchronize, 0, event);  // at once
  b->v.event_destroy(0, event);
  return true;
}

/// Record an event behind a slow host function; `wait` must not return before that has ended.
static bool check_wait(struct bench *b) {
  static struct slow slow;
  for (int device = 0; device < b->count; device++) {
    void *event = NULL, *stream = NULL;
    CALL(b, stream_create, device, 0, &stream);
    void *const streams[] = {stream, NULL};
    for (int i = 0; i < 2; i++) {
      atomic_store(&slow.done, 0);
      CALL(b, event_create, device, device % 2 ? DIT_EVENT_BLOCKING : 0, &event);
      CALL(b, stream_launch_host, device, streams[i], slow_run, &slow);
      CALL(b, event_record, device, event, streams[i]);
      CALL(b, event_synchronize, device, event);
      WANT(b, atomic_load(&slow.done) == 1, "it returns when the work before the recording is done",
           "what the recording stands for: a place in the stream", "device %d, %s stream: it returned too early",
           device, i ? "the default" : "a created");
      b->v.event_destroy(device, event);
    }
    CALL(b, stream_destroy, device, stream);
  }
  return true;
}

static bool check_query(struct bench *b) {
  static struct gate gate;
  bool queued, done = true;
  void *event = NULL, *stream = NULL;
  TRY(bench_is_queued(b, &queued));
  CALL(b, stream_create, 0, 0, &stream);
  CALL(b, event_create, 0, 0, &event);
  if (queued) {
    CALL(b, stream_launch_host, 0, stream, gate_wait, &gate);
    CALL(b, event_record, 0, event, stream);
    CALL(b, event_query, 0, event, &done);
    const bool passed = atomic_load(&gate.passed);
    WANT(b, passed || !done, "false while the work before it is running", "the state after event_record",
         "an event is done, and a host function before it has not ended");
    atomic_store(&gate.open, true);
  } else {
    CALL(b, event_record, 0, event, stream);
  }
  CALL(b, stream_synchronize, 0, stream);
  done = false;
  CALL(b, event_query, 0, event, &done);
  WANT(b, done, "true after the stream was synchronised", "who sets the state, and when",
       "an event in a drained stream is not done");
  b->v.event_destroy(0, event);
  CALL(b, stream_destroy, 0, stream);
  return true;
}

/// An event that comes before slow work is done before it.
static bool check_record_place(struct bench *b) {
  static struct gate gate;
  bool queued;
  void *event = NULL, *stream = NULL;
  TRY(bench_is_queued(b, &queued));
  if (!queued) {
    return true;
  }
  CALL(b, stream_create, 0, 0, &stream);
  CALL(b, event_create, 0, 0, &event);
  CALL(b, event_record, 0, event, stream);
  CALL(b, stream_launch_host, 0, stream, gate_wait, &gate);
  bool done = false;
  const double end = bench_get_seconds() + 10;
  while (!done && bench_get_seconds() < end) {
    CALL(b, event_query, 0, event, &done);
    bench_sleep(1e-3);
  }
  WANT(b, done, "an event stands for the work before it, not behind it", "what the recording waits for",
       "an event is not done after 10 s, because work that came later has not ended");
  atomic_store(&gate.open, true);
  CALL(b, stream_synchronize, 0, stream);
  b->v.event_destroy(0, event);
  CALL(b, stream_destroy, 0, stream);
  return true;
}

// Times

struct span {
  double least, most;  ///< milliseconds on the host: what the device may say
};

/// Two recordings with a sleep of known length between them.
static bool measure(struct bench *b, int device, void *stream, void *first, void *second, struct span *span) {
  static struct slow slow;
  const double begin = bench_get_seconds();
  CALL(b, event_record, device, first, stream);
  CALL(b, stream_launch_host, device, stream, slow_run, &slow);
  CALL(b, event_record, device, second, stream);
  CALL(b, event_synchronize, device, second);
  *span = (struct span){SLOW_SECONDS * 1e3 - 1, (bench_get_seconds() - begin) * 1e3 + 1};
  return true;
}

static bool expect_elapsed(struct bench *b, int device, void *first, void *second, const struct span *span,
                           const char *what) {
  double elapsed = -12345;
  CALL(b, event_get_elapsed, device, first, second, &elapsed);
  WANT(b, isfinite(elapsed) && elapsed >= span->least && elapsed <= span->most,
       "milliseconds between the two places in the stream", "units; which clock; when the time is taken",
       "%s of device %d: %.6g ms, and by the host's clock it was %.6g to %.6g ms", what, device, elapsed, span->least,
       span->most);
  return true;
}

static bool check_elapsed(struct bench *b) {
  for (int device = 0; device < b->count && device < 2; device++) {
    void *events[5], *stream = NULL;
    struct span span;
    CALL(b, stream_create, device, 0, &stream);
    for (int i = 0; i < 5; i++) {
      events[i] = NULL;
      CALL(b, event_create, device, DIT_EVENT_TIMING, &events[i]);
    }
    TRY(measure(b, device, stream, events[0], events[1], &span));
    TRY(expect_elapsed(b, device, events[0], events[1], &span, "a created stream"));
    CALL(b, event_record, device, events[2], stream);
    CALL(b, event_synchronize, device, events[2]);
    double parts[3];
    CALL(b, event_get_elapsed, device, events[0], events[1], &parts[0]);
    CALL(b, event_get_elapsed, device, events[1], events[2], &parts[1]);
    CALL(b, event_get_elapsed, device, events[0], events[2], &parts[2]);
    WANT(b, parts[1] >= 0 && fabs(parts[0] + parts[1] - parts[2]) < 0.1 + 0.01 * parts[2],
         "times that add up: a to b and b to c make a to c", "the clock, and its unit", "%.6g + %.6g is not %.6g ms",
         parts[0], parts[1], parts[2]);
    TRY(measure(b, device, NULL, events[3], events[4], &span));
    TRY(expect_elapsed(b, device, events[3], events[4], &span, "the default stream"));
    for (int i = 0; i < 5; i++) {
      b->v.event_destroy(device, events[i]);
    }
    CALL(b, stream_destroy, device, stream);
  }
  return true;
}

/// A second recording counts, not the first.
static bool check_reuse(struct bench *b) {
  static struct slow slow;
  void *first = NULL, *second = NULL, *stream = NULL;
  struct span span;
  CALL(b, stream_create, 0, 0, &stream);
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &first);
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &second);
  CALL(b, event_record, 0, first, stream);
  CALL(b, event_record, 0, second, stream);
  CALL(b, event_synchronize, 0, second);
  TRY(measure(b, 0, stream, first, second, &span));
  double elapsed = -12345;
  CALL(b, event_get_elapsed, 0, first, second, &elapsed);
  WANT(b, elapsed >= span.least && elapsed <= span.most, "the times of the latest recordings",
       "an event that keeps its first time", "two events recorded again, 30 ms apart: %.6g ms", elapsed);
  atomic_store(&slow.done, 0);
  CALL(b, stream_launch_host, 0, stream, slow_run, &slow);
  CALL(b, event_record, 0, first, stream);
  CALL(b, event_synchronize, 0, first);
  WANT(b, atomic_load(&slow.done) == 1, "a wait means the latest recording", "a state that stays done",
       "an event that was recorded again did not wait for the new work");
  b->v.event_destroy(0, first);
  b->v.event_destroy(0, second);
  CALL(b, stream_destroy, 0, stream);
  return true;
}

static bool expect_no_time(struct bench *b, void *first, void *second, const char *what) {
  struct dit_error err = bench_make_error();
  double elapsed = -12345;
  const enum dit_status status = b->v.event_get_elapsed(0, first, second, &elapsed, &err);
  TRY(bench_is_error(b, "event_get_elapsed", status, &err, what));
  WANT(b, elapsed == -12345, "outputs are untouched on failure", "the assignment to *milliseconds comes last",
       "it failed for %s and wrote %g", what, elapsed);
  return true;
}

static bool check_no_time(struct bench *b) {
  void *timed = NULL, *other = NULL, *plain = NULL;
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &timed);
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &other);
  CALL(b, event_create, 0, 0, &plain);
  CALL(b, event_record, 0, timed, NULL);
  CALL(b, event_record, 0, plain, NULL);
  CALL(b, event_synchronize, 0, plain);
  TRY(expect_no_time(b, timed, other, "an event that was never recorded"));
  TRY(expect_no_time(b, other, timed, "an event that was never recorded"));
  TRY(expect_no_time(b, timed, plain, "an event without DIT_EVENT_TIMING"));
  b->v.event_destroy(0, timed);
  b->v.event_destroy(0, other);
  b->v.event_destroy(0, plain);
  return true;
}

static bool check_destroy(struct bench *b) {
  static struct gate gate;
  static struct slow slow;
  bool queued;
  void *event = NULL, *stream = NULL;
  TRY(bench_is_queued(b, &queued));
  CALL(b, stream_create, 0, 0, &stream);
  CALL(b, event_create, 0, DIT_EVENT_TIMING, &event);
  if (queued) {
    CALL(b, stream_launch_host, 0, stream, gate_wait, &gate);
  }
  CALL(b, event_record, 0, event, stream);
  CALL(b, stream_launch_host, 0, stream, slow_run, &slow);
  b->v.event_destroy(0, event);
  for (int i = 0; i < 50; i++) {  // others take its place
    void *next = NULL;
    CALL(b, event_create, 0, DIT_EVENT_TIMING, &next);
    b->v.event_destroy(0, next);
  }
  atomic_store(&gate.open, true);
  CALL(b, stream_synchronize, 0, stream);
  WANT(b, atomic_load(&slow.done) == 1, "an event may be destroyed while it is pending",
       "who owns a recording that is on its way", "work behind a destroyed event did not run");
  CALL(b, stream_destroy, 0, stream);
  return true;
}

#define STREAMS "stream_create stream_destroy stream_launch_host stream_synchronize event_create event_destroy"

static const struct check checks[] = {
    {"event_create", "a handle of its own, with every flag", "event_destroy", check_create, 0},
    {"event_query", "an event that was never recorded is done", "event_create", check_unrecorded, 0},
    {"event_synchronize", "an event that was never recorded is not waited for", "event_create", check_unrecorded_wait,
     0},
    {"event_query", "done or not", "event_record " STREAMS, check_query, 0},
    {"event_record", "it stands for the work before it", "event_query " STREAMS, check_record_place, 0},
    {"event_synchronize", "it waits for the work before it", "event_record " STREAMS, check_wait, 0},
    {"event_get_elapsed", "milliseconds that are right", "event_record event_synchronize " STREAMS, check_elapsed, 0},
    {"event_record", "an event may be recorded again", "event_get_elapsed event_synchronize " STREAMS, check_reuse, 0},
    {"event_get_elapsed", "no times where there are none", "event_record event_synchronize " STREAMS, check_no_time, 0},
    {"event_destroy", "while it is pending", "event_record " STREAMS, check_destroy, 0},
};
const struct check_group event_group = {checks, sizeof checks / sizeof checks[0]};
