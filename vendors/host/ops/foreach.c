/// List operators: add and mul of many tensors with a number, norms.
///
/// outs[i] = inputs[i] op other for each tensor of the list, as the operator of one tensor does it. ForeachmulTensor:
/// other is a tensor of one element. ForeachnormScalar: outs[i] is the 0-d norm of inputs[i]. Everything is checked
/// before the first tensor is written.
#include "foreach.h"

#include <math.h>

#include "foreach_expressions.h"

static loop_table add_loops = {ROWS_BITS_SIGNED(add), ROWS_FLOAT(add), ROWS_COMPLEX(add), [DIT_DTYPE_BOOL] = add_bool};
static loop_table mul_loops = {ROWS_BITS_SIGNED(mul), ROWS_FLOAT(mul), ROWS_COMPLEX(mul), [DIT_DTYPE_BOOL] = mul_bool};

struct list {
  const char *name;  ///< of the tensors that are written
  diopiTensorHandle_t *outs;
  diopiConstTensorHandle_t *inputs;
  int64_t count;
  const diopiScalar_t *number;  ///< or
  diopiConstTensorHandle_t tensor;
  bool is_tensor;
};

static diopiError_t prepare(const struct foreach_list *all, int64_t i, struct elementwise *e) {
  const struct list *list = all->context;
  diopiConstTensorHandle_t input = list->inputs ? list->inputs[i] : list->outs[i];
  FRAME_TRY(elementwise_begin(e, all->frame->function, all->frame->context));
  FRAME_TRY(elementwise_add_output(e, list->name, list->outs[i]));
  FRAME_TRY(elementwise_add_input(e, "inputs", input));
  FRAME_TRY(list->is_tensor ? elementwise_add_input(e, "other", list->tensor)
                            : elementwise_add_scalar(e, "other", list->number));
  if (list->is_tensor) {
    FRAME_CHECK(&e->frame, e->views[2].numel == 1, "'other' has %lld elements; it must have 1",
                (long long)e->views[2].numel);
    e->views[2].ndim = 0;
  }
  FRAME_TRY(elementwise_check(e));
  const int compute = elementwise_promote(e);
  FRAME_TRY(elementwise_set_type(e, compute, all->is_product ? mul_loops : add_loops));
  if (!all->is_product) {
    elementwise_round_numbers(e, compute);
  }
  if (!list->is_tensor && e->run.work[0] == DIT_DTYPE_F32) {
    e->run.loop = all->is_product ? mul_number_f32 : add_number_f32;
    e->run.inputs = 1;
  }
  return diopiSuccess;
}

static diopiError_t run_list(const char *function, diopiContextHandle_t ctx, const struct list *list, bool has_inputs,
                             bool is_product) {
  struct frame frame;
  const struct foreach_list all = {&frame, list, list->count, prepare, is_product};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_CHECK(&frame, list->count >= 0, "'inputSize' is %lld; it must not be negative", (long long)list->count);
  FRAME_CHECK(&frame, list->count == 0 || (list->outs && (!has_inputs || list->inputs)), "a list of tensors is NULL");
  for (int64_t i = 0; i < list->count; i++) {
    struct elementwise e;
    FRAME_TRY(prepare(&all, i, &e));
  }
  return foreach_run_list(&all);
}

diopiError_t diopiForeachaddScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *other) {
  const struct list list = {"outs", outs, inputs, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, true, false);
}
diopiError_t diopiForeachaddInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiScalar_t *other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, false, false);
}
diopiError_t diopiForeachmulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *other) {
  const struct list list = {"outs", outs, inputs, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, true, true);
}
diopiError_t diopiForeachmulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiScalar_t *other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, false, true);
}
diopiError_t diopiForeachmulTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                   const diopiConstTensorHandle_t other) {
  const struct list list = {"outs", outs, inputs, inputSize, NULL, other, true};
  return run_list(__func__, ctx, &list, true, true);
}
diopiError_t diopiForeachmulInpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiConstTensorHandle_t other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, NULL, other, true};
  return run_list(__func__, ctx, &list, false, true);
}

/// Everything is checked before the first norm is written.
static diopiError_t check_norms(const struct foreach_norms *list) {
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view o, x;
    FRAME_TRY(frame_take(list->frame, "outs", list->outs[i], &o));
    FRAME_TRY(frame_take(list->frame, "inputs", list->inputs[i], &x));
    FRAME_CHECK(list->frame, o.ndim == 0, "'outs' has a tensor of %d dimensions; a norm is 0-d", (int)o.ndim);
    if (!frame_has_dtype(DTYPES_FLOAT, x.dtype)) {
      return frame_fail_dtype(list->frame, "inputs", x.dtype);
    }
    if (!frame_has_dtype(DTYPES_FLOAT, o.dtype)) {
      return frame_fail_dtype(list->frame, "outs", o.dtype);
    }
    FRAME_CHECK(list->frame, !isinf(list->p) || x.numel > 0, "'inputs' has an empty tensor, which has no norm of %g",
                list->p);
  }
  return diopiSuccess;
}

diopiError_t diopiForeachnormScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                    diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *ord) {
  struct frame frame;
  struct dit_scalar order;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, inputSize >= 0, "'inputSize' is %lld; it must not be negative", (long long)inputSize);
  FRAME_CHECK(&frame, inputSize == 0 || (outs && inputs), "a list of tensors is NULL");
  FRAME_TRY(frame_get_scalar(&frame, "ord", ord, &order));
  const struct foreach_norms list = {&frame, outs, inputs, inputSize, frame_scalar_to_double(order)};
  FRAME_TRY(check_norms(&list));
  return foreach_run_norms(&list);
}
