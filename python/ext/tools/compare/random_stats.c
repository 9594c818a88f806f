// Statistics of random samples (see compare/random_stats.h). No torch, no Python.
#include "tools/compare/random_stats.h"

#include <math.h>
#include <stdlib.h>

static int double_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static bool has_nan(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (isnan(values[i])) {
      return true;
    }
  }
  return false;
}

double random_stats_get_distance(double *a, int64_t count_a, double *b, int64_t count_b) {
  if (count_a <= 0 || count_b <= 0) {
    return 0;
  }
  if (has_nan(a, count_a) || has_nan(b, count_b)) {
    return 1;
  }
  qsort(a, (size_t)count_a, sizeof *a, double_compare);
  qsort(b, (size_t)count_b, sizeof *b, double_compare);
  double distance = 0;
  int64_t i = 0, j = 0;
  while (i < count_a && j < count_b) {
    double at = a[i] < b[j] ? a[i] : b[j];
    while (i < count_a && a[i] <= at) {
      i++;
    }
    while (j < count_b && b[j] <= at) {
      j++;
    }
    double gap = fabs((double)i / (double)count_a - (double)j / (double)count_b);
    distance = gap > distance ? gap : distance;
  }
  return distance;
}

// sup |F_n - F| > e has at most probability C exp(-2 n e^2); C = 2 for equal distributions, and Bretagnolle's 2 sqrt(2)
// e for unequal ones.
static double get_one_bound(int64_t count) {
  double constant = 2 * sqrt(2) * exp(1);
  return sqrt(log(2 * constant / RANDOM_ALARM) / (2 * (double)count));
}

double random_stats_get_distance_bound(int64_t count_a, int64_t count_b) {
  return count_a > 0 && count_b > 0 ? get_one_bound(count_a) + get_one_bound(count_b) : 1;
}

double random_stats_get_share_bound(int64_t count) {
  return count > 0 ? sqrt(log(2 / RANDOM_ALARM) / (2 * (double)count)) : 1;
}

// Dropout

static void wrong_note(struct random_dropout *out, int64_t index, double want) {
  if (out->wrong++ == 0) {
    out->index = index;
    out->want = want;
  }
}

void random_stats_check_dropout(const double *x, const double *y, int64_t count, int64_t group, double scale,
                                double relative, double floor, struct random_dropout *out) {
  *out = (struct random_dropout){.index = -1};
  for (int64_t begin = 0; begin < count; begin += group) {
    int64_t end = begin + group < count ? begin + group : count, kept = 0, dropped = 0;
    for (int64_t i = begin; i < end; i++) {
      double want = scale * x[i], error = fabs(y[i] - want);
      bool same = error <= relative * fabs(want) + floor || (isnan(want) && isnan(y[i])) || y[i] == want;
      bool gone = y[i] == 0 || (!isfinite(x[i]) && isnan(y[i]));  // 0 * infinity
      if (!same && !gone) {
        wrong_note(out, i, want);
      } else if (same != gone) {  // both: x is 0, nothing to learn
        kept += same;
        dropped += gone;
      }
    }
    if (kept > 0 && dropped > 0) {
      wrong_note(out, begin, scale * x[begin]);
    }
    out->drawn += kept > 0 || dropped > 0;
    out->dropped += dropped > 0;
  }
}

void random_stats_check_replaced(const double *x, const double *y, int64_t count, int64_t group, double scale,
                                 double shift, double other, double tolerance, struct random_dropout *out) {
  *out = (struct random_dropout){.index = -1};
  for (int64_t begin = 0; begin < count; begin += group) {
    int64_t end = begin + group < count ? begin + group : count, kept = 0, dropped = 0;
    for (int64_t i = begin; i < end; i++) {
      double want = scale * x[i] + shift;
      bool same = fabs(y[i] - want) <= tolerance * (fabs(scale * x[i]) + fabs(shift));
      bool gone = fabs(y[i] - other) <= tolerance * (fabs(other) + fabs(shift));
      if (!same && !gone) {
        wrong_note(out, i, want);
      } else if (same != gone) {
        kept += same;
        dropped += gone;
      }
    }
    if (kept > 0 && dropped > 0) {
      wrong_note(out, begin, scale * x[begin] + shift);
    }
    out->drawn += kept > 0 || dropped > 0;
    out->dropped += dropped > 0;
  }
}
