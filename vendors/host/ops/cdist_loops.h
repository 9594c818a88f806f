/// The loops of pairwise distances for one type; included once for float and once for double.
///
/// The including file defines REAL, NAME(x), BODY(x), ABS, POW, ROOT. LANES partial sums make the result independent of
/// the vector width.

#define LANES 16
#define LANE_LOOP(step, tail)                       \
  int64_t i = 0;                                    \
  for (; i + LANES <= count; i += LANES) {          \
    for (int j = 0; j < LANES; j++) {               \
      const REAL d = ABS(x[i + j] - y[i + j]);      \
      lanes[j] = step;                              \
    }                                               \
  }                                                 \
  for (int j = 0; i < count; i++, j++) {            \
    const REAL d = ABS(x[i] - y[i]);                \
    lanes[j] = step;                                \
  }                                                 \
  for (int half = LANES / 2; half > 0; half /= 2) { \
    for (int j = 0; j < half; j++) {                \
      const REAL d = lanes[j + half];               \
      lanes[j] = tail;                              \
    }                                               \
  }

KERNEL_INLINE void BODY(square)(const REAL *x, const REAL *y, int64_t count, REAL *out) {
  REAL lanes[LANES] = {0};
  LANE_LOOP(lanes[j] + d * d, lanes[j] + d)
  *out = ROOT(lanes[0]);
}
KERNEL_MULTI(static, NAME(square), (const REAL *x, const REAL *y, int64_t count, REAL *out), (x, y, count, out))

KERNEL_INLINE void BODY(sum)(const REAL *x, const REAL *y, int64_t count, REAL *out) {
  REAL lanes[LANES] = {0};
  LANE_LOOP(lanes[j] + d, lanes[j] + d)
  *out = lanes[0];
}
KERNEL_MULTI(static, NAME(sum), (const REAL *x, const REAL *y, int64_t count, REAL *out), (x, y, count, out))

static REAL NAME(distance)(const REAL *x, const REAL *y, int64_t count, double p) {
  REAL lanes[LANES] = {0};
  if (p == 2) {
    NAME(square)(x, y, count, lanes);
  } else if (p == 1) {
    NAME(sum)(x, y, count, lanes);
  } else if (p == 0) {
    LANE_LOOP(lanes[j] + (REAL)(d != 0), lanes[j] + d)
  } else if (isinf(p)) {
    LANE_LOOP((d > lanes[j] || d != d ? d : lanes[j]), (d > lanes[j] || d != d ? d : lanes[j]))
  } else {
    const REAL power = (REAL)p;
    LANE_LOOP(lanes[j] + POW(d, power), lanes[j] + d)
    lanes[0] = POW(lanes[0], 1 / power);
  }
  return lanes[0];
}
#undef LANE_LOOP

/// out += what flows to x through one distance.
static void NAME(flow)(const REAL *x, const REAL *y, int64_t count, double p, REAL grad, REAL dist, REAL *out) {
  if (p == 0 || dist == 0) {
    return;
  }
  const REAL share = p == 1 || isinf(p) ? grad : p == 2 ? grad / dist : grad / POW(dist, (REAL)(p - 1));
  for (int64_t i = 0; i < count; i++) {
    const REAL d = x[i] - y[i], size = ABS(d), sign = (REAL)((d > 0) - (d < 0));
    if (p == 2) {
      out[i] += share * d;
    } else if (p == 1) {
      out[i] += share * sign;
    } else if (isinf(p)) {
      out[i] += size == dist ? share * sign : 0;
    } else if (size > 0) {
      out[i] += share * sign * POW(size, (REAL)(p - 1));
    }
  }
}

static void NAME(rows)(void *context, int64_t begin, int64_t end) {
  const struct cdist_run *run = context;
  const struct cdist *call = run->call;
  const int64_t rows = matrix_get_rows(&call->a), others = matrix_get_rows(&call->b);
  const int64_t width = matrix_get_columns(&call->a);
  for (int64_t i = begin; i < end; i++) {
    const int64_t at_a = matrix_find(&call->a, call->ndim, call->sizes, i / rows) * rows + i % rows;
    const int64_t at_b = matrix_find(&call->b, call->ndim, call->sizes, i / rows) * others;
    const REAL *x = (const REAL *)run->a + at_a * width, *y = (const REAL *)run->b + at_b * width;
    for (int64_t j = 0; j < others; j++) {
      if (call->backward) {
        NAME(flow)
        (x, y + j * width, width, call->p, ((const REAL *)run->grad)[i * others + j],
         ((const REAL *)run->dist)[i * others + j], (REAL *)run->out + at_a * width);
      } else {
        ((REAL *)run->out)[i * others + j] = NAME(distance)(x, y + j * width, width, call->p);
      }
    }
  }
}

#undef LANES
#undef REAL
#undef NAME
#undef BODY
#undef ABS
#undef POW
#undef ROOT
