/// The folds of reduce.h, one set of loops per (operation, work type).
///
/// LEAF(acc, x, p) takes an element into a running value, JOIN(a, b) joins two running values. Rows run over LANES
/// independent values that are joined in a tree at the end, so that long sums stay exact and loops vectorise.
#include <math.h>

#include "dit/dtype.h"
#include "reduce.h"
#include "simd.h"

#define LANES 64

#define DEFINE_ROW(name, type, start, LEAF, JOIN)                                                       \
  KERNEL_INLINE void name##_row_body(const void *data, int64_t count, double parameter, void *result) { \
    const type *p = data;                                                                               \
    const type power = (type)parameter;                                                                 \
    type lanes[LANES];                                                                                  \
    int64_t i = 0;                                                                                      \
    (void)power;                                                                                        \
    for (int j = 0; j < LANES; j++) {                                                                   \
      lanes[j] = start;                                                                                 \
    }                                                                                                   \
    for (; i + LANES <= count; i += LANES) {                                                            \
      for (int j = 0; j < LANES; j++) {                                                                 \
        lanes[j] = LEAF(lanes[j], p[i + j], power);                                                     \
      }                                                                                                 \
    }                                                                                                   \
    for (int j = 0; i < count; i++, j++) {                                                              \
      lanes[j] = LEAF(lanes[j], p[i], power);                                                           \
    }                                                                                                   \
    for (int width = LANES / 2; width > 0; width /= 2) {                                                \
      for (int j = 0; j < width; j++) {                                                                 \
        lanes[j] = JOIN(lanes[j], lanes[j + width]);                                                    \
      }                                                                                                 \
    }                                                                                                   \
    *(type *)result = lanes[0];                                                                         \
  }                                                                                                     \
  KERNEL_MULTI(static, name##_row, (const void *data, int64_t count, double parameter, void *result),   \
               (data, count, parameter, result))

/// LANES columns stay in registers while the rows pass by.
#define DEFINE_COLUMN(name, type, LEAF)                                                                               \
  KERNEL_INLINE void name##_column_body(void *restrict total, const void *restrict data, int64_t count, int64_t rows, \
                                        int64_t step, double parameter) {                                             \
    type *restrict acc = total;                                                                                       \
    const type power = (type)parameter;                                                                               \
    int64_t i = 0;                                                                                                    \
    (void)power;                                                                                                      \
    for (; i + LANES <= count; i += LANES) {                                                                          \
      type lanes[LANES];                                                                                              \
      for (int j = 0; j < LANES; j++) {                                                                               \
        lanes[j] = acc[i + j];                                                                                        \
      }                                                                                                               \
      for (int64_t row = 0; row < rows; row++) {                                                                      \
        const type *p = (const type *)((const char *)data + row * step) + i;                                          \
        for (int j = 0; j < LANES; j++) {                                                                             \
          lanes[j] = LEAF(lanes[j], p[j], power);                                                                     \
        }                                                                                                             \
      }                                                                                                               \
      for (int j = 0; j < LANES; j++) {                                                                               \
        acc[i + j] = lanes[j];                                                                                        \
      }                                                                                                               \
    }                                                                                                                 \
    for (int64_t row = 0; row < rows; row++) {                                                                        \
      const type *p = (const type *)((const char *)data + row * step);                                                \
      for (int64_t j = i; j < count; j++) {                                                                           \
        acc[j] = LEAF(acc[j], p[j], power);                                                                           \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  KERNEL_MULTI(static, name##_column,                                                                                 \
               (void *total, const void *data, int64_t count, int64_t rows, int64_t step, double parameter),          \
               (total, data, count, rows, step, parameter))

#define DEFINE_MERGE(name, type, JOIN)                                     \
  static void name##_merge(void *total, const void *data, int64_t count) { \
    type *acc = total;                                                     \
    const type *p = data;                                                  \
    for (int64_t i = 0; i < count; i++) {                                  \
      acc[i] = JOIN(acc[i], p[i]);                                         \
    }                                                                      \
  }

#define ADD(acc, x, p) ((acc) + (x))
#define ADD_TWO(a, b) ((a) + (b))
#define MUL(acc, x, p) ((acc) * (x))
#define MUL_TWO(a, b) ((a) * (b))
// a NaN replaces everything and is replaced by nothing
#define MAX_FLOAT(acc, x, p) (((x) > (acc)) | ((x) != (x)) ? (x) : (acc))
#define MAX_FLOAT_TWO(a, b) MAX_FLOAT(a, b, 0)
#define MIN_FLOAT(acc, x, p) (((x) < (acc)) | ((x) != (x)) ? (x) : (acc))
#define MIN_FLOAT_TWO(a, b) MIN_FLOAT(a, b, 0)
#define MAX_INT(acc, x, p) ((x) > (acc) ? (x) : (acc))
#define MAX_INT_TWO(a, b) MAX_INT(a, b, 0)
#define MIN_INT(acc, x, p) ((x) < (acc) ? (x) : (acc))
#define MIN_INT_TWO(a, b) MIN_INT(a, b, 0)
#define OR(acc, x, p) ((acc) | ((x) != 0))
#define OR_TWO(a, b) ((a) | (b))
#define AND(acc, x, p) ((acc) & ((x) != 0))
#define AND_TWO(a, b) ((a) & (b))
#define ABS(x) _Generic((x), float: fabsf, double: fabs)(x)
#define POW(x, p) _Generic((x), float: powf, double: pow)(x, p)
#define NORM_0(acc, x, p) ((acc) + ((x) != 0 ? 1 : 0))
#define NORM_1(acc, x, p) ((acc) + ABS(x))
#define NORM_2(acc, x, p) ((acc) + (x) * (x))
#define NORM_P(acc, x, p) ((acc) + POW(ABS(x), p))
#define NORM_MAX(acc, x, p) MAX_FLOAT(acc, ABS(x), p)
#define NORM_MIN(acc, x, p) MIN_FLOAT(acc, ABS(x), p)

/// X(kind, dtype, type, member, start, LEAF, JOIN, merge of)
#define FLOAT_FOLDS(X, dtype, type, member)                              \
  X(SUM, dtype, type, member, 0, ADD, ADD_TWO)                           \
  X(PROD, dtype, type, member, 1, MUL, MUL_TWO)                          \
  X(MAX, dtype, type, member, -(type)INFINITY, MAX_FLOAT, MAX_FLOAT_TWO) \
  X(MIN, dtype, type, member, (type)INFINITY, MIN_FLOAT, MIN_FLOAT_TWO)  \
  X(NORM_0, dtype, type, member, 0, NORM_0, ADD_TWO)                     \
  X(NORM_1, dtype, type, member, 0, NORM_1, ADD_TWO)                     \
  X(NORM_2, dtype, type, member, 0, NORM_2, ADD_TWO)                     \
  X(NORM_P, dtype, type, member, 0, NORM_P, ADD_TWO)                     \
  X(NORM_MAX, dtype, type, member, 0, NORM_MAX, MAX_FLOAT_TWO)           \
  X(NORM_MIN, dtype, type, member, (type)INFINITY, NORM_MIN, MIN_FLOAT_TWO)
#define EXTREME_FOLDS(X, dtype, type, member, low, high) \
  X(MAX, dtype, type, member, low, MAX_INT, MAX_INT_TWO) \
  X(MIN, dtype, type, member, high, MIN_INT, MIN_INT_TWO)
#define INT_FOLDS(X)                                        \
  EXTREME_FOLDS(X, I64, int64_t, i, INT64_MIN, INT64_MAX)   \
  EXTREME_FOLDS(X, I32, int32_t, i32, INT32_MIN, INT32_MAX) \
  EXTREME_FOLDS(X, I16, int16_t, i16, INT16_MIN, INT16_MAX) \
  EXTREME_FOLDS(X, I8, int8_t, i8, INT8_MIN, INT8_MAX)      \
  EXTREME_FOLDS(X, U8, uint8_t, b, 0, UINT8_MAX)            \
  X(ANY, BOOL, uint8_t, b, 0, OR, OR_TWO)                   \
  X(ALL, BOOL, uint8_t, b, 1, AND, AND_TWO)
/// Sums and products of integers wrap, so they are taken as unsigned; X without the cell of the table.
#define WRAP_FOLDS(X)                       \
  X(SUM, I64, uint64_t, i, 0, ADD, ADD_TWO) \
  X(PROD, I64, uint64_t, i, 1, MUL, MUL_TWO)
#define ALL_FOLDS(X)             \
  FLOAT_FOLDS(X, F32, float, f)  \
  FLOAT_FOLDS(X, F64, double, d) \
  INT_FOLDS(X)                   \
  WRAP_FOLDS(X)

#define DEFINE_FOLD(kind, dtype, type, member, start, LEAF, JOIN) \
  DEFINE_ROW(kind##_##dtype, type, start, LEAF, JOIN)             \
  DEFINE_COLUMN(kind##_##dtype, type, LEAF)                       \
  DEFINE_MERGE(kind##_##dtype, type, JOIN)
ALL_FOLDS(DEFINE_FOLD)

enum work_slot { SLOT_F32, SLOT_F64, SLOT_I64, SLOT_I32, SLOT_I16, SLOT_I8, SLOT_U8, SLOT_BOOL, SLOT_COUNT };

static const struct reduce_fold folds[REDUCE_COUNT][SLOT_COUNT] = {
#define CELL(kind, dtype, type, member, start, LEAF, JOIN) \
  [REDUCE_##kind][SLOT_##dtype] = {                        \
      kind##_##dtype##_row, kind##_##dtype##_column, kind##_##dtype##_merge, {.member = start}},
    ALL_FOLDS(CELL)
#undef CELL
};

static int get_slot(int work) {
  switch (work) {
#define SLOT_CASE(dtype)  \
  case DIT_DTYPE_##dtype: \
    return SLOT_##dtype;
    SLOT_CASE(F32)
    SLOT_CASE(F64)
    SLOT_CASE(I64)
    SLOT_CASE(I32)
    SLOT_CASE(I16)
    SLOT_CASE(I8)
    SLOT_CASE(U8)
    SLOT_CASE(BOOL)
#undef SLOT_CASE
    default:
      return -1;
  }
}

const struct reduce_fold *reduce_find_fold(enum reduce_kind kind, int work) {
  const int slot = get_slot(work);
  const struct reduce_fold *fold = slot < 0 ? NULL : &folds[kind == REDUCE_MEAN ? REDUCE_SUM : kind][slot];
  return fold && fold->row ? fold : NULL;
}
