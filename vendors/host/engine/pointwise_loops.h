/// Macros that define loops for the elementwise engine (pointwise.h), each compiled for every instruction set.
///
/// LOOP_n(name, result, type, arith, expression): `result` and `type` are the element types of the output and the
/// inputs, `arith` the type of x, y, z (the inputs' elements) and of k0 to k3 (the numbers at 16-byte steps of the
/// parameters, stored as `type`) in `expression`. LOOP_PLAIN_n: one version only, for loops that do not vectorise.
#ifndef DIT_HOST_ENGINE_POINTWISE_LOOPS_H
#define DIT_HOST_ENGINE_POINTWISE_LOOPS_H

#include "loop_lists.h"
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

/// The same for bfloat16 elements: read, widened to float, computed and rounded in one pass. Numbers are float.
#define LOOP_BODY_BF16_1(name, expression)     \
  KERNEL_INLINE void name##_body LOOP_PARAMS { \
    uint16_t *o = out[0];                      \
    const uint16_t *p = in[0];                 \
    LOOP_NUMBERS(float, float)                 \
    KERNEL_LANES                               \
    for (int64_t i = 0; i < count; i++) {      \
      const float x = bfloat_to_float(p[i]);   \
      o[i] = bfloat_from_float(expression);    \
    }                                          \
  }
#define LOOP_BODY_BF16_2(name, expression)                              \
  KERNEL_INLINE void name##_body LOOP_PARAMS {                          \
    uint16_t *o = out[0];                                               \
    const uint16_t *p = in[0], *q = in[1];                              \
    LOOP_NUMBERS(float, float)                                          \
    KERNEL_LANES                                                        \
    for (int64_t i = 0; i < count; i++) {                               \
      const float x = bfloat_to_float(p[i]), y = bfloat_to_float(q[i]); \
      o[i] = bfloat_from_float(expression);                             \
    }                                                                   \
  }
#define LOOP_BODY_BF16_3(name, expression)                                                         \
  KERNEL_INLINE void name##_body LOOP_PARAMS {                                                     \
    uint16_t *o = out[0];                                                                          \
    const uint16_t *p = in[0], *q = in[1], *r = in[2];                                             \
    LOOP_NUMBERS(float, float)                                                                     \
    KERNEL_LANES                                                                                   \
    for (int64_t i = 0; i < count; i++) {                                                          \
      const float x = bfloat_to_float(p[i]), y = bfloat_to_float(q[i]), z = bfloat_to_float(r[i]); \
      o[i] = bfloat_from_float(expression);                                                        \
    }                                                                                              \
  }
/// The result is one of the elements, so that nothing is rounded.
#define LOOP_BODY_BF16_PICK_2(name, expression)                         \
  KERNEL_INLINE void name##_body LOOP_PARAMS {                          \
    uint16_t *o = out[0];                                               \
    const uint16_t *p = in[0], *q = in[1];                              \
    (void)parameters;                                                   \
    KERNEL_LANES                                                        \
    for (int64_t i = 0; i < count; i++) {                               \
      const float x = bfloat_to_float(p[i]), y = bfloat_to_float(q[i]); \
      o[i] = (uint16_t)(float_to_bits(expression) >> 16);               \
    }                                                                   \
  }
#define LOOP_BF16_1(name, expression) \
  LOOP_BODY_BF16_1(name, expression)  \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_BF16_2(name, expression) \
  LOOP_BODY_BF16_2(name, expression)  \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_BF16_3(name, expression) \
  LOOP_BODY_BF16_3(name, expression)  \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_BF16_PICK_2(name, expression) \
  LOOP_BODY_BF16_PICK_2(name, expression)  \
  KERNEL_MULTI(static, name, LOOP_PARAMS, LOOP_ARGS)

/// The square root in the type of x.
#define LOOP_SQRT(x) _Generic((x), float: sqrtf, double: sqrt)(x)

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

/// On the bits of half types.
#define LOOP_HALF_1(name, expression) LOOP_1(name, uint16_t, uint16_t, uint32_t, expression)

/// Loops by work type; NULL where the operation has none. Half types without a loop of their own take float's.
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

/// Expressions over complex numbers are C's alone.
#define LOOP_COMPLEX 1
#define LOOP_LIST_COMPLEX(X) X(c64, float _Complex, float _Complex) X(c128, double _Complex, double _Complex)

/// Products and quotients as PyTorch takes them, without C's care for infinite parts, so that loops vectorise: a
/// quotient by the larger part of the divisor (no square overflows); parts over 0 where the divisor is 0.
#define LOOP_COMPLEX_PARTS(tag, type, fabs_)                                                                    \
  KERNEL_INLINE type _Complex make_##tag(type re, type im) {                                                    \
    type _Complex z;                                                                                            \
    __real__ z = re;                                                                                            \
    __imag__ z = im;                                                                                            \
    return z;                                                                                                   \
  }                                                                                                             \
  KERNEL_INLINE type _Complex times_##tag(type _Complex x, type _Complex y) {                                   \
    const type a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;                                  \
    return make_##tag(a * c - b * d, a * d + b * c);                                                            \
  }                                                                                                             \
  KERNEL_INLINE type _Complex over_##tag(type _Complex x, type _Complex y) {                                    \
    const type c = __real__ y, d = __imag__ y;                                                                  \
    const bool turned = !(fabs_(c) >= fabs_(d)), none = (c == 0) & (d == 0);                                    \
    const type a = turned ? __imag__ x : __real__ x, b = turned ? __real__ x : __imag__ x;                      \
    const type large = turned ? d : c, small = turned ? c : d, ratio = small / large;                           \
    const type scale = 1 / (large + small * ratio), re = (a + b * ratio) * scale, im = (b - a * ratio) * scale; \
    return make_##tag(none ? __real__ x / fabs_(c) : re, none ? __imag__ x / fabs_(d) : turned ? -im : im);     \
  }
LOOP_COMPLEX_PARTS(c64, float, fabsf)
LOOP_COMPLEX_PARTS(c128, double, fabs)

#endif
