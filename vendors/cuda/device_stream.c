/// Streams and events of NVIDIA devices. A stream handle is the driver's; NULL is the context's default stream, for
/// which the others do not wait, as in PyTorch.
#include "device.h"

enum dit_status cuda_synchronize(int device, struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.context_synchronize(), "cuCtxSynchronize");
}

enum dit_status cuda_check_last_error(int device, struct dit_error *err) {
  DEVICE_ENTER(device);
  const int error = driver.stream_query(NULL);
  DEVICE_LEAVE(error == DRIVER_NOT_READY ? DRIVER_SUCCESS : error, "an earlier operation");
}

enum dit_status cuda_stream_create(int device, int priority, void **stream, struct dit_error *err) {
  void *fresh = NULL;
  int least = 0, greatest = 0;
  DEVICE_ENTER(device);
  int error = driver.priority_get_range(&least, &greatest);
  if (error == DRIVER_SUCCESS) {
    priority = priority > least ? least : priority < greatest ? greatest : priority;
    error = driver.stream_create(&fresh, DRIVER_STREAM_NON_BLOCKING, priority);
  }
  if (error == DRIVER_SUCCESS) {
    *stream = fresh;
  }
  DEVICE_LEAVE(error, "cuStreamCreateWithPriority");
}

enum dit_status cuda_stream_destroy(int device, void *stream, struct dit_error *err) {
  if (!stream) {
    return DIT_OK;
  }
  DEVICE_ENTER(device);
  const int waited = driver.stream_synchronize(stream), error = driver.stream_destroy(stream);
  DEVICE_LEAVE(waited != DRIVER_SUCCESS ? waited : error, "cuStreamDestroy");
}

enum dit_status cuda_stream_synchronize(int device, void *stream, struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.stream_synchronize(stream), "cuStreamSynchronize");
}

enum dit_status cuda_stream_query(int device, void *stream, bool *idle, struct dit_error *err) {
  DEVICE_ENTER(device);
  const int error = driver.stream_query(stream);
  if (error == DRIVER_SUCCESS || error == DRIVER_NOT_READY) {
    *idle = error == DRIVER_SUCCESS;
  }
  DEVICE_LEAVE(error == DRIVER_NOT_READY ? DRIVER_SUCCESS : error, "cuStreamQuery");
}

enum dit_status cuda_stream_wait_event(int device, void *stream, void *event, struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.stream_wait_event(stream, event, 0), "cuStreamWaitEvent");
}

enum dit_status cuda_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                        struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.stream_launch_host(stream, function, argument), "cuLaunchHostFunc");
}

enum dit_status cuda_stream_get_priority_range(int device, int *least, int *greatest, struct dit_error *err) {
  int low = 0, high = 0;
  DEVICE_ENTER(device);
  const int error = driver.priority_get_range(&low, &high);
  if (error == DRIVER_SUCCESS) {
    *least = low;
    *greatest = high;
  }
  DEVICE_LEAVE(error, "cuCtxGetStreamPriorityRange");
}

// Events

enum dit_status cuda_device_event_create(int device, unsigned flags, void **event, struct dit_error *err) {
  void *fresh = NULL;
  unsigned own = 0;
  // an event between processes cannot carry a time
  own |= flags & DIT_EVENT_TIMING && !(flags & DIT_EVENT_INTERPROCESS) ? 0 : DRIVER_EVENT_NO_TIMING;
  own |= flags & DIT_EVENT_BLOCKING ? DRIVER_EVENT_BLOCKING : 0;
  own |= flags & DIT_EVENT_INTERPROCESS ? DRIVER_EVENT_INTERPROCESS : 0;
  DEVICE_ENTER(device);
  const int error = driver.event_create(&fresh, own);
  if (error == DRIVER_SUCCESS) {
    *event = fresh;
  }
  DEVICE_LEAVE(error, "cuEventCreate");
}

void cuda_device_event_destroy(int device, void *event) {
  struct context_guard guard;
  if (event && context_enter(&guard, device, NULL) == DIT_OK) {
    (void)driver.event_destroy(event);
    context_leave(&guard);
  }
}

enum dit_status cuda_device_event_record(int device, void *event, void *stream, struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.event_record(event, stream), "cuEventRecord");
}

enum dit_status cuda_device_event_query(int device, void *event, bool *done, struct dit_error *err) {
  DEVICE_ENTER(device);
  const int error = driver.event_query(event);
  if (error == DRIVER_SUCCESS || error == DRIVER_NOT_READY) {
    *done = error == DRIVER_SUCCESS;
  }
  DEVICE_LEAVE(error == DRIVER_NOT_READY ? DRIVER_SUCCESS : error, "cuEventQuery");
}

enum dit_status cuda_device_event_synchronize(int device, void *event, struct dit_error *err) {
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.event_synchronize(event), "cuEventSynchronize");
}

enum dit_status cuda_device_event_get_elapsed(int device, void *start, void *end, double *milliseconds,
                                              struct dit_error *err) {
  float elapsed = 0;
  DEVICE_ENTER(device);
  const int error = driver.event_get_elapsed(&elapsed, start, end);
  if (error == DRIVER_SUCCESS) {
    *milliseconds = (double)elapsed;
  }
  DEVICE_LEAVE(error, "cuEventElapsedTime");
}
