/// Extrema and counts (see kernels.h): plain loops for the vectoriser.
///
/// Compiled as if NaN, infinities and the sign of zero did not exist (src/CMakeLists.txt): nothing in this file may see
/// or make one. Nothing here is summed in floating point, so the order that the compiler chooses changes no bit.
#include <float.h>
#include <math.h>

#include "numerics/kernels.h"
#include "numerics/simd.h"

#define SINGLE_LOOP(type)                         \
  do {                                            \
    const type *x = values;                       \
    type low = x[0], high = x[0];                 \
    int32_t zero = 0;                             \
    for (int64_t i = 0; i < count; i++) {         \
      low = x[i] < low ? x[i] : low;              \
      high = x[i] > high ? x[i] : high;           \
      zero += x[i] == 0;                          \
    }                                             \
    out->min = low < out->min ? low : out->min;   \
    out->max = high > out->max ? high : out->max; \
    out->zero += zero;                            \
  } while (0)

NUMERIC_INLINE void single_extrema_body(const void *values, int64_t count, bool wide, struct extrema *out) {
  if (wide) {
    SINGLE_LOOP(double);
  } else {
    SINGLE_LOOP(float);
  }
}
NUMERIC_MULTI(extern, single_extrema, (const void *values, int64_t count, bool wide, struct extrema *out),
              (values, count, wide, out))

#define PAIR_LOOP(type)                                                                 \
  do {                                                                                  \
    const type *p = a, *q = b;                                                          \
    type low_a = p[0], high_a = p[0], low_b = q[0], high_b = q[0];                      \
    double largest = 0, rel = out->rel, floor = out->rel_floor, rel_sym = out->rel_sym; \
    int64_t unequal = 0, over = 0, beaten = 0;                                          \
    for (int64_t i = 0; i < count; i++) {                                               \
      low_a = p[i] < low_a ? p[i] : low_a;                                              \
      high_a = p[i] > high_a ? p[i] : high_a;                                           \
      low_b = q[i] < low_b ? q[i] : low_b;                                              \
      high_b = q[i] > high_b ? q[i] : high_b;                                           \
      double x = p[i], y = q[i];                                                        \
      double diff = fabs(x - y), size_a = fabs(x), size_b = fabs(y);                    \
      double larger = size_a > size_b ? size_a : size_b;                                \
      largest = diff > largest ? diff : largest;                                        \
      unequal += x != y;                                                                \
      over += diff > atol + rtol * size_b;                                              \
      beaten |= (diff > rel * size_b + floor) | (diff > rel_sym * larger);              \
    }                                                                                   \
    out->min_a = low_a < out->min_a ? low_a : out->min_a;                               \
    out->max_a = high_a > out->max_a ? high_a : out->max_a;                             \
    out->min_b = low_b < out->min_b ? low_b : out->min_b;                               \
    out->max_b = high_b > out->max_b ? high_b : out->max_b;                             \
    out->max_diff = largest > out->max_diff ? largest : out->max_diff;                  \
    out->unequal += unequal;                                                            \
    out->over += over;                                                                  \
    out->beaten = beaten != 0;                                                          \
  } while (0)

NUMERIC_INLINE void pair_extremum_body(const void *a, const void *b, int64_t count, bool wide, double rtol, double atol,
                                       struct pair_extrema *out) {
  if (wide) {
    PAIR_LOOP(double);
  } else {
    PAIR_LOOP(float);
  }
}
NUMERIC_MULTI(extern, pair_extremum,
              (const void *a, const void *b, int64_t count, bool wide, double rtol, double atol,
               struct pair_extrema *out),
              (a, b, count, wide, rtol, atol, out))

/// A bound as float, lowered by more than the rounding of what is compared with it.
NUMERIC_INLINE float lower(double bound) {
  bound *= 1 - 0x1p-20;
  return bound < FLT_MAX ? (float)bound : FLT_MAX;
}

NUMERIC_INLINE void pair_screen_body(const float *a, const float *b, int64_t count, double rtol, double atol,
                                     struct pair_extrema *out) {
  float low_a = a[0], high_a = a[0], low_b = b[0], high_b = b[0], largest = 0;
  float relative = lower(rtol), absolute = lower(atol);
  float rel = lower(out->rel), floor = lower(out->rel_floor), rel_sym = lower(out->rel_sym);
  int32_t unequal = 0, over = 0, beaten = 0;
  for (int64_t i = 0; i < count; i++) {
    float x = a[i], y = b[i];
    float diff = fabsf(x - y), size_a = fabsf(x), size_b = fabsf(y), larger = size_a > size_b ? size_a : size_b;
    low_a = x < low_a ? x : low_a;
    high_a = x > high_a ? x : high_a;
    low_b = y < low_b ? y : low_b;
    high_b = y > high_b ? y : high_b;
    largest = diff > largest ? diff : largest;
    unequal += x != y;
    over |= diff > absolute + relative * size_b;
    beaten |= (diff > rel * size_b + floor) | (diff > rel_sym * larger);
  }
  out->min_a = low_a;
  out->max_a = high_a;
  out->min_b = low_b;
  out->max_b = high_b;
  out->unequal = unequal;
  // Near the end of float's range products overflow and compare as equal: look again there.
  bool end = largest > FLT_MAX / 4;
  out->over = over != 0 || end;
  out->beaten = beaten != 0 || end;
  out->max_diff = largest;
}
NUMERIC_MULTI(extern, pair_screen,
              (const float *a, const float *b, int64_t count, double rtol, double atol, struct pair_extrema *out),
              (a, b, count, rtol, atol, out))

NUMERIC_INLINE void pair_max_diff_body(const float *a, const float *b, int64_t count, double *max_diff) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double diff = fabs((double)a[i] - (double)b[i]);
    largest = diff > largest ? diff : largest;
  }
  *max_diff = largest;
}
NUMERIC_MULTI(extern, pair_max_diff, (const float *a, const float *b, int64_t count, double *max_diff),
              (a, b, count, max_diff))

#define RELATIVE_LOOP(type)                                          \
  do {                                                               \
    const type *p = a, *q = b;                                       \
    for (int64_t i = 0; i < count; i++) {                            \
      double x = p[i], y = q[i];                                     \
      double diff = fabs(x - y), size_a = fabs(x), size_b = fabs(y); \
      double larger = size_a > size_b ? size_a : size_b;             \
      double ratio = diff / (size_b > 0 ? size_b : 1);               \
      double ratio_sym = diff / (larger > 0 ? larger : 1);           \
      zero |= (size_b == 0) & (diff > 0);                            \
      ratio = size_b > 0 ? ratio : 0;                                \
      best = ratio > best ? ratio : best;                            \
      best_sym = ratio_sym > best_sym ? ratio_sym : best_sym;        \
    }                                                                \
  } while (0)

NUMERIC_INLINE void pair_relative_body(const void *a, const void *b, int64_t count, bool wide, double *rel,
                                       double *rel_sym, bool *endless) {
  double best = 0, best_sym = *rel_sym;
  int64_t zero = 0;
  if (wide) {
    RELATIVE_LOOP(double);
  } else {
    RELATIVE_LOOP(float);
  }
  *endless = zero != 0;
  *rel = best > *rel ? best : *rel;
  *rel_sym = best_sym;
}
NUMERIC_MULTI(extern, pair_relative,
              (const void *a, const void *b, int64_t count, bool wide, double *rel, double *rel_sym, bool *endless),
              (a, b, count, wide, rel, rel_sym, endless))
