/// The folds of reduce.h, one set of loops per (operation, element type).
///
/// LEAF(acc, x, p) takes an element into a running value, JOIN(a, b) joins two running values. A `core` takes lines of
/// LANES elements into LANES independent values, so that loops vectorise; rows are cut into sets of STEP such lines,
/// whose values are joined in a tree: the error of long sums grows slowly. The order depends on counts alone, never on
/// the instruction set.
#include <math.h>
#include <string.h>

#include "dit/dtype.h"
#include "reduce.h"
#include "simd.h"

#define STEP 32  // lines per set of running values

#define PLAIN_LANES(type) (256 / (int)sizeof(type))
#define EXTREME_LANES(type) (128 / (int)sizeof(type))

static inline __attribute__((always_inline)) float load_bfloat(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
#define AS_IS(x) (x)

/// lanes[j] = LEAF of lanes[j] and the j-th elements of `lines` lines that lie `step` bytes apart.
#define DEFINE_PLAIN_CORE(name, element, type, LANES, LOAD, LEAF)                                                 \
  KERNEL_INLINE void name##_core(type *restrict acc, const void *data, int64_t lines, int64_t step, type power) { \
    type lanes[LANES];                                                                                            \
    (void)power;                                                                                                  \
    for (int j = 0; j < LANES; j++) {                                                                             \
      lanes[j] = acc[j];                                                                                          \
    }                                                                                                             \
    for (int64_t line = 0; line < lines; line++) {                                                                \
      const element *p = (const element *)((const char *)data + line * step);                                     \
      for (int j = 0; j < LANES; j++) {                                                                           \
        lanes[j] = LEAF(lanes[j], LOAD(p[j]), power);                                                             \
      }                                                                                                           \
    }                                                                                                             \
    for (int j = 0; j < LANES; j++) {                                                                             \
      acc[j] = lanes[j];                                                                                          \
    }                                                                                                             \
  }

/// The same for extremes of floating types: the comparison that processors have in one instruction forgets a NaN, so
/// NaNs are noted apart, two lines at a time. INT is an integer as wide as the type.
#define DEFINE_EXTREME_CORE(name, element, type, INT, LANES, LOAD, BETTER)                                        \
  KERNEL_INLINE void name##_core(type *restrict acc, const void *data, int64_t lines, int64_t step, type power) { \
    type best[LANES];                                                                                             \
    INT wrong[LANES];                                                                                             \
    int64_t line = 0;                                                                                             \
    (void)power;                                                                                                  \
    for (int j = 0; j < LANES; j++) {                                                                             \
      best[j] = acc[j];                                                                                           \
      wrong[j] = acc[j] != acc[j];                                                                                \
    }                                                                                                             \
    for (; line + 2 <= lines; line += 2) {                                                                        \
      const element *p = (const element *)((const char *)data + line * step);                                     \
      const element *q = (const element *)((const char *)data + (line + 1) * step);                               \
      for (int j = 0; j < LANES; j++) {                                                                           \
        const type x = LOAD(p[j]), y = LOAD(q[j]), two = BETTER(x, y);                                            \
        best[j] = BETTER(two, best[j]);                                                                           \
        wrong[j] |= __builtin_isunordered(x, y);                                                                  \
      }                                                                                                           \
    }                                                                                                             \
    for (; line < lines; line++) {                                                                                \
      const element *p = (const element *)((const char *)data + line * step);                                     \
      for (int j = 0; j < LANES; j++) {                                                                           \
        const type x = LOAD(p[j]);                                                                                \
        best[j] = BETTER(x, best[j]);                                                                             \
        wrong[j] |= x != x;                                                                                       \
      }                                                                                                           \
    }                                                                                                             \
    for (int j = 0; j < LANES; j++) {                                                                             \
      acc[j] = wrong[j] ? (type)NAN : best[j];                                                                    \
    }                                                                                                             \
  }

/// Halving loops stay loops until they are vectorised; unrolled ones become scalar code.
#if defined(__GNUC__) && !defined(__clang__)
#define KEEP_LOOP _Pragma("GCC unroll 1")
#else
#define KEEP_LOOP
#endif
#define HALVE(type, to, from, width, JOIN)    \
  type to[width];                             \
  KEEP_LOOP                                   \
  for (int j = 0; j < (width); j++) {         \
    to[j] = JOIN(from[j], from[(width) + j]); \
  }

/// `set`: at least one line and at most STEP lines, `small`: less than a line, in a quarter of the lanes. The first
/// line starts the running values, so that none are filled. REST takes what is left of the last line.
#define DEFINE_PLAIN_SET(name, element, type, LANES, REST, LOAD, LEAF, JOIN, start) \
  KERNEL_INLINE type name(const element *p, int64_t count, type power) {            \
    type lanes[LANES];                                                              \
    int64_t i = LANES;                                                              \
    for (int j = 0; j < LANES; j++) {                                               \
      lanes[j] = LEAF(start, LOAD(p[j]), power);                                    \
    }                                                                               \
    for (; i + LANES <= count; i += LANES) {                                        \
      for (int j = 0; j < LANES; j++) {                                             \
        lanes[j] = LEAF(lanes[j], LOAD(p[i + j]), power);                           \
      }                                                                             \
    }                                                                               \
    HALVE(type, half, lanes, LANES / 2, JOIN)                                       \
    HALVE(type, quarter, half, LANES / 4, JOIN)                                     \
    HALVE(type, eighth, quarter, LANES / 8, JOIN)                                   \
    type total = eighth[0];                                                         \
    for (int j = 1; j < LANES / 8; j++) {                                           \
      total = JOIN(total, eighth[j]);                                               \
    }                                                                               \
    if (i < count) {                                                                \
      const type rest = REST(p + i, count - i, power);                              \
      total = JOIN(total, rest);                                                    \
    }                                                                               \
    return total;                                                                   \
  }
#define DEFINE_EXTREME_SET(name, element, type, INT, LANES, REST, LOAD, JOIN, BETTER)  \
  KERNEL_INLINE type name(const element *p, int64_t count, type power) {               \
    type best[LANES];                                                                  \
    INT wrong[LANES], any = 0;                                                         \
    int64_t i = LANES;                                                                 \
    for (int j = 0; j < LANES; j++) {                                                  \
      const type x = LOAD(p[j]);                                                       \
      best[j] = x;                                                                     \
      wrong[j] = x != x;                                                               \
    }                                                                                  \
    for (; i + 2 * LANES <= count; i += 2 * LANES) {                                   \
      for (int j = 0; j < LANES; j++) {                                                \
        const type x = LOAD(p[i + j]), y = LOAD(p[i + LANES + j]), two = BETTER(x, y); \
        best[j] = BETTER(two, best[j]);                                                \
        wrong[j] |= __builtin_isunordered(x, y);                                       \
      }                                                                                \
    }                                                                                  \
    for (; i + LANES <= count; i += LANES) {                                           \
      for (int j = 0; j < LANES; j++) {                                                \
        const type x = LOAD(p[i + j]);                                                 \
        best[j] = BETTER(x, best[j]);                                                  \
        wrong[j] |= x != x;                                                            \
      }                                                                                \
    }                                                                                  \
    KEEP_LOOP                                                                          \
    for (int j = 0; j < LANES; j++) {                                                  \
      any |= wrong[j];                                                                 \
    }                                                                                  \
    HALVE(type, half, best, LANES / 2, BETTER)                                         \
    HALVE(type, quarter, half, LANES / 4, BETTER)                                      \
    type total = quarter[0];                                                           \
    for (int j = 1; j < LANES / 4; j++) {                                              \
      total = BETTER(quarter[j], total);                                               \
    }                                                                                  \
    total = any ? (type)NAN : total;                                                   \
    if (i < count) {                                                                   \
      const type rest = REST(p + i, count - i, power);                                 \
      total = JOIN(total, rest);                                                       \
    }                                                                                  \
    return total;                                                                      \
  }
/// Element by element.
#define DEFINE_TINY(name, element, type, start, LOAD, LEAF)                     \
  KERNEL_INLINE type name##_tiny(const element *p, int64_t count, type power) { \
    type total = start;                                                         \
    (void)power;                                                                \
    KEEP_LOOP                                                                   \
    for (int64_t i = 0; i < count; i++) {                                       \
      total = LEAF(total, LOAD(p[i]), power);                                   \
    }                                                                           \
    return total;                                                               \
  }
#define DEFINE_REST(name, element, type, FEW)                                          \
  KERNEL_INLINE type name##_rest(const element *p, int64_t count, type power) {        \
    return count < FEW ? name##_tiny(p, count, power) : name##_small(p, count, power); \
  }

#define DEFINE_ROW(name, element, type, start, LANES, JOIN)                                                         \
  KERNEL_INLINE void name##_row_body(const void *data, int64_t count, int64_t rows, int64_t step, double parameter, \
                                     void *result) {                                                                \
    const int64_t set = STEP * LANES;                                                                               \
    const type power = (type)parameter;                                                                             \
    type *restrict out = result;                                                                                    \
    for (int64_t row = 0; count < LANES && row < rows; row++) {                                                     \
      out[row] = name##_rest((const element *)((const char *)data + row * step), count, power);                     \
    }                                                                                                               \
    for (int64_t row = 0; count >= LANES && row < rows; row++) {                                                    \
      const element *p = (const element *)((const char *)data + row * step);                                        \
      type total = start;                                                                                           \
      for (int64_t i = 0, n; i < count; i += n) {                                                                   \
        n = count - i < 2 * set ? count - i : set; /* the last one has a whole line */                              \
        const type value = name##_set(p + i, n, power);                                                             \
        total = JOIN(total, value);                                                                                 \
      }                                                                                                             \
      out[row] = total;                                                                                             \
    }                                                                                                               \
  }                                                                                                                 \
  KERNEL_MULTI(static, name##_row,                                                                                  \
               (const void *data, int64_t count, int64_t rows, int64_t step, double parameter, void *result),       \
               (data, count, rows, step, parameter, result))

/// LANES columns stay in registers while the rows pass by.
#define DEFINE_COLUMN(name, element, type, LANES, LOAD, LEAF)                                                         \
  KERNEL_INLINE void name##_column_body(void *restrict total, const void *restrict data, int64_t count, int64_t rows, \
                                        int64_t step, double parameter) {                                             \
    type *restrict acc = total;                                                                                       \
    const type power = (type)parameter;                                                                               \
    int64_t i = 0;                                                                                                    \
    for (; i + LANES <= count; i += LANES) {                                                                          \
      name##_core(acc + i, (const element *)data + i, rows, step, power);                                             \
    }                                                                                                                 \
    for (int64_t row = 0; i < count && row < rows; row++) {                                                           \
      const element *p = (const element *)((const char *)data + row * step);                                          \
      for (int64_t j = i; j < count; j++) {                                                                           \
        acc[j] = LEAF(acc[j], LOAD(p[j]), power);                                                                     \
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
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
// a NaN replaces everything and is replaced by nothing
#define MAX_FLOAT(acc, x, p) (((x) > (acc)) | ((x) != (x)) ? (x) : (acc))
#define MAX_FLOAT_TWO(a, b) MAX_FLOAT(a, b, 0)
#define MIN_FLOAT(acc, x, p) (((x) < (acc)) | ((x) != (x)) ? (x) : (acc))
#define MIN_FLOAT_TWO(a, b) MIN_FLOAT(a, b, 0)
#define MAX_INT(acc, x, p) LARGER(x, acc)
#define MIN_INT(acc, x, p) SMALLER(x, acc)
#define OR(acc, x, p) ((acc) | ((x) != 0))
#define OR_TWO(a, b) ((a) | (b))
#define AND(acc, x, p) ((acc) & ((x) != 0))
#define AND_TWO(a, b) ((a) & (b))
#define ABS(x) _Generic((x), float: fabsf, double: fabs)(x)
#define POW(x, p) _Generic((x), float: powf, double: pow)(x, p)
#define ADD_NUMBER(acc, x, p) ((acc) + ((x) == (x) ? (x) : 0))
#define NORM_0(acc, x, p) ((acc) + ((x) != 0 ? 1 : 0))
#define NORM_1(acc, x, p) ((acc) + ABS(x))
#define NORM_2(acc, x, p) ((acc) + (x) * (x))
#define NORM_P(acc, x, p) ((acc) + POW(ABS(x), p))
#define NORM_MAX(acc, x, p) MAX_FLOAT(acc, ABS(x), p)
#define NORM_MIN(acc, x, p) MIN_FLOAT(acc, ABS(x), p)

/// X(kind, slot, element, type, member, start, LOAD, LEAF, JOIN): folds with a row loop of their own; Y: those that
/// make rows of columns; Z: extremes, X with INT and BETTER at the end
#define HOT_FOLDS(X, Z, slot, element, type, member, LOAD, INT)                                     \
  X(SUM, slot, element, type, member, 0, LOAD, ADD, ADD_TWO)                                        \
  X(NANSUM, slot, element, type, member, 0, LOAD, ADD_NUMBER, ADD_TWO)                              \
  X(NORM_2, slot, element, type, member, 0, LOAD, NORM_2, ADD_TWO)                                  \
  Z(MAX, slot, element, type, member, -(type)INFINITY, LOAD, MAX_FLOAT, MAX_FLOAT_TWO, INT, LARGER) \
  Z(MIN, slot, element, type, member, (type)INFINITY, LOAD, MIN_FLOAT, MIN_FLOAT_TWO, INT, SMALLER)
#define FLOAT_FOLDS(Y, slot, type, member)                                 \
  Y(NORM_0, slot, type, type, member, 0, AS_IS, NORM_0, ADD_TWO)           \
  Y(NORM_1, slot, type, type, member, 0, AS_IS, NORM_1, ADD_TWO)           \
  Y(NORM_P, slot, type, type, member, 0, AS_IS, NORM_P, ADD_TWO)           \
  Y(NORM_MAX, slot, type, type, member, 0, AS_IS, NORM_MAX, MAX_FLOAT_TWO) \
  Y(NORM_MIN, slot, type, type, member, (type)INFINITY, AS_IS, NORM_MIN, MIN_FLOAT_TWO)
#define INT_EXTREMES(Y, slot, type, member, low, high)          \
  Y(MAX, slot, type, type, member, low, AS_IS, MAX_INT, LARGER) \
  Y(MIN, slot, type, type, member, high, AS_IS, MIN_INT, SMALLER)
/// Sums and products of integers wrap, so they are taken as unsigned.
#define INT_FOLDS(X, Y)                                       \
  X(SUM, I64, uint64_t, uint64_t, i, 0, AS_IS, ADD, ADD_TWO)  \
  X(PROD, I64, uint64_t, uint64_t, i, 1, AS_IS, MUL, MUL_TWO) \
  INT_EXTREMES(X, I64, int64_t, i, INT64_MIN, INT64_MAX)      \
  INT_EXTREMES(X, I32, int32_t, i32, INT32_MIN, INT32_MAX)    \
  INT_EXTREMES(X, I16, int16_t, i16, INT16_MIN, INT16_MAX)    \
  INT_EXTREMES(X, I8, int8_t, i8, INT8_MIN, INT8_MAX)         \
  INT_EXTREMES(X, U8, uint8_t, b, 0, UINT8_MAX)               \
  X(ANY, BOOL, uint8_t, uint8_t, b, 0, AS_IS, OR, OR_TWO)     \
  X(ALL, BOOL, uint8_t, uint8_t, b, 1, AS_IS, AND, AND_TWO)
#define ALL_FOLDS(X, Y, Z)                                        \
  HOT_FOLDS(X, Z, F32, float, float, f, AS_IS, int32_t)           \
  X(PROD, F32, float, float, f, 1, AS_IS, MUL, MUL_TWO)           \
  HOT_FOLDS(X, Z, F64, double, double, d, AS_IS, int64_t)         \
  X(PROD, F64, double, double, d, 1, AS_IS, MUL, MUL_TWO)         \
  HOT_FOLDS(X, Z, BF16, uint16_t, float, f, load_bfloat, int32_t) \
  FLOAT_FOLDS(Y, F32, float, f)                                   \
  FLOAT_FOLDS(Y, F64, double, d)                                  \
  INT_FOLDS(X, Y)

#define DEFINE_MERGED(kind, slot, element, type, member, start, LOAD, LEAF, JOIN) \
  DEFINE_PLAIN_CORE(kind##_##slot, element, type, PLAIN_LANES(type), LOAD, LEAF)  \
  DEFINE_COLUMN(kind##_##slot, element, type, PLAIN_LANES(type), LOAD, LEAF)      \
  DEFINE_MERGE(kind##_##slot, type, JOIN)
#define DEFINE_PLAIN(kind, slot, element, type, member, start, LOAD, LEAF, JOIN)                                  \
  DEFINE_MERGED(kind, slot, element, type, member, start, LOAD, LEAF, JOIN)                                       \
  DEFINE_TINY(kind##_##slot, element, type, start, LOAD, LEAF)                                                    \
  DEFINE_PLAIN_SET(kind##_##slot##_small, element, type, PLAIN_LANES(type) / 4, kind##_##slot##_tiny, LOAD, LEAF, \
                   JOIN, start)                                                                                   \
  DEFINE_REST(kind##_##slot, element, type, PLAIN_LANES(type) / 4)                                                \
  DEFINE_PLAIN_SET(kind##_##slot##_set, element, type, PLAIN_LANES(type), kind##_##slot##_rest, LOAD, LEAF, JOIN, \
                   start)                                                                                         \
  DEFINE_ROW(kind##_##slot, element, type, start, PLAIN_LANES(type), JOIN)
#define DEFINE_EXTREME(kind, slot, element, type, member, start, LOAD, LEAF, JOIN, INT, BETTER)                      \
  DEFINE_EXTREME_CORE(kind##_##slot, element, type, INT, PLAIN_LANES(type), LOAD, BETTER)                            \
  DEFINE_COLUMN(kind##_##slot, element, type, PLAIN_LANES(type), LOAD, LEAF)                                         \
  DEFINE_MERGE(kind##_##slot, type, JOIN)                                                                            \
  DEFINE_TINY(kind##_##slot, element, type, start, LOAD, LEAF)                                                       \
  DEFINE_EXTREME_SET(kind##_##slot##_small, element, type, INT, EXTREME_LANES(type) / 2, kind##_##slot##_tiny, LOAD, \
                     JOIN, BETTER)                                                                                   \
  DEFINE_REST(kind##_##slot, element, type, EXTREME_LANES(type) / 2)                                                 \
  DEFINE_EXTREME_SET(kind##_##slot##_set, element, type, INT, EXTREME_LANES(type), kind##_##slot##_rest, LOAD, JOIN, \
                     BETTER)                                                                                         \
  DEFINE_ROW(kind##_##slot, element, type, start, EXTREME_LANES(type), JOIN)
ALL_FOLDS(DEFINE_PLAIN, DEFINE_MERGED, DEFINE_EXTREME)

enum slot { SLOT_F32, SLOT_F64, SLOT_BF16, SLOT_I64, SLOT_I32, SLOT_I16, SLOT_I8, SLOT_U8, SLOT_BOOL, SLOT_COUNT };

static const struct reduce_fold folds[REDUCE_COUNT][SLOT_COUNT] = {
#define CELL(kind, slot, element, type, member, start, loop) \
  [REDUCE_##kind][SLOT_##slot] = {loop,                      \
                                  kind##_##slot##_column,    \
                                  kind##_##slot##_merge,     \
                                  {.member = start},         \
                                  (int16_t)sizeof(element),  \
                                  (int16_t)sizeof(type)},
#define HOT_CELL(kind, slot, element, type, member, start, ...) \
  CELL(kind, slot, element, type, member, start, kind##_##slot##_row)
#define MERGED_CELL(kind, slot, element, type, member, start, ...) CELL(kind, slot, element, type, member, start, NULL)
    ALL_FOLDS(HOT_CELL, MERGED_CELL, HOT_CELL)
#undef CELL
};

static int get_slot(int element) {
  switch (element) {
#define SLOT_CASE(dtype)  \
  case DIT_DTYPE_##dtype: \
    return SLOT_##dtype;
    SLOT_CASE(F32)
    SLOT_CASE(F64)
    SLOT_CASE(BF16)
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

const struct reduce_fold *reduce_find_fold(enum reduce_kind kind, int element) {
  const int slot = get_slot(element);
  const struct reduce_fold *fold = slot < 0 ? NULL : &folds[kind == REDUCE_MEAN ? REDUCE_SUM : kind][slot];
  return fold && fold->column ? fold : NULL;
}

void reduce_join(const struct reduce_fold *fold, void *values, int64_t count) {
  while (count > 1) {
    const int64_t half = count / 2;
    fold->merge(values, (char *)values + (count - half) * fold->value_width, half);
    count -= half;
  }
}

static void fold_one_row(const struct reduce_fold *fold, const char *p, int64_t count, double parameter, char *result) {
  _Alignas(64) char lanes[256], total[256];
  const int64_t values = (int64_t)sizeof lanes / fold->value_width, line = values * fold->element_width;
  reduce_fill_identity(fold, total, values);
  while (count > 0) {
    const int64_t lines = count / values < STEP ? count / values : STEP, taken = lines > 0 ? lines * values : count;
    reduce_fill_identity(fold, lanes, values);
    fold->column(lanes, p, lines > 0 ? values : count, lines > 0 ? lines : 1, line, parameter);
    fold->merge(total, lanes, values);
    p += taken * fold->element_width;
    count -= taken;
  }
  reduce_join(fold, total, values);
  memcpy(result, total, (size_t)fold->value_width);
}

void reduce_fold_rows(const struct reduce_fold *fold, const void *p, int64_t count, int64_t rows, int64_t step,
                      double parameter, void *results) {
  if (fold->row) {
    fold->row(p, count, rows, step, parameter, results);
    return;
  }
  for (int64_t row = 0; row < rows; row++) {
    fold_one_row(fold, (const char *)p + row * step, count, parameter, (char *)results + row * fold->value_width);
  }
}

void reduce_fill_identity(const struct reduce_fold *fold, void *line, int64_t count) {
  const size_t width = (size_t)fold->value_width, bytes = width * (size_t)count;
  if (fold->identity.i == 0) {
    memset(line, 0, bytes);
    return;
  }
  memcpy(line, &fold->identity, width);
  for (size_t done = width; done < bytes; done *= 2) {  // doubling: few long copies
    memcpy((char *)line + done, line, done < bytes - done ? done : bytes - done);
  }
}
