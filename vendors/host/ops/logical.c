/// Logical and bitwise operators.
///
/// Logical: operands count as true when not 0, each in its own dtype; the result is bool, 0 or 1 in other dtypes of
/// out. Bitwise: integers and bool in their common dtype. Inp writes to input.
#include "elementwise.h"

// after the macros that it is written in
#include "logical_expressions.h"

/// Every operand is first made bool: the engine's conversion is "not 0".
static diopiError_t run_logical(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t other, bool is_unary,
                                pointwise_loop *loop) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  if (!is_unary) {
    FRAME_TRY(elementwise_add_input(&e, "other", other));
  }
  FRAME_TRY(elementwise_check(&e));
  const uint64_t allowed = DTYPES_PLAIN | DTYPES_COMPLEX;
  for (int i = 0; i < e.outputs + e.inputs; i++) {
    if (!frame_has_dtype(allowed, e.views[i].dtype)) {
      return frame_fail_dtype(&e.frame, e.names[i], e.views[i].dtype);
    }
    e.run.work[i] = DIT_DTYPE_BOOL;
  }
  e.run.loop = loop;
  return elementwise_launch(&e);
}

#define DEFINE_LOGICAL(Name, loop)                                                                                     \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,          \
                           diopiConstTensorHandle_t other) {                                                           \
    return run_logical(__func__, ctx, out, input, other, false, loop);                                                 \
  }                                                                                                                    \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) { \
    return run_logical(__func__, ctx, input, input, other, false, loop);                                               \
  }
DEFINE_LOGICAL(LogicalAnd, logical_and)
DEFINE_LOGICAL(LogicalOr, logical_or)
diopiError_t diopiLogicalNot(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  return run_logical(__func__, ctx, out, input, NULL, true, logical_not);
}
diopiError_t diopiLogicalNotInp(diopiContextHandle_t ctx, diopiTensorHandle_t input) {
  return run_logical(__func__, ctx, input, input, NULL, true, logical_not);
}

static diopiError_t run_bitwise(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t other,
                                const diopiScalar_t *number, bool is_number, loop_table loops) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(is_number ? elementwise_add_scalar(&e, "other", number) : elementwise_add_input(&e, "other", other));
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), loops));
  return elementwise_launch(&e);
}

static loop_table and_loops = {ROWS_BITS(and), [DIT_DTYPE_BOOL] = and_u8};
static loop_table or_loops = {ROWS_BITS(or), [DIT_DTYPE_BOOL] = or_u8};
static loop_table not_loops = {ROWS_BITS(not ), [DIT_DTYPE_BOOL] = logical_not};

#define DEFINE_BITWISE(Name, loops)                                                                                    \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,          \
                           diopiConstTensorHandle_t other) {                                                           \
    return run_bitwise(__func__, ctx, out, input, other, NULL, false, loops);                                          \
  }                                                                                                                    \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) { \
    return run_bitwise(__func__, ctx, input, input, other, NULL, false, loops);                                        \
  }                                                                                                                    \
  diopiError_t diopi##Name##Scalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,  \
                                   const diopiScalar_t *other) {                                                       \
    return run_bitwise(__func__, ctx, out, input, NULL, other, true, loops);                                           \
  }                                                                                                                    \
  diopiError_t diopi##Name##InpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,                             \
                                      const diopiScalar_t *other) {                                                    \
    return run_bitwise(__func__, ctx, input, input, NULL, other, true, loops);                                         \
  }
DEFINE_BITWISE(BitwiseAnd, and_loops)
DEFINE_BITWISE(BitwiseOr, or_loops)

static diopiError_t run_not(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            diopiConstTensorHandle_t input) {
  struct elementwise e;
  FRAME_TRY(elementwise_unary(&e, function, ctx, out, input));
  FRAME_TRY(elementwise_set_type(&e, e.views[1].dtype, not_loops));
  return elementwise_launch(&e);
}
diopiError_t diopiBitwiseNot(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  return run_not(__func__, ctx, out, input);
}
diopiError_t diopiBitwiseNotInp(diopiContextHandle_t ctx, diopiTensorHandle_t input) {
  return run_not(__func__, ctx, input, input);
}
