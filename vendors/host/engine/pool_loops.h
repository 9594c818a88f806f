/// The loops of pooling for one type; included once for float, double and int64.
///
/// The including file defines REAL, LOWEST, IS_NAN(x), NAME(x) and BODY(x). Positions of a window are walked row by
/// row.

/// One plane. `indices` may be NULL.
static void NAME(max_plane)(const struct pool_shape *s, REAL *out, int64_t *indices, const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  for (int64_t z = 0; z < az->out; z++) {
    for (int64_t y = 0; y < ay->out; y++) {
      for (int64_t x = 0; x < ax->out; x++) {
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
        *out++ = best;
        if (indices) {
          *indices++ = where;
        }
      }
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

static void NAME(mean_plane)(const struct pool_shape *s, REAL *out, const REAL *in) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  for (int64_t z = 0; z < az->out; z++) {
    for (int64_t y = 0; y < ay->out; y++) {
      for (int64_t x = 0; x < ax->out; x++) {
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
        *out++ = empty ? 0 : sum / (REAL)NAME(get_divisor)(s, z, y, x);
      }
    }
  }
}

/// The same for wide windows.
static void NAME(mean_wide_plane)(const struct pool_shape *s, REAL *out, const REAL *in) {
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

#undef REAL
#undef LOWEST
#undef IS_NAN
#undef NAME
#undef BODY
