/// Clipping by norm: *out = norm of all gradients together; each is multiplied by max_norm / (norm + 1e-6) where that
/// is below 1.
#include <math.h>

#include "elementwise.h"
#include "foreach.h"

LOOP_1(scale_f32, float, float, float, x *k0)
LOOP_1(scale_f64, double, double, double, x *k0)
static loop_table scale_loops = {ROWS_FLOAT(scale)};

static diopiError_t prepare_scale(struct elementwise *e, const char *function, diopiContextHandle_t ctx,
                                  const char *name, diopiTensorHandle_t tensor) {
  FRAME_TRY(elementwise_begin(e, function, ctx));
  FRAME_TRY(elementwise_add_output(e, name, tensor));
  FRAME_TRY(elementwise_add_input(e, name, tensor));
  FRAME_TRY(elementwise_check(e));
  return elementwise_set_type(e, e->views[0].dtype, scale_loops);
}

struct clip_task {
  struct frame *frame;
  diopiTensorHandle_t *grads;
  int64_t count;
  double p, norm;
};

static diopiError_t measure(void *argument) {
  struct clip_task *task = argument;
  double total = 0;
  for (int64_t i = 0; i < task->count; i++) {
    struct dit_tensor_view view;
    double norm;
    FRAME_TRY(frame_take(task->frame, "grads", task->grads[i], &view));
    if (foreach_get_norm(&view, task->p, &norm) != DIT_OK) {
      return frame_fail_dtype(task->frame, "grads", view.dtype);
    }
    if (isinf(task->p)) {
      total = norm != norm || total != total ? (double)NAN : fmax(total, norm);
    } else {
      total += pow(norm, task->p);
    }
  }
  task->norm = isinf(task->p) ? total : pow(total, 1 / task->p);
  return diopiSuccess;
}

diopiError_t diopiClipGradNorm(diopiContextHandle_t ctx, double *out, diopiTensorHandle_t *grads, int64_t num_grads,
                               double max_norm, double norm_type, bool error_if_nonfinite) {
  struct frame frame;
  struct elementwise e;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out != NULL, "'out' is NULL; it must be the place for a number");
  FRAME_CHECK(&frame, num_grads >= 0 && (num_grads == 0 || grads), "'grads' is NULL or 'num_grads' (%lld) negative",
              (long long)num_grads);
  FRAME_CHECK(&frame, norm_type > 0, "'norm_type' is %g; it must be positive", norm_type);
  for (int64_t i = 0; i < num_grads; i++) {
    FRAME_TRY(prepare_scale(&e, __func__, ctx, "grads", grads[i]));
  }
  struct clip_task task = {&frame, grads, num_grads, norm_type, 0};
  FRAME_TRY(frame_run(&frame, measure, &task));
  FRAME_CHECK(&frame, !error_if_nonfinite || isfinite(task.norm),
              "the norm of 'grads' is %g, and 'error_if_nonfinite' is set", task.norm);
  *out = task.norm;
  const double factor = max_norm / (task.norm + 1e-6);
  if (factor >= 1) {
    return diopiSuccess;
  }
  for (int64_t i = 0; i < num_grads; i++) {
    FRAME_TRY(prepare_scale(&e, __func__, ctx, "grads", grads[i]));
    elementwise_set_number(&e, 0, (struct dit_scalar){.kind = DIT_SCALAR_DOUBLE, .v.d = factor}, e.run.work[0]);
    FRAME_TRY(elementwise_launch(&e));
  }
  return diopiSuccess;
}
