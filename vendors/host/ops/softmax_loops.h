/// The gradient of softmax for one type (see softmax.c).

KERNEL_INLINE void BODY(scale_row)(REAL *out, const REAL *g, const REAL *y, int64_t count, REAL sum, bool log) {
  if (log) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = g[i] - EXP(y[i]) * sum;
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (g[i] - sum) * y[i];
    }
  }
}
KERNEL_MULTI(static, NAME(scale_row), (REAL * out, const REAL *g, const REAL *y, int64_t count, REAL sum, bool log),
             (out, g, y, count, sum, log))

KERNEL_INLINE void BODY(add_columns)(REAL *restrict sum, const REAL *restrict g, const REAL *restrict y, int64_t count,
                                     bool log) {
  if (log) {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += g[i];
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += g[i] * y[i];
    }
  }
}
KERNEL_MULTI(static, NAME(add_columns),
             (REAL *restrict sum, const REAL *restrict g, const REAL *restrict y, int64_t count, bool log),
             (sum, g, y, count, log))

KERNEL_INLINE void BODY(scale_columns)(REAL *out, const REAL *g, const REAL *y, const REAL *sum, int64_t count,
                                       bool log) {
  if (log) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = g[i] - EXP(y[i]) * sum[i];
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (g[i] - sum[i]) * y[i];
    }
  }
}
KERNEL_MULTI(static, NAME(scale_columns),
             (REAL * out, const REAL *g, const REAL *y, const REAL *sum, int64_t count, bool log),
             (out, g, y, sum, count, log))

static void NAME(run_rows)(const struct gradient_task *task, int64_t begin, int64_t end) {
  const int64_t length = task->shape.length;
  for (int64_t row = begin; row < end; row++) {
    const REAL *g = (const REAL *)task->grad + row * length, *y = (const REAL *)task->output + row * length;
    const double sum = task->log ? NAME(row_sum)(g, length) : NAME(row_dot)(g, y, length);
    NAME(scale_row)((REAL *)task->result + row * length, g, y, length, (REAL)sum, task->log);
  }
}

/// Blocks of COLUMN_BLOCK neighbouring lines; sums in two levels.
static void NAME(run_columns)(const struct gradient_task *task, int64_t begin, int64_t end) {
  const int64_t inner = task->shape.inner, length = task->shape.length;
  for (int64_t block = begin; block < end; block++) {
    REAL sum[COLUMN_BLOCK] = {0}, part[COLUMN_BLOCK] = {0};
    const int64_t first = block % task->blocks * COLUMN_BLOCK;
    const int64_t n = inner - first < COLUMN_BLOCK ? inner - first : COLUMN_BLOCK;
    const int64_t base = block / task->blocks * length * inner + first;
    const REAL *g = (const REAL *)task->grad + base, *y = (const REAL *)task->output + base;
    REAL *out = (REAL *)task->result + base;
    for (int64_t j = 0; j < length; j++) {
      NAME(add_columns)(part, g + j * inner, y + j * inner, n, task->log);
      if (j % COLUMN_STEP == COLUMN_STEP - 1 || j == length - 1) {
        for (int64_t i = 0; i < n; i++) {
          sum[i] += part[i];
          part[i] = 0;
        }
      }
    }
    for (int64_t j = 0; j < length; j++) {
      NAME(scale_columns)(out + j * inner, g + j * inner, y + j * inner, sum, n, task->log);
    }
  }
}
