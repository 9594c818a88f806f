/// Events: the framework's handle over a vendor event.
///
/// Live events are in one list, so that shutdown can take the vendor's part away from events that outlive it; such an
/// event can only be destroyed. Rules follow CUDA: an event belongs to one device and is recorded on streams of that
/// device; waiting for an event that was never recorded does nothing; a wait means the latest recording at the time of
/// the call. Depends on runtime.c, stream.c.
#include <pthread.h>

#include "device/device_internal.h"
#include "dit/alloc.h"

struct dit_event {
  int device;
  unsigned flags;
  void *raw;  // NULL after shutdown
  atomic_bool recorded;
  struct dit_event *previous, *next;  // guarded by lock
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dit_event *first;

static void link_event(struct dit_event *event) {
  pthread_mutex_lock(&lock);
  event->next = first;
  if (first) {
    first->previous = event;
  }
  first = event;
  pthread_mutex_unlock(&lock);
}

static void unlink_event(struct dit_event *event) {
  pthread_mutex_lock(&lock);
  if (event->previous) {
    event->previous->next = event->next;
  } else {
    first = event->next;
  }
  if (event->next) {
    event->next->previous = event->previous;
  }
  pthread_mutex_unlock(&lock);
}

enum dit_status dit_event_create(int device, unsigned flags, struct dit_event **out, struct dit_error *err) {
  const unsigned known = DIT_EVENT_TIMING | DIT_EVENT_BLOCKING | DIT_EVENT_INTERPROCESS;
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  if (flags & ~known) {
    return dit_error_set(err, DIT_ERR_INVALID, "event flags 0x%x: 0x%x is unknown; valid: any of 0x%x", flags,
                         flags & ~known, known);
  }
  struct dit_event *event = dit_calloc(1, sizeof *event);
  if (!event) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for an event");
  }
  event->device = device;
  event->flags = flags;
  dit_runtime_note_use();
  enum dit_status status = dit_runtime_get_vtable()->event_create(device, flags, &event->raw, err);
  if (status != DIT_OK) {
    dit_free(event);
    return status;
  }
  link_event(event);
  *out = event;
  return DIT_OK;
}

// In a bad fork the list's lock may belong to a thread that is gone and the vendor's state is a copy: leave the event
// where it is.
void dit_event_destroy(struct dit_event *event) {
  if (!event || dit_runtime_is_bad_fork()) {
    return;
  }
  unlink_event(event);
  if (event->raw) {
    dit_runtime_get_vtable()->event_destroy(event->device, event->raw);
  }
  dit_free(event);
}

void dit_event_shutdown(void) {
  pthread_mutex_lock(&lock);
  for (struct dit_event *event = first; event; event = event->next) {
    if (event->raw) {
      dit_runtime_get_vtable()->event_destroy(event->device, event->raw);
      event->raw = NULL;
    }
  }
  pthread_mutex_unlock(&lock);
}

static enum dit_status check_event(const struct dit_event *event, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_check(err));
  if (!event) {
    return dit_error_set(err, DIT_ERR_INVALID, "the event is NULL");
  }
  if (!event->raw) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the event is from before dit_runtime_shutdown and can only be destroyed; create a new one");
  }
  return DIT_OK;
}

enum dit_status dit_event_record(struct dit_event *event, int device, int64_t stream, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(check_event(event, err));
  if (device != event->device) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "Event device %d does not match recording stream's device %d; record it on a stream of device %d",
        event->device, device, event->device);
  }
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->event_record(device, event->raw, raw, err));
  atomic_store(&event->recorded, true);
  return DIT_OK;
}

enum dit_status dit_event_query(struct dit_event *event, bool *done, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_event(event, err));
  return dit_runtime_get_vtable()->event_query(event->device, event->raw, done, err);
}

enum dit_status dit_event_synchronize(struct dit_event *event, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_event(event, err));
  return dit_runtime_get_vtable()->event_synchronize(event->device, event->raw, err);
}

enum dit_status dit_event_block(struct dit_event *event, int device, int64_t stream, struct dit_error *err) {
  void *raw;
  DIT_RETURN_IF_NOT_OK(check_event(event, err));
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  if (!atomic_load(&event->recorded)) {
    return DIT_OK;
  }
  return dit_runtime_get_vtable()->stream_wait_event(device, raw, event->raw, err);
}

static enum dit_status check_timed(struct dit_event *event, const char *which, struct dit_error *err) {
  bool done;
  DIT_RETURN_IF_NOT_OK(check_event(event, err));
  if (!(event->flags & DIT_EVENT_TIMING)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the %s event was created without timing; create it with enable_timing=True", which);
  }
  if (!atomic_load(&event->recorded)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the %s event was never recorded; record both events before asking for times", which);
  }
  DIT_RETURN_IF_NOT_OK(dit_event_query(event, &done, err));
  if (!done) {
    return dit_error_set(err, DIT_ERR_DEVICE,
                         "CUDA error: device not ready: the %s event is not complete yet; synchronize "
                         "with it first",
                         which);
  }
  return DIT_OK;
}

enum dit_status dit_event_get_elapsed(struct dit_event *start, struct dit_event *end, double *milliseconds,
                                      struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_timed(start, "start", err));
  DIT_RETURN_IF_NOT_OK(check_timed(end, "end", err));
  if (start->device != end->device) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the events belong to devices %d and %d; times are comparable on one device only",
                         start->device, end->device);
  }
  return dit_runtime_get_vtable()->event_get_elapsed(start->device, start->raw, end->raw, milliseconds, err);
}

int dit_event_get_device(const struct dit_event *event) {
  return event->device;
}
