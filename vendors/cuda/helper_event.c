/// Timing events through the driver: one call per recording, no synchronisation.
#include "dit/alloc.h"
#include "helper_cuda.h"

struct cuda_event {
  void *raw;
  int device;
  bool recorded;
};

enum dit_status cuda_event_create(int device, void **event, struct dit_error *err) {
  struct context_guard guard;
  struct cuda_event *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a timing event");
  }
  fresh->device = device;
  enum dit_status status = context_enter(&guard, device, err);
  if (status == DIT_OK) {
    status = driver_check(driver.event_create(&fresh->raw, 0), "cuEventCreate", err);
    context_leave(&guard);
  }
  if (status != DIT_OK) {
    dit_free(fresh);
    return status;
  }
  *event = fresh;
  return DIT_OK;
}

void cuda_event_destroy(void *handle) {
  struct cuda_event *event = handle;
  struct context_guard guard;
  if (!event) {
    return;
  }
  if (context_enter(&guard, event->device, NULL) == DIT_OK) {
    (void)driver.event_destroy(event->raw);
    context_leave(&guard);
  }
  dit_free(event);
}

enum dit_status cuda_event_record(void *handle, void *stream, struct dit_error *err) {
  struct cuda_event *event = handle;
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, event->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = driver_check(driver.event_record(event->raw, stream), "cuEventRecord", err);
    event->recorded |= status == DIT_OK;
  }
  context_leave(&guard);
  return status;
}

enum dit_status cuda_event_query(void *handle, bool *passed, struct dit_error *err) {
  const struct cuda_event *event = handle;
  int error = event->recorded ? driver.event_query(event->raw) : DRIVER_SUCCESS;
  if (error != DRIVER_NOT_READY) {
    DIT_RETURN_IF_NOT_OK(driver_check(error, "cuEventQuery", err));
  }
  *passed = error == DRIVER_SUCCESS;
  return DIT_OK;
}

enum dit_status cuda_event_wait(void *handle, struct dit_error *err) {
  const struct cuda_event *event = handle;
  return event->recorded ? driver_check(driver.event_synchronize(event->raw), "cuEventSynchronize", err) : DIT_OK;
}

enum dit_status cuda_event_get_elapsed(void *start, void *end, double *milliseconds, struct dit_error *err) {
  const struct cuda_event *from = start, *to = end;
  float elapsed = 0;
  if (!from->recorded || !to->recorded) {
    return dit_error_set(err, DIT_ERR_INVALID, "the %s event was never recorded; record both before asking for times",
                         from->recorded ? "end" : "start");
  }
  int error = driver.event_get_elapsed(&elapsed, from->raw, to->raw);
  if (error == DRIVER_NOT_READY) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "an event has not passed yet; wait for both first");
  }
  DIT_RETURN_IF_NOT_OK(driver_check(error, "cuEventElapsedTime", err));
  *milliseconds = elapsed;
  return DIT_OK;
}
