/// Sums in fixed lanes (see kernels.h), written with vector types so that the order does not depend on the compiler.
#include <string.h>

#include "numerics/kernels.h"
#include "numerics/simd.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define HALF (SUM_LANES / 2)
typedef double vector8d __attribute__((vector_size(HALF * sizeof(double))));
typedef int64_t vector8i __attribute__((vector_size(HALF * sizeof(int64_t))));

/// SUM_LANES numbers as two vectors of doubles.
NUMERIC_INLINE void load_lanes(const void *values, int64_t index, bool wide, vector8d *low, vector8d *high) {
  if (wide) {
    memcpy(low, (const double *)values + index, sizeof(*low));
    memcpy(high, (const double *)values + index + HALF, sizeof(*high));
    return;
  }
  double room[SUM_LANES];
  const float *narrow = (const float *)values + index;
  for (int lane = 0; lane < SUM_LANES; lane++) {
    room[lane] = narrow[lane];
  }
  memcpy(low, room, sizeof(*low));
  memcpy(high, room + HALF, sizeof(*high));
}

/// The last `count` < SUM_LANES numbers, filled up with `fill`.
NUMERIC_INLINE void load_rest(const void *values, int64_t index, int64_t count, bool wide, double fill, vector8d *low,
                              vector8d *high) {
  double room[SUM_LANES];
  for (int lane = 0; lane < SUM_LANES; lane++) {
    room[lane] = fill;
  }
  for (int64_t lane = 0; lane < count; lane++) {
    room[lane] = wide ? ((const double *)values)[index + lane] : (double)((const float *)values)[index + lane];
  }
  load_lanes(room, 0, true, low, high);
}

NUMERIC_INLINE double fold_lanes(const vector8d *low, const vector8d *high) {
  double lanes[HALF];
  vector8d both = *low + *high;
  memcpy(lanes, &both, sizeof(lanes));
  for (int width = HALF / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; lane++) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

NUMERIC_INLINE void single_sum_typed(const void *values, int64_t count, bool wide, double shift,
                                     struct single_sums *out) {
  vector8d sum[2] = {{0}, {0}}, square[2] = {{0}, {0}}, x[2];
  int64_t i = 0;
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    load_lanes(values, i, wide, &x[0], &x[1]);
    x[0] -= shift;
    x[1] -= shift;
    sum[0] += x[0];
    sum[1] += x[1];
    square[0] += x[0] * x[0];
    square[1] += x[1] * x[1];
  }
  if (i < count) {
    load_rest(values, i, count - i, wide, shift, &x[0], &x[1]);
    x[0] -= shift;
    x[1] -= shift;
    sum[0] += x[0];
    sum[1] += x[1];
    square[0] += x[0] * x[0];
    square[1] += x[1] * x[1];
  }
  out->sum = fold_lanes(&sum[0], &sum[1]);
  out->square = fold_lanes(&square[0], &square[1]);
}

NUMERIC_INLINE void single_sum_body(const void *values, int64_t count, bool wide, double shift,
                                    struct single_sums *out) {
  if (wide) {
    single_sum_typed(values, count, true, shift, out);
  } else {
    single_sum_typed(values, count, false, shift, out);
  }
}
NUMERIC_MULTI(extern, single_sum, (const void *values, int64_t count, bool wide, double shift, struct single_sums *out),
              (values, count, wide, shift, out))

struct pair_lanes {
  vector8d dot, square_a, square_b, abs_diff;
};

NUMERIC_INLINE void add_pair(struct pair_lanes *lanes, const vector8d *a, const vector8d *b) {
  vector8d diff = *a - *b;
  lanes->dot += *a * *b;
  lanes->square_a += *a * *a;
  lanes->square_b += *b * *b;
  lanes->abs_diff += (vector8d)((vector8i)diff & INT64_MAX);
}

NUMERIC_INLINE void pair_sum_typed(const void *a, const void *b, int64_t count, bool wide, struct pair_sums *out) {
  struct pair_lanes low, high;
  memset(&low, 0, sizeof(low));
  memset(&high, 0, sizeof(high));
  vector8d x[2], y[2];
  int64_t i = 0;
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    load_lanes(a, i, wide, &x[0], &x[1]);
    load_lanes(b, i, wide, &y[0], &y[1]);
    add_pair(&low, &x[0], &y[0]);
    add_pair(&high, &x[1], &y[1]);
  }
  if (i < count) {
    load_rest(a, i, count - i, wide, 0.0, &x[0], &x[1]);
    load_rest(b, i, count - i, wide, 0.0, &y[0], &y[1]);
    add_pair(&low, &x[0], &y[0]);
    add_pair(&high, &x[1], &y[1]);
  }
  out->dot = fold_lanes(&low.dot, &high.dot);
  out->square_a = fold_lanes(&low.square_a, &high.square_a);
  out->square_b = fold_lanes(&low.square_b, &high.square_b);
  out->abs_diff = fold_lanes(&low.abs_diff, &high.abs_diff);
}

NUMERIC_INLINE void pair_sum_body(const void *a, const void *b, int64_t count, bool wide, struct pair_sums *out) {
  if (wide) {
    pair_sum_typed(a, b, count, true, out);
  } else {
    pair_sum_typed(a, b, count, false, out);
  }
}
NUMERIC_MULTI(extern, pair_sum, (const void *a, const void *b, int64_t count, bool wide, struct pair_sums *out),
              (a, b, count, wide, out))
