/// Defects of streams and of waits between them.
#include <pthread.h>
#include <unistd.h>

#include "wrong.h"

static enum dit_status null_create(int device, int priority, void **stream, struct dit_error *err) {
  (void)device;
  (void)priority;
  (void)err;
  *stream = NULL;
  return DIT_OK;
}

static void stream_null(void) {
  REPLACE(stream_create, null_create);
}

static enum dit_status same_create(int device, int priority, void **stream, struct dit_error *err) {
  static void *only;
  if (!only) {
    DIT_RETURN_IF_NOT_OK(wrong_base->stream_create(device, priority, &only, err));
  }
  *stream = only;
  return DIT_OK;
}

static void stream_same(void) {
  REPLACE(stream_create, same_create);
}

static enum dit_status few_create(int device, int priority, void **stream, struct dit_error *err) {
  static atomic_int streams;
  return atomic_fetch_add(&streams, 1) >= 16 ? dit_error_set(err, DIT_ERR_DEVICE, "no more queues")
                                             : wrong_base->stream_create(device, priority, stream, err);
}

static void stream_few(void) {
  REPLACE(stream_create, few_create);
}

// Host functions

static atomic_int launches;

static enum dit_status lose_launch(int device, void *stream, void (*function)(void *), void *argument,
                                   struct dit_error *err) {
  return atomic_fetch_add(&launches, 1) % 50 == 49
             ? DIT_OK
             : wrong_base->stream_launch_host(device, stream, function, argument, err);
}

static void launch_lost(void) {
  REPLACE(stream_launch_host, lose_launch);
}

static enum dit_status never_launch(int device, void *stream, void (*function)(void *), void *argument,
                                    struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)function;
  (void)argument;
  (void)err;
  return DIT_OK;
}

static void launch_never(void) {
  REPLACE(stream_launch_host, never_launch);
}

static enum dit_status twice_launch(int device, void *stream, void (*function)(void *), void *argument,
                                    struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->stream_launch_host(device, stream, function, argument, err));
  return wrong_base->stream_launch_host(device, stream, function, argument, err);
}

static void launch_twice(void) {
  REPLACE(stream_launch_host, twice_launch);
}

struct late {
  void (*function)(void *);
  void *argument;
};

/// Pairs change places: each odd one goes first.
static enum dit_status swap_launch(int device, void *stream, void (*function)(void *), void *argument,
                                   struct dit_error *err) {
  static struct late waiting;
  if (!stream || atomic_load(&launches) < 8) {
    atomic_fetch_add(&launches, 1);
    return wrong_base->stream_launch_host(device, stream, function, argument, err);
  }
  if (!waiting.function) {
    waiting = (struct late){function, argument};
    return DIT_OK;
  }
  const struct late first = waiting;
  waiting.function = NULL;
  DIT_RETURN_IF_NOT_OK(wrong_base->stream_launch_host(device, stream, function, argument, err));
  return wrong_base->stream_launch_host(device, stream, first.function, first.argument, err);
}

static void launch_swapped(void) {
  REPLACE(stream_launch_host, swap_launch);
}

static enum dit_status own_thread_launch(int device, void *stream, void (*function)(void *), void *argument,
                                         struct dit_error *err) {
  static pthread_t first;
  static atomic_bool known;
  if (!atomic_exchange(&known, true)) {
    first = pthread_self();
  }
  return pthread_equal(first, pthread_self())
             ? wrong_base->stream_launch_host(device, stream, function, argument, err)
             : dit_error_set(err, DIT_ERR_DEVICE, "no context is current in this thread");
}

static void launch_one_thread(void) {
  REPLACE(stream_launch_host, own_thread_launch);
}

// Waits

static enum dit_status return_at_once(int device, void *stream, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  return DIT_OK;
}

static void synchronize_early(void) {
  REPLACE(stream_synchronize, return_at_once);
}

static enum dit_status hang(int device, void *stream, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  for (;;) {
    sleep(1);
  }
  return DIT_OK;
}

static void synchronize_hangs(void) {
  REPLACE(stream_synchronize, hang);
}

static void destroy_early(void) {
  REPLACE(stream_destroy, return_at_once);
}

static enum dit_status say_idle(int device, void *stream, bool *idle, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  *idle = true;
  return DIT_OK;
}

static void query_idle(void) {
  REPLACE(stream_query, say_idle);
}

static enum dit_status say_nothing(int device, void *stream, bool *idle, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)idle;
  (void)err;
  return DIT_OK;
}

static void query_unset(void) {
  REPLACE(stream_query, say_nothing);
}

static enum dit_status swapped_range(int device, int *least, int *greatest, struct dit_error *err) {
  (void)device;
  (void)err;
  *least = -1;
  *greatest = 0;
  return DIT_OK;
}

static void priority_swapped(void) {
  REPLACE(stream_get_priority_range, swapped_range);
}

static enum dit_status default_only(int device, struct dit_error *err) {
  return wrong_base->stream_synchronize(device, NULL, err);
}

static void synchronize_default_only(void) {
  REPLACE(synchronize, default_only);
}

// Waits for events

static enum dit_status ignore_wait(int device, void *stream, void *event, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)event;
  (void)err;
  return DIT_OK;
}

static void wait_ignored(void) {
  REPLACE(stream_wait_event, ignore_wait);
}

static enum dit_status own_device_wait(int device, void *stream, void *event, struct dit_error *err) {
  return device == 0 ? wrong_base->stream_wait_event(device, stream, event, err) : DIT_OK;
}

static void wait_not_across(void) {
  REPLACE(stream_wait_event, own_device_wait);
}

static void stand_still(void *argument) {
  (void)argument;
  sleep(1000);
}

/// A wait for an event that is done already never ends.
static enum dit_status missed_wait(int device, void *stream, void *event, struct dit_error *err) {
  bool done = false;
  DIT_RETURN_IF_NOT_OK(wrong_base->event_query(device, event, &done, err));
  return done ? wrong_base->stream_launch_host(device, stream, stand_still, NULL, err)
              : wrong_base->stream_wait_event(device, stream, event, err);
}

static void wait_misses(void) {
  REPLACE(stream_wait_event, missed_wait);
}

const struct wrong_defect wrong_stream_defects[] = {
    {"stream_null", stream_null},
    {"stream_same", stream_same},
    {"stream_few", stream_few},
    {"launch_lost", launch_lost},
    {"launch_never", launch_never},
    {"launch_twice", launch_twice},
    {"launch_swapped", launch_swapped},
    {"launch_one_thread", launch_one_thread},
    {"synchronize_early", synchronize_early},
    {"synchronize_hangs", synchronize_hangs},
    {"destroy_early", destroy_early},
    {"query_idle", query_idle},
    {"query_unset", query_unset},
    {"priority_swapped", priority_swapped},
    {"synchronize_default_only", synchronize_default_only},
    {"wait_ignored", wait_ignored},
    {"wait_not_across", wait_not_across},
    {"wait_misses", wait_misses},
    {NULL, NULL},
};
