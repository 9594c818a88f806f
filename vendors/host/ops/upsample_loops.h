/// Rows of resized images for one type (see upsample_work.c). A row is `inner` neighbouring elements per position: 1 in
/// row-major images, the channels in channels-last ones.

/// sum = the rows, each times its weight; one to four of them.
KERNEL_INLINE void BODY(mix_rows)(REAL *restrict sum, const REAL *const *rows, const double *weights, int count,
                                  int64_t length) {
  const REAL *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3];
  const REAL wa = (REAL)weights[0], wb = (REAL)weights[1], wc = (REAL)weights[2], wd = (REAL)weights[3];
  if (count == 2) {
    for (int64_t i = 0; i < length; i++) {
      sum[i] = wa * a[i] + wb * b[i];
    }
    return;
  }
  for (int64_t i = 0; i < length; i++) {
    sum[i] = wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i];
  }
}
KERNEL_MULTI(static, NAME(mix_rows),
             (REAL *restrict sum, const REAL *const *rows, const double *weights, int count, int64_t length),
             (sum, rows, weights, count, length))

/// sum += weight * row.
KERNEL_INLINE void BODY(add_row)(REAL *restrict sum, const REAL *restrict row, REAL weight, int64_t length) {
  for (int64_t i = 0; i < length; i++) {
    sum[i] += weight * row[i];
  }
}
KERNEL_MULTI(static, NAME(add_row), (REAL *restrict sum, const REAL *restrict row, REAL weight, int64_t length),
             (sum, row, weight, length))

/// out[x] = the taps of row for x, single elements. Tables are tap by tap.
KERNEL_INLINE void BODY(spread_single)(REAL *restrict out, const REAL *restrict row, const int32_t *restrict places,
                                       const REAL *restrict weights, int taps, int64_t count) {
  const int32_t *restrict p1 = places + count, *restrict p2 = p1 + count, *restrict p3 = p2 + count;
  const REAL *restrict w1 = weights + count, *restrict w2 = w1 + count, *restrict w3 = w2 + count;
  if (taps == 1) {
    for (int64_t x = 0; x < count; x++) {
      out[x] = row[places[x]];
    }
  } else if (taps == 2) {
    for (int64_t x = 0; x < count; x++) {
      out[x] = weights[x] * row[places[x]] + w1[x] * row[p1[x]];
    }
  } else {
    for (int64_t x = 0; x < count; x++) {
      out[x] = weights[x] * row[places[x]] + w1[x] * row[p1[x]] + w2[x] * row[p2[x]] + w3[x] * row[p3[x]];
    }
  }
}
KERNEL_MULTI(static, NAME(spread_single),
             (REAL *restrict out, const REAL *restrict row, const int32_t *restrict places,
              const REAL *restrict weights, int taps, int64_t count),
             (out, row, places, weights, taps, count))

/// The same for `inner` elements per position.
static void NAME(spread_row)(const struct resize_work *call, REAL *out, const REAL *row) {
  const struct resize_axis *axis = &call->axis[2];
  const int64_t inner = call->inner, count = axis->out;
  const REAL *weights = (const REAL *)axis->narrow;
  if (inner == 1) {
    NAME(spread_single)(out, row, axis->table, weights, axis->taps, count);
    return;
  }
  for (int64_t x = 0; x < count; x++, out += inner) {
    const REAL *blocks[MOST_TAPS] = {row, row, row, row};
    double w[MOST_TAPS] = {0};
    for (int k = 0; k < axis->taps; k++) {
      blocks[k] = row + axis->table[k * count + x] * inner;
      w[k] = (double)weights[k * count + x];
    }
    if (axis->taps == 1) {
      memcpy(out, blocks[0], (size_t)inner * sizeof(REAL));
    } else {
      NAME(mix_rows)(out, blocks, w, axis->taps, inner);
    }
  }
}

/// The rows of the small image that row (z, y) of the large one is made of.
static int NAME(find_rows)(const struct resize_work *call, const REAL *image, int64_t z, int64_t y, const REAL **rows,
                           double *weights) {
  const struct resize_axis *az = &call->axis[0], *ay = &call->axis[1];
  const int64_t length = call->axis[2].in * call->inner;
  int count = 0;
  for (int i = 0; i < az->taps; i++) {
    for (int j = 0; j < ay->taps; j++, count++) {
      rows[count] = image + (az->places[z * az->taps + i] * ay->in + ay->places[y * ay->taps + j]) * length;
      weights[count] = az->weights[z * az->taps + i] * ay->weights[y * ay->taps + j];
    }
  }
  return count;
}

/// Rows begin..end of all large images, from the small ones.
static void NAME(enlarge)(const struct resize_work *call, REAL *room, int64_t begin, int64_t end) {
  const struct resize_axis *az = &call->axis[0], *ay = &call->axis[1], *ax = &call->axis[2];
  const int64_t small = az->in * ay->in * ax->in * call->inner, length = ax->out * call->inner;
  const REAL *last = NULL;
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i % (az->out * ay->out), plane = i / (az->out * ay->out);
    const REAL *rows[MOST_TAPS] = {NULL}, *image = (const REAL *)call->from + plane * small;
    double weights[MOST_TAPS] = {0};
    REAL *out = (REAL *)call->to + i * length;
    const int count = NAME(find_rows)(call, image, row / ay->out, row % ay->out, rows, weights);
    if (count > 1) {
      NAME(mix_rows)(room, rows, weights, count, ax->in * call->inner);
      rows[0] = room;
    } else if (rows[0] == last) {
      memcpy(out, out - length, (size_t)length * sizeof(REAL));
      continue;
    }
    last = count > 1 ? NULL : rows[0];
    NAME(spread_row)(call, out, rows[0]);
  }
}

/// A row of gradients added up at the places of the small image's row.
static void NAME(gather_row)(const struct resize_work *call, REAL *sum, const REAL *grad) {
  const struct resize_axis *axis = &call->axis[2];
  const int64_t inner = call->inner, count = axis->out;
  const REAL *weights = (const REAL *)axis->narrow;
  for (int k = 0; k < axis->taps; k++) {
    const int32_t *places = axis->table + k * count;
    const REAL *w = weights + k * count;
    for (int64_t x = 0; x < count && inner == 1; x++) {
      sum[places[x]] += w[x] * grad[x];
    }
    for (int64_t x = 0; x < count && inner > 1; x++) {
      NAME(add_row)(sum + places[x] * inner, grad + x * inner, w[x], inner);
    }
  }
}

/// Small images begin..end from the large ones' gradients.
static void NAME(shrink)(const struct resize_work *call, REAL *room, int64_t begin, int64_t end) {
  const struct resize_axis *az = &call->axis[0], *ay = &call->axis[1], *ax = &call->axis[2];
  const int64_t small = az->in * ay->in * ax->in * call->inner, width = ax->in * call->inner;
  const int64_t rows_out = az->out * ay->out, length = ax->out * call->inner;
  for (int64_t plane = begin; plane < end; plane++) {
    REAL *image = (REAL *)call->to + plane * small;
    memset(image, 0, (size_t)small * sizeof(REAL));
    for (int64_t row = 0; row < rows_out; row++) {
      const REAL *rows[MOST_TAPS] = {NULL}, *grad = (const REAL *)call->from + (plane * rows_out + row) * length;
      double weights[MOST_TAPS] = {0};
      const int count = NAME(find_rows)(call, image, row / ay->out, row % ay->out, rows, weights);
      if (count == 1) {
        NAME(gather_row)(call, image + (rows[0] - image), grad);
        continue;
      }
      memset(room, 0, (size_t)width * sizeof(REAL));
      NAME(gather_row)(call, room, grad);
      for (int k = 0; k < count; k++) {
        NAME(add_row)(image + (rows[k] - image), room, (REAL)weights[k], width);
      }
    }
  }
}
