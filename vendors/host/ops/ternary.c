/// Elementwise operators of three operands: addcmul, addcdiv, clamp, where, lerp.
///
///   addcmul  input + value * tensor1 * tensor2        addcdiv  input + value * tensor1 / tensor2
///   clamp    min(max(input, min), max); min or max may be absent, not both; NaN anywhere gives NaN
///   where    condition ? input : other                lerp     input + weight * (end - input)
///
/// Operands broadcast and promote as in PyTorch; half types compute in float. Inp writes to input.
#include <math.h>

#include "elementwise.h"

// after the macros that it is written in
#include "ternary_expressions.h"

static loop_table addcmul_loops = {ROWS_BITS_SIGNED(addcmul), ROWS_FLOAT(addcmul),
                                   ROWS_COMPLEX(addcmul), [DIT_DTYPE_BF16] = addcmul_bf16};
static loop_table addcdiv_loops = {ROWS_FLOAT(addcdiv), ROWS_COMPLEX(addcdiv), [DIT_DTYPE_BF16] = addcdiv_bf16};
static loop_table lerp_loops = {ROWS_FLOAT(lerp), ROWS_COMPLEX(lerp), [DIT_DTYPE_BF16] = lerp_bf16};
static loop_table lerp_number_loops = {ROWS_FLOAT(lerp_number),
                                       ROWS_COMPLEX(lerp_number), [DIT_DTYPE_BF16] = lerp_number_bf16};
static loop_table clamp_loops = {ROWS_INT(clamp), ROWS_FLOAT(clamp)};
static loop_table clamp_min_loops = {ROWS_INT(clamp_min), ROWS_FLOAT(clamp_min)};
static loop_table clamp_max_loops = {ROWS_INT(clamp_max), ROWS_FLOAT(clamp_max)};
static loop_table clamp_numbers_loops = {ROWS_INT(clamp_numbers), ROWS_FLOAT(clamp_numbers)};

static diopiError_t run_addc(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                             diopiConstTensorHandle_t input, diopiConstTensorHandle_t tensor1,
                             diopiConstTensorHandle_t tensor2, const diopiScalar_t *value, loop_table loops) {
  struct elementwise e;
  struct dit_scalar factor;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(elementwise_add_input(&e, "tensor1", tensor1));
  FRAME_TRY(elementwise_add_input(&e, "tensor2", tensor2));
  FRAME_TRY(frame_get_scalar(&e.frame, "value", value, &factor));
  FRAME_TRY(elementwise_check(&e));
  const int compute = elementwise_promote(&e);
  FRAME_TRY(elementwise_set_type(&e, compute, loops));
  FRAME_CHECK(&e.frame, factor.kind != DIT_SCALAR_DOUBLE || !frame_has_dtype(DTYPES_INT, compute),
              "'value' is %g, a floating point number; for integers it must be an integer", factor.v.d);
  elementwise_set_number(&e, 3, factor, elementwise_get_work(e.run.work[0]));
  return elementwise_launch(&e);
}

#define DEFINE_ADDC(Name, loops)                                                                                       \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,          \
                           diopiConstTensorHandle_t tensor1, diopiConstTensorHandle_t tensor2,                         \
                           const diopiScalar_t *value) {                                                               \
    return run_addc(__func__, ctx, out, input, tensor1, tensor2, value, loops);                                        \
  }                                                                                                                    \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t tensor1, \
                                diopiConstTensorHandle_t tensor2, const diopiScalar_t *value) {                        \
    return run_addc(__func__, ctx, input, input, tensor1, tensor2, value, loops);                                      \
  }
DEFINE_ADDC(Addcmul, addcmul_loops)
DEFINE_ADDC(Addcdiv, addcdiv_loops)

enum bounds { BOUND_MIN = 1, BOUND_MAX = 2, BOUND_BOTH = 3 };

/// `bounds` says which limits the function has at all; with both of them one may be NULL.
static diopiError_t run_clamp(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                              diopiConstTensorHandle_t input, diopiConstTensorHandle_t min,
                              diopiConstTensorHandle_t max, enum bounds bounds) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_CHECK(&e.frame, bounds != BOUND_BOTH || min || max, "'min' and 'max' are both NULL; one must be a tensor");
  const bool has_min = bounds == BOUND_MIN || (bounds == BOUND_BOTH && min);
  const bool has_max = bounds == BOUND_MAX || (bounds == BOUND_BOTH && max);
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  if (has_min) {
    FRAME_TRY(elementwise_add_input(&e, "min", min));
  }
  if (has_max) {
    FRAME_TRY(elementwise_add_input(&e, "max", max));
  }
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e),
                                 has_min && has_max ? clamp_loops
                                 : has_min          ? clamp_min_loops
                                                    : clamp_max_loops));
  return elementwise_launch(&e);
}

/// An absent limit is the end of the type's range: -infinity or the smallest integer, and so on.
static struct dit_scalar get_limit(int work, bool low) {
  struct dit_scalar limit = {.kind = DIT_SCALAR_DOUBLE};
  const int bits = (int)dit_dtype_get_size(work) * 8;
  if (work == DIT_DTYPE_F32 || work == DIT_DTYPE_F64) {
    limit.v.d = low ? -(double)INFINITY : (double)INFINITY;
    return limit;
  }
  limit.kind = DIT_SCALAR_INT;
  if (work == DIT_DTYPE_U8) {
    limit.v.i = low ? 0 : 255;
  } else {
    const int64_t top = (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
    limit.v.i = low ? -top - 1 : top;
  }
  return limit;
}

static diopiError_t run_clamp_numbers(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *min,
                                      const diopiScalar_t *max, enum bounds bounds) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_CHECK(&e.frame, bounds != BOUND_BOTH || min || max, "'min' and 'max' are both NULL; one must be a number");
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  int index[2] = {-1, -1};
  if (bounds == BOUND_MIN || (bounds == BOUND_BOTH && min)) {
    index[0] = e.outputs + e.inputs;
    FRAME_TRY(elementwise_add_scalar(&e, "min", min));
  }
  if (bounds == BOUND_MAX || (bounds == BOUND_BOTH && max)) {
    index[1] = e.outputs + e.inputs;
    FRAME_TRY(elementwise_add_scalar(&e, "max", max));
  }
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), clamp_numbers_loops));
  for (int i = 0; i < 2; i++) {
    const int work = e.run.work[0];
    elementwise_set_number(&e, i, index[i] >= 0 ? e.scalars[index[i]] : get_limit(work, i == 0), work);
  }
  e.run.inputs = 1;
  elementwise_use_bf16(&e, clamp_numbers_bf16);
  return elementwise_launch(&e);
}

diopiError_t diopiClamp(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t min, diopiConstTensorHandle_t max) {
  return run_clamp(__func__, ctx, out, input, min, max, BOUND_BOTH);
}
diopiError_t diopiClampInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t min,
                           diopiConstTensorHandle_t max) {
  return run_clamp(__func__, ctx, input, input, min, max, BOUND_BOTH);
}
diopiError_t diopiClampScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                              const diopiScalar_t *min, const diopiScalar_t *max) {
  return run_clamp_numbers(__func__, ctx, out, input, min, max, BOUND_BOTH);
}
diopiError_t diopiClampInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *min,
                                 const diopiScalar_t *max) {
  return run_clamp_numbers(__func__, ctx, input, input, min, max, BOUND_BOTH);
}
diopiError_t diopiClampMax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                           diopiConstTensorHandle_t max) {
  return run_clamp(__func__, ctx, out, input, NULL, max, BOUND_MAX);
}
diopiError_t diopiClampMaxInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t max) {
  return run_clamp(__func__, ctx, input, input, NULL, max, BOUND_MAX);
}
diopiError_t diopiClampMaxScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 const diopiScalar_t *max) {
  return run_clamp_numbers(__func__, ctx, out, input, NULL, max, BOUND_MAX);
}
diopiError_t diopiClampMaxInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *max) {
  return run_clamp_numbers(__func__, ctx, input, input, NULL, max, BOUND_MAX);
}
diopiError_t diopiClampMin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                           diopiConstTensorHandle_t min) {
  return run_clamp(__func__, ctx, out, input, min, NULL, BOUND_MIN);
}
diopiError_t diopiClampMinInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t min) {
  return run_clamp(__func__, ctx, input, input, min, NULL, BOUND_MIN);
}
diopiError_t diopiClampMinScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 const diopiScalar_t *min) {
  return run_clamp_numbers(__func__, ctx, out, input, min, NULL, BOUND_MIN);
}
diopiError_t diopiClampMinInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *min) {
  return run_clamp_numbers(__func__, ctx, input, input, min, NULL, BOUND_MIN);
}

static pointwise_loop *get_where(size_t width) {
  return width == 1 ? where_1 : width == 2 ? where_2 : width == 4 ? where_4 : width == 8 ? where_8 : where_16;
}

diopiError_t diopiWhere(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t condition,
                        diopiConstTensorHandle_t input, diopiConstTensorHandle_t other) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, __func__, ctx));
  FRAME_TRY(elementwise_add_output(&e, "out", out));
  FRAME_TRY(elementwise_add_input(&e, "condition", condition));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(elementwise_add_input(&e, "other", other));
  FRAME_TRY(elementwise_check(&e));
  if (e.views[1].dtype != DIT_DTYPE_BOOL && e.views[1].dtype != DIT_DTYPE_U8) {
    return frame_fail_dtype(&e.frame, "condition", e.views[1].dtype);
  }
  const int compute = elementwise_promote_from(&e, 1);  // the condition takes no part
  if (compute < 0) {
    return frame_fail_dtype(&e.frame, "input", e.views[2].dtype);
  }
  if (e.views[0].dtype != compute) {
    return frame_fail(&e.frame, diopiDtypeNotSupported, "'out' is %s; the common dtype of input and other is %s",
                      dit_dtype_get_name(e.views[0].dtype), dit_dtype_get_name(compute));
  }
  e.run.work[0] = e.run.work[2] = e.run.work[3] = compute;
  e.run.work[1] = e.views[1].dtype;
  e.run.loop = get_where(dit_dtype_get_size(compute));
  return elementwise_launch(&e);
}

diopiError_t diopiLerpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t end, diopiConstTensorHandle_t weight) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, __func__, ctx));
  FRAME_TRY(elementwise_add_output(&e, "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(elementwise_add_input(&e, "end", end));
  FRAME_TRY(elementwise_add_input(&e, "weight", weight));
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), lerp_loops));
  return elementwise_launch(&e);
}

diopiError_t diopiLerpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t end, const diopiScalar_t *weight) {
  struct elementwise e;
  struct dit_scalar factor;
  FRAME_TRY(elementwise_begin(&e, __func__, ctx));
  FRAME_TRY(elementwise_add_output(&e, "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(elementwise_add_input(&e, "end", end));
  FRAME_TRY(frame_get_scalar(&e.frame, "weight", weight, &factor));
  FRAME_TRY(elementwise_check(&e));
  FRAME_TRY(elementwise_set_type(&e, elementwise_promote(&e), lerp_number_loops));
  elementwise_set_number(&e, 3, factor, elementwise_get_work(e.run.work[0]));
  return elementwise_launch(&e);
}
