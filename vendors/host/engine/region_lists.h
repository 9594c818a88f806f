/// What the operations of regions are, as expressions: the block machine's loops (region_loops.h) and generated code
/// (region_code.c) are made of the same ones, so that a value has the same bits in both.
#ifndef DIT_HOST_ENGINE_REGION_LISTS_H
#define DIT_HOST_ENGINE_REGION_LISTS_H

#include "mathd.h"
#include "mathf.h"

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

/// Integers wrap around; X(NAME, expression).
#define REGION_INTEGER_1(X)                      \
  X(COPY, x)                                     \
  X(NOT, ~x)                                     \
  X(NEG, (int64_t)(0 - (uint64_t)x))             \
  X(ABS, x < 0 ? (int64_t)(0 - (uint64_t)x) : x) \
  X(SIGN, (x > 0) - (x < 0))                     \
  X(RELU, x < 0 ? 0 : x)
#define REGION_INTEGER_2(X)                    \
  X(ADD, (int64_t)((uint64_t)x + (uint64_t)y)) \
  X(SUB, (int64_t)((uint64_t)x - (uint64_t)y)) \
  X(MUL, (int64_t)((uint64_t)x * (uint64_t)y)) \
  X(MAXIMUM, x > y ? x : y)                    \
  X(MINIMUM, x < y ? x : y)                    \
  X(CLAMP_MIN, x < y ? y : x)                  \
  X(CLAMP_MAX, x > y ? y : x)                  \
  X(AND, x &y)                                 \
  X(OR, x | y)                                 \
  X(XOR, x ^ y)
#define REGION_BOOL_1(X) X(COPY, x) X(NOT, !x)
#define REGION_BOOL_2(X) \
  X(AND, x &y) X(OR, x | y) X(XOR, x ^ y) X(MUL, x &y) X(ADD, x | y) X(MAXIMUM, x | y) X(MINIMUM, x &y)

#endif
