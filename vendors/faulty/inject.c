/// What each kind of fault does to the arguments before a call and to memory after it.
///
/// A fault never reads or writes memory that is not the tensors' own, except `outside`, whose purpose that is.
#include <string.h>

#include "dit/alloc.h"
#include "dit/memory.h"
#include "faulty.h"

static void add_tensor(diopiConstTensorHandle_t handle, struct dit_tensor_view *views, int *count) {
  if (handle && *count < FAULTY_TENSORS) {
    views[(*count)++] = *dit_diopi_tensor_get_view(handle);
  }
}

void faulty_collect(int function, const union dit_diopi_value *values, bool after, struct faulty_tensors *out) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  out->input_count = out->output_count = 0;
  for (int i = 0; kinds[i]; i++) {
    const bool reads = kinds[i] == 't' || kinds[i] == 'T';
    diopiConstTensorHandle_t handle = NULL;
    if (kinds[i] == 't' || kinds[i] == 'o') {
      handle = values[i].tensor;
    } else if (kinds[i] == 'T' || (kinds[i] == 'O' && (after || dit_diopi_is_list(function, i)))) {
      handle = values[i].tensors ? values[i].tensors[0] : NULL;
    }
    if (kinds[i] == 'O' && !after && !dit_diopi_is_list(function, i) && out->output_count < FAULTY_TENSORS) {
      memset(&out->outputs[out->output_count++], 0, sizeof out->outputs[0]);  // keeps the place of the result
      continue;
    }
    add_tensor(handle, reads ? out->inputs : out->outputs, reads ? &out->input_count : &out->output_count);
  }
}

// Before the call

/// A handle like `from` with another view, in the place of parameter `index` or of its list's first tensor. The list is
/// the caller's, whose length is not known here: it is changed for the time of the call.
static void replace(struct faulty_state *state, int index, bool is_list, diopiConstTensorHandle_t from,
                    const struct dit_tensor_view *view) {
  struct diopiTensor *handle = &state->handles[state->handle_count++];
  *handle = *from;
  handle->view = *view;
  if (is_list) {
    diopiTensorHandle_t *list = state->values[index].tensors;
    state->lists[state->list_count] = list;
    state->firsts[state->list_count++] = list[0];
    list[0] = handle;
  } else {
    state->values[index].tensor = handle;
  }
}

/// Strides that ignore the tensor's own, in the room behind the view's: row-major where the elements suffice, else 0.
static bool flatten(struct dit_tensor_view *view) {
  static const int64_t zeros[DIT_MAX_DIMS];
  static _Thread_local int64_t rooms[FAULTY_TENSORS][DIT_MAX_DIMS];
  static _Thread_local unsigned next;
  int64_t low, high;
  if (view->flags & DIT_TENSOR_CONTIGUOUS || view->numel < 2 || view->ndim > DIT_MAX_DIMS) {
    return false;
  }
  dit_tensor_get_span(view, &low, &high);
  if (high - low >= view->numel * (int64_t)dit_dtype_get_size(view->dtype)) {
    int64_t *room = rooms[next++ % FAULTY_TENSORS];
    dit_shape_set_contiguous(view->ndim, view->sizes, room);
    view->strides = room;
    view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  } else {
    view->strides = zeros;
  }
  return true;
}

/// Back to the start of the storage.
static bool drop_offset(diopiConstTensorHandle_t handle, struct dit_tensor_view *view) {
  void *base = NULL;
  size_t size;
  if (!handle->get_storage || view->numel == 0) {
    return false;
  }
  handle->get_storage(handle, &base, &size);
  if (!base || base == view->data) {
    return false;
  }
  view->data = base;
  return true;
}

/// Another dtype of the same width.
static bool swap_dtype(struct dit_tensor_view *view) {
  static const int8_t pairs[][2] = {{DIT_DTYPE_F16, DIT_DTYPE_BF16}, {DIT_DTYPE_BF16, DIT_DTYPE_F16},
                                    {DIT_DTYPE_F32, DIT_DTYPE_I32},  {DIT_DTYPE_I32, DIT_DTYPE_F32},
                                    {DIT_DTYPE_F64, DIT_DTYPE_I64},  {DIT_DTYPE_I64, DIT_DTYPE_F64},
                                    {DIT_DTYPE_U8, DIT_DTYPE_I8},    {DIT_DTYPE_I8, DIT_DTYPE_U8},
                                    {DIT_DTYPE_I16, DIT_DTYPE_F16},  {DIT_DTYPE_C64, DIT_DTYPE_F64}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    if (pairs[i][0] == view->dtype) {
      view->dtype = pairs[i][1];
      return view->numel > 0;
    }
  }
  return false;
}

/// The tensor behind a parameter, or the first of its list; NULL when it has none before the call.
static diopiConstTensorHandle_t get_tensor(int function, int index, bool is_list, const struct faulty_state *state) {
  if (!is_list) {
    return state->values[index].tensor;
  }
  const bool is_place =
      dit_diopi_get_functions(NULL)[function].kinds[index] == 'O' && !dit_diopi_is_list(function, index);
  return is_place || !state->values[index].tensors ? NULL : state->values[index].tensors[0];
}

/// Alter the first tensor for which the kind has an effect: inputs first, then outputs.
static bool alter_first(int kind, int function, struct faulty_state *state) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  const char *const order[] = {"tT", "oO"};
  for (int pass = 0; pass < (kind == FAULTY_DTYPE ? 1 : 2); pass++) {
    for (int i = 0; kinds[i]; i++) {
      const bool is_list = kinds[i] == order[pass][1];
      if ((kinds[i] != order[pass][0] && !is_list) || state->list_count == FAULTY_PARAMETERS) {
        continue;
      }
      const diopiConstTensorHandle_t handle = get_tensor(function, i, is_list, state);
      if (!handle || state->handle_count == FAULTY_TENSORS) {
        continue;
      }
      struct dit_tensor_view view = handle->view;
      const bool changed = kind == FAULTY_STRIDE   ? flatten(&view)
                           : kind == FAULTY_OFFSET ? drop_offset(handle, &view)
                                                   : swap_dtype(&view);
      if (changed) {
        replace(state, i, is_list, handle, &view);
        return true;
      }
    }
  }
  return false;
}

static bool save_outputs(const struct faulty_tensors *tensors, struct faulty_state *state) {
  bool any = false;
  for (int i = 0; i < tensors->output_count; i++) {
    const struct dit_tensor_view *view = &tensors->outputs[i];
    if (view->numel > 0 && !state->saved[i]) {
      state->saved[i] = dit_malloc((size_t)view->numel * dit_dtype_get_size(view->dtype));
      if (state->saved[i]) {
        dit_tensor_gather(view, state->saved[i]);
        any = true;
      }
    }
  }
  return any;
}

bool faulty_alter(const struct dit_fault_rule *rule, int function, const struct faulty_tensors *tensors,
                  struct faulty_state *state) {
  switch (rule->kind) {
    case FAULTY_STRIDE:
    case FAULTY_OFFSET:
    case FAULTY_DTYPE:
      return alter_first(rule->kind, function, state);
    case FAULTY_UNWRITTEN:
      return save_outputs(tensors, state);
    default:
      return false;
  }
}

// After the call

/// Results that the library made during the call have nothing to go back to; they get bytes that nobody wrote.
static bool restore_outputs(const struct faulty_tensors *tensors, struct faulty_state *state) {
  bool any = false;
  for (int i = 0; i < tensors->output_count; i++) {
    if (state->saved[i]) {
      dit_tensor_scatter(&tensors->outputs[i], state->saved[i]);
      any = true;
    } else {
      any |= dit_damage_unwritten(&tensors->outputs[i]);
    }
  }
  return any;
}

static bool write_outside(const struct dit_tensor_view *view) {
  int64_t low, high;
  if (view->numel == 0) {
    return false;
  }
  dit_tensor_get_span(view, &low, &high);
  char *end = (char *)view->data + high;
  for (size_t i = 0; i < dit_dtype_get_size(view->dtype); i++) {
    end[i] = (char)~end[i];
  }
  return true;
}

/// The first output that has elements; NULL when there is none.
static const struct dit_tensor_view *get_output(const struct faulty_tensors *tensors) {
  for (int i = 0; i < tensors->output_count; i++) {
    if (tensors->outputs[i].numel > 0) {
      return &tensors->outputs[i];
    }
  }
  return NULL;
}

bool faulty_damage(const struct dit_fault_rule *rule, uint64_t call, const struct faulty_tensors *tensors,
                   struct faulty_state *state) {
  const struct dit_tensor_view *out = get_output(tensors);
  bool any = false;
  switch (rule->kind) {
    case FAULTY_VALUE:
      return out && dit_damage_value(out, rule->index, rule->scale);
    case FAULTY_PRECISION:
      for (int i = 0; i < tensors->output_count; i++) {
        any |= dit_damage_precision(&tensors->outputs[i], rule->bits);
      }
      return any;
    case FAULTY_NAN:
      return out && dit_damage_nan(out, rule->index);
    case FAULTY_UNWRITTEN:
      return restore_outputs(tensors, state);
    case FAULTY_INPUT:
      return tensors->input_count > 0 && dit_damage_value(&tensors->inputs[0], rule->index, rule->scale);
    case FAULTY_OUTSIDE:
      return out && write_outside(out);
    case FAULTY_RANDOM:
      return out && call % 2 == 0 && dit_damage_value(out, rule->index, 0);
    default:
      return false;
  }
}

void faulty_release(struct faulty_state *state) {
  while (state->list_count > 0) {
    state->list_count--;
    state->lists[state->list_count][0] = state->firsts[state->list_count];
  }
  for (int i = 0; i < FAULTY_TENSORS; i++) {
    dit_free(state->saved[i]);
  }
  for (int i = 0; i < state->copy_count; i++) {
    dit_free(state->copies[i]);
  }
}
