/// gather on the host (see gather.c).
#include <string.h>

#include "engine/index.h"
#include "gather.h"

struct wide {
  uint64_t part[2];
};
/// The case of the innermost dimension first: neighbours in out and index, input standing still.
#define TAKE(type, position)                                                                          \
  if (out_step == (int64_t)sizeof(type) && index_step == (int64_t)sizeof(position) && in_step == 0) { \
    for (int64_t i = 0; i < count; i++) {                                                             \
      ((type *)out)[i] = *(const type *)(in + ((const position *)index)[i] * step);                   \
    }                                                                                                 \
    return;                                                                                           \
  }                                                                                                   \
  for (int64_t i = 0; i < count; i++) {                                                               \
    *(type *)(out + i * out_step) =                                                                   \
        *(const type *)(in + i * in_step + *(const position *)(index + i * index_step) * step);       \
  }                                                                                                   \
  return;
#define TAKE_WIDTHS(position)     \
  switch (width) {                \
    case 1:                       \
      TAKE(uint8_t, position)     \
    case 2:                       \
      TAKE(uint16_t, position)    \
    case 4:                       \
      TAKE(uint32_t, position)    \
    case 8:                       \
      TAKE(uint64_t, position)    \
    default:                      \
      TAKE(struct wide, position) \
  }

static void take_run(void *context, char *const *data, int64_t count) {
  const struct gather_task *task = context;
  char *restrict out = data[0];
  const char *restrict index = data[1], *restrict in = data[2];
  const int64_t out_step = task->nest.strides[0][0], index_step = task->nest.strides[1][0];
  const int64_t in_step = task->nest.strides[2][0], step = task->step;
  const int width = (int)dit_dtype_get_size(task->out.dtype);
  if (index_step == 0 && out_step == width && in_step == width) {  // an expanded index: one row of input
    memcpy(out, in + index_read(index, task->index.dtype == DIT_DTYPE_I64) * step, (size_t)(count * width));
    return;
  }
  if (task->index.dtype == DIT_DTYPE_I64) {
    TAKE_WIDTHS(int64_t)
  }
  TAKE_WIDTHS(int32_t)
}

static diopiError_t run_gather(void *argument) {
  struct gather_task *task = argument;
  struct layout in;
  FRAME_TRY(layout_check_index(task->frame, "index", &task->index, task->input.sizes[task->dim], false));
  if (task->out.numel == 0) {
    return diopiSuccess;
  }
  task->step = task->input.strides[task->dim] * (int64_t)dit_dtype_get_size(task->input.dtype);
  gather_limit(&in, &task->input, &task->index, task->dim);
  nest_init(&task->nest, 3, (const struct dit_tensor_view *const[]){&task->out, &task->index, &in.view});
  nest_run(&task->nest, take_run, task);
  return diopiSuccess;
}

diopiError_t gather_run(struct gather_task *task) {
  return frame_run(task->frame, run_gather, task);
}
