/// The inner loops over packed chunks: sums (sums.c, products.c) and extrema (extrema.c, keys.c).
///
/// Sums are kept in SUM_LANES lanes, element i in lane i mod SUM_LANES, and folded as a tree: the order is fixed. A NaN
/// or an infinity in the input makes the sums NaN or infinite, which is how callers notice them. Extrema and counts do
/// not depend on any order; their functions take finite numbers only. In both, `wide` says double instead of float.
#ifndef DIT_NUMERICS_KERNELS_H
#define DIT_NUMERICS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "numerics/stage.h"

#define SUM_LANES 16

/// Sums of (x - shift) and of its square. With `shift` a member of the chunk, the variance and the norm that follow
/// lose at most a factor of `count` to cancellation.
struct single_sums {
  double sum;
  double square;
};
void single_sum(const void *values, int64_t count, bool wide, double shift, struct single_sums *out);
/// The same without a shift, of floats or of what stage_lanes left as it was.
void float_sum(const void *values, enum lane_source source, int64_t count, struct single_sums *out);

struct pair_sums {
  double dot;
  double square_a;
  double square_b;
  double abs_diff;
  double max_diff;  ///< the largest |a - b|; meaningless unless all is finite
};
void pair_sum(const double *a, const double *b, int64_t count, struct pair_sums *out);
void float_pair_sum(const float *a, const float *b, int64_t count, struct pair_sums *out);

/// 64-bit integers. Extrema are kept as bits.
struct int_extrema {
  uint64_t min, max;
  int64_t zero;
};
void int_find_extrema(const void *values, int64_t count, bool is_signed, struct int_extrema *out);
/// Sums of the distances from the smallest one, and of their squares: exact when all are below INT_NEAR.
#define INT_NEAR (1 << 26)
struct int_sums {
  uint64_t sum, square;
};
void int_sum_near(const uint64_t *values, int64_t count, uint64_t low, struct int_sums *out);
/// The distances as doubles and their sum: exact when all are below INT_FAR.
#define INT_FAR (INT64_C(1) << 52)
void int_measure(const uint64_t *restrict values, int64_t count, uint64_t low, double *restrict distances,
                 uint64_t *sum);

/// bool (any byte but 0 is 1), uint8, int8; at most WALK_CHUNK of them.
struct byte_sums {
  int32_t min, max, zero;
  int32_t sum, square;
};
void byte_sum(int dtype, const void *values, int64_t count, struct byte_sums *out);

/// Takes part: the caller sets min, max and zero first.
struct extrema {
  double min;
  double max;
  int64_t zero;
};
void single_extrema(const void *values, int64_t count, bool wide, struct extrema *out);

/// The same by the bits of at most WALK_CHUNK elements `data`, staged as `values`: false, and no extrema, when one is
/// NaN or infinite. Here the caller sets nothing first.
bool key_get_extrema(int dtype, const void *data, const void *values, int64_t count, struct extrema *out);

/// min_* and max_* take part, counts are added; rel and rel_sym are bounds: `beaten` is set when some
/// |a - b| is above rel * |b| + rel_floor or above rel_sym * max(|a|, |b|).
struct pair_extrema {
  double min_a, max_a, min_b, max_b;
  int64_t unequal;
  int64_t over;
  double rel, rel_floor, rel_sym;
  bool beaten;
};
void pair_extremum(const void *a, const void *b, int64_t count, bool wide, double rtol, double atol,
                   struct pair_extrema *out);

/// Sets min_*, max_* and unequal by the bits, as key_get_extrema does.
bool key_get_pair_extrema(const int *dtypes, const char *const *data, const void *const *values, int64_t count,
                          struct pair_extrema *out);
/// Bounds that no |a - b| / |b| and no |a - b| / max(|a|, |b|) is above, from the bits of finite 16-bit floats;
/// infinite when they say nothing.
void key_get_ratio_bounds(const int *dtypes, const char *const *data, int64_t count, double *rel, double *rel_sym);

/// Sort blocks of SUM_LANES floats: those that are the same on both sides are summed up, the others and an incomplete
/// last one go to `left` and `right`, which hold `count` each.
struct pair_split {
  double square;  ///< sum of the squares of one side
  float *left, *right;
  int64_t count;  ///< on the left and on the right
};
void float_split(const float *a, const float *b, int64_t count, struct pair_split *out);

/// The screen over floats, without leaving float, after key_get_pair_extrema: sets `over`, 0 when certainly none is
/// over the tolerance, else 1; `beaten`, false when certainly neither bound is beaten. The tolerances and bounds are
/// lowered by more than float's rounding, so nothing is missed.
void pair_screen(const float *a, const float *b, int64_t count, double rtol, double atol, struct pair_extrema *out);

/// Raise rel and rel_sym to the largest |a - b| / |b| and |a - b| / max(|a|, |b|); `endless` is set when b is 0 and a
/// is not, and rel is of no more interest then.
void pair_relative(const void *a, const void *b, int64_t count, bool wide, double *rel, double *rel_sym, bool *endless);

#endif
