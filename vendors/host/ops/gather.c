/// gather: out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and likewise for the others.
///
/// out has the shape of index, which has as many dimensions as input and is nowhere longer but along dim. int32 and
/// int64 positions from 0 to size - 1. Every dtype; out shares no memory with the inputs.
#include "gather.h"

#include <string.h>

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
  return gather_run(&task);
}
