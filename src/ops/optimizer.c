/// Fused optimizers: one step of Adam, AdamW or SGD for lists of parameters, in place.
///
/// AdamW is diopiFusedAdamW. Adam without weight decay is the same step; with it, the decayed gradients
/// (grad + weight_decay * param) come first. SGD is diopiSgd per parameter: the first step's momentum buffers start
/// from zero, without dampening. Parameters, gradients and states of one floating dtype and shape; lr is a number or a
/// 0-d host tensor. Gradient scaling inside the step (grad_scale, found_inf) is not DIOPI's: those calls go to the CPU.
#include <stddef.h>

#include "invoke.h"
#include "list.h"
#include "network.h"
#include "table.h"

enum { ADAM_LISTS = 6 };  // params, grads, averages, averages of squares, their maxima (amsgrad), steps

static enum dit_status fail_memory(struct dit_call *call, int64_t count) {
  return dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count);
}

static bool is_absent(const struct dit_value *value) {
  return value->tag == DIT_VALUE_NONE || (value->tag == DIT_VALUE_TENSOR && !value->v.tensor.handle);
}

/// A number, or a 0-d tensor in host memory.
static bool read_rate(const struct dit_value *value, double *out) {
  struct dit_scalar number;
  if (value->tag == DIT_VALUE_TENSOR ? op_read_number(&value->v.tensor, &number) != DIT_OK
                                     : op_read_scalar(value, &number) != DIT_OK) {
    return false;
  }
  *out = number.kind == DIT_SCALAR_DOUBLE ? number.v.d : (double)number.v.i;
  return number.kind != DIT_SCALAR_COMPLEX;
}

/// The list has `count` tensors like the parameters, which may be written where `written`.
static bool is_like(const struct dit_value *list, const struct dit_value *params, bool written) {
  const int64_t count = params->v.tensors.size;
  if (list->tag != DIT_VALUE_TENSORS || list->v.tensors.size != count ||
      !list_is_uniform(list->v.tensors.data, count)) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    const struct dit_tensor_view *view = &list->v.tensors.data[i], *param = &params->v.tensors.data[i];
    if (view->dtype != param->dtype || !op_same_sizes(view, param->ndim, param->sizes) ||
        (written && !net_is_writable(view))) {
      return false;
    }
  }
  return true;
}

/// Lists of one length (the maxima may be absent), steps float32 numbers.
static bool check_adam(const struct dit_call *call) {
  const struct dit_value *params = &call->args[0], *maxima = &call->args[4], *steps = &call->args[5];
  if (params->tag != DIT_VALUE_TENSORS || params->v.tensors.size == 0) {
    return false;
  }
  for (int i = 0; i < 4; i++) {
    if (!is_like(&call->args[i], params, i != 1)) {
      return false;
    }
  }
  if (maxima->tag != DIT_VALUE_TENSORS || (maxima->v.tensors.size > 0 && !is_like(maxima, params, true)) ||
      steps->tag != DIT_VALUE_TENSORS || steps->v.tensors.size != params->v.tensors.size) {
    return false;
  }
  for (int64_t i = 0; i < steps->v.tensors.size; i++) {
    if (!list_is_number(&steps->v.tensors.data[i], DIT_DTYPE_F32)) {
      return false;
    }
  }
  return true;
}

/// grad + decay * param, or decay * param - grad where the step goes up.
static enum dit_status decay_gradient(struct dit_call *call, const struct dit_tensor_view *param,
                                      const struct dit_tensor_view *grad, double decay, bool maximize,
                                      struct dit_tensor_view *out) {
  struct diopiContext context;
  struct diopiTensor rooms[3];
  diopiScalar_t factor, one;
  op_scalar(&factor, (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = decay}});
  op_scalar(&one, (struct dit_scalar){DIT_SCALAR_INT, {1}});
  DIT_RETURN_IF_NOT_OK(net_new_like(call, param, param->dtype, out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], out), p = op_handle(call, &rooms[1], param),
                      g = op_handle(call, &rooms[2], grad);
  if (!maximize) {
    return OP_DIOPI(call, &context, diopiAdd, o, g, p, &factor);
  }
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMulScalar, o, p, &factor));
  return OP_DIOPI(call, &context, diopiSub, o, o, g, &one);
}

struct adam {
  double rate, decay;
  bool maximize;
  struct dit_tensor_view *decayed;  ///< gradients that take the place of the given ones, or NULL
};

static enum dit_status run_adam(struct dit_call *call, const struct adam *adam) {
  struct list_handles handles;
  struct diopiContext context;
  diopiTensorHandle_t *lists[ADAM_LISTS];
  const struct dit_value *a = call->args;
  const int64_t count = a[0].v.tensors.size;
  if (!list_handles_init(&handles, count * ADAM_LISTS)) {
    return fail_memory(call, count * ADAM_LISTS);
  }
  for (int i = 0; i < ADAM_LISTS; i++) {
    const struct dit_tensor_view *views = i == 1 && adam->decayed ? adam->decayed : a[i].v.tensors.data;
    lists[i] = a[i].v.tensors.size > 0 ? list_handles_take(&handles, call, views, count) : NULL;
  }
  op_context_init(&context, call);
  enum dit_status status =
      OP_DIOPI(call, &context, diopiFusedAdamW, lists[0], (diopiConstTensorHandle_t *)lists[1], lists[2], lists[3],
               lists[4], (diopiConstTensorHandle_t *)lists[5], count, adam->rate, a[7].v.d, a[8].v.d, a[10].v.d,
               adam->decay, a[11].v.i != 0, adam->maximize);
  dit_free(handles.rooms);
  return status;
}

/// _fused_adam_ and _fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
/// weight_decay, eps, amsgrad, maximize, grad_scale, found_inf).
enum dit_status op_fused_adam(struct dit_call *call) {
  const bool decoupled = strcmp(call->op->name, "aten::_fused_adamw_") == 0;
  struct adam adam = {.decay = call->args[9].v.d, .maximize = call->args[12].v.i != 0};
  NET_NEED(OP_HAS(call, diopiFusedAdamW) && check_adam(call) && read_rate(&call->args[6], &adam.rate) &&
           is_absent(&call->args[13]) && is_absent(&call->args[14]));
  if (decoupled || adam.decay == 0) {
    return run_adam(call, &adam);
  }
  const struct dit_tensor_view *params = call->args[0].v.tensors.data, *grads = call->args[1].v.tensors.data;
  const int64_t count = call->args[0].v.tensors.size;
  NET_NEED(!op_is_half(params[0].dtype));  // the decayed gradient would be rounded once more
  adam.decayed = dit_malloc(sizeof *adam.decayed * (size_t)count);
  enum dit_status status = adam.decayed ? DIT_OK : fail_memory(call, count);
  for (int64_t i = 0; i < count && status == DIT_OK; i++) {
    status = decay_gradient(call, &params[i], &grads[i], adam.decay, adam.maximize, &adam.decayed[i]);
  }
  adam.decay = 0;
  adam.maximize = false;
  status = status == DIT_OK ? run_adam(call, &adam) : status;
  dit_free(adam.decayed);
  return status;
}

struct sgd {
  double decay, momentum, rate, dampening;
  bool nesterov, maximize, first;
};

static enum dit_status step_sgd(struct dit_call *call, const struct sgd *sgd, int64_t position) {
  const struct dit_tensor_view *param = &call->args[0].v.tensors.data[position],
                               *grad = &call->args[1].v.tensors.data[position], *buffer = NULL;
  struct dit_tensor_view turned;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  op_context_init(&context, call);
  diopiTensorHandle_t g = op_handle(call, &rooms[1], grad);
  if (sgd->maximize) {
    DIT_RETURN_IF_NOT_OK(net_new_like(call, grad, grad->dtype, &turned));
    struct diopiTensor given = rooms[1];
    g = op_handle(call, &rooms[1], &turned);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiNeg, g, &given));
  }
  if (sgd->momentum != 0) {
    buffer = &call->args[2].v.tensors.data[position];
    if (sgd->first) {
      DIT_RETURN_IF_NOT_OK(op_fill(call, buffer, (struct dit_scalar){DIT_SCALAR_INT, {0}}));
    }
  }
  return OP_DIOPI(call, &context, diopiSgd, op_handle(call, &rooms[0], param), g, op_handle(call, &rooms[2], buffer),
                  sgd->rate, sgd->momentum, sgd->first ? 0 : sgd->dampening, sgd->decay, sgd->nesterov);
}

/// _fused_sgd_(params, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
/// is_first_step, grad_scale, found_inf).
enum dit_status op_fused_sgd(struct dit_call *call) {
  const struct dit_value *a = call->args;
  struct sgd sgd = {.decay = a[3].v.d,
                    .momentum = a[4].v.d,
                    .dampening = a[6].v.d,
                    .nesterov = a[7].v.i != 0,
                    .maximize = a[8].v.i != 0,
                    .first = a[9].v.i != 0};
  NET_NEED(OP_HAS(call, diopiSgd) && OP_HAS(call, diopiNeg) && a[0].tag == DIT_VALUE_TENSORS &&
           is_like(&a[0], &a[0], true) && is_like(&a[1], &a[0], false) &&
           (sgd.momentum == 0 || is_like(&a[2], &a[0], true)) && read_rate(&a[5], &sgd.rate) && is_absent(&a[10]) &&
           is_absent(&a[11]));
  for (int64_t i = 0; i < a[0].v.tensors.size; i++) {
    const enum dit_status status = step_sgd(call, &sgd, i);
    if (status == DIT_ERR_UNSUPPORTED && i > 0) {
      return dit_error_set(call->err, DIT_ERR_DEVICE, "%s: the vendor took tensor 0 of the list but not tensor %lld",
                           call->op->name, (long long)i);
    }
    DIT_RETURN_IF_NOT_OK(status);
  }
  return DIT_OK;
}
