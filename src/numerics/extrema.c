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

#define PAIR_LOOP(type)                                                    \
  do {                                                                     \
    const type *p = a, *q = b;                                             \
    type low_a = p[0], high_a = p[0], low_b = q[0], high_b = q[0];         \
    double rel = out->rel, floor = out->rel_floor, rel_sym = out->rel_sym; \
    int64_t unequal = 0, over = 0, beaten = 0;                             \
    for (int64_t i = 0; i < count; i++) {                                  \
      low_a = p[i] < low_a ? p[i] : low_a;                                 \
      high_a = p[i] > high_a ? p[i] : high_a;                              \
      low_b = q[i] < low_b ? q[i] : low_b;                                 \
      high_b = q[i] > high_b ? q[i] : high_b;                              \
      double x = p[i], y = q[i];                                           \
      double diff = fabs(x - y), size_a = fabs(x), size_b = fabs(y);       \
      double larger = size_a > size_b ? size_a : size_b;                   \
      unequal += x != y;                                                   \
      over += diff > atol + rtol * size_b;                                 \
      beaten |= (diff > rel * size_b + floor) | (diff > rel_sym * larger); \
    }                                                                      \
    out->min_a = low_a < out->min_a ? low_a : out->min_a;                  \
    out->max_a = high_a > out->max_a ? high_a : out->max_a;                \
    out->min_b = low_b < out->min_b ? low_b : out->min_b;                  \
    out->max_b = high_b > out->max_b ? high_b : out->max_b;                \
    out->unequal += unequal;                                               \
    out->over += over;                                                     \
    out->beaten = beaten != 0;                                             \
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
  float relative = lower(rtol), absolute = lower(atol);
  float rel = lower(out->rel), floor = lower(out->rel_floor), rel_sym = lower(out->rel_sym);
  int32_t over = 0, beaten = 0;
  for (int64_t i = 0; i < count; i++) {
    float diff = fabsf(a[i] - b[i]), size_a = fabsf(a[i]), size_b = fabsf(b[i]);
    float larger = size_a > size_b ? size_a : size_b;
    float most = rel * size_b + floor, most_sym = rel_sym * larger;
    over |= diff > absolute + relative * size_b;
    beaten |= diff > (most < most_sym ? most : most_sym);
  }
  // Near the end of float's range differences and products overflow and compare as equal: look again there.
  double low = out->min_a < out->min_b ? out->min_a : out->min_b;
  double high = out->max_a > out->max_b ? out->max_a : out->max_b;
  bool end = high > FLT_MAX / 8 || low < -FLT_MAX / 8;
  out->over = over != 0 || end;
  out->beaten = beaten != 0 || end;
}
NUMERIC_MULTI(extern, pair_screen,
              (const float *a, const float *b, int64_t count, double rtol, double atol, struct pair_extrema *out),
              (a, b, count, rtol, atol, out))

/// Divisions are slow: blocks that multiplication says cannot raise either one go without.
#define RELATIVE_BLOCK 64

#define RELATIVE_LOOP(type)                                                    \
  do {                                                                         \
    const type *p = (const type *)a + begin, *q = (const type *)b + begin;     \
    double bound = best * (1 - 0x1p-40), bound_sym = best_sym * (1 - 0x1p-40); \
    double floor = zero ? DBL_MAX : 0;                                         \
    int64_t beaten = 0;                                                        \
    for (int64_t i = 0; i < part; i++) {                                       \
      double x = p[i], y = q[i];                                               \
      double diff = fabs(x - y), size_a = fabs(x), size_b = fabs(y);           \
      double larger = size_a > size_b ? size_a : size_b;                       \
      beaten |= (diff > bound * size_b + floor) | (diff > bound_sym * larger); \
    }                                                                          \
    for (int64_t i = 0; i < part && beaten; i++) {                             \
      double x = p[i], y = q[i];                                               \
      double diff = fabs(x - y), size_a = fabs(x), size_b = fabs(y);           \
      double larger = size_a > size_b ? size_a : size_b;                       \
      double ratio = diff / (size_b > 0 ? size_b : 1);                         \
      double ratio_sym = diff / (larger > 0 ? larger : 1);                     \
      zero |= (size_b == 0) & (diff > 0);                                      \
      ratio = size_b > 0 ? ratio : 0;                                          \
      best = ratio > best ? ratio : best;                                      \
      best_sym = ratio_sym > best_sym ? ratio_sym : best_sym;                  \
    }                                                                          \
  } while (0)

NUMERIC_INLINE void pair_relative_body(const void *a, const void *b, int64_t count, bool wide, double *rel,
                                       double *rel_sym, bool *endless) {
  double best = *rel, best_sym = *rel_sym;
  int64_t zero = *endless;
  for (int64_t begin = 0; begin < count; begin += RELATIVE_BLOCK) {
    int64_t part = count - begin < RELATIVE_BLOCK ? count - begin : RELATIVE_BLOCK;
    if (wide) {
      RELATIVE_LOOP(double);
    } else {
      RELATIVE_LOOP(float);
    }
  }
  *endless = zero != 0;
  *rel = best;
  *rel_sym = best_sym;
}
NUMERIC_MULTI(extern, pair_relative,
              (const void *a, const void *b, int64_t count, bool wide, double *rel, double *rel_sym, bool *endless),
              (a, b, count, wide, rel, rel_sym, endless))
