/// Loops over rows of neighbouring float or double elements that norms, losses and softmax share.
///
/// Sums are taken over lanes and blocks in the element's type and added up in double, so they do not drift with the
/// length; the order depends on the length alone.
#ifndef DIT_HOST_ENGINE_ROWS_H
#define DIT_HOST_ENGINE_ROWS_H

#include <stdint.h>

/// X(type, suffix)
#define ROWS_TYPES(X) \
  X(float, f32)       \
  X(double, f64)

#define ROWS_DECLARE(REAL, suffix)                                                                                    \
  /* sum of p */                                                                                                      \
  double row_sum_##suffix(const REAL *p, int64_t count);                                                              \
  /* sum of (p - center)^2 */                                                                                         \
  double row_sum_squares_##suffix(const REAL *p, int64_t count, REAL center);                                         \
  /* sum of a * b */                                                                                                  \
  double row_dot_##suffix(const REAL *a, const REAL *b, int64_t count);                                               \
  /* sums of a and of a * (b - center) */                                                                             \
  void row_dot_centered_##suffix(const REAL *a, const REAL *b, int64_t count, REAL center, double *sum, double *dot); \
  /* out = p * scale + shift */                                                                                       \
  void row_affine_##suffix(REAL *out, const REAL *p, int64_t count, REAL scale, REAL shift);                          \
  /* out = (p - center) * scale + shift: nothing is lost where p is near the center */                                \
  void row_centered_##suffix(REAL *out, const REAL *p, int64_t count, REAL center, REAL scale, REAL shift);           \
  /* out = a * x + b * y + c */                                                                                       \
  void row_combine_##suffix(REAL *out, const REAL *x, const REAL *y, int64_t count, REAL a, REAL b, REAL c);          \
  /* out = (p - center) * scale * weight + bias, exact where p is the center; weight or bias may be NULL */           \
  void row_affine_weighted_##suffix(REAL *out, const REAL *p, const REAL *weight, const REAL *bias, int64_t count,    \
                                    REAL scale, REAL center);                                                         \
  /* total += p */                                                                                                    \
  void row_add_##suffix(REAL *total, const REAL *p, int64_t count);
ROWS_TYPES(ROWS_DECLARE)

#endif
