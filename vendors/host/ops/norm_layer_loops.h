/// Layer and RMS norm for one type (see norm_layer.c).

/// What a short row needs in one function: sums as data_moments and data_sum_squares take them. `x` and `out` hold
/// `rows` rows of task->length elements that follow each other; `mean` and `scale` may be NULL.
KERNEL_INLINE void BODY(short_rows)(const struct layer_task *task, REAL *out, const REAL *x, int64_t rows, REAL *mean,
                                    REAL *scale) {
  const int64_t n = task->length;
  const REAL *weight = task->weight, *bias = task->bias;
  for (int64_t row = 0; row < rows; row++, x += n, out += n) {
    REAL sums[SUM_LANES] = {0}, squares[SUM_LANES] = {0};
    double middle = 0;
    for (int64_t i = 0; i < n && !task->rms; i += SUM_LANES) {
      const int64_t left = n - i < SUM_LANES ? n - i : SUM_LANES;
      for (int64_t j = 0; j < left; j++) {
        sums[j] += x[i + j];
      }
    }
    for (int width = SUM_LANES / 2; width > 0; width /= 2) {
      for (int j = 0; j < width; j++) {
        sums[j] += sums[j + width];
      }
    }
    middle = (double)sums[0] / (double)n;
    const REAL center = (REAL)middle;
    for (int64_t i = 0; i < n; i += SUM_LANES) {
      const int64_t left = n - i < SUM_LANES ? n - i : SUM_LANES;
      for (int64_t j = 0; j < left; j++) {
        squares[j] += (x[i + j] - center) * (x[i + j] - center);
      }
    }
    for (int width = SUM_LANES / 2; width > 0; width /= 2) {
      for (int j = 0; j < width; j++) {
        squares[j] += squares[j + width];
      }
    }
    const double lost = middle - (double)center, own = (double)squares[0] - lost * lost * (double)n;
    const REAL factor = (REAL)(1 / sqrt((own > 0 || own != own ? own : 0) / (double)n + task->eps));
    KERNEL_LANES
    for (int64_t i = 0; i < n; i++) {
      const REAL y = (x[i] - center) * factor, z = weight ? y * weight[i] : y;
      out[i] = bias ? z + bias[i] : z;
    }
    if (mean) {
      mean[row] = center;
    }
    if (scale) {
      scale[row] = factor;
    }
  }
}
KERNEL_MULTI(static, NAME(short_rows),
             (const struct layer_task *task, REAL *out, const REAL *x, int64_t rows, REAL *mean, REAL *scale),
             (task, out, x, rows, mean, scale))

static void NAME(forward_short_rows)(const struct layer_task *task, int64_t begin, int64_t end) {
  const int64_t n = task->length, most = SUM_BLOCK / n;
  for (int64_t row = begin, rows; row < end; row += rows) {
    REAL rooms[2][SUM_BLOCK];
    rows = end - row < most ? end - row : most;
    REAL *out = NAME(data_get)(&task->to, row * n, rooms[0]);
    const REAL *x = NAME(data_fetch)(&task->from, row * n, rows * n, rooms[1]);
    NAME(short_rows)
    (task, out, x, rows, task->mean ? (REAL *)task->mean + row : NULL, task->scale ? (REAL *)task->scale + row : NULL);
    NAME(data_put)(&task->to, row * n, rows * n, out);
  }
}

static void NAME(forward_rows)(const struct layer_task *task, int64_t begin, int64_t end) {
  const int64_t n = task->length;
  if (n > 0 && n <= SHORT_LENGTH) {
    NAME(forward_short_rows)(task, begin, end);
    return;
  }
  const REAL *weight = task->weight, *bias = task->bias;
  for (int64_t row = begin; row < end; row++) {
    double middle = 0, squares = 0;
    if (task->rms) {
      squares = NAME(data_sum_squares)(&task->from, row * n, n, 0);
    } else {
      NAME(data_moments)(&task->from, row * n, n, &middle, &squares);
    }
    const REAL mean = (REAL)middle, scale = (REAL)(1 / sqrt(squares / (double)n + task->eps));
    NAME(data_affine_weighted)(&task->to, &task->from, row * n, weight, bias, n, scale, mean);
    if (task->mean) {
      ((REAL *)task->mean)[row] = mean;
    }
    if (task->scale) {
      ((REAL *)task->scale)[row] = scale;
    }
  }
}

/// Sums of g * w and of g * w * (x - mean) over at most a block.
KERNEL_INLINE void BODY(weighted_sums)(const REAL *g, const REAL *x, const REAL *w, int64_t count, REAL mean,
                                       double *sum, double *dot) {
  REAL sums[SUM_LANES] = {0}, dots[SUM_LANES] = {0};
  int64_t i = 0;
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    for (int j = 0; j < SUM_LANES; j++) {
      const REAL v = w ? g[i + j] * w[i + j] : g[i + j];
      sums[j] += v;
      dots[j] += v * (x[i + j] - mean);
    }
  }
  for (int j = 0; i < count; i++, j++) {
    const REAL v = w ? g[i] * w[i] : g[i];
    sums[j] += v;
    dots[j] += v * (x[i] - mean);
  }
  for (int width = SUM_LANES / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; j++) {
      sums[j] += sums[j + width];
      dots[j] += dots[j + width];
    }
  }
  *sum += (double)sums[0];
  *dot += (double)dots[0];
}
KERNEL_MULTI(static, NAME(weighted_sums),
             (const REAL *g, const REAL *x, const REAL *w, int64_t count, REAL mean, double *sum, double *dot),
             (g, x, w, count, mean, sum, dot))

/// out = a * (g * w + c) + b * (x - mean)
KERNEL_INLINE void BODY(weighted_gradient)(REAL *out, const REAL *g, const REAL *x, const REAL *w, int64_t count,
                                           REAL mean, REAL a, REAL b, REAL c) {
  if (w) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = a * (g[i] * w[i] + c) + b * (x[i] - mean);
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = a * (g[i] + c) + b * (x[i] - mean);
    }
  }
}
KERNEL_MULTI(static, NAME(weighted_gradient),
             (REAL * out, const REAL *g, const REAL *x, const REAL *w, int64_t count, REAL mean, REAL a, REAL b,
              REAL c),
             (out, g, x, w, count, mean, a, b, c))

KERNEL_INLINE void BODY(add_parameters)(REAL *restrict dw, REAL *restrict db, const REAL *restrict g,
                                        const REAL *restrict x, int64_t count, REAL mean, REAL scale) {
  for (int64_t i = 0; i < count; i++) {
    dw[i] += g[i] * ((x[i] - mean) * scale);
    db[i] += g[i];
  }
}
KERNEL_MULTI(static, NAME(add_parameters),
             (REAL *restrict dw, REAL *restrict db, const REAL *restrict g, const REAL *restrict x, int64_t count,
              REAL mean, REAL scale),
             (dw, db, g, x, count, mean, scale))

static void NAME(input_gradient)(const struct layer_task *task, int64_t row, REAL mean, REAL scale) {
  const int64_t n = task->length;
  const REAL *g = (const REAL *)task->grad + row * n, *x = (const REAL *)task->input + row * n, *w = task->weight;
  double sum = 0, dot = 0;
  for (int64_t i = 0; i < n; i += SUM_BLOCK) {
    NAME(weighted_sums)(g + i, x + i, w ? w + i : NULL, n - i < SUM_BLOCK ? n - i : SUM_BLOCK, mean, &sum, &dot);
  }
  const double a = (double)scale, b = -a * a * a * dot / (double)n, c = task->rms ? 0 : -sum / (double)n;
  NAME(weighted_gradient)((REAL *)task->out + row * n, g, x, w, n, mean, scale, (REAL)b, (REAL)c);
}

/// Chunks of rows: each adds up its own share of the parameters' gradients.
static void NAME(backward_chunks)(const struct layer_task *task, int64_t begin, int64_t end) {
  const int64_t n = task->length;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    REAL *dw = task->partial ? (REAL *)task->partial + chunk * 2 * n : NULL;
    const int64_t last = (chunk + 1) * task->chunk < task->rows ? (chunk + 1) * task->chunk : task->rows;
    for (int64_t row = chunk * task->chunk; row < last; row++) {
      const REAL mean = task->rms ? 0 : ((const REAL *)task->mean)[row], scale = ((const REAL *)task->scale)[row];
      if (dw) {
        NAME(add_parameters)
        (dw, dw + n, (const REAL *)task->grad + row * n, (const REAL *)task->input + row * n, n, mean, scale);
      }
      if (task->out) {
        NAME(input_gradient)(task, row, mean, scale);
      }
    }
  }
}

static void NAME(merge_chunks)(const struct layer_task *task) {
  REAL *total = task->partial;
  for (int64_t chunk = 1; chunk < task->chunks; chunk++) {
    NAME(row_add)(total, total + chunk * 2 * task->length, 2 * task->length);
  }
}
