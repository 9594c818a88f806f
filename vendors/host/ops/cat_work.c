/// Joining tensors on the host (see cat.c).
#include <string.h>

#include "cat.h"
#include "dit/parallel.h"
#include "engine/nest.h"

/// Rows of one element each: a part is every count-th element of the whole.
#define JOIN_ELEMENTS(type)                          \
  for (int64_t i = 0; i < task->count; i++) {        \
    type *whole = (type *)(void *)task->whole + i;   \
    type *part = (type *)(void *)task->part[i].data; \
    if (task->split) {                               \
      for (int64_t row = begin; row < end; row++) {  \
        part[row] = whole[row * task->count];        \
      }                                              \
    } else {                                         \
      for (int64_t row = begin; row < end; row++) {  \
        whole[row * task->count] = part[row];        \
      }                                              \
    }                                                \
  }                                                  \
  return true;
#define JOIN_PAIR(type)                                       \
  if (task->count == 2 && !task->split) {                     \
    type *restrict whole = (type *)(void *)task->whole;       \
    const type *a = (const type *)(void *)task->part[0].data; \
    const type *b = (const type *)(void *)task->part[1].data; \
    for (int64_t row = begin; row < end; row++) {             \
      whole[2 * row] = a[row];                                \
      whole[2 * row + 1] = b[row];                            \
    }                                                         \
    return true;                                              \
  }                                                           \
  JOIN_ELEMENTS(type)
static bool join_elements(const struct join_task *task, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < task->count; i++) {
    if (task->part[i].bytes != task->bytes / task->count) {
      return false;
    }
  }
  switch (task->bytes == task->width * task->count ? task->width : 0) {
    case 1:
      JOIN_PAIR(uint8_t)
    case 2:
      JOIN_PAIR(uint16_t)
    case 4:
      JOIN_PAIR(uint32_t)
    case 8:
      JOIN_PAIR(uint64_t)
    default:
      return false;
  }
}

static void join_rows(void *context, int64_t begin, int64_t end) {
  const struct join_task *task = context;
  if (join_elements(task, begin, end)) {
    return;
  }
  char *whole = task->whole + begin * task->bytes;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t i = 0; i < task->count; i++) {
      const int64_t bytes = task->part[i].bytes;
      char *part = task->part[i].data + row * bytes;
      if (task->split) {
        memcpy(part, whole, (size_t)bytes);
      } else {
        memcpy(whole, part, (size_t)bytes);
      }
      whole += bytes;
    }
  }
}

static void join_all(void *argument) {
  struct join_task *task = argument;
  dit_parallel_for(0, task->rows, 4 * NEST_GRAIN / task->bytes + 1, join_rows, task);
}

diopiError_t join_run(struct frame *frame, const struct join_task *task) {
  return frame_launch(frame, join_all, task, sizeof *task);
}
