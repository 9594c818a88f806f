/// Loops over rows of neighbouring float or double elements that norms, losses and softmax share.
///
/// Sums are taken over lanes and blocks in the element's type and added up in double, so they do not drift with the
/// length; the order depends on the length alone.
///
/// The functions over struct row_data do the same with elements of any floating type: those that are not in the type of
/// the loop are converted block by block, so that no copy of a whole tensor is needed.
#ifndef DIT_HOST_ENGINE_ROWS_H
#define DIT_HOST_ENGINE_ROWS_H

#include <stdint.h>

/// Elements that lie together, of a floating dtype that converts to the loop's (or is it).
struct row_data {
  void *data;
  int dtype;
};

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
  void row_add_##suffix(REAL *total, const REAL *p, int64_t count);                                                   \
  /* `count` elements from number `at` on: where they lie, or converted in `room` */                                  \
  const REAL *data_fetch_##suffix(const struct row_data *p, int64_t at, int64_t count, REAL *room);                   \
  /* where to write `count` elements from number `at` on: in place or `room`; data_put brings them home */            \
  REAL *data_get_##suffix(const struct row_data *p, int64_t at, REAL *room);                                          \
  void data_put_##suffix(const struct row_data *p, int64_t at, int64_t count, const REAL *from);                      \
  double data_sum_##suffix(const struct row_data *p, int64_t at, int64_t count);                                      \
  /* the mean, and the sum of (p - mean)^2; every element is fetched once */                                          \
  void data_moments_##suffix(const struct row_data *p, int64_t at, int64_t count, double *mean, double *squares);     \
  double data_sum_squares_##suffix(const struct row_data *p, int64_t at, int64_t count, REAL center);                 \
  void data_dot_centered_##suffix(const struct row_data *a, const struct row_data *b, int64_t at, int64_t count,      \
                                  REAL center, double *sum, double *dot);                                             \
  void data_centered_##suffix(const struct row_data *out, const struct row_data *p, int64_t at, int64_t count,        \
                              REAL center, REAL scale, REAL shift);                                                   \
  void data_combine_##suffix(const struct row_data *out, const struct row_data *x, const struct row_data *y,          \
                             int64_t at, int64_t count, REAL a, REAL b, REAL c);                                      \
  void data_affine_weighted_##suffix(const struct row_data *out, const struct row_data *p, int64_t at,                \
                                     const REAL *weight, const REAL *bias, int64_t count, REAL scale, REAL center);
ROWS_TYPES(ROWS_DECLARE)

#endif
