/// Losses between elements, and their derivatives by the first operand, for one type (see loss.c). `q` is pos_weight
/// (NULL where the loss has none); `a` and `b` are the loss's parameters.

#include "loss_expressions.h"

#define LOSS_PARAMS (REAL * out, const REAL *x, const REAL *t, const REAL *q, int64_t count, REAL a, REAL b)
#define LOSS_ARGS (out, x, t, q, count, a, b)
#define DEFINE_LOSS(name, EXPRESSION)         \
  KERNEL_INLINE void BODY(name) LOSS_PARAMS { \
    (void)q;                                  \
    (void)a;                                  \
    (void)b;                                  \
    KERNEL_LANES                              \
    for (int64_t i = 0; i < count; i++) {     \
      out[i] = EXPRESSION;                    \
    }                                         \
  }                                           \
  KERNEL_MULTI(static, NAME(name), LOSS_PARAMS, LOSS_ARGS)

DEFINE_LOSS(mse, NAME(mse_of)(x[i], t[i]))
DEFINE_LOSS(mse_slope, NAME(mse_slope_of)(x[i], t[i]))
DEFINE_LOSS(smooth_l1, NAME(smooth)(x[i] - t[i], a))
DEFINE_LOSS(smooth_l1_slope, NAME(smooth_slope)(x[i] - t[i], a))
DEFINE_LOSS(bce, NAME(entropy)(x[i], t[i]))
DEFINE_LOSS(bce_slope, NAME(entropy_slope)(x[i], t[i]))
DEFINE_LOSS(logits, NAME(logits_of)(x[i], t[i]))
DEFINE_LOSS(logits_slope, NAME(logits_slope_of)(x[i], t[i]))
DEFINE_LOSS(weighted_logits, NAME(weighted_of)(x[i], t[i], q[i]))
DEFINE_LOSS(weighted_logits_slope, NAME(weighted_slope_of)(x[i], t[i], q[i]))
DEFINE_LOSS(focal_loss, NAME(focal)(x[i], t[i], a, b))
DEFINE_LOSS(focal_loss_slope, NAME(focal_slope)(x[i], t[i], a, b))

KERNEL_INLINE void BODY(multiply)(REAL *out, const REAL *p, int64_t count, REAL scale) {
  if (p) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] *= p[i] * scale;
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] *= scale;
    }
  }
}
KERNEL_MULTI(static, NAME(multiply), (REAL * out, const REAL *p, int64_t count, REAL scale), (out, p, count, scale))

typedef void NAME(loss_function) LOSS_PARAMS;
static NAME(loss_function) *const NAME(losses)[LOSS_COUNT][2] = {
    [LOSS_MSE] = {NAME(mse), NAME(mse_slope)},
    [LOSS_SMOOTH_L1] = {NAME(smooth_l1), NAME(smooth_l1_slope)},
    [LOSS_BCE] = {NAME(bce), NAME(bce_slope)},
    [LOSS_LOGITS] = {NAME(logits), NAME(logits_slope)},
    [LOSS_WEIGHTED_LOGITS] = {NAME(weighted_logits), NAME(weighted_logits_slope)},
    [LOSS_FOCAL] = {NAME(focal_loss), NAME(focal_loss_slope)},
};

/// One chunk: losses or derivatives, times weight, times the gradient that comes in; their sum where it is asked for.
static void NAME(run_chunk)(const struct loss_task *task, int64_t chunk) {
  const int64_t first = chunk * CHUNK, last = first + CHUNK < task->numel ? first + CHUNK : task->numel;
  NAME(loss_function) *function = NAME(losses)[task->kind][task->backward];
  const REAL *x = task->p[X], *t = task->p[TARGET], *w = task->p[WEIGHT], *q = task->p[POS_WEIGHT], *g = task->p[GRAD];
  REAL room[BLOCK], *out = task->p[OUT];
  double sum = 0;
  for (int64_t i = first; i < last; i += BLOCK) {
    const int64_t n = last - i < BLOCK ? last - i : BLOCK;
    REAL *to = task->sum ? room : out + i;
    const bool alias = to == x + i || to == t + i || (w && to == w + i) || (g && to == g + i) || (q && to == q + i);
    REAL *at = alias ? room : to;  // an output that is an input is written once, at the end
    function(at, x + i, t + i, q ? q + i : NULL, n, (REAL)task->a, (REAL)task->b);
    if (w) {
      NAME(multiply)(at, w + i, n, 1);
    }
    if (task->backward) {
      NAME(multiply)
      (at, g && !task->one_gradient ? g + i : NULL, n,
       (REAL)(task->one_gradient ? task->scale * (double)g[0] : task->scale));
    }
    if (task->sum) {
      sum += NAME(row_sum)(at, n);
    } else if (alias) {
      memcpy(to, at, sizeof(REAL) * (size_t)n);
    }
  }
  if (task->sum) {
    task->sum[chunk] = sum;
  }
}

#undef LOSS_PARAMS
#undef LOSS_ARGS
#undef DEFINE_LOSS
