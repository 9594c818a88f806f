/// The table that libdit asks for, and how a call gets onto its stream: on the default one it runs at once; on another
/// it is queued with copies of its arguments, unless a tensor of the CPU is among them, whose memory nobody keeps
/// alive: then the stream is waited for.
#include <stddef.h>

#include "dit/export.h"
#include "dit/memory.h"
#include "infer.h"
#include "ops/frame.h"

union any_call {
#define MEMBER(name, ...) struct dit_infer_##name name;
  HOST_INFER_LIST(MEMBER)
#undef MEMBER
};

struct infer_task {
  struct frame *frame;
  enum dit_status (*run)(const union any_call *call, struct dit_error *err);
  union any_call call;
};

static diopiError_t work(void *argument) {
  struct infer_task *task = argument;
  struct dit_error err = {0};
  const enum dit_status status = task->run(&task->call, &err);
  return status == DIT_OK ? diopiSuccess : frame_fail(task->frame, diopiErrorOccurred, "%s", err.message);
}

static enum dit_status run_now(void *stream, struct infer_task *task, struct dit_error *err) {
  if (stream) {
    DIT_RETURN_IF_NOT_OK(dit_host_stream_wait(stream, err));
  }
  dit_memory_access_begin();
  const enum dit_status status = task->run(&task->call, err);
  dit_memory_access_end();
  return status;
}

static enum dit_status run_task(void *stream, const char *name, struct infer_task *task,
                                struct dit_tensor_view *const *views, int count, struct dit_error *err) {
  bool on_host = false;
  for (int i = 0; i < count; i++) {
    on_host = on_host || (views[i]->handle && !(views[i]->flags & DIT_TENSOR_ON_DEVICE));
  }
  if (!stream || on_host) {
    return run_now(stream, task, err);
  }
  struct frame frame = {.function = name, .stream = stream};
  task->frame = &frame;
  const diopiError_t code = frame_queue(&frame, work, task, sizeof *task, &task->frame, views, count);
  return code == diopiSuccess ? DIT_OK : dit_error_set(err, DIT_ERR_DEVICE, "%s", diopiExtGetLastErrorString());
}

#define V(field) &here->field
#define DEFINE_SLOT(name, ...)                                                                                   \
  static enum dit_status run_##name(const union any_call *call, struct dit_error *err) {                         \
    return infer_##name(&call->name, err);                                                                       \
  }                                                                                                              \
  static enum dit_status slot_##name(void *stream, const struct dit_infer_##name *call, struct dit_error *err) { \
    struct infer_task task = {.run = run_##name, .call = {.name = *call}};                                       \
    struct dit_infer_##name *here = &task.call.name;                                                             \
    struct dit_tensor_view *const views[] = {__VA_ARGS__};                                                       \
    return run_task(stream, #name, &task, views, (int)(sizeof views / sizeof views[0]), err);                    \
  }
HOST_INFER_LIST(DEFINE_SLOT)
#undef DEFINE_SLOT
#undef V

static const struct dit_infer_table table = {.version = DIT_INFER_VERSION,
                                             .size = sizeof table,
#define SLOT(name, ...) .name = slot_##name,
                                             HOST_INFER_LIST(SLOT)
#undef SLOT
};

DIT_API const struct dit_infer_table *dit_infer_get_table(void);
const struct dit_infer_table *dit_infer_get_table(void) {
  return &table;
}
