/// Argmax over all elements and the standard deviation on the host (see reduce_index.c).
#include <math.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/deviations.h"
#include "engine/reduce_index.h"
#include "fail.h"
#include "lines.h"
#include "reduce_index.h"

/// All elements in row-major order, for an input that does not lie so.
struct flat_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *in;
  bool largest;
};

static diopiError_t run_flat(void *argument) {
  const struct flat_task *task = argument;
  struct dense dense;
  struct dit_error err = {.message = ""};
  struct shaped flat;
  if (!dense_read(&dense, task->in, task->in->dtype)) {
    return frame_fail_device(task->frame, "no memory for a copy of 'input'");
  }
  shaped_init(&flat, task->in, false);
  flat.view.ndim = 0;
  shaped_push(&flat, task->in->numel, 1);
  flat.view.data = dense.data;
  enum dit_status status = reduce_index_launch(NULL, task->largest, NULL, task->out, &flat.view, 0, &err);
  dense_close(&dense);
  return frame_get_code(task->frame, status, &err);
}

static void run_std_rows(void *context, int64_t begin, int64_t end) {
  const struct std_task *task = context;
  const double left = (double)task->reduced - task->correction, freedom = left > 0 ? left : 0;
  for (int64_t k = begin; k < end; k++) {
    const int64_t at = k * task->reduced;
    if (task->work == DIT_DTYPE_F32) {
      const double squares = deviations_f32((const float *)task->data + at, task->reduced);
      ((float *)task->result)[k] = (float)sqrt(squares / freedom);
    } else {
      const double squares = deviations_f64((const double *)task->data + at, task->reduced);
      ((double *)task->result)[k] = sqrt(squares / freedom);
    }
  }
}

static diopiError_t run_std(void *argument) {
  struct std_task *task = argument;
  struct dense in = {0}, out = {0};
  diopiError_t code = diopiSuccess;
  if (dense_read(&in, task->in, task->work) && dense_reserve(&out, task->out, task->work)) {
    task->data = in.data;
    task->result = out.data;
    const int64_t length = task->reduced > 0 ? task->reduced : 1;
    dit_parallel_for(0, task->kept, 32768 / length, run_std_rows, task);
    dense_store(&out);
  } else {
    code = frame_fail_device(task->frame, "no memory for a copy of 'input'");
  }
  dense_close(&in);
  dense_close(&out);
  return code;
}

diopiError_t arg_run_flat(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          bool largest) {
  struct flat_task task = {frame, out, in, largest};
  return frame_run(frame, run_flat, &task);
}

diopiError_t std_run(struct std_task *task) {
  return frame_run(task->frame, run_std, task);
}
