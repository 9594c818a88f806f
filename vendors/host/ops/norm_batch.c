/// Batch norm: the checks that forward and backward share (norm_batch.h).
#include "norm_batch.h"

diopiError_t batch_check_channels(struct batch_task *task, const char *name, const struct dit_tensor_view *view) {
  if (!view->handle) {
    return diopiSuccess;
  }
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return frame_fail_dtype(&task->frame, name, view->dtype);
  }
  FRAME_CHECK(&task->frame, view->numel == task->channels, "'%s' has %lld elements; the input has %lld channels", name,
              (long long)view->numel, (long long)task->channels);
  return diopiSuccess;
}

diopiError_t batch_set_input(struct batch_task *task) {
  const struct dit_tensor_view *x = &task->v_x;
  FRAME_CHECK(&task->frame, x->ndim >= 2, "'input' has %d dimensions; it must have at least 2: (N, C, ...)",
              (int)x->ndim);
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(&task->frame, "input", x->dtype);
  }
  task->samples = x->sizes[0];
  task->channels = x->sizes[1];
  task->area = 1;
  for (int dim = 2; dim < x->ndim; dim++) {
    task->area *= x->sizes[dim];
  }
  task->count = task->samples * task->area;
  task->work = x->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return diopiSuccess;
}

diopiError_t batch_check_big(struct batch_task *task, const char *name, const struct dit_tensor_view *view) {
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return frame_fail_dtype(&task->frame, name, view->dtype);
  }
  FRAME_CHECK(&task->frame, frame_is_same_shape(view, &task->v_x), "'%s' has another shape than 'input'", name);
  return diopiSuccess;
}

diopiError_t batch_check_out(struct batch_task *task, const char *name, const struct dit_tensor_view *out,
                             bool in_place) {
  const struct dit_tensor_view *inputs[] = {&task->v_x, &task->v_g};
  return out->handle ? frame_check_output(&task->frame, name, out, inputs, 2, in_place) : diopiSuccess;
}
