/// How the host library does the work of a call: at once, or on the queue of a side stream (see frame.h).
#include <string.h>

#include "dit/alloc.h"
#include "frame.h"

diopiError_t frame_run(struct frame *frame, frame_work *work, void *task) {
  if (DIT_UNLIKELY(frame->stream)) {  // the default stream never holds anything
    struct dit_error err;
    err.message[0] = 0;
    const enum dit_status status = dit_host_stream_wait(frame->stream, &err);
    if (status != DIT_OK) {
      return frame_get_code(frame, status, &err);
    }
  }
  dit_memory_access_begin();
  diopiError_t code = work(task);
  dit_memory_access_end();
  return code;
}

struct frame frame_get_inner(const struct frame *frame) {
  struct frame inner = *frame;
  inner.stream = NULL;
  return inner;
}

diopiError_t frame_launch(struct frame *frame, void (*run)(void *task), const void *task, size_t size) {
  struct dit_error err;
  err.message[0] = 0;
  return frame_get_code(frame, host_stream_launch(frame->stream, run, task, size, &err), &err);
}

/// What lies in the queue: this, the task, then sizes and strides of its views.
struct queued {
  frame_work *work;
  struct frame frame;
  size_t size;
  ptrdiff_t own;  ///< of the pointer to the frame in the task; -1: none
  int count;
  ptrdiff_t views[FRAME_QUEUE_VIEWS];
};
#define QUEUED_SIZE ((sizeof(struct queued) + 15) / 16 * 16)
#define TASK_SIZE(size) (((size) + 15) / 16 * 16)

static void run_queued(void *argument) {
  struct queued *queued = argument;
  char *task = (char *)argument + QUEUED_SIZE;
  int64_t *dims = (int64_t *)(void *)(task + TASK_SIZE(queued->size));
  for (int i = 0; i < queued->count; i++) {
    struct dit_tensor_view *view = (struct dit_tensor_view *)(void *)(task + queued->views[i]);
    if (view->handle) {
      view->sizes = dims;
      view->strides = dims + view->ndim;
      dims += 2 * view->ndim;
    }
  }
  if (queued->own >= 0) {
    struct frame *frame = &queued->frame;
    memcpy(task + queued->own, &frame, sizeof frame);
  }
  if (queued->work(task) != diopiSuccess) {
    dit_host_stream_fail(diopiExtGetLastErrorString());
  }
}

diopiError_t frame_queue(struct frame *frame, frame_work *work, void *task, size_t size, struct frame **own,
                         struct dit_tensor_view *const *views, int count) {
  if (DIT_LIKELY(!frame->stream)) {
    return frame_run(frame, work, task);
  }
  size_t bytes = QUEUED_SIZE + TASK_SIZE(size);
  for (int i = 0; i < count; i++) {
    bytes += views[i]->handle ? 2 * (size_t)views[i]->ndim * sizeof(int64_t) : 0;
  }
  char *room = dit_calloc(1, bytes);
  if (!room) {
    return frame_fail(frame, diopiErrorOccurred, "no memory to queue the call on its stream");
  }
  struct queued *queued = (struct queued *)(void *)room;
  int64_t *dims = (int64_t *)(void *)(room + QUEUED_SIZE + TASK_SIZE(size));
  *queued = (struct queued){
      .work = work, .frame = *frame, .size = size, .own = own ? (char *)own - (char *)task : -1, .count = count};
  queued->frame.context = NULL;  // the call's alone
  memcpy(room + QUEUED_SIZE, task, size);
  for (int i = 0; i < count; i++) {
    const struct dit_tensor_view *view = views[i];
    queued->views[i] = (const char *)view - (const char *)task;
    if (view->handle && view->ndim > 0) {
      memcpy(dims, view->sizes, sizeof(int64_t) * (size_t)view->ndim);
      memcpy(dims + view->ndim, view->strides, sizeof(int64_t) * (size_t)view->ndim);
      dims += 2 * view->ndim;
    }
  }
  const diopiError_t code = frame_launch(frame, run_queued, room, bytes);
  dit_free(room);
  return code;
}
