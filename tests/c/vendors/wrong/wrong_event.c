/// Defects of events.
#include <stdlib.h>

#include "wrong.h"

static enum dit_status same_create(int device, unsigned flags, void **event, struct dit_error *err) {
  static void *only;
  if (!only) {
    DIT_RETURN_IF_NOT_OK(wrong_base->event_create(device, flags, &only, err));
  }
  *event = only;
  return DIT_OK;
}

static void keep(int device, void *event) {
  (void)device;
  (void)event;
}

static void event_same(void) {
  REPLACE(event_create, same_create);
  REPLACE(event_destroy, keep);
}

static enum dit_status say_done(int device, void *event, bool *done, struct dit_error *err) {
  (void)device;
  (void)event;
  (void)err;
  *done = true;
  return DIT_OK;
}

static void event_always_done(void) {
  REPLACE(event_query, say_done);
}

static enum dit_status say_pending(int device, void *event, bool *done, struct dit_error *err) {
  (void)device;
  (void)event;
  (void)err;
  *done = false;
  return DIT_OK;
}

static void event_never_done(void) {
  REPLACE(event_query, say_pending);
}

static enum dit_status return_at_once(int device, void *event, struct dit_error *err) {
  (void)device;
  (void)event;
  (void)err;
  return DIT_OK;
}

static void event_wait_early(void) {
  REPLACE(event_synchronize, return_at_once);
}

static atomic_int records;

static enum dit_status note_record(int device, void *event, void *stream, struct dit_error *err) {
  atomic_fetch_add(&records, 1);
  return wrong_base->event_record(device, event, stream, err);
}

static enum dit_status refuse_unrecorded(int device, void *event, struct dit_error *err) {
  return atomic_load(&records) == 0 ? dit_error_set(err, DIT_ERR_INVALID, "invalid resource handle")
                                    : wrong_base->event_synchronize(device, event, err);
}

static void event_wait_unrecorded(void) {
  REPLACE(event_record, note_record);
  REPLACE(event_synchronize, refuse_unrecorded);
}

enum { KNOWN = 64 };
static void *known[KNOWN];

static enum dit_status first_record(int device, void *event, void *stream, struct dit_error *err) {
  for (int i = 0; i < KNOWN; i++) {
    if (known[i] == event) {
      return DIT_OK;
    }
    if (!known[i]) {
      known[i] = event;
      break;
    }
  }
  return wrong_base->event_record(device, event, stream, err);
}

static void forget(int device, void *event) {
  for (int i = 0; i < KNOWN; i++) {
    if (known[i] == event) {
      known[i] = &known;
    }
  }
  wrong_base->event_destroy(device, event);
}

static void record_first_only(void) {
  REPLACE(event_record, first_record);
  REPLACE(event_destroy, forget);
}

static void abort_pending(int device, void *event) {
  bool done = true;
  if (wrong_base->event_query(device, event, &done, NULL) != DIT_OK || !done) {
    abort();
  }
  wrong_base->event_destroy(device, event);
}

static void destroy_pending_aborts(void) {
  REPLACE(event_destroy, abort_pending);
}

// Times

#define CHANGED_TIME(name, change)                                                                            \
  static enum dit_status name##_run(int device, void *start, void *end, double *out, struct dit_error *err) { \
    double time = 0;                                                                                          \
    const enum dit_status status = wrong_base->event_get_elapsed(device, start, end, &time, err);             \
    change;                                                                                                   \
    return status;                                                                                            \
  }                                                                                                           \
  static void name(void) {                                                                                    \
    REPLACE(event_get_elapsed, name##_run);                                                                   \
  }

CHANGED_TIME(elapsed_seconds, if (status == DIT_OK) { *out = time / 1000; })
CHANGED_TIME(elapsed_zero, if (status == DIT_OK) { *out = 0; })
CHANGED_TIME(elapsed_backwards, if (status == DIT_OK) { *out = -time; })
CHANGED_TIME(elapsed_touches, *out = time)
CHANGED_TIME(elapsed_never_fails, *out = time; return DIT_OK)

const struct wrong_defect wrong_event_defects[] = {
    {"event_same", event_same},
    {"event_always_done", event_always_done},
    {"event_never_done", event_never_done},
    {"event_wait_early", event_wait_early},
    {"event_wait_unrecorded", event_wait_unrecorded},
    {"record_first_only", record_first_only},
    {"destroy_pending_aborts", destroy_pending_aborts},
    {"elapsed_seconds", elapsed_seconds},
    {"elapsed_zero", elapsed_zero},
    {"elapsed_backwards", elapsed_backwards},
    {"elapsed_touches", elapsed_touches},
    {"elapsed_never_fails", elapsed_never_fails},
    {NULL, NULL},
};
