/// Reductions over any set of dimensions: what is folded (reduce_fold.c), and how tensors are walked (reduce.c).
///
/// A fold has three loops over elements of its work type: `row` folds neighbours into one value, `column` folds
/// `rows` lines that lie `step` bytes apart into a line of running values, `merge` joins two lines of running values.
#ifndef DIT_HOST_ENGINE_REDUCE_H
#define DIT_HOST_ENGINE_REDUCE_H

#include "dit/error.h"
#include "dit/tensor.h"

enum reduce_kind {
  REDUCE_SUM,
  REDUCE_MEAN,
  REDUCE_PROD,
  REDUCE_MAX,  ///< NaN wins
  REDUCE_MIN,
  REDUCE_ANY,
  REDUCE_ALL,
  REDUCE_NORM_0,    ///< how many are not 0
  REDUCE_NORM_1,    ///< sum of |x|
  REDUCE_NORM_2,    ///< sqrt of the sum of squares
  REDUCE_NORM_P,    ///< (sum of |x|^p)^(1/p)
  REDUCE_NORM_MAX,  ///< largest |x|
  REDUCE_NORM_MIN,  ///< smallest |x|
  REDUCE_COUNT
};

union reduce_value {
  float f;
  double d;
  int64_t i;
  int32_t i32;
  int16_t i16;
  int8_t i8;
  uint8_t b;
};

struct reduce_fold {
  void (*row)(const void *p, int64_t count, double parameter, void *result);
  void (*column)(void *total, const void *p, int64_t count, int64_t rows, int64_t step, double parameter);
  void (*merge)(void *total, const void *p, int64_t count);
  union reduce_value identity;
};

/// NULL when there is none for elements of type `work` (F32, F64, I64, BOOL; smaller integers
/// for the extremes).
const struct reduce_fold *reduce_find_fold(enum reduce_kind kind, int work);

/// out = the fold over the dimensions whose bit is set in `mask`; out keeps all dimensions of `in`, the reduced ones
/// with size 1 (or stride 0). Work is done in the result's type, float for half types, 64 bits for integers; any and
/// all have a bool or uint8 result. A reduction of nothing gives the fold's neutral value (mean: NaN). `parameter` is
/// the p of REDUCE_NORM_P. DIT_ERR_UNSUPPORTED for dtypes without a fold or conversion.
enum dit_status reduce_launch(void *stream, enum reduce_kind kind, double parameter, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);

#endif
