/// Macros that define loops for the elementwise engine (pointwise.h), each compiled for every instruction set.
///
/// LOOP_n(name, result, type, arith, expression): `result` and `type` are the element types of the output and the
/// inputs, `arith` the type of x, y, z (the inputs' elements) and of k0 to k3 (the numbers at 16-byte steps of the
/// parameters, stored as `type`) in `expression`. LOOP_PLAIN_n: one version only, for loops that do not vectorise.
#ifndef DIT_HOST_ENGINE_POINTWISE_LOOPS_H
#define DIT_HOST_ENGINE_POINTWISE_LOOPS_H

#include "mathd.h"
#include "mathf.h"
#include "pointwise.h"

#define LOOP_PARAMS (const void *parameters, void *const *out, const void *const *in, int64_t count)
#define LOOP_ARGS (parameters, out, in, count)
#define LOOP_NUMBER(type, index) (((const type *)parameters)[(index) * 16 / sizeof(type)])
#define LOOP_NUMBERS(type, arith)                                                                                   \
  const arith k0 = (arith)LOOP_NUMBER(type, 0), k1 = (arith)LOOP_NUMBER(type, 1), k2 = (arith)LOOP_NUMBER(type, 2), \
              k3 = (arith)LOOP_NUMBER(type, 3);                                                                     \
  (void)k0, (void)k1, (void)k2, (void)k3;

#define LOOP_BODY_1(prefix, name, result, type, arith, expression) \
  prefix void name LOOP_PARAMS {                                   \
    result *o = out[0];                                            \
    const type *p = in[0];                                         \
    LOOP_NUMBERS(type, arith)                                      \
    KERNEL_LANES                                                   \
    for (int64_t i = 0; i < count; i++) {                          \
      const arith x = (arith)p[i];                                 \
      (void)x;                                                     \
      o[i] = (result)(expression);                                 \
    }                                                              \
  }
#define LOOP_BODY_2(prefix, name, result, type, arith, expression) \
  prefix void name LOOP_PARAMS {                                   \
    result *o = out[0];                                            \
    const type *p = in[0], *q = in[1];                             \
    LOOP_NUMBERS(type, arith)                                      \
    KERNEL_LANES                                                   \
    for (int64_t i = 0; i < count; i++) {                          \
      const arith x = (arith)p[i], y = (arith)q[i];                \
      o[i] = (result)(expression);                                 \
    }                                                              \
  }
#define LOOP_BODY_3(prefix, name, result, type, arith, expression)   \
  prefix void name LOOP_PARAMS {                                     \
    result *o = out[0];                                              \
    const type *p = in[0], *q = in[1], *r = in[2];                   \
    LOOP_NUMBERS(type, arith)                                        \
    KERNEL_LANES                                                     \
    for (int64_t i = 0; i < count; i++) {                            \
      const arith x = (arith)p[i], y = (arith)q[i], z = (arith)r[i]; \
      o[i] = (result)(expression);                                   \
    }                                                                \
  }

#define LOOP_PLAIN_1(name, result, type, arith, expression) LOOP_BODY_1(static, name, result, type, arith, expression)
#define LOOP_PLAIN_2(name, result, type, arith, expression) LOOP_BODY_2(static, name, result, type, arith, expression)
#define LOOP_PLAIN_3(name, result, type, arith, expression) LOOP_BODY_3(static, name, result, type, arith, expression)
#define LOOP_1(name, result, type, arith, expression)                      \
  LOOP_BODY_1(KERNEL_INLINE, name##_body, result, type, arith, expression) \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_2(name, result, type, arith, expression)                      \
  LOOP_BODY_2(KERNEL_INLINE, name##_body, result, type, arith, expression) \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_3(name, result, type, arith, expression)                      \
  LOOP_BODY_3(KERNEL_INLINE, name##_body, result, type, arith, expression) \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)

/// Loops by work type; NULL where the operation has none.
#define LOOP_TYPES (DIT_DTYPE_U64 + 1)
typedef pointwise_loop *const loop_table[LOOP_TYPES];
#define ROWS_FLOAT(op) [DIT_DTYPE_F32] = op##_f32, [DIT_DTYPE_F64] = op##_f64
#define ROWS_INT(op)                                                                                          \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_i8, [DIT_DTYPE_I16] = op##_i16, [DIT_DTYPE_I32] = op##_i32, \
  [DIT_DTYPE_I64] = op##_i64
#define ROWS_UINT(op) [DIT_DTYPE_U16] = op##_u16, [DIT_DTYPE_U32] = op##_u32, [DIT_DTYPE_U64] = op##_u64
/// Operations on bits that do not look at the sign: the unsigned loops serve all.
#define ROWS_BITS(op)                                                                                         \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_u8, [DIT_DTYPE_I16] = op##_u16, [DIT_DTYPE_I32] = op##_u32, \
  [DIT_DTYPE_I64] = op##_u64, ROWS_UINT(op)
/// The same for the integers of PyTorch's older operators.
#define ROWS_BITS_SIGNED(op)                                                                                  \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_u8, [DIT_DTYPE_I16] = op##_u16, [DIT_DTYPE_I32] = op##_u32, \
  [DIT_DTYPE_I64] = op##_u64
#define ROWS_COMPLEX(op) [DIT_DTYPE_C64] = op##_c64, [DIT_DTYPE_C128] = op##_c128

/// X(tag, type, arith): the types of a family.
#define LOOP_LIST_FLOAT(X) X(f32, float, float) X(f64, double, double)
#define LOOP_LIST_INT(X)  \
  X(u8, uint8_t, int32_t) \
  X(i8, int8_t, int32_t) X(i16, int16_t, int32_t) X(i32, int32_t, int32_t) X(i64, int64_t, int64_t)
#define LOOP_LIST_UINT(X) X(u16, uint16_t, uint32_t) X(u32, uint32_t, uint32_t) X(u64, uint64_t, uint64_t)
#define LOOP_LIST_BITS(X) \
  X(u8, uint8_t, uint32_t) X(u16, uint16_t, uint32_t) X(u32, uint32_t, uint32_t) X(u64, uint64_t, uint64_t)
#define LOOP_LIST_COMPLEX(X) X(c64, float _Complex, float _Complex) X(c128, double _Complex, double _Complex)

#endif
