/// Elementwise operators: one run function per rule of inference, the DIOPI function from the row.
///
/// out[i] = f(self[i], ...), inputs broadcast, strides as TensorIterator says. The result's dtype: that of self
/// (op_same; op_abs: real), promotion (op_promoting), promotion with integers turned into the default dtype
/// (op_floating), bool (op_predicate). Numbers promote as wrapped numbers where the rule says so. In-place keeps shape
/// and dtype and goes through the function's own in-place form; an out= tensor of another dtype gets the result by
/// conversion where PyTorch allows one. A 0-d host tensor is passed as a number where the standard has such a form,
/// else moved to the device first.
#include <stddef.h>
#include <string.h>

#include "invoke.h"
#include "table.h"

enum rule { RULE_SAME, RULE_PROMOTE, RULE_FLOAT, RULE_BOOL };

struct spec {
  enum rule rule;
  uint32_t numbers;   ///< arguments that are operands when they are numbers
  bool weak_layout;   ///< numbers decide the dtype, not the strides
  bool exact_out;     ///< PyTorch refuses an out= tensor of another dtype
  bool real;          ///< the result of complex numbers is real
  bool second_first;  ///< the second tensor comes first when strides are inferred
  int first_operand;  ///< arguments before it do not promote (the condition of where)
};

struct operands {
  const struct dit_tensor_view *inputs[OP_MAX_INPUTS], *promoting[OP_MAX_INPUTS];
  struct dit_tensor_view numbers[OP_MAX_INPUTS];
  union op_number rooms[OP_MAX_INPUTS];
  int count, promoting_count;
  bool on_device;  ///< one of them
};

static bool is_number(const struct dit_value *value) {
  return value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_DOUBLE || value->tag == DIT_VALUE_BOOL ||
         value->tag == DIT_VALUE_COMPLEX;
}

static enum dit_status collect(struct dit_call *call, const struct spec *spec, struct operands *operands) {
  const int end = call->nargs - (call->op->target == OP_OUT);
  operands->count = operands->promoting_count = 0;
  operands->on_device = false;
  for (int i = 0; i < end; i++) {
    const struct dit_value *value = &call->args[i];
    const struct dit_tensor_view *view;
    bool number = spec->numbers >> i & 1 && is_number(value);
    if (operands->promoting_count == OP_MAX_INPUTS) {
      return DIT_ERR_UNSUPPORTED;
    }
    if (number) {
      struct dit_tensor_view *made = &operands->numbers[operands->promoting_count];
      DIT_RETURN_IF_NOT_OK(op_wrap_scalar(value, &operands->rooms[operands->promoting_count], made));
      view = made;
    } else if (value->tag == DIT_VALUE_TENSOR) {
      view = &value->v.tensor;
      DIT_RETURN_IF_NOT_OK(op_check_element(view));
      operands->on_device = operands->on_device || op_is_device(view);
    } else {
      continue;
    }
    if (!number || !spec->weak_layout) {
      operands->inputs[operands->count++] = view;
    }
    if (i >= spec->first_operand) {
      operands->promoting[operands->promoting_count++] = view;
    }
  }
  if (spec->second_first && operands->count > 1) {
    const struct dit_tensor_view *first = operands->inputs[0];
    operands->inputs[0] = operands->inputs[1];
    operands->inputs[1] = first;
  }
  return operands->count > 0 && operands->on_device ? DIT_OK : DIT_ERR_UNSUPPORTED;
}

/// The dtype the operator computes in; -1 where PyTorch or this layer has none.
static int get_common(const struct dit_call *call, const struct spec *spec, const struct operands *operands) {
  if (spec->rule == RULE_SAME) {
    for (int i = 1; i < operands->promoting_count; i++) {
      if (operands->promoting[i]->dtype != operands->promoting[0]->dtype) {
        return -1;
      }
    }
    return operands->promoting[0]->dtype;
  }
  const int common = spec->rule == RULE_FLOAT
                         ? op_promote_floating(call, operands->promoting, operands->promoting_count)
                         : op_promote(call, operands->promoting, operands->promoting_count);
  return common >= 0 && op_is_element(common) ? common : -1;
}

/// Contiguous device tensors of one shape and dtype: the result is like them.
static bool is_simple(const struct operands *operands) {
  const uint8_t want = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_ON_DEVICE;
  const struct dit_tensor_view *first = operands->inputs[0];
  if ((first->flags & want) != want || operands->promoting_count != operands->count) {
    return false;
  }
  for (int i = 1; i < operands->count; i++) {
    const struct dit_tensor_view *view = operands->inputs[i];
    if ((view->flags & want) != want || view->dtype != first->dtype ||
        !op_same_sizes(view, first->ndim, first->sizes)) {
      return false;
    }
  }
  return true;
}

/// Host numbers become arguments that DIOPI takes; `function` may change to its form for a number.
static enum dit_status place_numbers(struct dit_call *call, const struct spec *spec, int common, int *function) {
  const int end = call->nargs - (call->op->target == OP_OUT);
  for (int i = 0; i < end; i++) {
    struct dit_value *value = &call->args[i];
    if (value->tag != DIT_VALUE_TENSOR || op_is_device(&value->v.tensor)) {
      continue;
    }
    const int scalar_form = op_get_scalar_form(*function);
    const bool wrapped = value->v.tensor.flags & DIT_TENSOR_WRAPPED_NUMBER;
    const bool is_complex = op_is_complex(value->v.tensor.dtype);
    const bool last = end <= 2 || call->args[2].tag != DIT_VALUE_TENSOR;
    if (i == 1 && last && !is_complex && scalar_form && op_can_invoke(call, scalar_form) &&
        (wrapped || spec->rule != RULE_BOOL)) {
      *function = scalar_form;
    } else {
      DIT_RETURN_IF_NOT_OK(op_move_to_device(call, &value->v.tensor, common));
    }
  }
  return DIT_OK;
}

static enum dit_status launch(struct dit_call *call, int function, int result, struct dit_tensor_view *out) {
  const struct dit_tensor_view *outs[1] = {out};
  if (op_get_plain_form(function)) {
    return op_invoke_inplace(call, function, out);
  }
  if (DIT_LIKELY(out->dtype == result)) {
    return op_invoke(call, function, outs, 0);
  }
  struct dit_tensor_view made;
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, out->ndim, out->sizes, NULL, result, &made));
  outs[0] = &made;
  DIT_RETURN_IF_NOT_OK(op_invoke(call, function, outs, 0));
  return op_copy(call, out, &made);
}

static enum dit_status prepare(struct dit_call *call, const struct spec *spec, const struct operands *operands,
                               int common, int result, struct dit_tensor_view *out) {
  const enum op_target target = (enum op_target)call->op->target;
  struct op_layout layout;
  bool same_shape;
  DIT_RETURN_IF_NOT_OK(op_check_given(call, target, operands->inputs, operands->count, out));
  DIT_RETURN_IF_NOT_OK(op_broadcast(operands->inputs, operands->count, &layout, &same_shape, call->err));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_check_inplace(out, &layout, call->err));
  }
  if (common < 0) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (target != OP_NEW) {
    DIT_RETURN_IF_NOT_OK(op_check_cast(result, out->dtype, call->err));
    if (spec->exact_out && out->dtype != result) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  return op_prepare_as(call, target, operands->inputs, operands->count, common, result, &layout, same_shape, out);
}

static enum dit_status run_function(struct dit_call *call, const struct spec *spec, int function) {
  struct operands operands;
  struct dit_tensor_view made, *out = call->op->target == OP_NEW   ? &made
                                      : call->op->target == OP_OUT ? op_get_given(call, 0)
                                                                   : op_get_tensor(call, 0);
  if (!out || !op_can_invoke(call, function)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(collect(call, spec, &operands));
  const int common = get_common(call, spec, &operands);
  const int result = spec->rule == RULE_BOOL               ? DIT_DTYPE_BOOL
                     : spec->real && op_is_complex(common) ? dit_dtype_get_real(common)
                                                           : common;
  if (call->op->target == OP_NEW && common >= 0 && is_simple(&operands)) {
    const struct dit_tensor_view *like = operands.inputs[0];
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, like->ndim, like->sizes, NULL, result, out));
  } else {
    DIT_RETURN_IF_NOT_OK(prepare(call, spec, &operands, common, result, out));
    DIT_RETURN_IF_NOT_OK(place_numbers(call, spec, common, &function));
  }
  DIT_RETURN_IF_NOT_OK(launch(call, function, result, out));
  return op_return(call, 0, out);
}

static enum dit_status run(struct dit_call *call, const struct spec *spec) {
  return run_function(call, spec, call->op->function);
}

enum dit_status op_same(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_SAME, .exact_out = true};
  return run(call, &spec);
}
/// abs: a complex tensor has no in-place form.
enum dit_status op_abs(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_SAME, .exact_out = true, .real = true};
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  return self && op_is_complex(self->dtype) && call->op->target == OP_INPLACE ? DIT_ERR_UNSUPPORTED : run(call, &spec);
}
/// Backward functions whose iterator names the input before the gradient.
enum dit_status op_same_second(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_SAME, .exact_out = true, .second_first = true};
  return run(call, &spec);
}

/// threshold: idempotent, so PyTorch lets it write an expanded tensor.
enum dit_status op_threshold(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  if (!self || (call->op->target == OP_INPLACE && !(self->flags & DIT_TENSOR_DENSE))) {
    return DIT_ERR_UNSUPPORTED;
  }
  return op_same(call);
}

/// hardtanh: the limits of unsigned types are PyTorch's affair.
enum dit_status op_hardtanh(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  return self && op_is_floating(self->dtype) ? op_same(call) : DIT_ERR_UNSUPPORTED;
}

/// gelu: an approximation that is neither "none" nor "tanh" is PyTorch's to refuse.
enum dit_status op_gelu(struct dit_call *call) {
  const struct dit_value *approximate = &call->args[1];
  const char *name = approximate->tag == DIT_VALUE_STRING ? approximate->v.string : "";
  return strcmp(name, "none") == 0 || strcmp(name, "tanh") == 0 ? op_same(call) : DIT_ERR_UNSUPPORTED;
}

enum dit_status op_floating(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_FLOAT};
  return run(call, &spec);
}
enum dit_status op_predicate(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_BOOL, .numbers = 3};
  return run(call, &spec);
}
enum dit_status op_promoting(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_PROMOTE, .numbers = 3};
  return run(call, &spec);
}

/// div with a rounding mode; without one it is true division.
enum dit_status op_div_mode(struct dit_call *call) {
  static const struct spec exact = {.rule = RULE_FLOAT, .numbers = 3}, rounded = {.rule = RULE_PROMOTE, .numbers = 3};
  return run(call, call->args[2].tag == DIT_VALUE_STRING ? &rounded : &exact);
}

/// floor_divide is div with the mode "floor".
enum dit_status op_floor_divide(struct dit_call *call) {
  struct dit_value args[4] = {call->args[0], call->args[1]};
  struct dit_call longer = *call;
  args[2].tag = DIT_VALUE_STRING;
  args[2].v.string = "floor";
  if (call->op->target == OP_OUT) {
    args[3] = call->args[2];
  }
  longer.args = args;
  longer.nargs++;
  return op_div_mode(&longer);
}

/// addcmul and addcdiv: integers only with an integer value, and no division of integers by integers, whatever they are
/// added to (PyTorch refuses both).
enum dit_status op_addc(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_PROMOTE};
  const bool divides = call->op->function == DIT_DIOPI_diopiAddcdiv || call->op->function == DIT_DIOPI_diopiAddcdivInp;
  bool floating = false;
  for (int i = divides ? 1 : 0; i < 3; i++) {
    const struct dit_tensor_view *view = op_get_tensor(call, i);
    floating = floating || (view && op_is_floating(view->dtype));
  }
  if (!floating && (divides || call->args[3].tag != DIT_VALUE_INT)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run(call, &spec);
}

enum dit_status op_where(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_PROMOTE, .exact_out = true, .first_operand = 1};
  const struct dit_tensor_view *condition = op_get_tensor(call, 0);
  if (!condition || condition->dtype != DIT_DTYPE_BOOL) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run(call, &spec);
}

static bool is_zero(const struct dit_value *value) {
  return (value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_BOOL)
             ? value->v.i == 0
             : value->tag == DIT_VALUE_DOUBLE && value->v.d == 0;
}

/// pow: a negative integer exponent for integers is PyTorch's error, and a complex number to the power of zero is 1
/// even if it is no number.
enum dit_status op_pow(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_PROMOTE, .numbers = 3, .weak_layout = true};
  const struct dit_tensor_view *base = op_get_tensor(call, 0);
  const struct dit_value *exponent = &call->args[1];
  if (base && !op_is_floating(base->dtype) && exponent->tag == DIT_VALUE_INT && exponent->v.i < 0) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (base && op_is_complex(base->dtype) && is_zero(exponent)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run(call, &spec);
}

/// clamp with one bound is clamp_min or clamp_max; with none PyTorch refuses.
enum dit_status op_clamp(struct dit_call *call) {
  static const struct spec spec = {.rule = RULE_PROMOTE, .numbers = 6, .weak_layout = true, .exact_out = true};
  static const int16_t lower[DIT_DIOPI_COUNT] = {[DIT_DIOPI_diopiClamp] = DIT_DIOPI_diopiClampMin,
                                                 [DIT_DIOPI_diopiClampInp] = DIT_DIOPI_diopiClampMinInp,
                                                 [DIT_DIOPI_diopiClampScalar] = DIT_DIOPI_diopiClampMinScalar,
                                                 [DIT_DIOPI_diopiClampInpScalar] = DIT_DIOPI_diopiClampMinInpScalar};
  static const int16_t upper[DIT_DIOPI_COUNT] = {[DIT_DIOPI_diopiClamp] = DIT_DIOPI_diopiClampMax,
                                                 [DIT_DIOPI_diopiClampInp] = DIT_DIOPI_diopiClampMaxInp,
                                                 [DIT_DIOPI_diopiClampScalar] = DIT_DIOPI_diopiClampMaxScalar,
                                                 [DIT_DIOPI_diopiClampInpScalar] = DIT_DIOPI_diopiClampMaxInpScalar};
  int function = call->op->function;
  if (lower[function] && call->args[2].tag == DIT_VALUE_NONE) {
    function = lower[function];
  } else if (upper[function] && call->args[1].tag == DIT_VALUE_NONE) {
    function = upper[function];
    call->args[1] = call->args[2];
    call->args[2].tag = DIT_VALUE_NONE;
  }
  if (call->args[1].tag == DIT_VALUE_NONE) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_function(call, &spec, function);
}

/// equal: one bool for the whole; tensors of different shapes differ.
enum dit_status op_equal(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0), *other = op_get_tensor(call, 1);
  struct diopiContext context;
  struct diopiTensor self_handle, other_handle;
  bool same = false;
  if (!OP_HAS(call, diopiEqual) || op_check_input(self) != DIT_OK || op_check_input(other) != DIT_OK ||
      !op_is_device(self) || !op_is_device(other) || self->dtype != other->dtype) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (op_same_sizes(self, other->ndim, other->sizes)) {
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiEqual, &same, op_handle(call, &self_handle, self),
                                  op_handle(call, &other_handle, other)));
  }
  call->rets[0].tag = DIT_VALUE_BOOL;
  call->rets[0].v.i = same;
  return DIT_OK;
}
