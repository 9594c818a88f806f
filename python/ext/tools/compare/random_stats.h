/// Is a sample what it should be? Plain C on arrays of double; thresholds for a false-alarm probability per call.
#ifndef DIT_EXT_COMPARE_RANDOM_STATS_H
#define DIT_EXT_COMPARE_RANDOM_STATS_H

#include <stdbool.h>
#include <stdint.h>

/// Probability that a right sample is called wrong, per test. A call has at most three tests.
#define RANDOM_ALARM 1e-10

/// Distance of two distributions: sup |F_a - F_b| of two samples, which are sorted in place. NaN values: 1.
double random_stats_get_distance(double *a, int64_t count_a, double *b, int64_t count_b);
/// What two samples of the same distribution stay within, but for RANDOM_ALARM (Dvoretzky, Kiefer, Wolfowitz; Massart's
/// constant; independent elements need not have the same distribution). 1 and more: the samples are too small.
double random_stats_get_distance_bound(int64_t count_a, int64_t count_b);
/// How far the share of `count` independent draws may be from its expectation (Hoeffding). 1 and more: too few.
double random_stats_get_share_bound(int64_t count);

/// What dropout did: every element of y is 0 or scale * x.
struct random_dropout {
  int64_t drawn;    ///< elements (or groups of them) that tell what was drawn
  int64_t dropped;  ///< of these
  int64_t wrong;    ///< neither 0 nor scale * x; a group that is partly dropped
  int64_t index;    ///< the first of them; -1 for none
  double want;      ///< scale * x there
};
/// `group`: consecutive elements that are dropped together (channels); `relative`, `floor`: rounding errors.
void random_stats_check_dropout(const double *x, const double *y, int64_t count, int64_t group, double scale,
                                double relative, double floor, struct random_dropout *out);
/// y is x with some elements replaced: y = scale * x + shift, or `other` (alpha dropout).
void random_stats_check_replaced(const double *x, const double *y, int64_t count, int64_t group, double scale,
                                 double shift, double other, double tolerance, struct random_dropout *out);

#endif
