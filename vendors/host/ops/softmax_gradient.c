/// The gradients of softmax and its logarithm on the host (see softmax.c for the formulas).
#include "softmax_gradient.h"

#include "dense.h"
#include "dit/parallel.h"
#include "lines.h"

#define COLUMN_BLOCK 256
#define COLUMN_STEP 128  // steps of a line between two levels of its sum
#define GRAIN 16384

struct gradient_task {
  struct frame *frame;
  struct dit_tensor_view views[3];  ///< grad_input, grad_output, output
  struct line_shape shape;
  int64_t blocks;  ///< of columns per outer index
  int work;
  bool log;
  const void *grad, *output;
  void *result;
};

#define REAL_LOOPS "softmax_loops.h"
#include "real.h"

static void run_range(void *context, int64_t begin, int64_t end) {
  const struct gradient_task *task = context;
  const bool single = task->work == DIT_DTYPE_F32;
  if (task->shape.inner == 1) {
    (single ? run_rows_f32 : run_rows_f64)(task, begin, end);
  } else {
    (single ? run_columns_f32 : run_columns_f64)(task, begin, end);
  }
}

static diopiError_t run_gradient(void *argument) {
  struct gradient_task *task = argument;
  struct dense grad = {0}, output = {0}, result = {0};
  diopiError_t code = diopiSuccess;
  if (dense_read(&grad, &task->views[1], task->work) && dense_read(&output, &task->views[2], task->work) &&
      dense_reserve(&result, &task->views[0], task->work)) {
    const bool rows = task->shape.inner == 1;
    task->blocks = (task->shape.inner + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    task->grad = grad.data;
    task->output = output.data;
    task->result = result.data;
    dit_parallel_for(0, task->shape.outer * (rows ? 1 : task->blocks),
                     GRAIN / (task->shape.length * (rows ? 1 : COLUMN_BLOCK)), run_range, task);
    dense_store(&result);
  } else {
    code = dense_fail(task->frame);
  }
  dense_close(&grad);
  dense_close(&output);
  dense_close(&result);
  return code;
}

diopiError_t softmax_gradient(struct frame *frame, const struct dit_tensor_view *grad_input,
                              const struct dit_tensor_view *grad_output, const struct dit_tensor_view *output, int dim,
                              bool log) {
  const bool wide = grad_output->dtype == DIT_DTYPE_F64 || output->dtype == DIT_DTYPE_F64;
  struct gradient_task task = {.frame = frame,
                               .views = {*grad_input, *grad_output, *output},
                               .shape = line_shape_get(output, dim),
                               .work = wide ? DIT_DTYPE_F64 : DIT_DTYPE_F32,
                               .log = log};
  return FRAME_QUEUE(frame, run_gradient, &task, &task.frame, &task.views[0], &task.views[1], &task.views[2]);
}
