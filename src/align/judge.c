/// How far apart two results are, as far as their statistics tell. Depends on nothing.
#include <math.h>

#include "dit/align.h"

static double distance(double a, double b, double scale) {
  if (a == b || (isnan(a) && isnan(b))) {
    return 0.0;
  }
  double apart = fabs(a - b) / scale;
  return isnan(apart) || isinf(apart) ? INFINITY : apart;
}

enum dit_align_verdict dit_align_judge(const struct dit_align_stats *a, const struct dit_align_stats *b,
                                       double *error) {
  *error = 0.0;
  if (a->numel != b->numel) {
    return DIT_ALIGN_SHAPES;
  }
  if (a->hashed && b->hashed && a->hash == b->hash && a->dtype == b->dtype) {
    return DIT_ALIGN_EQUAL;
  }
  if (a->nan != b->nan || a->inf != b->inf) {
    *error = INFINITY;
    return DIT_ALIGN_CLOSE;
  }
  double norm = fmax(a->norm, b->norm);
  double largest = fmax(fmax(fabs(a->min), fabs(a->max)), fmax(fabs(b->min), fabs(b->max)));
  largest = isfinite(largest) && largest > 0 ? largest : 1.0;
  double worst = norm > 0 ? distance(a->norm, b->norm, norm) : 0.0;
  double size = norm > 0 ? norm / sqrt(fmax((double)a->numel, 1.0)) : largest;
  worst = fmax(worst, distance(a->mean, b->mean, size));
  worst = fmax(worst, distance(a->min, b->min, largest));
  worst = fmax(worst, distance(a->max, b->max, largest));
  bool hashed = a->hashed && b->hashed && a->dtype == b->dtype;
  *error = hashed ? fmax(worst, DIT_ALIGN_BITS) : worst;
  return DIT_ALIGN_CLOSE;
}
