/// Losses between elements, and their derivatives by the first operand, for one type (see loss.c). `q` is pos_weight
/// (NULL where the loss has none); `a` and `b` are the loss's parameters.

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

KERNEL_INLINE REAL NAME(smooth)(REAL d, REAL beta) {
  const REAL z = FABS(d);
  return z < beta ? (REAL)0.5 * z * z / beta : z - (REAL)0.5 * beta;
}
KERNEL_INLINE REAL NAME(smooth_slope)(REAL d, REAL beta) {
  return d <= -beta ? -1 : d >= beta ? 1 : d / beta;
}
/// (t - 1) * log(1 - x) - t * log(x), logarithms not below -100.
KERNEL_INLINE REAL NAME(entropy)(REAL x, REAL t) {
  const REAL no = LOG1P(-x), yes = LOG(x);
  return (t - 1) * (no < -100 ? -100 : no) - t * (yes < -100 ? -100 : yes);
}
KERNEL_INLINE REAL NAME(entropy_slope)(REAL x, REAL t) {
  const REAL spread = (1 - x) * x;
  return (x - t) / (spread < (REAL)1e-12 ? (REAL)1e-12 : spread);
}
/// log(1 + exp(-x)), exact on both sides.
KERNEL_INLINE REAL NAME(soft_minus)(REAL x) {
  return LOG1P(EXP(-FABS(x))) + (x < 0 ? -x : 0);
}
KERNEL_INLINE REAL NAME(logistic)(REAL x) {
  return 1 / (1 + EXP(-x));
}
/// a: alpha (negative: none), b: gamma.
KERNEL_INLINE REAL NAME(focal)(REAL x, REAL t, REAL a, REAL b) {
  const REAL p = NAME(logistic)(x), miss = p + t - 2 * p * t;
  const REAL share = a < 0 ? 1 : a * t + (1 - a) * (1 - t);
  return share * ((1 - t) * x + NAME(soft_minus)(x)) * POW(miss, b);
}
KERNEL_INLINE REAL NAME(focal_slope)(REAL x, REAL t, REAL a, REAL b) {
  const REAL p = NAME(logistic)(x), miss = p + t - 2 * p * t;
  const REAL share = a < 0 ? 1 : a * t + (1 - a) * (1 - t), entropy = (1 - t) * x + NAME(soft_minus)(x);
  const REAL bend = b == 0 ? 0 : entropy * b * POW(miss, b - 1) * p * (1 - p) * (1 - 2 * t);
  return share * ((p - t) * POW(miss, b) + bend);
}

DEFINE_LOSS(mse, (x[i] - t[i]) * (x[i] - t[i]))
DEFINE_LOSS(mse_slope, 2 * (x[i] - t[i]))
DEFINE_LOSS(smooth_l1, NAME(smooth)(x[i] - t[i], a))
DEFINE_LOSS(smooth_l1_slope, NAME(smooth_slope)(x[i] - t[i], a))
DEFINE_LOSS(bce, NAME(entropy)(x[i], t[i]))
DEFINE_LOSS(bce_slope, NAME(entropy_slope)(x[i], t[i]))
DEFINE_LOSS(logits, (1 - t[i]) * x[i] + NAME(soft_minus)(x[i]))
DEFINE_LOSS(logits_slope, NAME(logistic)(x[i]) - t[i])
DEFINE_LOSS(weighted_logits, (1 - t[i]) * x[i] + ((q[i] - 1) * t[i] + 1) * NAME(soft_minus)(x[i]))
DEFINE_LOSS(weighted_logits_slope, (q[i] * t[i] + 1 - t[i]) * NAME(logistic)(x[i]) - q[i] * t[i])
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
