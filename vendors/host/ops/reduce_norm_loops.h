/// Gradients of p-norms for one type (see reduce_norm.c).

static REAL NAME(sign)(REAL x) {
  return (REAL)((x > 0) - (x < 0));
}

/// How many elements reach an infinite norm.
static int64_t NAME(count_extreme)(const REAL *x, int64_t count, REAL norm) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i++) {
    found += FABS(x[i]) == norm || x[i] != x[i];
  }
  return found;
}

/// out = factor * (derivative of the norm of x).
static void NAME(norm_gradient)(REAL *out, const REAL *x, int64_t count, double p, REAL norm, REAL factor) {
  if (p == 0) {
    memset(out, 0, sizeof(REAL) * (size_t)count);
  } else if (p == 1) {
    for (int64_t i = 0; i < count; i++) {
      out[i] = NAME(sign)(x[i]) * factor;
    }
  } else if (p == 2) {
    NAME(row_affine)(out, x, count, norm == 0 ? 0 : factor / norm, 0);
    for (int64_t i = 0; norm == 0 && i < count; i++) {
      out[i] = 0;
    }
  } else if (isinf(p)) {
    const REAL share = factor / (REAL)NAME(count_extreme)(x, count, norm);
    for (int64_t i = 0; i < count; i++) {
      out[i] = FABS(x[i]) == norm || x[i] != x[i] ? NAME(sign)(x[i]) * share : 0;
    }
  } else {
    const REAL scale = norm == 0 ? 0 : factor * POW(norm, (REAL)(1 - p));
    for (int64_t i = 0; i < count; i++) {
      out[i] = p < 1 && x[i] == 0 ? 0 : NAME(sign)(x[i]) * POW(FABS(x[i]), (REAL)(p - 1)) * scale;
    }
  }
}

static void NAME(norm_backward_rows)(const struct norm_task *task, int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; k++) {
    const int64_t at = k * task->length;
    NAME(norm_gradient)
    ((REAL *)task->out + at, (const REAL *)task->x + at, task->length, task->p, ((const REAL *)task->norm)[k],
     ((const REAL *)task->g)[k]);
  }
}

static REAL NAME(row_norm)(const struct norm_task *task, const REAL *x) {
  double total = (double)task->fold->identity.MEMBER;
  for (int64_t i = 0; i < task->length; i += NORM_BLOCK) {
    REAL part, sum = (REAL)total;
    const int64_t n = task->length - i < NORM_BLOCK ? task->length - i : NORM_BLOCK;
    reduce_fold_rows(task->fold, x + i, n, 1, 0, task->p, &part);
    task->fold->merge(&sum, &part, 1);
    total = task->adds ? total + (double)part : (double)sum;
  }
  return (REAL)(task->kind == REDUCE_NORM_2   ? sqrt(total)
                : task->kind == REDUCE_NORM_P ? pow(total, 1 / task->p)
                                              : total);
}

static void NAME(normalize_rows)(const struct norm_task *task, int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; k++) {
    const int64_t at = k * task->length, n = task->length;
    const REAL *x = (const REAL *)task->x + at;
    REAL *out = (REAL *)task->out + at;
    const REAL norm = NAME(row_norm)(task, x);
    const REAL floor = norm < (REAL)task->eps ? (REAL)task->eps : norm;  // NaN stays
    if (!task->g) {
      for (int64_t i = 0; i < n; i++) {
        out[i] = x[i] / floor;
      }
      continue;
    }
    const REAL *g = (const REAL *)task->g + at;
    REAL factor = 0;
    if (norm >= (REAL)task->eps) {
      factor = (REAL)(-NAME(row_dot)(g, x, n) / ((double)floor * (double)floor));
    }
    NAME(norm_gradient)((REAL *)task->room + at, x, n, task->p, norm, factor);
    NAME(row_combine)(out, g, (const REAL *)task->room + at, n, 1 / floor, 1, 0);
  }
}
