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

// after the macros that it is written in
#include "binary_expressions.h"

struct number_loops {
  pointwise_loop *single, *bfloat;
};
#define NUMBER_LOOPS(name) static const struct number_loops name##_number = {name##_number_f32, name##_number_bf16};
NUMBER_LOOPS(sub)
NUMBER_LOOPS(div)
NUMBER_LOOPS(add)
NUMBER_LOOPS(mul)

#define ARITHMETIC(op) ROWS_BITS(op), ROWS_FLOAT(op), ROWS_COMPLEX(op)
#define ROW_BF16(op) [DIT_DTYPE_BF16] = op##_bf16
static loop_table add_loops = {ARITHMETIC(add), ROW_BF16(add), [DIT_DTYPE_BOOL] = add_bool};
static loop_table scaled_loops = {ARITHMETIC(scaled), ROW_BF16(scaled), [DIT_DTYPE_BOOL] = scaled_bool};
static loop_table sub_loops = {ARITHMETIC(sub), ROW_BF16(sub)};
static loop_table mul_loops = {ARITHMETIC(mul), ROW_BF16(mul), [DIT_DTYPE_BOOL] = mul_bool};
static loop_table div_loops = {ROWS_FLOAT(div), ROW_BF16(div), ROWS_COMPLEX(div)};
static loop_table div_trunc_loops = {ROWS_INT(div_trunc), ROWS_FLOAT(div_trunc)};
static loop_table div_floor_loops = {
    ROWS_INT(div_floor), [DIT_DTYPE_F32] = div_floor_loop, [DIT_DTYPE_F64] = div_floor_f64};
static loop_table remainder_loops = {
    ROWS_INT(remainder), [DIT_DTYPE_F32] = remainder_loop, [DIT_DTYPE_F64] = remainder_f64};
static loop_table maximum_loops = {ROWS_INT(maximum), ROWS_FLOAT(maximum),
                                   ROW_BF16(maximum), [DIT_DTYPE_BOOL] = maximum_u8};
static loop_table minimum_loops = {ROWS_INT(minimum), ROWS_FLOAT(minimum),
                                   ROW_BF16(minimum), [DIT_DTYPE_BOOL] = minimum_u8};
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
static void use_number_loop(struct elementwise *e, const struct number_loops *loops) {
  if (e->run.work[0] != DIT_DTYPE_F32) {
    return;
  }
  if (e->views[2].handle) {
    e->run.number_loop = loops->single;
  } else if (e->views[1].handle) {
    e->run.loop = loops->single;
    e->run.inputs = 1;
    elementwise_use_bf16(e, loops->bfloat);
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
    use_number_loop(&e, negative ? &sub_number : &add_number);
    return elementwise_launch(&e);
  }
  if (negative && factor.kind == DIT_SCALAR_DOUBLE) {
    factor.v.d = -factor.v.d;
  } else if (negative) {
    factor.v.i = (int64_t)(0 - (uint64_t)factor.v.i);
  }
  FRAME_TRY(elementwise_set_type(&e, compute, scaled_loops));
  elementwise_round_numbers(&e, compute);
  elementwise_set_rounded(&e, 3, factor, compute, elementwise_get_work(e.run.work[0]));
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
                              const struct number_loops *number_loops) {
  struct elementwise e;
  FRAME_TRY(begin_binary(&e, function, ctx, out, operands, numbers));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), loops));
  if (number_loops) {
    use_number_loop(&e, number_loops);
  }
  return elementwise_launch(&e);
}

diopiError_t diopiMul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, out, TENSORS(input, other), 0, mul_loops, &mul_number);
}
diopiError_t diopiMulInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) {
  return run_plain(__func__, ctx, input, TENSORS(input, other), 0, mul_loops, &mul_number);
}
diopiError_t diopiMulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            const diopiScalar_t *other) {
  return run_plain(__func__, ctx, out, TENSOR_NUMBER(input, other), RIGHT_NUMBER, mul_loops, &mul_number);
}
diopiError_t diopiMulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *other) {
  return run_plain(__func__, ctx, input, TENSOR_NUMBER(input, other), RIGHT_NUMBER, mul_loops, &mul_number);
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
    use_number_loop(&e, &div_number);
    return elementwise_launch(&e);
  }
  FRAME_TRY(elementwise_set_type(&e, compute, mode == RoundModeTrunc ? div_trunc_loops : div_floor_loops));
  if (is_integral(compute)) {
    FRAME_TRY(elementwise_check_divisor(&e));
  }
  if (mode == RoundModeFloor && compute == DIT_DTYPE_I64) {
    e.run.loop = div_floor_whole;
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

#ifdef LOOP_COMPLEX
/// Complex numbers: 2 and 3, as PyTorch.
static void use_complex_power_loop(struct elementwise *e, struct dit_scalar exponent) {
  const bool single = e->run.work[0] == DIT_DTYPE_C64,
             real = exponent.kind != DIT_SCALAR_COMPLEX || exponent.v.c.im == 0;
  const double number = frame_scalar_to_double(exponent);
  if (real && (number == 2 || number == 3)) {
    e->run.loop = number == 2 ? (single ? square_c64 : square_c128) : (single ? cube_c64 : cube_c128);
    e->run.inputs = 1;
  }
}
#endif

static void use_power_loop(struct elementwise *e, struct dit_scalar scalar) {
  const int work = e->run.work[0];
#ifdef LOOP_COMPLEX
  if (work == DIT_DTYPE_C64 || work == DIT_DTYPE_C128) {
    use_complex_power_loop(e, scalar);
    return;
  }
#endif
  const double exponent = frame_scalar_to_double(scalar);
  if (work != DIT_DTYPE_F32 && work != DIT_DTYPE_F64) {
    return;
  }
#define POWER_CASE(name, number, expression)                       \
  if (exponent == (number)) {                                      \
    e->run.loop = work == DIT_DTYPE_F32 ? name##_f32 : name##_f64; \
    e->run.inputs = 1;                                             \
    elementwise_use_bf16(e, name##_bf16);                          \
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
    use_power_loop(&e, exponent);
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
