/// Automatic mixed precision on the host (see amp.c).
#include <math.h>
#include <string.h>

#include "amp.h"
#include "elementwise.h"

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

diopiError_t amp_unscale(struct frame *frame, const struct amp_unscale *task) {
  const struct unscale parameters = {task->found_inf, task->inv_scale};
  for (int64_t i = 0; i < task->count; i++) {
    struct elementwise e;
    FRAME_TRY(elementwise_begin(&e, frame->function, frame->context));
    FRAME_TRY(elementwise_add_output(&e, "scaled_grads", task->grads[i]));
    FRAME_TRY(elementwise_add_input(&e, "scaled_grads", task->grads[i]));
    FRAME_TRY(elementwise_check(&e));
    FRAME_TRY(elementwise_set_type(&e, e.views[0].dtype, unscale_loops));
    memcpy(e.run.parameters, &parameters, sizeof parameters);
    FRAME_TRY(elementwise_launch(&e));
  }
  return diopiSuccess;
}

static void run_update(void *argument) {
  const struct amp_update *task = argument;
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

diopiError_t amp_update(struct frame *frame, const struct amp_update *task) {
  return frame_launch(frame, run_update, task, sizeof *task);
}
