/// The loops of the block machine and their table (see region_loops.h).
#include "region_table.h"

#define DEFINE_1(NAME, single, precise)             \
  REGION_1(loop_##NAME##_f32, float, float, single) \
  REGION_1(loop_##NAME##_f64, double, double, precise)
REGION_FLOAT_1(DEFINE_1)
#define DEFINE_2(NAME, single, precise)             \
  REGION_2(loop_##NAME##_f32, float, float, single) \
  REGION_2(loop_##NAME##_f64, double, double, precise)
REGION_FLOAT_2(DEFINE_2)
#define DEFINE_COMPARE(NAME, expression)                    \
  REGION_2(loop_##NAME##_f32, int32_t, float, expression)   \
  REGION_2(loop_##NAME##_f64, int32_t, double, expression)  \
  REGION_2(loop_##NAME##_i64, int32_t, int64_t, expression) \
  REGION_2(loop_##NAME##_bool, int32_t, int32_t, expression)
REGION_COMPARE(DEFINE_COMPARE)

/// Blocks with arguments beyond the reduction's range (NaN and infinity among them) take libm.
#define TRIG(NAME, name)                             \
  REGION_1(near_##NAME, float, float, name##_f32(x)) \
  static void loop_##NAME##_f32 REGION_PARAMS {      \
    const float *p = in[0];                          \
    float *o = out;                                  \
    int is_large = 0;                                \
    for (int64_t i = 0; i < count; i++) {            \
      is_large |= !(fabsf(p[i]) <= MATHF_TRIG_MAX);  \
    }                                                \
    if (!is_large) {                                 \
      near_##NAME(out, in, single, count);           \
      return;                                        \
    }                                                \
    for (int64_t i = 0; i < count; i++) {            \
      o[i] = name##f(p[i]);                          \
    }                                                \
  }                                                  \
  REGION_1(loop_##NAME##_f64, double, double, name(x))
TRIG(SIN, sin)
TRIG(COS, cos)

REGION_1(loop_ISNAN_f32, int32_t, float, x != x)
REGION_1(loop_ISNAN_f64, int32_t, double, x != x)
#define DEFINE_INTEGER_1(NAME, expression) REGION_1(loop_##NAME##_i64, int64_t, int64_t, expression)
#define DEFINE_INTEGER_2(NAME, expression) REGION_2(loop_##NAME##_i64, int64_t, int64_t, expression)
#define DEFINE_BOOL_1(NAME, expression) REGION_1(loop_##NAME##_bool, int32_t, int32_t, expression)
#define DEFINE_BOOL_2(NAME, expression) REGION_2(loop_##NAME##_bool, int32_t, int32_t, expression)
REGION_INTEGER_1(DEFINE_INTEGER_1)
REGION_INTEGER_2(DEFINE_INTEGER_2)
REGION_BOOL_1(DEFINE_BOOL_1)
REGION_BOOL_2(DEFINE_BOOL_2)

#define DEFINE_3(tag, type) REGION_3(loop_WHERE_##tag, type, int32_t, type, x ? y : z)
DEFINE_3(f32, float)
DEFINE_3(f64, double)
DEFINE_3(i64, int64_t)
DEFINE_3(bool, int32_t)
REGION_3(loop_ADD_SCALED_f32, float, float, float, x + z * y)
REGION_3(loop_ADD_SCALED_f64, double, double, double, x + z * y)
REGION_3(loop_LERP_f32, float, float, float, NEAR(x, y, z))
REGION_3(loop_LERP_f64, double, double, double, NEAR(x, y, z))

// conversions between registers
REGION_1(cast_f32_f64, double, float, x)
REGION_1(cast_f32_i64, int64_t, float, x)
REGION_1(cast_f32_bool, int32_t, float, x != 0)
REGION_1(cast_f64_f32, float, double, x)
REGION_1(cast_f64_i64, int64_t, double, x)
REGION_1(cast_f64_bool, int32_t, double, x != 0)
REGION_1(cast_i64_f32, float, int64_t, x)
REGION_1(cast_i64_f64, double, int64_t, x)
REGION_1(cast_i64_bool, int32_t, int64_t, x != 0)
REGION_1(cast_bool_f32, float, int32_t, x)
REGION_1(cast_bool_f64, double, int32_t, x)
REGION_1(cast_bool_i64, int64_t, int32_t, x)

static region_loop *const casts[CLASS_COUNT][CLASS_COUNT] = {
    [CLASS_F32] = {loop_COPY_f32, cast_f32_f64, cast_f32_i64, cast_f32_bool},
    [CLASS_F64] = {cast_f64_f32, loop_COPY_f64, cast_f64_i64, cast_f64_bool},
    [CLASS_I64] = {cast_i64_f32, cast_i64_f64, loop_COPY_i64, cast_i64_bool},
    [CLASS_BOOL] = {cast_bool_f32, cast_bool_f64, cast_bool_i64, loop_COPY_bool},
};

#define FLOATS(NAME) [DIT_REGION_##NAME] = {loop_##NAME##_f32, loop_##NAME##_f64, NULL, NULL},
#define FLOAT_ROW(NAME, single, precise) FLOATS(NAME)
#define NUMBERS(NAME) [DIT_REGION_##NAME] = {loop_##NAME##_f32, loop_##NAME##_f64, loop_##NAME##_i64, NULL},
#define ALL(NAME) [DIT_REGION_##NAME] = {loop_##NAME##_f32, loop_##NAME##_f64, loop_##NAME##_i64, loop_##NAME##_bool},
#define COMPARE_ROW(NAME, expression) ALL(NAME)
#define BITS(NAME) [DIT_REGION_##NAME] = {NULL, NULL, loop_##NAME##_i64, loop_##NAME##_bool},

/// By operation and class of the last argument.
static region_loop *const loops[DIT_REGION_OP_COUNT][CLASS_COUNT] = {
    ALL(COPY) NUMBERS(NEG) NUMBERS(ABS) NUMBERS(SIGN) BITS(NOT) FLOATS(ISNAN) FLOATS(SQRT) FLOATS(RSQRT)
        FLOATS(RECIPROCAL) FLOATS(EXP) FLOATS(EXPM1) FLOATS(LOG) FLOATS(LOG2) FLOATS(LOG10) FLOATS(LOG1P) FLOATS(SIN)
            FLOATS(COS) FLOATS(TANH) FLOATS(ERF) FLOATS(FLOOR) FLOATS(CEIL) FLOATS(ROUND) FLOATS(TRUNC) NUMBERS(RELU)
                FLOATS(SIGMOID) FLOATS(SILU) FLOATS(GELU) FLOATS(GELU_TANH) ALL(ADD) NUMBERS(SUB) ALL(MUL) FLOATS(DIV)
                    ALL(MAXIMUM) ALL(MINIMUM) FLOATS(POW) NUMBERS(CLAMP_MIN) NUMBERS(CLAMP_MAX) BITS(AND) BITS(OR)
                        BITS(XOR) FLOATS(TANH_GRAD) FLOATS(SIGMOID_GRAD) FLOATS(SILU_GRAD) FLOATS(GELU_GRAD)
                            FLOATS(GELU_TANH_GRAD) ALL(WHERE) FLOATS(ADD_SCALED) FLOATS(LERP)
                                REGION_COMPARE(COMPARE_ROW)};

region_loop *region_find_loop(int op, int from, int to) {
  return op == DIT_REGION_CAST ? casts[from][to] : loops[op][from];
}

// Rounding in place to the narrow types

REGION_1(round_bf16, float, float, bfloat_to_float(bfloat_from_float(x)))
REGION_1(round_f16, float, float, half_to_float(half_from_float(x)))
REGION_1(round_i32, int64_t, int64_t, (int32_t)x)
REGION_1(round_i16, int64_t, int64_t, (int16_t)x)
REGION_1(round_i8, int64_t, int64_t, (int8_t)x)
REGION_1(round_u8, int64_t, int64_t, (uint8_t)x)

region_loop *region_find_rounding(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BF16:
      return round_bf16;
    case DIT_DTYPE_F16:
      return round_f16;
    case DIT_DTYPE_I32:
      return round_i32;
    case DIT_DTYPE_I16:
      return round_i16;
    case DIT_DTYPE_I8:
      return round_i8;
    case DIT_DTYPE_U8:
      return round_u8;
    default:
      return NULL;
  }
}

int region_get_class(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return CLASS_F32;
    case DIT_DTYPE_F64:
      return CLASS_F64;
    case DIT_DTYPE_BOOL:
      return CLASS_BOOL;
    case DIT_DTYPE_I64:
    case DIT_DTYPE_I32:
    case DIT_DTYPE_I16:
    case DIT_DTYPE_I8:
    case DIT_DTYPE_U8:
      return CLASS_I64;
    default:
      return -1;
  }
}

// Memory to registers and back

#define MOVE_LOOP(type_in, type_out, at_in, at_out, expression) \
  KERNEL_LANES                                                  \
  for (int64_t i = 0; i < count; i++) {                         \
    const type_in x = p[at_in];                                 \
    o[at_out] = (type_out)(expression);                         \
  }
#define MOVE_PARAMS (void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t count)
#define MOVE_ARGS (out, out_stride, in, in_stride, count)
#define MOVE(name, type_in, type_out, expression)    \
  KERNEL_INLINE void name##_body MOVE_PARAMS {       \
    const type_in *p = in;                           \
    type_out *o = out;                               \
    if (in_stride == 1 && out_stride == 1) {         \
      MOVE_LOOP(type_in, type_out, i, i, expression) \
    } else {                                         \
      for (int64_t i = 0; i < count; i++) {          \
        const type_in x = p[i * in_stride];          \
        o[i * out_stride] = (type_out)(expression);  \
      }                                              \
    }                                                \
  }                                                  \
  KERNEL_MULTI(static, name, MOVE_PARAMS, MOVE_ARGS)
#define BOTH(tag, memory, reg, to, from) MOVE(load_##tag, memory, reg, to) MOVE(store_##tag, reg, memory, from)
BOTH(f32, float, float, x, x)
BOTH(f64, double, double, x, x)
BOTH(bf16, uint16_t, float, bfloat_to_float(x), bfloat_from_float(x))
BOTH(f16, uint16_t, float, half_to_float(x), half_from_float(x))
BOTH(i64, int64_t, int64_t, x, x)
BOTH(i32, int32_t, int64_t, x, x)
BOTH(i16, int16_t, int64_t, x, x)
BOTH(i8, int8_t, int64_t, x, x)
BOTH(u8, uint8_t, int64_t, x, x)
BOTH(bool, uint8_t, int32_t, x != 0, x != 0)

static region_move *const loads[] = {
    [DIT_DTYPE_F32] = load_f32, [DIT_DTYPE_F64] = load_f64,  [DIT_DTYPE_BF16] = load_bf16, [DIT_DTYPE_F16] = load_f16,
    [DIT_DTYPE_I64] = load_i64, [DIT_DTYPE_I32] = load_i32,  [DIT_DTYPE_I16] = load_i16,   [DIT_DTYPE_I8] = load_i8,
    [DIT_DTYPE_U8] = load_u8,   [DIT_DTYPE_BOOL] = load_bool};
static region_move *const stores[] = {
    [DIT_DTYPE_F32] = store_f32,  [DIT_DTYPE_F64] = store_f64, [DIT_DTYPE_BF16] = store_bf16,
    [DIT_DTYPE_F16] = store_f16,  [DIT_DTYPE_I64] = store_i64, [DIT_DTYPE_I32] = store_i32,
    [DIT_DTYPE_I16] = store_i16,  [DIT_DTYPE_I8] = store_i8,   [DIT_DTYPE_U8] = store_u8,
    [DIT_DTYPE_BOOL] = store_bool};

region_move *region_find_load(int dtype) {
  return loads[dtype];
}
region_move *region_find_store(int dtype) {
  return stores[dtype];
}

// Folds of a row, and of columns into accumulators. Sums of floats are kept in double.

#define LANES 16
#define FOLD(name, type, work, start, step, join)    \
  KERNEL_INLINE void name##_body REGION_PARAMS {     \
    const type *p = in[0];                           \
    work lanes[LANES];                               \
    for (int k = 0; k < LANES; k++) {                \
      lanes[k] = start;                              \
    }                                                \
    int64_t i = 0;                                   \
    (void)single;                                    \
    for (; i + LANES <= count; i += LANES) {         \
      for (int k = 0; k < LANES; k++) {              \
        const work x = (work)p[i + k], a = lanes[k]; \
        lanes[k] = step;                             \
      }                                              \
    }                                                \
    work a = start;                                  \
    for (int k = 0; k < LANES; k++) {                \
      const work x = lanes[k];                       \
      a = join;                                      \
    }                                                \
    for (; i < count; i++) {                         \
      const work x = (work)p[i];                     \
      a = step;                                      \
    }                                                \
    *(type *)out = (type)a;                          \
  }                                                  \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)
#define LARGER (((x > a) | (x != x)) ? x : a)
#define SMALLER (((x < a) | (x != x)) ? x : a)
FOLD(row_sum_f32, float, double, 0, a + x, a + x)
FOLD(row_sum_f64, double, double, 0, a + x, a + x)
FOLD(row_sum_i64, int64_t, uint64_t, 0, a + x, a + x)
FOLD(row_max_f32, float, float, -INFINITY, LARGER, LARGER)
FOLD(row_max_f64, double, double, -INFINITY, LARGER, LARGER)
FOLD(row_max_i64, int64_t, int64_t, INT64_MIN, x > a ? x : a, x > a ? x : a)
FOLD(row_max_bool, int32_t, int32_t, 0, x | a, x | a)
FOLD(row_min_f32, float, float, INFINITY, SMALLER, SMALLER)
FOLD(row_min_f64, double, double, INFINITY, SMALLER, SMALLER)
FOLD(row_min_i64, int64_t, int64_t, INT64_MAX, x < a ? x : a, x < a ? x : a)
FOLD(row_min_bool, int32_t, int32_t, 1, x &a, x &a)

#define COLUMN(name, type, work, expression)     \
  KERNEL_INLINE void name##_body REGION_PARAMS { \
    work *o = out;                               \
    const type *p = in[0];                       \
    (void)single;                                \
    KERNEL_LANES                                 \
    for (int64_t i = 0; i < count; i++) {        \
      const work x = (work)p[i], a = o[i];       \
      o[i] = expression;                         \
    }                                            \
  }                                              \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)
COLUMN(column_sum_f32, float, double, a + x)
COLUMN(column_sum_f64, double, double, a + x)
COLUMN(column_sum_i64, int64_t, uint64_t, a + x)
COLUMN(column_max_f32, float, float, LARGER)
COLUMN(column_max_f64, double, double, LARGER)
COLUMN(column_max_i64, int64_t, int64_t, x > a ? x : a)
COLUMN(column_max_bool, int32_t, int32_t, x | a)
COLUMN(column_min_f32, float, float, SMALLER)
COLUMN(column_min_f64, double, double, SMALLER)
COLUMN(column_min_i64, int64_t, int64_t, x < a ? x : a)
COLUMN(column_min_bool, int32_t, int32_t, x &a)

#define FOLDS(kind)                                                          \
  {                                                                          \
    {kind##_sum_f32, kind##_sum_f64, kind##_sum_i64, NULL},                  \
        {kind##_max_f32, kind##_max_f64, kind##_max_i64, kind##_max_bool}, { \
      kind##_min_f32, kind##_min_f64, kind##_min_i64, kind##_min_bool        \
    }                                                                        \
  }
static region_loop *const rows[3][CLASS_COUNT] = FOLDS(row);
static region_loop *const columns[3][CLASS_COUNT] = FOLDS(column);

region_loop *region_find_fold(int op, int klass, bool is_column) {
  return (is_column ? columns : rows)[op - DIT_REGION_SUM][klass];
}
