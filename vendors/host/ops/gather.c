/// gather: out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and likewise for the others.
///
/// out has the shape of index, which has as many dimensions as input and is nowhere longer but along dim. int32 and
/// int64 positions from 0 to size - 1. Every dtype; out shares no memory with the inputs.
#include "gather.h"

#include <string.h>

#include "engine/index.h"

diopiError_t gather_check(struct frame *frame, const struct dit_tensor_view *whole, const char *name,
                          const struct dit_tensor_view *index, int dim) {
  FRAME_CHECK(frame, index->ndim == whole->ndim || index->numel == 0,
              "'index' has %d dimensions; it must have as many as '%s', %d", index->ndim, name, whole->ndim);
  for (int i = 0; i < index->ndim && index->numel > 0; i++) {
    FRAME_CHECK(frame, i == dim || index->sizes[i] <= whole->sizes[i],
                "'index' has shape %s; it must be nowhere longer than '%s', %s, but for dimension %d",
                layout_print(index->ndim, index->sizes), name, layout_print(whole->ndim, whole->sizes), dim);
  }
  return diopiSuccess;
}

void gather_limit(struct layout *layout, const struct dit_tensor_view *view, const struct dit_tensor_view *index,
                  int dim) {
  layout_init(layout, view);
  memcpy(layout->sizes, index->sizes, sizeof(int64_t) * (size_t)index->ndim);
  if (dim >= 0) {
    layout->strides[dim] = 0;
  }
  layout_finish(layout);
}

struct gather_task {
  struct frame *frame;
  struct dit_tensor_view out, input, index;
  int dim;
  struct nest nest;
  int64_t step;  ///< of dim in input, in bytes
};

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

static void gather_run(void *context, char *const *data, int64_t count) {
  const struct gather_task *task = context;
  char *restrict out = data[0];
  const char *restrict index = data[1], *restrict in = data[2];
  const int64_t out_step = task->nest.strides[0][0], index_step = task->nest.strides[1][0];
  const int64_t in_step = task->nest.strides[2][0], step = task->step;
  const int width = (int)dit_dtype_get_size(task->out.dtype);
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
  nest_run(&task->nest, gather_run, task);
  return diopiSuccess;
}

diopiError_t diopiGather(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input, int64_t dim,
                         diopiConstTensorHandle_t index) {
  struct frame frame;
  struct gather_task task = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.out);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, index, &task.index);
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, task.input.ndim, &task.dim));
  FRAME_TRY(layout_check_sizes(&frame, "out", &task.out, task.index.ndim, task.index.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &task.out, "input", &task.input));
  layout_raise(&task.out);
  layout_raise(&task.input);
  layout_raise(&task.index);
  FRAME_TRY(gather_check(&frame, &task.input, "input", &task.index, task.dim));
  const struct dit_tensor_view *inputs[] = {&task.input, &task.index};
  FRAME_TRY(frame_check_output(&frame, "out", &task.out, inputs, 2, false));
  return frame_run(&frame, run_gather, &task);
}
