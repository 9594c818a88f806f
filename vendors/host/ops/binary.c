/// Elementwise operators of two operands: add, sub, mul, div, pow, remainder, maximum, minimum.
///
/// out = input op other, where either may be a number. Operands broadcast and promote as in PyTorch; half types compute
/// in float; integers wrap. out has the broadcast shape, any dtype that can hold the result, and may be one of the
/// operands. Inp writes to input, whose shape is the result's.
///
/// Names of the standard: Pow is tensor ^ number, PowScalar number ^ tensor, PowTensor tensor ^ tensor; Remainder is
/// number % tensor, RemainderScalar tensor % number.
#include <complex.h>
#include <math.h>

#include "elementwise.h"

#define BITS(tag, type, arith)                        \
  LOOP_2(add_##tag, type, type, arith, x + y)         \
  LOOP_2(scaled_##tag, type, type, arith, x + k3 * y) \
  LOOP_2(sub_##tag, type, type, arith, x - y)         \
  LOOP_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_BITS(BITS)
#define REAL(tag, type, arith) BITS(tag, type, arith) LOOP_2(div_##tag, type, type, arith, x / y)
LOOP_LIST_FLOAT(REAL)
/// Products as PyTorch's: without C's care for infinite parts, so that they vectorise.
static inline float _Complex multiply_c64(float _Complex x, float _Complex y) {
  const float a = crealf(x), b = cimagf(x), c = crealf(y), d = cimagf(y);
  const union {
    float parts[2];
    float _Complex whole;
  } product = {{a * c - b * d, a * d + b * c}};
  return product.whole;
}
static inline double _Complex multiply_c128(double _Complex x, double _Complex y) {
  const double a = creal(x), b = cimag(x), c = creal(y), d = cimag(y);
  const union {
    double parts[2];
    double _Complex whole;
  } product = {{a * c - b * d, a * d + b * c}};
  return product.whole;
}
#define PAIR(tag, type, arith)                               \
  LOOP_PLAIN_2(add_##tag, type, type, arith, x + y)          \
  LOOP_PLAIN_2(scaled_##tag, type, type, arith, x + k3 * y)  \
  LOOP_PLAIN_2(sub_##tag, type, type, arith, x - y)          \
  LOOP_2(mul_##tag, type, type, arith, multiply_##tag(x, y)) \
  LOOP_PLAIN_2(div_##tag, type, type, arith, x / y)
LOOP_LIST_COMPLEX(PAIR)
LOOP_2(add_bool, uint8_t, uint8_t, uint32_t, (x | y) != 0)
LOOP_2(scaled_bool, uint8_t, uint8_t, uint32_t, (x | (y & k3)) != 0)
LOOP_2(mul_bool, uint8_t, uint8_t, uint32_t, (x & y) != 0)

// the number on the right stays in a register: the most frequent scalar forms
LOOP_1(sub_number_f32, float, float, float, x - k0)
LOOP_1(div_number_f32, float, float, float, x / k0)
LOOP_1(add_number_f32, float, float, float, x + k0)
LOOP_1(mul_number_f32, float, float, float, x *k0)

#define ORDERED(tag, type, arith)                                        \
  LOOP_2(maximum_##tag, type, type, arith, ((x > y) | (x != x)) ? x : y) \
  LOOP_2(minimum_##tag, type, type, arith, ((x < y) | (x != x)) ? x : y)
LOOP_LIST_INT(ORDERED)
LOOP_LIST_FLOAT(ORDERED)

/// Integer division: the divisor is not 0; the most negative number by -1 wraps.
#define TRUNC_INT(x, y) ((y) == -1 ? (int64_t)(0 - (uint64_t)(x)) : (int64_t)(x) / (int64_t)(y))
#define FLOOR_INT(x, y) (TRUNC_INT(x, y) - ((y) != -1 && (x) % (y) != 0 && ((x) < 0) != ((y) < 0)))
#define REMAINDER_INT(x, y) ((y) == -1 ? 0 : (x) % (y) != 0 && ((x) < 0) != ((y) < 0) ? (x) % (y) + (y) : (x) % (y))

static inline int64_t pow_int(int64_t base, int64_t exponent) {
  uint64_t result = 1, factor = (uint64_t)base;
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  }
  for (; exponent; exponent >>= 1) {
    result *= exponent & 1 ? factor : 1;
    factor *= factor;
  }
  return (int64_t)result;
}

#define INTEGER(tag, type, arith)                                       \
  LOOP_PLAIN_2(div_trunc_##tag, type, type, arith, TRUNC_INT(x, y))     \
  LOOP_PLAIN_2(div_floor_##tag, type, type, arith, FLOOR_INT(x, y))     \
  LOOP_PLAIN_2(remainder_##tag, type, type, arith, REMAINDER_INT(x, y)) \
  LOOP_PLAIN_2(power_##tag, type, type, int64_t, pow_int(x, y))
LOOP_LIST_INT(INTEGER)
LOOP_PLAIN_2(power_bool, uint8_t, uint8_t, uint32_t, x | (y == 0))

#define FLOAT_PARTS(tag, type, fmod_, floor_, copysign_)                     \
  static inline type remainder_one_##tag(type x, type y) {                   \
    const type mod = fmod_(x, y);                                            \
    return mod != 0 && (y < 0) != (mod < 0) ? mod + y : mod;                 \
  }                                                                          \
  static inline type floor_one_##tag(type x, type y) {                       \
    if (y == 0) {                                                            \
      return x / y;                                                          \
    }                                                                        \
    const type mod = fmod_(x, y);                                            \
    type quotient = (x - mod) / y;                                           \
    quotient = mod != 0 && (y < 0) != (mod < 0) ? quotient - 1 : quotient;   \
    if (quotient == 0) {                                                     \
      return copysign_(0, x / y);                                            \
    }                                                                        \
    const type whole = floor_(quotient);                                     \
    return quotient - whole > (type)0.5 ? whole + 1 : whole;                 \
  }                                                                          \
  LOOP_PLAIN_2(remainder_##tag, type, type, type, remainder_one_##tag(x, y)) \
  LOOP_PLAIN_2(div_floor_##tag, type, type, type, floor_one_##tag(x, y))
FLOAT_PARTS(f32, float, fmodf, floorf, copysignf)
FLOAT_PARTS(f64, double, fmod, floor, copysign)
/// The remainder by division in double is exact while the quotient has few bits: such blocks become SIMD, the others go
/// element by element.
#define QUOTIENT_MAX 0x1p28f
#define EXACT_BLOCK 256
KERNEL_INLINE float fmod_f32(float x, float y) {
  const double quotient = trunc((double)x / (double)y);
  return copysignf((float)((double)x - quotient * (double)y), x);
}
KERNEL_INLINE float remainder_fast(float x, float y) {
  const float mod = fmod_f32(x, y);
  return ((mod != 0) & ((y < 0) != (mod < 0))) ? mod + y : mod;
}
KERNEL_INLINE float floor_fast(float x, float y) {
  const float mod = fmod_f32(x, y), full = (x - mod) / y;
  const float quotient = ((mod != 0) & ((y < 0) != (mod < 0))) ? full - 1 : full;
  const float whole = floorf(quotient), value = quotient - whole > 0.5f ? whole + 1 : whole;
  return quotient == 0 ? copysignf(0, x / y) : value;
}
#define EXACT(name, fast)                                                                                             \
  LOOP_2(name##_block, float, float, float, fast(x, y))                                                               \
  static void name##_loop LOOP_PARAMS {                                                                               \
    for (int64_t i = 0; i < count; i += EXACT_BLOCK) {                                                                \
      const float *p = (const float *)in[0] + i, *q = (const float *)in[1] + i;                                       \
      const int64_t n = count - i < EXACT_BLOCK ? count - i : EXACT_BLOCK;                                            \
      int is_large = 0;                                                                                               \
      for (int64_t k = 0; k < n; k++) {                                                                               \
        is_large |= !(fabsf(p[k]) < QUOTIENT_MAX * fabsf(q[k])) | !(fabsf(q[k]) < INFINITY);                          \
      }                                                                                                               \
      (is_large ? name##_f32 : name##_block)(parameters, (void *[]){(float *)out[0] + i}, (const void *[]){p, q}, n); \
    }                                                                                                                 \
  }
EXACT(remainder, remainder_fast)
EXACT(div_floor, floor_fast)
LOOP_2(div_trunc_f32, float, float, float, truncf(x / y))
LOOP_2(div_trunc_f64, double, double, double, trunc(x / y))
// PyTorch divides half types in their own precision before it cuts
LOOP_2(div_trunc_f16, float, float, float, truncf(half_to_float(half_from_float(x / y))))
LOOP_2(div_trunc_bf16, float, float, float, truncf(bfloat_to_float(bfloat_from_float(x / y))))
LOOP_2(power_f32, float, float, float, pow_f32(x, y))
LOOP_PLAIN_2(power_f64, double, double, double, pow(x, y))
LOOP_PLAIN_2(power_c64, float _Complex, float _Complex, float _Complex, cpowf(x, y))
LOOP_PLAIN_2(power_c128, double _Complex, double _Complex, double _Complex, cpow(x, y))

#define ARITHMETIC(op) ROWS_BITS(op), ROWS_FLOAT(op), ROWS_COMPLEX(op)
static loop_table add_loops = {ARITHMETIC(add), [DIT_DTYPE_BOOL] = add_bool};
static loop_table scaled_loops = {ARITHMETIC(scaled), [DIT_DTYPE_BOOL] = scaled_bool};
static loop_table sub_loops = {ARITHMETIC(sub)};
static loop_table mul_loops = {ARITHMETIC(mul), [DIT_DTYPE_BOOL] = mul_bool};
static loop_table div_loops = {ROWS_FLOAT(div), ROWS_COMPLEX(div)};
static loop_table div_trunc_loops = {ROWS_INT(div_trunc), ROWS_FLOAT(div_trunc)};
static loop_table div_floor_loops = {
    ROWS_INT(div_floor), [DIT_DTYPE_F32] = div_floor_loop, [DIT_DTYPE_F64] = div_floor_f64};
static loop_table remainder_loops = {
    ROWS_INT(remainder), [DIT_DTYPE_F32] = remainder_loop, [DIT_DTYPE_F64] = remainder_f64};
static loop_table maximum_loops = {ROWS_INT(maximum), ROWS_FLOAT(maximum), [DIT_DTYPE_BOOL] = maximum_u8};
static loop_table minimum_loops = {ROWS_INT(minimum), ROWS_FLOAT(minimum), [DIT_DTYPE_BOOL] = minimum_u8};
static loop_table pow_loops = {ROWS_INT(power), ROWS_FLOAT(power), ROWS_COMPLEX(power), [DIT_DTYPE_BOOL] = power_bool};

/// Operands of one call: a tensor handle or a number on each side.
struct operands {
  const char *names[2];
  diopiConstTensorHandle_t tensors[2];
  const diopiScalar_t *scalars[2];
};
#define TENSORS(a, b) (&(struct operands){{#a, #b}, {a, b}, {NULL, NULL}})
#define TENSOR_NUMBER(a, b) (&(struct operands){{#a, #b}, {a, NULL}, {NULL, b}})
#define NUMBER_TENSOR(a, b) (&(struct operands){{#a, #b}, {NULL, b}, {a, NULL}})

/// Everything before the choice of a loop. `numbers`: bit i for a number on side i.
static diopiError_t begin_binary(struct elementwise *e, const char *function, diopiContextHandle_t ctx,
                                 diopiTensorHandle_t out, const struct operands *operands, int numbers) {
  FRAME_TRY(elementwise_begin(e, function, ctx));
  FRAME_TRY(elementwise_add_output(e, out && out == operands->tensors[0] ? operands->names[0] : "out", out));
  for (int i = 0; i < 2; i++) {
    FRAME_TRY(numbers >> i & 1 ? elementwise_add_scalar(e, operands->names[i], operands->scalars[i])
                               : elementwise_add_input(e, operands->names[i], operands->tensors[i]));
  }
  return elementwise_check(e);
}
#define RIGHT_NUMBER 2
#define LEFT_NUMBER 1

static bool is_integral(int dtype) {
  const enum dit_dtype_class class = dit_dtype_get_class(dtype);
  return class == DIT_DTYPE_CLASS_BOOL || class == DIT_DTYPE_CLASS_UINT || class == DIT_DTYPE_CLASS_INT;
}

static diopiError_t check_alpha(struct elementwise *e, int compute, struct dit_scalar alpha) {
  FRAME_CHECK(&e->frame, alpha.kind != DIT_SCALAR_BOOL || compute == DIT_DTYPE_BOOL,
              "'alpha' is a bool; valid for results of dtype bool only");
  FRAME_CHECK(&e->frame, alpha.kind != DIT_SCALAR_DOUBLE || compute < 0 || !is_integral(compute),
              "'alpha' is %g, a floating point number; for integers it must be an integer", alpha.v.d);
  return diopiSuccess;
}

/// PyTorch has no subtraction with bool on either side.
static diopiError_t refuse_bool(struct elementwise *e) {
  for (int i = 1; i < 3; i++) {
    if (e->views[i].handle ? e->views[i].dtype == DIT_DTYPE_BOOL : e->scalars[i].kind == DIT_SCALAR_BOOL) {
      return frame_fail_dtype(&e->frame, e->names[i], DIT_DTYPE_BOOL);
    }
  }
  return diopiSuccess;
}

/// A loop that keeps the number on the right in a register, where there is one.
static void use_number_loop(struct elementwise *e, pointwise_loop *loop) {
  if (e->run.work[0] != DIT_DTYPE_F32) {
    return;
  }
  if (e->views[2].handle) {
    e->run.number_loop = loop;
  } else {
    e->run.loop = loop;
    e->run.inputs = 1;
  }
}

static diopiError_t run_add(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            const struct operands *operands, int numbers, const diopiScalar_t *alpha, bool negative) {
  struct elementwise e;
  struct dit_scalar factor;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  FRAME_TRY(frame_get_scalar(&e.frame, "alpha", alpha, &factor));
  const int compute = elementwise_promote(&e);
  FRAME_TRY(check_alpha(&e, compute, factor));
  if (negative) {
    FRAME_TRY(refuse_bool(&e));
  }
  const bool is_one = factor.kind == DIT_SCALAR_DOUBLE ? factor.v.d == 1 : factor.v.i == 1;
  if (is_one) {
    FRAME_TRY(elementwise_set_type(&e, compute, negative ? sub_loops : add_loops));
    elementwise_round_numbers(&e, compute);
    use_number_loop(&e, negative ? sub_number_f32 : add_number_f32);
    return elementwise_launch(&e);
  }
  if (negative && factor.kind == DIT_SCALAR_DOUBLE) {
    factor.v.d = -factor.v.d;
  } else if (negative) {
    factor.v.i = (int64_t)(0 - (uint64_t)factor.v.i);
  }
  FRAME_TRY(elementwise_set_type(&e, compute, scaled_loops));
  elementwise_round_numbers(&e, compute);
  elementwise_set_rounded(&e, 3, factor, compute, e.run.work[0]);
  return elementwise_launch(&e);
}

diopiError_t diopiAdd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other, const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, out, TENSORS(input, other), 0, alpha, false);
}
diopiError_t diopiAddInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other,
                         const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, input, TENSORS(input, other), 0, alpha, false);
}
diopiError_t diopiAddScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *other, const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER, alpha, false);
}
diopiError_t diopiAddInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *other,
                               const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, input, TENSOR_NUMBER(input, other), RIGHT_NUMBER, alpha, false);
}
diopiError_t diopiSub(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other, const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, out, TENSORS(input, other), 0, alpha, true);
}
diopiError_t diopiSubInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other,
                         const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, input, TENSORS(input, other), 0, alpha, true);
}
diopiError_t diopiSubScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *other, const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER, alpha, true);
}
diopiError_t diopiSubInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *other,
                               const diopiScalar_t *alpha) {
  return run_add(__func__, ctx, input, TENSOR_NUMBER(input, other), RIGHT_NUMBER, alpha, true);
}

/// Operators whose result has the common dtype and that need nothing else.
static diopiError_t run_plain(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                              const struct operands *operands, int numbers, loop_table loops,
                              pointwise_loop *number_loop) {
  struct elementwise e;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), loops));
  if (number_loop) {
    use_number_loop(&e, number_loop);
  }
  return elementwise_launch(&e);
}

diopiError_t diopiMul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, out, TENSORS(input, other), 0, mul_loops, mul_number_f32);
}
diopiError_t diopiMulInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, input, TENSORS(input, other), 0, mul_loops, mul_number_f32);
}
diopiError_t diopiMulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *other) {
  return run_plain(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER, mul_loops, mul_number_f32);
}
diopiError_t diopiMulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *other) {
  return run_plain(__func__, ctx, input, TENSOR_NUMBER(input, other), RIGHT_NUMBER, mul_loops, mul_number_f32);
}
diopiError_t diopiMaximum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, out, TENSORS(input, other), 0, maximum_loops, NULL);
}
diopiError_t diopiMinimum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, out, TENSORS(input, other), 0, minimum_loops, NULL);
}

/// Division: true division of integers is in float; the rounding modes keep the common dtype.
static diopiError_t run_div(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            const struct operands *operands, int numbers, diopiRoundMode_t mode) {
  struct elementwise e;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  FRAME_CHECK(&e.frame, mode >= RoundModeNone && mode < RoundModeEND,
              "'rounding_mode' is %d; valid: 0 (none), 1 (trunc), 2 (floor)", (int)mode);
  int compute = elementwise_promote(&e);
  if (mode == RoundModeNone) {
    FRAME_TRY(elementwise_set_type(&e, elementwise_to_float(&e, compute), div_loops));
    use_number_loop(&e, div_number_f32);
    return elementwise_launch(&e);
  }
  FRAME_TRY(elementwise_set_type(&e, compute, mode == RoundModeTrunc ? div_trunc_loops : div_floor_loops));
  if (is_integral(compute)) {
    FRAME_TRY(elementwise_check_divisor(&e));
  }
  if (mode == RoundModeTrunc && e.run.rounded) {
    e.run.loop = compute == DIT_DTYPE_F16 ? div_trunc_f16 : div_trunc_bf16;
  }
  return elementwise_launch(&e);
}

diopiError_t diopiDiv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other, diopiRoundMode_t rounding_mode) {
  return run_div(__func__, ctx, out, TENSORS(input, other), 0, rounding_mode);
}
diopiError_t diopiDivInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other,
                         diopiRoundMode_t rounding_mode) {
  return run_div(__func__, ctx, input, TENSORS(input, other), 0, rounding_mode);
}
diopiError_t diopiDivScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *other, diopiRoundMode_t rounding_mode) {
  return run_div(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER, rounding_mode);
}
diopiError_t diopiDivInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *other,
                               diopiRoundMode_t rounding_mode) {
  return run_div(__func__, ctx, input, TENSOR_NUMBER(input, other), RIGHT_NUMBER, rounding_mode);
}

static diopiError_t run_remainder(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                  const struct operands *operands, int numbers) {
  struct elementwise e;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  const int compute = elementwise_promote(&e);
  FRAME_TRY(elementwise_set_type(&e, compute, remainder_loops));
  elementwise_round_numbers(&e, compute);
  if (is_integral(compute)) {
    FRAME_TRY(elementwise_check_divisor(&e));
  }
  return elementwise_launch(&e);
}

diopiError_t diopiRemainderTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t other) {
  return run_remainder(__func__, ctx, out, TENSORS(input, other), 0);
}
diopiError_t diopiRemainderScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  const diopiScalar_t *other) {
  return run_remainder(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER);
}
diopiError_t diopiRemainder(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *input,
                            diopiConstTensorHandle_t other) {
  return run_remainder(__func__, ctx, out, NUMBER_TENSOR(input, other), LEFT_NUMBER);
}

// x ^ number for the exponents that have a shorter way
#define POWERS(X)                      \
  X(square, 2.0, x *x)                 \
  X(cube, 3.0, x *x *x)                \
  X(inverse, -1.0, 1 / x)              \
  X(inverse_square, -2.0, 1 / (x * x)) \
  X(root, 0.5, SQRT(x))                \
  X(inverse_root, -0.5, 1 / SQRT(x))
#define SQRT(x) _Generic((x), float: sqrtf, double: sqrt)(x)
#define POWER_LOOPS(name, exponent, expression)       \
  LOOP_1(name##_f32, float, float, float, expression) \
  LOOP_1(name##_f64, double, double, double, expression)
POWERS(POWER_LOOPS)

static void use_power_loop(struct elementwise *e, double exponent) {
  const int work = e->run.work[0];
  if (work != DIT_DTYPE_F32 && work != DIT_DTYPE_F64) {
    return;
  }
#define POWER_CASE(name, number, expression)                       \
  if (exponent == (number)) {                                      \
    e->run.loop = work == DIT_DTYPE_F32 ? name##_f32 : name##_f64; \
    e->run.inputs = 1;                                             \
    return;                                                        \
  }
  POWERS(POWER_CASE)
}

static diopiError_t run_pow(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            const struct operands *operands, int numbers) {
  struct elementwise e;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  const int compute = elementwise_promote(&e);
  const struct dit_scalar exponent = e.scalars[2];
  if (numbers == RIGHT_NUMBER && compute >= 0 && is_integral(compute)) {
    FRAME_CHECK(&e.frame, exponent.v.i >= 0, "'exponent' is %lld; integers have no negative powers",
                (long long)exponent.v.i);
  }
  if (numbers != RIGHT_NUMBER && compute == DIT_DTYPE_BOOL) {
    return frame_fail_dtype(&e.frame, e.names[2], compute);
  }
  FRAME_TRY(elementwise_set_type(&e, compute, pow_loops));
  elementwise_round_numbers(&e, compute);
  if (numbers == RIGHT_NUMBER) {
    use_power_loop(&e, frame_scalar_to_double(exponent));
  }
  return elementwise_launch(&e);
}

diopiError_t diopiPow(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      const diopiScalar_t *exponent) {
  return run_pow(__func__, ctx, out, TENSOR_NUMBER(input, exponent), RIGHT_NUMBER);
}
diopiError_t diopiPowInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *exponent) {
  return run_pow(__func__, ctx, input, TENSOR_NUMBER(input, exponent), RIGHT_NUMBER);
}
diopiError_t diopiPowScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *input,
                            diopiConstTensorHandle_t exponent) {
  return run_pow(__func__, ctx, out, NUMBER_TENSOR(input, exponent), LEFT_NUMBER);
}
diopiError_t diopiPowTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t exponent) {
  return run_pow(__func__, ctx, out, TENSORS(input, exponent), 0);
}
diopiError_t diopiPowInpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t exponent) {
  return run_pow(__func__, ctx, input, TENSORS(input, exponent), 0);
}
