/// Operators over lists of tensors: _foreach_*, gradient scaling, fused AdamW.
///
/// A _foreach_ operator is its single operator on every position of the lists, in order. The standard has list
/// functions for a few; the others run the single function once per position, in one call through the door. All tensors
/// are floating device tensors, each list of one dtype: what the vendor takes for the first position it takes for all,
/// so nothing is half done when a call goes to the CPU. Results take the places of the first list's views.
#include <stddef.h>

#include "dit/alloc.h"
#include "invoke.h"
#include "table.h"

/// Tensors of one list that C may work on: device, floating, one dtype.
static bool is_uniform(const struct dit_tensor_view *views, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (!views[i].handle || op_check_input(&views[i]) != DIT_OK || !op_is_device(&views[i]) ||
        !op_is_floating(views[i].dtype) || views[i].dtype != views[0].dtype) {
      return false;
    }
  }
  return count > 0;
}

static int64_t get_list_size(const struct dit_value *value, int64_t otherwise) {
  switch (value->tag) {
    case DIT_VALUE_TENSORS:
      return value->v.tensors.size;
    case DIT_VALUE_DOUBLES:
      return value->v.doubles.size;
    case DIT_VALUE_INTS:
      return value->v.ints.size;
    default:
      return otherwise;
  }
}

/// All lists have one length, all tensors one dtype.
static bool check_lists(const struct dit_call *call) {
  if (call->nargs < 1 || call->args[0].tag != DIT_VALUE_TENSORS || call->args[0].v.tensors.size == 0) {
    return false;
  }
  const int64_t count = call->args[0].v.tensors.size;
  const int dtype = call->args[0].v.tensors.data[0].dtype;
  for (int i = 0; i < call->nargs; i++) {
    const struct dit_value *value = &call->args[i];
    if (get_list_size(value, count) != count) {
      return false;
    }
    if (value->tag == DIT_VALUE_TENSORS &&
        (!is_uniform(value->v.tensors.data, count) || value->v.tensors.data[0].dtype != dtype)) {
      return false;
    }
    if (value->tag == DIT_VALUE_TENSOR && (value->v.tensor.dtype != dtype || value->v.tensor.ndim != 0)) {
      return false;
    }
  }
  return true;
}

/// Argument `value` at one position of the lists.
static void take_position(const struct dit_value *value, int64_t position, struct dit_value *out) {
  switch (value->tag) {
    case DIT_VALUE_TENSORS:
      out->tag = DIT_VALUE_TENSOR;
      out->v.tensor = value->v.tensors.data[position];
      break;
    case DIT_VALUE_DOUBLES:
      out->tag = DIT_VALUE_DOUBLE;
      out->v.d = value->v.doubles.data[position];
      break;
    case DIT_VALUE_INTS:
      out->tag = DIT_VALUE_INT;
      out->v.i = value->v.ints.data[position];
      break;
    default:
      *out = *value;
  }
}

static enum dit_status run_each(struct dit_call *call, enum dit_status (*run)(struct dit_call *)) {
  struct dit_value args[DIT_MAX_ARGS], rets[1];
  struct dit_call one = *call;
  if (!op_can_invoke(call, call->op->function) || !check_lists(call)) {
    return DIT_ERR_UNSUPPORTED;
  }
  one.args = args;
  one.rets = rets;
  one.nrets = 1;
  for (int64_t i = 0; i < call->args[0].v.tensors.size; i++) {
    for (int k = 0; k < call->nargs; k++) {
      take_position(&call->args[k], i, &args[k]);
    }
    enum dit_status status = run(&one);
    if (status == DIT_ERR_UNSUPPORTED && i > 0 && call->nrets == 0) {
      return dit_error_set(call->err, DIT_ERR_DEVICE, "%s: the vendor took tensor 0 of the list but not tensor %lld",
                           call->op->name, (long long)i);
    }
    DIT_RETURN_IF_NOT_OK(status);
    if (call->nrets > 0) {
      call->args[0].v.tensors.data[i] = rets[0].v.tensor;
    }
  }
  if (call->nrets > 0) {
    call->rets[0] = call->args[0];
  }
  return DIT_OK;
}

enum dit_status op_each_same(struct dit_call *call) {
  return run_each(call, op_same);
}
enum dit_status op_each_promoting(struct dit_call *call) {
  return run_each(call, op_promoting);
}
enum dit_status op_each_addc(struct dit_call *call) {
  return run_each(call, op_addc);
}

static enum dit_status run_zero(struct dit_call *call) {
  DIT_RETURN_IF_NOT_OK(op_invoke_inplace(call, call->op->function, &call->args[0].v.tensor));
  return op_return(call, 0, &call->args[0].v.tensor);
}
enum dit_status op_each_zero(struct dit_call *call) {
  return run_each(call, run_zero);
}

/// _foreach_copy_(self, src, non_blocking)
static enum dit_status run_copy(struct dit_call *call) {
  DIT_RETURN_IF_NOT_OK(op_copy(call, &call->args[0].v.tensor, &call->args[1].v.tensor));
  return op_return(call, 0, &call->args[0].v.tensor);
}
/// The first position's answer holds for all only where all are alike.
enum dit_status op_each_copy(struct dit_call *call) {
  if (!check_lists(call) || call->args[1].tag != DIT_VALUE_TENSORS) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int64_t i = 0; i < call->args[0].v.tensors.size; i++) {
    const struct dit_tensor_view *self = &call->args[0].v.tensors.data[i], *source = &call->args[1].v.tensors.data[i];
    if (!op_same_sizes(self, source->ndim, source->sizes) || !(self->flags & source->flags & DIT_TENSOR_DENSE) ||
        self->storage == source->storage) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  return run_each(call, run_copy);
}

// ---- functions of the standard that take lists

/// Handles over the views of several lists, in one block.
struct handles {
  struct diopiTensor *rooms;
  diopiTensorHandle_t *tensors;
  int64_t count, room;
};

static bool handles_init(struct handles *handles, int64_t room) {
  handles->count = 0;
  handles->room = room;
  handles->rooms = dit_malloc(((size_t)room + 1) * (sizeof *handles->rooms + sizeof *handles->tensors));
  handles->tensors = handles->rooms ? (diopiTensorHandle_t *)(handles->rooms + room) : NULL;
  return handles->rooms != NULL;
}

/// The next `count` handles.
static diopiTensorHandle_t *handles_take(struct handles *handles, struct dit_call *call,
                                         const struct dit_tensor_view *views, int64_t count) {
  diopiTensorHandle_t *first = handles->tensors + handles->count;
  for (int64_t i = 0; i < count; i++, handles->count++) {
    handles->tensors[handles->count] = op_handle(call, &handles->rooms[handles->count], &views[i]);
  }
  return first;
}

/// A list function of one list and one more argument, a number or a tensor.
static enum dit_status call_list(struct dit_call *call, struct handles *handles, struct dit_tensor_view *outs) {
  const struct dit_tensor_view *inputs = call->args[0].v.tensors.data;
  const int64_t count = call->args[0].v.tensors.size;
  union dit_diopi_value values[5];
  struct diopiContext context;
  struct diopiTensor other;
  diopiScalar_t scalar;
  struct dit_scalar number;
  int next = 1;
  op_context_init(&context, call);
  values[0].context = &context;
  if (outs) {
    values[next++].tensors = handles_take(handles, call, outs, count);
  }
  values[next++].tensors = handles_take(handles, call, inputs, count);
  values[next++].i = count;
  if (call->args[1].tag == DIT_VALUE_TENSOR) {
    values[next].tensor = op_handle(call, &other, &call->args[1].v.tensor);
  } else {
    DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[1], &number));
    op_scalar(&scalar, number);
    values[next].scalar = &scalar;
  }
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, call->op->function);
  }
  return op_finish(call, &context, call->op->function,
                   dit_diopi_invoke(&call->diopi->functions, call->op->function, values));
}

static bool is_list_argument(const struct dit_value *value) {
  return value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_DOUBLE ||
         (value->tag == DIT_VALUE_TENSOR && op_is_device(&value->v.tensor) && value->v.tensor.ndim == 0);
}

/// outs[i] = inputs[i] op argument, or the norm of inputs[i]; in place without results.
enum dit_status op_list(struct dit_call *call) {
  const bool norm = call->op->function == DIT_DIOPI_diopiForeachnormScalar;
  if (!dit_diopi_library_get(call->diopi, call->op->function) || !check_lists(call) ||
      !is_list_argument(&call->args[1]) || (norm && call->args[2].tag != DIT_VALUE_NONE)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t count = call->args[0].v.tensors.size;
  struct dit_tensor_view *inputs = call->args[0].v.tensors.data, *outs = NULL;
  struct handles handles = {NULL, NULL, 0, 0};
  enum dit_status status = DIT_OK;
  if (call->nrets > 0) {
    outs = dit_malloc(sizeof *outs * (size_t)count);
    status = outs ? DIT_OK : dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count);
    for (int64_t i = 0; i < count && status == DIT_OK; i++) {
      const bool keep = inputs[i].flags & DIT_TENSOR_DENSE;
      if (!norm && !keep) {
        status = DIT_ERR_UNSUPPORTED;
        break;
      }
      status = call->services->new_tensor(call, norm ? 0 : inputs[i].ndim, inputs[i].sizes,
                                          norm ? NULL : inputs[i].strides, inputs[i].dtype, &outs[i]);
    }
  }
  if (status == DIT_OK) {
    status = handles_init(&handles, 2 * count)
                 ? call_list(call, &handles, outs)
                 : dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count);
  }
  if (status == DIT_OK && outs) {
    memcpy(inputs, outs, sizeof *outs * (size_t)count);
    call->rets[0] = call->args[0];
  }
  dit_free(handles.rooms);
  dit_free(outs);
  return status;
}

// ---- gradient scaling

static bool is_number_tensor(const struct dit_tensor_view *view, int dtype) {
  return view && op_is_device(view) && view->numel == 1 && view->dtype == dtype;
}

enum dit_status op_amp_unscale(struct dit_call *call) {
  const struct dit_tensor_view *found = op_get_tensor(call, 1), *scale = op_get_tensor(call, 2);
  const struct dit_value *grads = &call->args[0];
  struct diopiContext context;
  struct diopiTensor found_room, scale_room;
  struct handles handles;
  if (!OP_HAS(call, diopiAmpForeachNonFiniteCheckAndUnscaleInp) || grads->tag != DIT_VALUE_TENSORS ||
      !is_number_tensor(found, DIT_DTYPE_F32) || !is_number_tensor(scale, DIT_DTYPE_F32)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t count = grads->v.tensors.size;
  for (int64_t i = 0; i < count; i++) {
    if (!is_uniform(&grads->v.tensors.data[i], 1) ||
        dit_tensor_get_internal_overlap(&grads->v.tensors.data[i]) == DIT_OVERLAP_YES) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (!handles_init(&handles, count)) {
    return dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count);
  }
  op_context_init(&context, call);
  enum dit_status status = OP_DIOPI(call, &context, diopiAmpForeachNonFiniteCheckAndUnscaleInp,
                                    handles_take(&handles, call, grads->v.tensors.data, count), count,
                                    op_handle(call, &found_room, found), op_handle(call, &scale_room, scale));
  dit_free(handles.rooms);
  return status;
}

enum dit_status op_amp_update(struct dit_call *call) {
  const struct dit_tensor_view *scale = op_get_tensor(call, 0);
  if (!op_can_invoke(call, call->op->function) || !is_number_tensor(scale, DIT_DTYPE_F32) ||
      !is_number_tensor(op_get_tensor(call, 1), DIT_DTYPE_I32) ||
      !is_number_tensor(op_get_tensor(call, 2), DIT_DTYPE_F32) || call->args[5].v.i > INT32_MAX) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *outs[2] = {scale, op_get_tensor(call, 1)};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 2));
  return op_return(call, 0, scale);
}

// ---- fused AdamW

enum { ADAM_LISTS = 6 };  // params, grads, averages, averages of squares, their maxima (amsgrad), steps

/// Lists of one length (the maxima may be absent), parameters of one floating dtype, steps float32 numbers.
static bool check_adam(const struct dit_call *call) {
  const int64_t count = call->args[0].v.tensors.size;
  for (int i = 0; i < ADAM_LISTS; i++) {
    const struct dit_value *list = &call->args[i];
    if (list->tag != DIT_VALUE_TENSORS || (list->v.tensors.size != count && !(i == 4 && list->v.tensors.size == 0)) ||
        (list->v.tensors.size > 0 && !is_uniform(list->v.tensors.data, list->v.tensors.size))) {
      return false;
    }
    for (int64_t k = 0; k < list->v.tensors.size; k++) {
      const struct dit_tensor_view *view = &list->v.tensors.data[k], *param = &call->args[0].v.tensors.data[k];
      if (i == ADAM_LISTS - 1 ? !is_number_tensor(view, DIT_DTYPE_F32)
                              : view->dtype != param->dtype || !op_same_sizes(view, param->ndim, param->sizes)) {
        return false;
      }
    }
  }
  return count > 0;
}

/// _fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay,
/// eps, amsgrad, maximize, grad_scale, found_inf): without gradient scaling, which DIOPI's function does not do.
enum dit_status op_fused_adamw(struct dit_call *call) {
  struct handles handles;
  struct diopiContext context;
  diopiTensorHandle_t *lists[ADAM_LISTS];
  if (!OP_HAS(call, diopiFusedAdamW) || call->args[0].tag != DIT_VALUE_TENSORS || !check_adam(call) ||
      call->args[6].tag != DIT_VALUE_DOUBLE || call->args[13].tag != DIT_VALUE_NONE ||
      call->args[14].tag != DIT_VALUE_NONE) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t count = call->args[0].v.tensors.size;
  if (!handles_init(&handles, count * ADAM_LISTS)) {
    return dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count * ADAM_LISTS);
  }
  for (int i = 0; i < ADAM_LISTS; i++) {
    const struct dit_value *list = &call->args[i];
    lists[i] = list->v.tensors.size > 0 ? handles_take(&handles, call, list->v.tensors.data, count) : NULL;
  }
  const struct dit_value *a = call->args;
  op_context_init(&context, call);
  enum dit_status status = OP_DIOPI(call, &context, diopiFusedAdamW, lists[0], (diopiConstTensorHandle_t *)lists[1],
                                    lists[2], lists[3], lists[4], (diopiConstTensorHandle_t *)lists[5], count, a[6].v.d,
                                    a[7].v.d, a[8].v.d, a[10].v.d, a[9].v.d, a[11].v.i != 0, a[12].v.i != 0);
  dit_free(handles.rooms);
  return status;
}
