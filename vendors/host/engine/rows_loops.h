/// The loops of rows.h for one type; the including file defines REAL, NAME(x) and BODY(x).

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

#undef SUM_OVER_BLOCK
#undef OVER_BLOCKS
