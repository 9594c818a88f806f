/// The loops of deviations.c for one type: the including file defines REAL, NAME(x) and BODY(x).

/// Sums of p - center and of its square over at most DEVIATIONS_BLOCK elements.
KERNEL_INLINE void BODY(moments)(const REAL *p, int64_t count, REAL center, double *sum, double *squares) {
  REAL sums[DEVIATIONS_LANES] = {0}, parts[DEVIATIONS_LANES] = {0};
  int64_t i = 0;
  for (; i + DEVIATIONS_LANES <= count; i += DEVIATIONS_LANES) {
    for (int j = 0; j < DEVIATIONS_LANES; j++) {
      const REAL d = p[i + j] - center;
      sums[j] += d;
      parts[j] += d * d;
    }
  }
  for (int j = 0; i < count; i++, j++) {
    const REAL d = p[i] - center;
    sums[j] += d;
    parts[j] += d * d;
  }
  for (int j = 0; j < DEVIATIONS_LANES; j++) {
    *sum += (double)sums[j];
    *squares += (double)parts[j];
  }
}
KERNEL_MULTI(static, NAME(moments), (const REAL *p, int64_t count, REAL center, double *sum, double *squares),
             (p, count, center, sum, squares))

/// Numbers whose squares the type does not hold.
static double NAME(wide)(const REAL *p, int64_t count) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += (double)p[i];
  }
  const double mean = sum / (double)count;
  for (int64_t i = 0; i < count; i++) {
    squares += ((double)p[i] - mean) * ((double)p[i] - mean);
  }
  return squares;
}

double NAME(deviations)(const REAL *p, int64_t count) {
  double sum = NAME(row_sum)(p, count), squares = 0;
  REAL center = (REAL)(sum / (double)count);
  for (int round = 0; round < DEVIATIONS_ROUNDS; round++) {
    sum = squares = 0;
    for (int64_t at = 0; at < count; at += DEVIATIONS_BLOCK) {
      NAME(moments)(p + at, count - at < DEVIATIONS_BLOCK ? count - at : DEVIATIONS_BLOCK, center, &sum, &squares);
    }
    const REAL better = (REAL)((double)center + sum / (double)count);
    if (!(sum * sum > squares * (double)count * 1e-3) || better == center) {
      break;
    }
    center = better;
  }
  if (isinf(squares)) {
    return NAME(wide)(p, count);
  }
  const double rest = squares - sum * sum / (double)count;
  return rest < 0 ? 0 : rest;
}
