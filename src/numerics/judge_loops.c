/// The inner loops of the auto verdict (see judge_loops.h), with vector types: a maximum of numbers that may be NaN is
/// nothing the vectoriser takes by itself. A comparison with NaN is false, so a NaN never becomes a maximum.
#include "numerics/judge_loops.h"

#include <float.h>
#include <string.h>

#include "numerics/simd.h"

typedef double vector __attribute__((vector_size(8 * JUDGE_WIDTH)));
typedef int64_t mask __attribute__((vector_size(8 * JUDGE_WIDTH)));

#define LOAD(to, from) memcpy(&(to), (from), sizeof(to))
#define ABSOLUTE(x) ((vector)((mask)(x) & INT64_MAX))
#define CHOOSE(where, a, b) ((vector)(((mask)(a) & (where)) | ((mask)(b) & ~(where))))
#define RAISE(most, x) ((most) = CHOOSE((x) > (most), x, most))
#define LOWER(x, y) CHOOSE((x) < (y), x, y)
#define HIGHER(x, y) CHOOSE((x) > (y), x, y)
#define FILL(value) ((vector){0} + (value))

#define FOLD_MAX(out, lanes)                                                                                   \
  do {                                                                                                         \
    for (int lane_ = 0; lane_ < JUDGE_WIDTH; lane_++) (out) = (lanes)[lane_] > (out) ? (lanes)[lane_] : (out); \
  } while (0)
/// Lanes count down by one for each hit: a true comparison is -1.
#define FOLD_COUNT(out, lanes)                                                 \
  do {                                                                         \
    for (int lane_ = 0; lane_ < JUDGE_WIDTH; lane_++) (out) -= (lanes)[lane_]; \
  } while (0)
#define FOLD_ANY(out, lanes)                                                           \
  do {                                                                                 \
    for (int lane_ = 0; lane_ < JUDGE_WIDTH; lane_++) (out) = (out) || (lanes)[lane_]; \
  } while (0)

NUMERIC_INLINE void judge_loop_compare_body(const double *x, const double *r, int64_t count,
                                            const struct dit_judge_rule *rule, struct judge_found *found) {
  vector relative = FILL(rule->relative), absolute = FILL(rule->absolute), floor = FILL(rule->floor);
  vector cap = FILL(rule->cap), cap_relative = FILL(rule->cap_relative), largest = FILL(DBL_MAX);
  vector margin = FILL(found->margin);
  mask wrong = {0}, unequal = {0}, bad = {0};
  for (int64_t i = 0; i < count; i += JUDGE_WIDTH) {
    vector a, b;
    LOAD(a, x + i);
    LOAD(b, r + i);
    vector size = ABSOLUTE(b), error = ABSOLUTE(a - b);
    vector line = relative * size + absolute, most = cap_relative * size;
    most = HIGHER(cap, most);
    most = LOWER(line, most) + floor;
    vector ratio = error / most;
    wrong += error > most;
    unequal += error != 0;
    bad |= ~(error <= largest) | ~(size <= largest);
    RAISE(margin, ratio);
  }
  FOLD_MAX(found->margin, margin);
  FOLD_COUNT(found->wrong, wrong);
  FOLD_COUNT(found->unequal, unequal);
  FOLD_ANY(found->bad, bad);
}
NUMERIC_MULTI(extern, judge_loop_compare,
              (const double *x, const double *r, int64_t count, const struct dit_judge_rule *rule,
               struct judge_found *found),
              (x, r, count, rule, found))

NUMERIC_INLINE void judge_loop_measure_body(const double *x, const double *r, int64_t count, double relative,
                                            double floor, struct judge_measured *found) {
  vector factor = FILL(relative), least = FILL(floor), top = FILL(DBL_MAX);
  vector largest = FILL(found->largest), ratio = FILL(found->ratio), residual = FILL(found->residual);
  vector scale = FILL(found->scale);
  mask unequal = {0}, bad = {0};
  for (int64_t i = 0; i < count; i += JUDGE_WIDTH) {
    vector a, b;
    LOAD(a, x + i);
    LOAD(b, r + i);
    vector size = ABSOLUTE(b), error = ABSOLUTE(a - b);
    vector rest = error - factor * size - least;
    vector quotient = (vector)((mask)(error / size) & (error > least));
    unequal += error != 0;
    bad |= ~(error <= top) | ~(size <= top);
    RAISE(largest, error);
    RAISE(ratio, quotient);
    RAISE(residual, rest);
    RAISE(scale, size);
  }
  FOLD_MAX(found->largest, largest);
  FOLD_MAX(found->ratio, ratio);
  FOLD_MAX(found->residual, residual);
  FOLD_MAX(found->scale, scale);
  FOLD_COUNT(found->unequal, unequal);
  FOLD_ANY(found->bad, bad);
}
NUMERIC_MULTI(extern, judge_loop_measure,
              (const double *x, const double *r, int64_t count, double relative, double floor,
               struct judge_measured *found),
              (x, r, count, relative, floor, found))

NUMERIC_INLINE void judge_loop_relate_body(const double *a, const double *b, int64_t count, double offset,
                                           struct judge_related *found) {
  vector least = FILL(offset), top = FILL(DBL_MAX);
  vector difference = FILL(found->difference), relative = FILL(found->relative);
  mask bad = {0};
  for (int64_t i = 0; i < count; i += JUDGE_WIDTH) {
    vector p, q;
    LOAD(p, a + i);
    LOAD(q, b + i);
    vector size = ABSOLUTE(p), error = ABSOLUTE(p - q);
    vector quotient = error / (size + least);
    bad |= ~(error <= top) | ~(size <= top);
    RAISE(difference, error);
    RAISE(relative, quotient);
  }
  FOLD_MAX(found->difference, difference);
  FOLD_MAX(found->relative, relative);
  FOLD_ANY(found->bad, bad);
}
NUMERIC_MULTI(extern, judge_loop_relate,
              (const double *a, const double *b, int64_t count, double offset, struct judge_related *found),
              (a, b, count, offset, found))
