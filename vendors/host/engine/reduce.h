/// Reductions over any set of dimensions: what is folded (reduce_fold.c), and how tensors are walked (reduce.c).
///
/// A fold has three loops: `row` folds `count` neighbours into one value, for `rows` rows that lie `step` bytes apart;
/// `column` folds such rows into a line of `count` running values; `merge` joins two lines of running values.
#ifndef DIT_HOST_ENGINE_REDUCE_H
#define DIT_HOST_ENGINE_REDUCE_H

#include "dit/error.h"
#include "dit/tensor.h"
#include "reduce_kinds.h"

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
  /// may be NULL: reduce_fold_rows
  void (*row)(const void *p, int64_t count, int64_t rows, int64_t step, double parameter, void *results);
  void (*column)(void *total, const void *p, int64_t count, int64_t rows, int64_t step, double parameter);
  void (*merge)(void *total, const void *p, int64_t count);
  union reduce_value identity;
  int16_t element_width, value_width;  ///< bytes
};

/// NULL when there is none for elements of this type: F32, F64, I64, BOOL; smaller integers for the extremes. The
/// running values are of the same type, except that some folds take BF16 elements into F32 values.
const struct reduce_fold *reduce_find_fold(enum reduce_kind kind, int element);
/// fold->row, made of columns where a fold has none.
void reduce_fold_rows(const struct reduce_fold *fold, const void *p, int64_t count, int64_t rows, int64_t step,
                      double parameter, void *results);
/// values[0] = all of `count` running values joined in a tree; the others are overwritten.
void reduce_join(const struct reduce_fold *fold, void *values, int64_t count);
/// `count` running values that nothing was folded into.
void reduce_fill_identity(const struct reduce_fold *fold, void *line, int64_t count);

/// out = the fold over the dimensions whose bit is set in `mask`; out keeps all dimensions of `in`, the reduced ones
/// with size 1 (or stride 0). Work is done in the result's type, float for half types, 64 bits for integers; any and
/// all have a bool or uint8 result. A reduction of nothing gives the fold's neutral value (mean: NaN). `parameter` is
/// the p of REDUCE_NORM_P. DIT_ERR_UNSUPPORTED for dtypes without a fold or conversion.
enum dit_status reduce_launch(void *stream, enum reduce_kind kind, double parameter, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);

#endif
