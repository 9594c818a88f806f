/// Comparisons: eq, ne, ge, gt, le, lt with a tensor or a number.
///
/// out[i] = input[i] op other[i] in the operands' common dtype; the result is bool, 0 or 1 in other dtypes of out. Inp
/// writes 0 and 1 into input. NaN is equal to nothing. Complex numbers are equal or not, but have no order.
#include "elementwise.h"

// after the macros that it is written in
#include "compare_expressions.h"

static diopiError_t run_compare(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t other,
                                const diopiScalar_t *number, bool is_number, loop_table loops,
                                pointwise_loop *number_loop) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(is_number ? elementwise_add_scalar(&e, "other", number) : elementwise_add_input(&e, "other", other));
  FRAME_TRY(elementwise_check(&e));
  const int compute = elementwise_promote(&e);
  FRAME_TRY(elementwise_set_types(&e, DIT_DTYPE_BOOL, compute, loops));
  if (is_number) {
    elementwise_round_numbers(&e, compute);
    if (e.run.work[1] == DIT_DTYPE_F32) {
      e.run.loop = number_loop;
      e.run.inputs = 1;
    }
  }
  return elementwise_launch(&e);
}

#define DEFINE(Name, loops, number_loop)                                                                               \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,          \
                           diopiConstTensorHandle_t other) {                                                           \
    return run_compare(__func__, ctx, out, input, other, NULL, false, loops, number_loop);                             \
  }                                                                                                                    \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) { \
    return run_compare(__func__, ctx, input, input, other, NULL, false, loops, number_loop);                           \
  }                                                                                                                    \
  diopiError_t diopi##Name##Scalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,  \
                                   const diopiScalar_t *other) {                                                       \
    return run_compare(__func__, ctx, out, input, NULL, other, true, loops, number_loop);                              \
  }                                                                                                                    \
  diopiError_t diopi##Name##InpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,                             \
                                      const diopiScalar_t *other) {                                                    \
    return run_compare(__func__, ctx, input, input, NULL, other, true, loops, number_loop);                            \
  }
#define EQUALITY_TABLE(op) {ROWS_BITS(op), ROWS_FLOAT(op), ROWS_COMPLEX(op), [DIT_DTYPE_BOOL] = op##_u8}
#define ORDER_TABLE(op) {ROWS_INT(op), ROWS_FLOAT(op), [DIT_DTYPE_BOOL] = op##_u8}
static loop_table eq_loops = EQUALITY_TABLE(eq), ne_loops = EQUALITY_TABLE(ne);
static loop_table ge_loops = ORDER_TABLE(ge), gt_loops = ORDER_TABLE(gt), le_loops = ORDER_TABLE(le),
                  lt_loops = ORDER_TABLE(lt);
DEFINE(Eq, eq_loops, eq_number)
DEFINE(Ne, ne_loops, ne_number)
DEFINE(Ge, ge_loops, ge_number)
DEFINE(Gt, gt_loops, gt_number)
DEFINE(Le, le_loops, le_number)
DEFINE(Lt, lt_loops, lt_number)
