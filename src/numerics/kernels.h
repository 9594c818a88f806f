/// The inner loops over packed chunks: sums (sums.c) and extrema (extrema.c).
///
/// Sums are kept in SUM_LANES lanes, element i in lane i mod SUM_LANES, and folded as a tree: the order is fixed. A NaN
/// or an infinity in the input makes the sums NaN or infinite, which is how callers notice them. Extrema and counts do
/// not depend on any order; their functions take finite numbers only. In both, `wide` says double instead of float.
#ifndef DIT_NUMERICS_KERNELS_H
#define DIT_NUMERICS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#define SUM_LANES 16

/// Sums of (x - shift) and of its square. With `shift` a member of the chunk, the variance and the norm that follow
/// lose at most a factor of `count` to cancellation.
struct single_sums {
  double sum;
  double square;
};
void single_sum(const void *values, int64_t count, bool wide, double shift, struct single_sums *out);

struct pair_sums {
  double dot;
  double square_a;
  double square_b;
  double abs_diff;
};
void pair_sum(const void *a, const void *b, int64_t count, bool wide, struct pair_sums *out);

/// Takes part: the caller sets min, max and zero first.
struct extrema {
  double min;
  double max;
  int64_t zero;
};
void single_extrema(const void *values, int64_t count, bool wide, struct extrema *out);

/// min_* and max_* and max_diff take part, counts are added; rel and rel_sym are bounds: `beaten` is set when some
/// |a - b| is above rel * |b| + rel_floor or above rel_sym * max(|a|, |b|).
struct pair_extrema {
  double min_a, max_a, min_b, max_b;
  double max_diff;
  int64_t unequal;
  int64_t over;
  double rel, rel_floor, rel_sym;
  bool beaten;
};
void pair_extremum(const void *a, const void *b, int64_t count, bool wide, double rtol, double atol,
                   struct pair_extrema *out);

/// The same over floats without leaving float: min_*, max_* and unequal are exact; max_diff is rounded to float; `over`
/// is 0 when certainly none is over the tolerance, else 1; `beaten` is false when certainly neither bound is beaten.
/// The tolerances and bounds are lowered by more than float's rounding, so nothing is missed.
void pair_screen(const float *a, const float *b, int64_t count, double rtol, double atol, struct pair_extrema *out);
/// The exact largest |a - b|.
void pair_max_diff(const float *a, const float *b, int64_t count, double *max_diff);

/// Raise rel and rel_sym to the largest |a - b| / |b| and |a - b| / max(|a|, |b|); `endless` is set when b is 0 and a
/// is not.
void pair_relative(const void *a, const void *b, int64_t count, bool wide, double *rel, double *rel_sym, bool *endless);

#endif
