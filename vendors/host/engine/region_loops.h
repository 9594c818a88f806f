/// The loops of the block machine: one per operation and working type. Registers hold float (float32, float16,
/// bfloat16), double, int64 (all integers) or int32 (bool). The last argument of two or three may be one number.
#ifndef DIT_HOST_ENGINE_REGION_LOOPS_H
#define DIT_HOST_ENGINE_REGION_LOOPS_H

#include "mathd.h"
#include "mathf.h"

enum region_class { CLASS_F32, CLASS_F64, CLASS_I64, CLASS_BOOL, CLASS_COUNT };
/// Bit k of `single`: argument k is one number.
typedef void region_loop(void *out, const void *const *in, unsigned single, int64_t count);

#define REGION_PARAMS (void *out, const void *const *in, unsigned single, int64_t count)
#define REGION_ARGS (out, in, single, count)

#define REGION_1(name, result, type, expression) \
  KERNEL_INLINE void name##_body REGION_PARAMS { \
    result *o = out;                             \
    const type *p = in[0];                       \
    (void)single;                                \
    KERNEL_LANES                                 \
    for (int64_t i = 0; i < count; i++) {        \
      const type x = p[i];                       \
      o[i] = (result)(expression);               \
    }                                            \
  }                                              \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

#define REGION_LOOP_2(type, result, left, right, expression) \
  KERNEL_LANES                                               \
  for (int64_t i = 0; i < count; i++) {                      \
    const type x = left, y = right;                          \
    o[i] = (result)(expression);                             \
  }
#define REGION_2(name, result, type, expression)           \
  KERNEL_INLINE void name##_body REGION_PARAMS {           \
    result *o = out;                                       \
    const type *p = in[0], *q = in[1];                     \
    if (single == 2) {                                     \
      const type right = q[0];                             \
      REGION_LOOP_2(type, result, p[i], right, expression) \
    } else {                                               \
      REGION_LOOP_2(type, result, p[i], q[i], expression)  \
    }                                                      \
  }                                                        \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

#define REGION_3(name, result, first, type, expression) \
  KERNEL_INLINE void name##_body REGION_PARAMS {        \
    result *o = out;                                    \
    const first *p = in[0];                             \
    const type *q = in[1], *r = in[2];                  \
    if (single & 4) {                                   \
      const type z = r[0];                              \
      KERNEL_LANES                                      \
      for (int64_t i = 0; i < count; i++) {             \
        const first x = p[i];                           \
        const type y = q[i];                            \
        o[i] = (result)(expression);                    \
      }                                                 \
    } else {                                            \
      KERNEL_LANES                                      \
      for (int64_t i = 0; i < count; i++) {             \
        const first x = p[i];                           \
        const type y = q[i], z = r[i];                  \
        o[i] = (result)(expression);                    \
      }                                                 \
    }                                                   \
  }                                                     \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

KERNEL_INLINE double cdf_f64(double x) {
  return 0.5 * (1 + erf(x * 0.70710678118654752440));
}
#define INNER(type, x) ((type)0.79788456080286535588 * ((x) + (type)0.044715 * ((x) * (x) * (x))))
#define INNER_SLOPE(type, x) ((type)0.79788456080286535588 * (1 + 3 * (type)0.044715 * (x) * (x)))
#define GELU_TANH_SLOPE(type, x, t) ((type)0.5 * (1 + (t)) + (type)0.5 * (x) * (1 - (t) * (t)) * INNER_SLOPE(type, x))
#define NEAR(x, y, w) ((w) * (w) < 0.25 ? (x) + (w) * ((y) - (x)) : (y) - ((y) - (x)) * (1 - (w)))

/// X(NAME, float expression, double expression) of x.
#define REGION_FLOAT_1(X)                                          \
  X(COPY, x, x)                                                    \
  X(NEG, -x, -x)                                                   \
  X(ABS, fabsf(x), fabs(x))                                        \
  X(SIGN, (float)((x > 0) - (x < 0)), (double)((x > 0) - (x < 0))) \
  X(SQRT, sqrtf(x), sqrt(x))                                       \
  X(RSQRT, 1.0f / sqrtf(x), 1.0 / sqrt(x))                         \
  X(RECIPROCAL, 1.0f / x, 1.0 / x)                                 \
  X(EXP, exp_f32(x), exp_f64(x))                                   \
  X(EXPM1, expm1_f32(x), expm1(x))                                 \
  X(LOG, log_f32(x), log_f64(x))                                   \
  X(LOG2, log2_f32(x), log2(x))                                    \
  X(LOG10, log10_f32(x), log10(x))                                 \
  X(LOG1P, log1p_f32(x), log1p(x))                                 \
  X(TANH, tanh_f32(x), tanh_f64(x))                                \
  X(ERF, erf_f32(x), erf(x))                                       \
  X(FLOOR, floorf(x), floor(x))                                    \
  X(CEIL, ceilf(x), ceil(x))                                       \
  X(ROUND, nearbyintf(x), nearbyint(x))                            \
  X(TRUNC, truncf(x), trunc(x))                                    \
  X(RELU, x < 0 ? 0 : x, x < 0 ? 0 : x)                            \
  X(SIGMOID, sigmoid_f32(x), sigmoid_f64(x))                       \
  X(SILU, x / (1 + exp_f32(-x)), x / (1 + exp_f64(-x)))            \
  X(GELU, x *cdf_f32(x), x *cdf_f64(x))                            \
  X(GELU_TANH, 0.5f * x * (1 + tanh_f32(INNER(float, x))), 0.5 * x * (1 + tanh_f64(INNER(double, x))))

/// X(NAME, type of both, tag) elementwise of x and y, for float and double alike; EXP, TANH, CDF, SIGMOID by tag.
#define REGION_FLOAT_2(X)                                                                    \
  X(ADD, x + y, x + y)                                                                       \
  X(SUB, x - y, x - y)                                                                       \
  X(MUL, x *y, x *y)                                                                         \
  X(DIV, x / y, x / y)                                                                       \
  X(MAXIMUM, ((x > y) | (x != x)) ? x : y, ((x > y) | (x != x)) ? x : y)                     \
  X(MINIMUM, ((x < y) | (x != x)) ? x : y, ((x < y) | (x != x)) ? x : y)                     \
  X(POW, pow_f32(x, y), pow(x, y))                                                           \
  X(CLAMP_MIN, y != y ? y : x < y ? y : x, y != y ? y : x < y ? y : x)                       \
  X(CLAMP_MAX, y != y ? y : x > y ? y : x, y != y ? y : x > y ? y : x)                       \
  X(TANH_GRAD, x * (1 - y * y), x * (1 - y * y))                                             \
  X(SIGMOID_GRAD, x * (1 - y) * y, x * (1 - y) * y)                                          \
  X(SILU_GRAD, x *sigmoid_f32(y) * (1 + y * (1 - sigmoid_f32(y))),                           \
    x * sigmoid_f64(y) * (1 + y * (1 - sigmoid_f64(y))))                                     \
  X(GELU_GRAD, x *(cdf_f32(y) + y * (float)0.39894228040143267794 * exp_f32(-0.5f * y * y)), \
    x *(cdf_f64(y) + y * 0.39894228040143267794 * exp_f64(-0.5 * y * y)))                    \
  X(GELU_TANH_GRAD, x *GELU_TANH_SLOPE(float, y, tanh_f32(INNER(float, y))),                 \
    x *GELU_TANH_SLOPE(double, y, tanh_f64(INNER(double, y))))

#define REGION_COMPARE(X) X(EQ, x == y) X(NE, x != y) X(LT, x < y) X(LE, x <= y) X(GT, x > y) X(GE, x >= y)

#endif
