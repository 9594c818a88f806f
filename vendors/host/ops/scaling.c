/// Gradient scaling: clipping by norm, and the two steps of automatic mixed precision.
///
/// ClipGradNorm: *out = norm of all gradients together; each is multiplied by max_norm / (norm + 1e-6) where that is
/// below 1. AmpForeachNonFiniteCheckAndUnscaleInp: found_inf = 1 when a gradient holds infinity or NaN; gradients times
/// inv_scale. AmpUpdateScaleInp: the scale shrinks after an overflow and grows after growth_interval good steps.
#include <math.h>
#include <string.h>

#include "elementwise.h"
#include "foreach.h"

LOOP_1(scale_f32, float, float, float, x *k0)
LOOP_1(scale_f64, double, double, double, x *k0)
static loop_table scale_loops = {ROWS_FLOAT(scale)};

static diopiError_t prepare_scale(struct elementwise *e, const char *function, diopiContextHandle_t ctx,
                                  const char *name, diopiTensorHandle_t tensor, loop_table loops) {
  FRAME_TRY(elementwise_begin(e, function, ctx));
  FRAME_TRY(elementwise_add_output(e, name, tensor));
  FRAME_TRY(elementwise_add_input(e, name, tensor));
  FRAME_TRY(elementwise_check(e));
  return elementwise_set_type(e, e->views[0].dtype, loops);
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
    FRAME_TRY(prepare_scale(&e, __func__, ctx, "grads", grads[i], scale_loops));
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
    FRAME_TRY(prepare_scale(&e, __func__, ctx, "grads", grads[i], scale_loops));
    elementwise_set_number(&e, 0, (struct dit_scalar){.kind = DIT_SCALAR_DOUBLE, .v.d = factor}, e.run.work[0]);
    FRAME_TRY(elementwise_launch(&e));
  }
  return diopiSuccess;
}

/// What the unscaling loops find in their parameters: device memory, read when they run.
struct unscale {
  float *found_inf;
  const float *inv_scale;
};

#define UNSCALE(tag, type, isfinite_)                                               \
  KERNEL_INLINE void unscale_##tag##_body LOOP_PARAMS {                             \
    const struct unscale *task = parameters;                                        \
    const type factor = (type) * task->inv_scale;                                   \
    type *o = out[0];                                                               \
    const type *p = in[0];                                                          \
    int bad = 0;                                                                    \
    KERNEL_LANES                                                                    \
    for (int64_t i = 0; i < count; i++) {                                           \
      const type x = p[i];                                                          \
      bad |= !(x - x == 0);                                                         \
      o[i] = factor == 1 ? x : x * factor;                                          \
    }                                                                               \
    if (bad) {                                                                      \
      const uint32_t one = 0x3F800000u;                                             \
      __atomic_store_n((uint32_t *)(void *)task->found_inf, one, __ATOMIC_RELAXED); \
    }                                                                               \
  }                                                                                 \
  KERNEL_MULTI(static, unscale_##tag, LOOP_PARAMS, LOOP_ARGS)
UNSCALE(f32, float, isfinite)
UNSCALE(f64, double, isfinite)
static loop_table unscale_loops = {ROWS_FLOAT(unscale)};

/// A tensor of one element of the wanted dtype.
static diopiError_t take_one(struct frame *frame, const char *name, diopiConstTensorHandle_t handle, int dtype,
                             struct dit_tensor_view *view) {
  FRAME_TRY(frame_take(frame, name, handle, view));
  FRAME_CHECK(frame, view->numel == 1, "'%s' has %lld elements; it must have 1", name, (long long)view->numel);
  if (view->dtype != dtype) {
    return frame_fail_dtype(frame, name, view->dtype);
  }
  return diopiSuccess;
}

diopiError_t diopiAmpForeachNonFiniteCheckAndUnscaleInp(diopiContextHandle_t ctx, diopiTensorHandle_t *scaled_grads,
                                                        int64_t num_scaled_grads, diopiTensorHandle_t found_inf,
                                                        diopiConstTensorHandle_t inv_scale) {
  struct frame frame;
  struct dit_tensor_view found, factor;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(take_one(&frame, "found_inf", found_inf, DIT_DTYPE_F32, &found));
  FRAME_TRY(take_one(&frame, "inv_scale", inv_scale, DIT_DTYPE_F32, &factor));
  FRAME_CHECK(&frame, num_scaled_grads >= 0 && (num_scaled_grads == 0 || scaled_grads),
              "'scaled_grads' is NULL or 'num_scaled_grads' (%lld) negative", (long long)num_scaled_grads);
  const struct unscale task = {found.data, factor.data};
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < num_scaled_grads; i++) {
      struct elementwise e;
      FRAME_TRY(prepare_scale(&e, __func__, ctx, "scaled_grads", scaled_grads[i], unscale_loops));
      memcpy(e.run.parameters, &task, sizeof task);
      if (pass == 1) {
        FRAME_TRY(elementwise_launch(&e));
      }
    }
  }
  return diopiSuccess;
}

struct update_task {
  float *scale;
  int32_t *tracker;
  const float *found;
  double growth, backoff;
  int32_t interval;
};

static void run_update(void *argument) {
  const struct update_task *task = argument;
  if (*task->found != 0) {
    *task->scale = (float)((double)*task->scale * task->backoff);
    *task->tracker = 0;
    return;
  }
  const int32_t good = *task->tracker + 1;
  if (good != task->interval) {
    *task->tracker = good;
    return;
  }
  const float grown = (float)((double)*task->scale * task->growth);
  if (isfinite(grown)) {
    *task->scale = grown;
  }
  *task->tracker = 0;
}

diopiError_t diopiAmpUpdateScaleInp(diopiContextHandle_t ctx, diopiTensorHandle_t current_scale,
                                    diopiTensorHandle_t growth_tracker, diopiConstTensorHandle_t found_inf,
                                    double scale_growth_factor, double scale_backoff_factor, int32_t growth_interval) {
  struct frame frame;
  struct dit_tensor_view scale, tracker, found;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(take_one(&frame, "current_scale", current_scale, DIT_DTYPE_F32, &scale));
  FRAME_TRY(take_one(&frame, "growth_tracker", growth_tracker, DIT_DTYPE_I32, &tracker));
  FRAME_TRY(take_one(&frame, "found_inf", found_inf, DIT_DTYPE_F32, &found));
  const struct update_task task = {scale.data,          tracker.data,         found.data,
                                   scale_growth_factor, scale_backoff_factor, growth_interval};
  return frame_launch(&frame, run_update, &task, sizeof task);
}
