/// One element of the losses of loss.c, and its derivative by x, for one type: REAL, NAME, FABS, EXP, LOG, LOG1P and
/// POW are the includer's. Read by the host's loops and by the CUDA kernels.
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

KERNEL_INLINE REAL NAME(mse_of)(REAL x, REAL t) {
  return (x - t) * (x - t);
}
KERNEL_INLINE REAL NAME(mse_slope_of)(REAL x, REAL t) {
  return 2 * (x - t);
}
KERNEL_INLINE REAL NAME(logits_of)(REAL x, REAL t) {
  return (1 - t) * x + NAME(soft_minus)(x);
}
KERNEL_INLINE REAL NAME(logits_slope_of)(REAL x, REAL t) {
  return NAME(logistic)(x) - t;
}
/// q: pos_weight.
KERNEL_INLINE REAL NAME(weighted_of)(REAL x, REAL t, REAL q) {
  return (1 - t) * x + ((q - 1) * t + 1) * NAME(soft_minus)(x);
}
KERNEL_INLINE REAL NAME(weighted_slope_of)(REAL x, REAL t, REAL q) {
  return (q * t + 1 - t) * NAME(logistic)(x) - q * t;
}
