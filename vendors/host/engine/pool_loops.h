/// The loops of pooling for one type; included once for float, double and int64.
///
/// The including file defines REAL, INDEX (an integer as wide), LOWEST, IS_NAN(x), NAME(x) and BODY(x). Positions of a
/// window are walked row by row.

/// One window. `index` may be NULL.
static void NAME(max_window)(const struct pool_shape *s, int64_t z, int64_t y, int64_t x, REAL *out, int64_t *index,
                             const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
  REAL best = LOWEST;
  int64_t where = first;
  for (int64_t dz = 0; dz < az->count[z]; dz++) {
    for (int64_t dy = 0; dy < ay->count[y]; dy++) {
      const int64_t row = first + (dz * az->step * ay->in + dy * ay->step) * ax->in;
      for (int64_t dx = 0; dx < ax->count[x]; dx++) {
        const int64_t at = row + dx * ax->step;
        const REAL value = in[at];
        const bool larger = value > best || IS_NAN(value);
        best = larger ? value : best;
        where = larger ? at : where;
      }
    }
  }
  *out = best;
  if (index) {
    *index = where;
  }
}

/// One element of `count` neighbouring windows that begin `step` elements apart; `here` is the first one's position.
#define TAKE_MAX(step)                                                  \
  for (int64_t i = 0; i < count; i++) {                                 \
    const REAL value = p[i * (step)];                                   \
    const bool larger = (value > best[i]) | IS_NAN(value);              \
    best[i] = larger ? value : best[i];                                 \
    where[i] = larger ? (INDEX)(here + (INDEX)(i * (step))) : where[i]; \
  }
KERNEL_INLINE void BODY(take_max)(REAL *restrict best, INDEX *restrict where, const REAL *restrict p, int64_t count,
                                  int64_t step, INDEX here) {
  if (step == 1) {
    TAKE_MAX(1)
  } else if (step == 2) {
    TAKE_MAX(2)
  } else {
    TAKE_MAX(step)
  }
}
KERNEL_MULTI(static, NAME(take_max),
             (REAL *restrict best, INDEX *restrict where, const REAL *restrict p, int64_t count, int64_t step,
              INDEX here),
             (best, where, p, count, step, here))
#undef TAKE_MAX

/// `count` windows of a row from `x` on, which all have the size of the first and lie `stride` elements apart.
static void NAME(max_run)(const struct pool_shape *s, int64_t z, int64_t y, int64_t x, int64_t count, int64_t stride,
                          REAL *out, int64_t *indices, const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
  INDEX where[POOL_RUN];
  for (int64_t i = 0; i < count; i++) {
    out[i] = LOWEST;
    where[i] = (INDEX)(first + i * stride);
  }
  for (int64_t dz = 0; dz < az->count[z]; dz++) {
    for (int64_t dy = 0; dy < ay->count[y]; dy++) {
      const int64_t row = first + (dz * az->step * ay->in + dy * ay->step) * ax->in;
      for (int64_t dx = 0; dx < ax->count[x]; dx++) {
        const int64_t at = row + dx * ax->step;
        NAME(take_max)(out, where, in + at, count, stride, (INDEX)at);
      }
    }
  }
  for (int64_t i = 0; indices && i < count; i++) {
    indices[i] = where[i];
  }
}

/// One plane. `indices` may be NULL. Windows of a row that are alike are taken together.
static void NAME(max_plane)(const struct pool_task *task, REAL *out, int64_t *indices, const REAL *in) {
  const struct pool_shape *s = task->shape;
  const int64_t width = s->axis[2].out;
  for (int64_t z = 0; z < s->axis[0].out; z++) {
    for (int64_t y = 0; y < s->axis[1].out; y++) {
      for (int64_t x = 0, n; x < width; x += n) {
        int64_t *index = indices ? indices + x : NULL;
        n = 1;
        if (x >= task->alike && x < task->alike_end) {
          n = task->alike_end - x < POOL_RUN ? task->alike_end - x : POOL_RUN;
          NAME(max_run)(s, z, y, x, n, task->stride, out + x, index, in);
        } else {
          NAME(max_window)(s, z, y, x, out + x, index, in);
        }
      }
      out += width;
      indices = indices ? indices + width : NULL;
    }
  }
}

/// *sum += total of `count` neighbours.
KERNEL_INLINE void BODY(sum_row)(REAL *sum, const REAL *row, int64_t count) {
  typedef REAL vector __attribute__((vector_size(POOL_LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
  vector lanes = {0};
  int64_t i = 0;
  for (; i + POOL_LANES <= count; i += POOL_LANES) {
    lanes += *(const vector *)(row + i);
  }
  REAL total = 0;
  for (; i < count; i++) {
    total += row[i];
  }
  for (int j = 0; j < POOL_LANES; j++) {
    total += lanes[j];
  }
  *sum += total;
}
KERNEL_MULTI(static, NAME(sum_row), (REAL * sum, const REAL *row, int64_t count), (sum, row, count))

static int64_t NAME(get_divisor)(const struct pool_shape *s, int64_t z, int64_t y, int64_t x) {
  return s->divisor ? s->divisor : s->axis[0].extent[z] * s->axis[1].extent[y] * s->axis[2].extent[x];
}

static REAL NAME(mean_window)(const struct pool_shape *s, int64_t z, int64_t y, int64_t x, const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
  REAL sum = 0;
  for (int64_t dz = 0; dz < az->count[z]; dz++) {
    for (int64_t dy = 0; dy < ay->count[y]; dy++) {
      const REAL *row = in + first + (dz * ay->in + dy) * ax->in;
      for (int64_t dx = 0; dx < ax->count[x]; dx++) {
        sum += row[dx];
      }
    }
  }
  const bool empty = az->count[z] == 0 || ay->count[y] == 0 || ax->count[x] == 0;
  return empty ? 0 : sum / (REAL)NAME(get_divisor)(s, z, y, x);
}

#define TAKE_SUM(step)                  \
  for (int64_t i = 0; i < count; i++) { \
    sum[i] += p[i * (step)];            \
  }
KERNEL_INLINE void BODY(take_sum)(REAL *restrict sum, const REAL *restrict p, int64_t count, int64_t step) {
  if (step == 1) {
    TAKE_SUM(1)
  } else if (step == 2) {
    TAKE_SUM(2)
  } else {
    TAKE_SUM(step)
  }
}
KERNEL_MULTI(static, NAME(take_sum), (REAL *restrict sum, const REAL *restrict p, int64_t count, int64_t step),
             (sum, p, count, step))
#undef TAKE_SUM

/// `count` windows of a row from `x` on, as in max_run.
static void NAME(mean_run)(const struct pool_shape *s, int64_t z, int64_t y, int64_t x, int64_t count, int64_t stride,
                           REAL *out, const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
  memset(out, 0, sizeof(REAL) * (size_t)count);
  if (az->count[z] == 0 || ay->count[y] == 0 || ax->count[x] == 0) {
    return;
  }
  for (int64_t dz = 0; dz < az->count[z]; dz++) {
    for (int64_t dy = 0; dy < ay->count[y]; dy++) {
      for (int64_t dx = 0; dx < ax->count[x]; dx++) {
        NAME(take_sum)(out, in + first + (dz * ay->in + dy) * ax->in + dx, count, stride);
      }
    }
  }
  for (int64_t i = 0; i < count; i++) {
    out[i] /= (REAL)NAME(get_divisor)(s, z, y, x + i);
  }
}

static void NAME(mean_plane)(const struct pool_task *task, REAL *out, const REAL *in) {
  const struct pool_shape *s = task->shape;
  const int64_t width = s->axis[2].out;
  for (int64_t z = 0; z < s->axis[0].out; z++) {
    for (int64_t y = 0; y < s->axis[1].out; y++, out += width) {
      for (int64_t x = 0, n; x < width; x += n) {
        n = 1;
        if (x >= task->alike && x < task->alike_end) {
          n = task->alike_end - x < POOL_RUN ? task->alike_end - x : POOL_RUN;
          NAME(mean_run)(s, z, y, x, n, task->stride, out + x, in);
        } else {
          out[x] = NAME(mean_window)(s, z, y, x, in);
        }
      }
    }
  }
}

/// The same for wide windows.
static void NAME(mean_wide_plane)(const struct pool_task *task, REAL *out, const REAL *in) {
  const struct pool_shape *s = task->shape;
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  for (int64_t z = 0; z < az->out; z++) {
    for (int64_t y = 0; y < ay->out; y++) {
      for (int64_t x = 0; x < ax->out; x++) {
        const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
        REAL sum = 0;
        for (int64_t dz = 0; dz < az->count[z]; dz++) {
          for (int64_t dy = 0; dy < ay->count[y]; dy++) {
            const REAL *row = in + first + (dz * ay->in + dy) * ax->in;
            NAME(sum_row)(&sum, row, ax->count[x]);
          }
        }
        const bool empty = az->count[z] == 0 || ay->count[y] == 0 || ax->count[x] == 0;
        *out++ = empty ? 0 : sum / (REAL)NAME(get_divisor)(s, z, y, x);
      }
    }
  }
}

static void NAME(mean_backward_plane)(const struct pool_shape *s, REAL *grad_in, const REAL *grad_out) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  for (int64_t z = 0; z < az->out; z++) {
    for (int64_t y = 0; y < ay->out; y++) {
      for (int64_t x = 0; x < ax->out; x++, grad_out++) {
        const int64_t first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
        if (az->count[z] == 0 || ay->count[y] == 0 || ax->count[x] == 0) {
          continue;
        }
        const REAL part = *grad_out / (REAL)NAME(get_divisor)(s, z, y, x);
        for (int64_t dz = 0; dz < az->count[z]; dz++) {
          for (int64_t dy = 0; dy < ay->count[y]; dy++) {
            REAL *row = grad_in + first + (dz * ay->in + dy) * ax->in;
            for (int64_t dx = 0; dx < ax->count[x]; dx++) {
              row[dx] += part;
            }
          }
        }
      }
    }
  }
}

static void NAME(max_backward_plane)(REAL *grad_in, const REAL *grad_out, const int64_t *indices, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    grad_in[indices[i]] += grad_out[i];
  }
}
