/// Operators over lists of tensors: _foreach_*, gradient scaling. The fused optimizers are in optimizer.c.
///
/// A _foreach_ operator is its single operator on every position of the lists, in order. The standard has list
/// functions for a few; the others run the single function once per position, in one call through the door. All tensors
/// are floating device tensors, each list of one dtype: what the vendor takes for the first position it takes for all,
/// so nothing is half done when a call goes to the CPU. Results take the places of the first list's views.
#include <stddef.h>
#include <string.h>

#include "dit/alloc.h"
#include "invoke.h"
#include "list.h"
#include "table.h"

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
        (!list_is_uniform(value->v.tensors.data, count) || value->v.tensors.data[0].dtype != dtype)) {
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

static enum dit_status run_positions(struct dit_call *call, enum dit_status (*run)(struct dit_call *)) {
  struct dit_value args[DIT_MAX_ARGS], rets[1];
  struct dit_call one = *call;
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

#define MOST_TOGETHER 512
#define SLOTS (4 * MOST_TOGETHER)

/// Which position writes a storage: a small hash table.
struct writer {
  const void *storage;
  int64_t position;
};

static struct writer *find_writer(struct writer *table, const void *storage) {
  size_t slot = ((uintptr_t)storage >> 4) * (size_t)2654435761u / 64 % SLOTS;
  while (table[slot].storage && table[slot].storage != storage) {
    slot = (slot + 1) % SLOTS;
  }
  return &table[slot];
}

/// Can the positions go in any order: does each write memory that no other one touches? Results that are made are new.
static bool is_independent(const struct dit_call *call) {
  struct writer table[SLOTS];
  const int64_t count = call->args[0].v.tensors.size;
  if (call->nrets > 0) {
    return true;
  }
  if (count > MOST_TOGETHER) {
    return false;
  }
  memset(table, 0, sizeof table);
  for (int64_t i = 0; i < count; i++) {
    struct writer *writer = find_writer(table, call->args[0].v.tensors.data[i].storage);
    if (writer->storage || !call->args[0].v.tensors.data[i].storage) {
      return false;
    }
    *writer = (struct writer){call->args[0].v.tensors.data[i].storage, i};
  }
  for (int k = 1; k < call->nargs; k++) {
    for (int64_t i = 0; call->args[k].tag == DIT_VALUE_TENSORS && i < count; i++) {
      const struct writer *writer = find_writer(table, call->args[k].v.tensors.data[i].storage);
      if (writer->storage && writer->position != i) {
        return false;
      }
    }
    if (call->args[k].tag == DIT_VALUE_TENSOR && find_writer(table, call->args[k].v.tensor.storage)->storage) {
      return false;
    }
  }
  return true;
}

/// The vendor may do the work of all positions together. Where somebody watches single calls, each is done at once.
static enum dit_status run_each(struct dit_call *call, enum dit_status (*run)(struct dit_call *)) {
  const struct dit_diopi_library *library = call->diopi;
  struct diopiContext context;
  if (!op_can_invoke(call, call->op->function) || !check_lists(call)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (!library->ext_list_begin || call->observer || !is_independent(call)) {
    return run_positions(call, run);
  }
  op_context_init(&context, call);
  if (library->ext_list_begin(&context) != diopiSuccess) {
    return run_positions(call, run);
  }
  const enum dit_status status = run_positions(call, run);
  const diopiError_t code = library->ext_list_end(&context);
  return status == DIT_OK ? op_finish(call, &context, call->op->function, code) : status;
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

// Functions of the standard that take lists

/// A list function of one list and one more argument, a number or a tensor.
static enum dit_status call_list(struct dit_call *call, struct list_handles *handles, struct dit_tensor_view *outs) {
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
    values[next++].tensors = list_handles_take(handles, call, outs, count);
  }
  values[next++].tensors = list_handles_take(handles, call, inputs, count);
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
  struct list_handles handles = {NULL, NULL, 0, 0};
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
    status = list_handles_init(&handles, 2 * count)
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

// Gradient scaling

enum dit_status op_amp_unscale(struct dit_call *call) {
  const struct dit_tensor_view *found = op_get_tensor(call, 1), *scale = op_get_tensor(call, 2);
  const struct dit_value *grads = &call->args[0];
  struct diopiContext context;
  struct diopiTensor found_room, scale_room;
  struct list_handles handles;
  if (!OP_HAS(call, diopiAmpForeachNonFiniteCheckAndUnscaleInp) || grads->tag != DIT_VALUE_TENSORS ||
      !list_is_number(found, DIT_DTYPE_F32) || !list_is_number(scale, DIT_DTYPE_F32)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t count = grads->v.tensors.size;
  for (int64_t i = 0; i < count; i++) {
    if (!list_is_uniform(&grads->v.tensors.data[i], 1) ||
        dit_tensor_get_internal_overlap(&grads->v.tensors.data[i]) == DIT_OVERLAP_YES) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (!list_handles_init(&handles, count)) {
    return dit_error_set(call->err, DIT_ERR_NOMEM, "no memory for %lld tensors", (long long)count);
  }
  op_context_init(&context, call);
  enum dit_status status = OP_DIOPI(call, &context, diopiAmpForeachNonFiniteCheckAndUnscaleInp,
                                    list_handles_take(&handles, call, grads->v.tensors.data, count), count,
                                    op_handle(call, &found_room, found), op_handle(call, &scale_room, scale));
  dit_free(handles.rooms);
  return status;
}

enum dit_status op_amp_update(struct dit_call *call) {
  const struct dit_tensor_view *scale = op_get_tensor(call, 0);
  if (!op_can_invoke(call, call->op->function) || !list_is_number(scale, DIT_DTYPE_F32) ||
      !list_is_number(op_get_tensor(call, 1), DIT_DTYPE_I32) ||
      !list_is_number(op_get_tensor(call, 2), DIT_DTYPE_F32) || call->args[5].v.i > INT32_MAX) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *outs[2] = {scale, op_get_tensor(call, 1)};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 2));
  return op_return(call, 0, scale);
}
