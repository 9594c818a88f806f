/// The loops of rows.h for one type; the including file defines REAL, REAL_DTYPE, NAME(x), BODY(x), and HAS_BFLOAT(x),
/// which is x where bfloat16 has loops of its own, else false.

/// One block: REDUCE(lanes...) over at most ROW_BLOCK elements with ROW_LANES running sums.
#define SUM_OVER_BLOCK(result, EXPRESSION)                      \
  do {                                                          \
    REAL lanes_[ROW_LANES] = {0};                               \
    int64_t i_ = 0;                                             \
    for (; i_ + ROW_LANES <= count; i_ += ROW_LANES) {          \
      for (int j_ = 0; j_ < ROW_LANES; j_++) {                  \
        const int64_t k = i_ + j_;                              \
        lanes_[j_] += EXPRESSION;                               \
      }                                                         \
    }                                                           \
    for (int j_ = 0; i_ < count; i_++, j_++) {                  \
      const int64_t k = i_;                                     \
      lanes_[j_] += EXPRESSION;                                 \
    }                                                           \
    for (int width_ = ROW_LANES / 2; width_ > 0; width_ /= 2) { \
      for (int j_ = 0; j_ < width_; j_++) {                     \
        lanes_[j_] += lanes_[j_ + width_];                      \
      }                                                         \
    }                                                           \
    result += (double)lanes_[0];                                \
  } while (0)

KERNEL_INLINE void BODY(block_sum)(const REAL *p, int64_t count, double *sum) {
  SUM_OVER_BLOCK(*sum, p[k]);
}
KERNEL_MULTI(static, NAME(block_sum), (const REAL *p, int64_t count, double *sum), (p, count, sum))

KERNEL_INLINE void BODY(block_squares)(const REAL *p, int64_t count, REAL center, double *sum) {
  SUM_OVER_BLOCK(*sum, (p[k] - center) * (p[k] - center));
}
KERNEL_MULTI(static, NAME(block_squares), (const REAL *p, int64_t count, REAL center, double *sum),
             (p, count, center, sum))

KERNEL_INLINE void BODY(block_dot)(const REAL *a, const REAL *b, int64_t count, REAL center, double *sum) {
  SUM_OVER_BLOCK(*sum, a[k] * (b[k] - center));
}
KERNEL_MULTI(static, NAME(block_dot), (const REAL *a, const REAL *b, int64_t count, REAL center, double *sum),
             (a, b, count, center, sum))

#define OVER_BLOCKS(CALL)                                        \
  for (int64_t at = 0; at < count; at += ROW_BLOCK) {            \
    int64_t n = count - at < ROW_BLOCK ? count - at : ROW_BLOCK; \
    CALL;                                                        \
  }

double NAME(row_sum)(const REAL *p, int64_t count) {
  double sum = 0;
  OVER_BLOCKS(NAME(block_sum)(p + at, n, &sum))
  return sum;
}

double NAME(row_sum_squares)(const REAL *p, int64_t count, REAL center) {
  double sum = 0;
  OVER_BLOCKS(NAME(block_squares)(p + at, n, center, &sum))
  return sum;
}

double NAME(row_dot)(const REAL *a, const REAL *b, int64_t count) {
  double sum = 0;
  OVER_BLOCKS(NAME(block_dot)(a + at, b + at, n, 0, &sum))
  return sum;
}

void NAME(row_dot_centered)(const REAL *a, const REAL *b, int64_t count, REAL center, double *sum, double *dot) {
  *sum = *dot = 0;
  OVER_BLOCKS(NAME(block_sum)(a + at, n, sum); NAME(block_dot)(a + at, b + at, n, center, dot))
}

KERNEL_INLINE void BODY(row_affine)(REAL *out, const REAL *p, int64_t count, REAL scale, REAL shift) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = p[i] * scale + shift;
  }
}
KERNEL_MULTI(, NAME(row_affine), (REAL * out, const REAL *p, int64_t count, REAL scale, REAL shift),
             (out, p, count, scale, shift))

KERNEL_INLINE void BODY(row_centered)(REAL *out, const REAL *p, int64_t count, REAL center, REAL scale, REAL shift) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = (p[i] - center) * scale + shift;
  }
}
KERNEL_MULTI(, NAME(row_centered), (REAL * out, const REAL *p, int64_t count, REAL center, REAL scale, REAL shift),
             (out, p, count, center, scale, shift))

KERNEL_INLINE void BODY(row_combine)(REAL *out, const REAL *x, const REAL *y, int64_t count, REAL a, REAL b, REAL c) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = a * x[i] + (b * y[i] + c);
  }
}
KERNEL_MULTI(, NAME(row_combine), (REAL * out, const REAL *x, const REAL *y, int64_t count, REAL a, REAL b, REAL c),
             (out, x, y, count, a, b, c))

KERNEL_INLINE void BODY(row_affine_weighted)(REAL *out, const REAL *p, const REAL *weight, const REAL *bias,
                                             int64_t count, REAL scale, REAL center) {
  if (weight && bias) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (p[i] - center) * scale * weight[i] + bias[i];
    }
  } else if (weight) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (p[i] - center) * scale * weight[i];
    }
  } else if (bias) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (p[i] - center) * scale + bias[i];
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = (p[i] - center) * scale;
    }
  }
}
KERNEL_MULTI(, NAME(row_affine_weighted),
             (REAL * out, const REAL *p, const REAL *weight, const REAL *bias, int64_t count, REAL scale, REAL center),
             (out, p, weight, bias, count, scale, center))

KERNEL_INLINE void BODY(row_add)(REAL *total, const REAL *p, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    total[i] += p[i];
  }
}
KERNEL_MULTI(, NAME(row_add), (REAL * total, const REAL *p, int64_t count), (total, p, count))

const REAL *NAME(data_fetch)(const struct row_data *p, int64_t at, int64_t count, REAL *room) {
  if (p->dtype == REAL_DTYPE) {
    return (const REAL *)p->data + at;
  }
  cast_block(REAL_DTYPE, room, p->dtype, (const char *)p->data + at * (int64_t)dit_dtype_get_size(p->dtype), count);
  return room;
}

REAL *NAME(data_get)(const struct row_data *p, int64_t at, REAL *room) {
  return p->dtype == REAL_DTYPE ? (REAL *)p->data + at : room;
}

void NAME(data_put)(const struct row_data *p, int64_t at, int64_t count, const REAL *from) {
  if (p->dtype != REAL_DTYPE) {
    cast_block(p->dtype, (char *)p->data + at * (int64_t)dit_dtype_get_size(p->dtype), REAL_DTYPE, from, count);
  }
}

/// What is not in the loop's type goes in blocks that stay in the first-level cache; everything else as above.
#define OVER_DATA(CALL)                                            \
  for (int64_t end = at + count; at < end; at += ROW_BLOCK) {      \
    const int64_t n = end - at < ROW_BLOCK ? end - at : ROW_BLOCK; \
    CALL;                                                          \
  }

double NAME(data_sum)(const struct row_data *p, int64_t at, int64_t count) {
  REAL room[ROW_BLOCK];
  double sum = 0;
  OVER_DATA(NAME(block_sum)(NAME(data_fetch)(p, at, n, room), n, &sum))
  return sum;
}

static void NAME(block_moments)(const REAL *x, int64_t count, double *mean, double *squares) {
  double sum = 0;
  NAME(block_sum)(x, count, &sum);
  *mean = sum / (double)count;
  const REAL center = (REAL)*mean;
  const double lost = *mean - (double)center;
  *squares = -lost * lost * (double)count;
  NAME(block_squares)(x, count, center, squares);
}

/// Moments of a block about its own mean join those of the blocks before it: nothing is lost where the mean is large.
void NAME(data_moments)(const struct row_data *p, int64_t at, int64_t count, double *mean, double *squares) {
  REAL room[ROW_BLOCK];
  double total = 0;
  *mean = *squares = 0;
  for (const int64_t end = at + count; at < end; at += ROW_BLOCK) {
    const int64_t n = end - at < ROW_BLOCK ? end - at : ROW_BLOCK;
    double middle, own;
    if (!HAS_BFLOAT(guess_moments(p, at, n, total > 0 ? (float)*mean : make_guess(p, at, n), &middle, &own))) {
      NAME(block_moments)(NAME(data_fetch)(p, at, n, room), n, &middle, &own);
    }
    const double apart = middle - *mean, all = total + (double)n;
    *squares += (own > 0 || own != own ? own : 0) + (total > 0 ? apart * apart * total * (double)n / all : 0);
    *mean = total > 0 ? *mean + apart * (double)n / all : middle;
    total = all;
  }
}

double NAME(data_sum_squares)(const struct row_data *p, int64_t at, int64_t count, REAL center) {
  REAL room[ROW_BLOCK];
  double sum = 0;
  OVER_DATA(NAME(block_squares)(NAME(data_fetch)(p, at, n, room), n, center, &sum))
  return sum;
}

void NAME(data_dot_centered)(const struct row_data *a, const struct row_data *b, int64_t at, int64_t count, REAL center,
                             double *sum, double *dot) {
  REAL rooms[2][ROW_BLOCK];
  *sum = *dot = 0;
  OVER_DATA(const REAL *x = NAME(data_fetch)(a, at, n, rooms[0]); NAME(block_sum)(x, n, sum);
            NAME(block_dot)(x, NAME(data_fetch)(b, at, n, rooms[1]), n, center, dot))
}

void NAME(data_centered)(const struct row_data *out, const struct row_data *p, int64_t at, int64_t count, REAL center,
                         REAL scale, REAL shift) {
  REAL room[ROW_BLOCK];
  if (HAS_BFLOAT(is_bfloat(out, p))) {
    centered_bf16(get_bfloat(out, at), get_bfloat(p, at), count, (float)center, (float)scale, (float)shift);
    return;
  }
  OVER_DATA(REAL *to = NAME(data_get)(out, at, room);
            NAME(row_centered)(to, NAME(data_fetch)(p, at, n, room), n, center, scale, shift);
            NAME(data_put)(out, at, n, to))
}

void NAME(data_combine)(const struct row_data *out, const struct row_data *x, const struct row_data *y, int64_t at,
                        int64_t count, REAL a, REAL b, REAL c) {
  REAL rooms[2][ROW_BLOCK];
  OVER_DATA(REAL *to = NAME(data_get)(out, at, rooms[0]); NAME(row_combine)(
                to, NAME(data_fetch)(x, at, n, rooms[0]), NAME(data_fetch)(y, at, n, rooms[1]), n, a, b, c);
            NAME(data_put)(out, at, n, to))
}

void NAME(data_affine_weighted)(const struct row_data *out, const struct row_data *p, int64_t at, const REAL *weight,
                                const REAL *bias, int64_t count, REAL scale, REAL center) {
  REAL room[ROW_BLOCK];
  const int64_t first = at;
  if (HAS_BFLOAT(is_bfloat(out, p))) {
    weighted_bf16(get_bfloat(out, at), get_bfloat(p, at), (const float *)(const void *)weight,
                  (const float *)(const void *)bias, count, (float)scale, (float)center);
    return;
  }
  OVER_DATA(REAL *to = NAME(data_get)(out, at, room);
            NAME(row_affine_weighted)(to, NAME(data_fetch)(p, at, n, room), weight ? weight + (at - first) : NULL,
                                      bias ? bias + (at - first) : NULL, n, scale, center);
            NAME(data_put)(out, at, n, to))
}

#undef SUM_OVER_BLOCK
#undef OVER_BLOCKS
#undef OVER_DATA
