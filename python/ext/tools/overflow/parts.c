// A call taken apart: which tensors it read, which it wrote.
//
// Version counters tell what was changed; where there are none (inference tensors, more than 64 tensors) the name does.
// Memory tells which results are views: a fresh result never lies where a living input does.
#include "tools/overflow/parts.h"

void overflow_parts_set(struct overflow_parts *parts, struct overflow_state *state, const struct engine_call *call,
                        const struct overflow_op *info, const struct overflow_look *look) {
  *parts = (struct overflow_parts){.state = state, .call = call, .info = info, .look = look, .out_top = -1};
  if (!call->kwargs || !PyDict_GET_SIZE(call->kwargs)) {
    return;
  }
  Py_ssize_t at = 0;
  PyObject *key, *value;
  int top = (int)PyTuple_GET_SIZE(call->args);
  while (PyDict_Next(call->kwargs, &at, &key, &value)) {
    if (PyUnicode_CompareWithASCIIString(key, "out") == 0) {
      parts->out_top = value == Py_None ? -1 : top;
      return;
    }
    top++;
  }
}

enum overflow_part overflow_part_get(const struct overflow_parts *parts, const struct engine_leaf *leaf) {
  const struct engine_call *call = parts->call;
  if (leaf->tensor < 0) {
    return OVERFLOW_PART_NONE;
  }
  if (leaf->top == parts->out_top) {
    return OVERFLOW_PART_TARGET;
  }
  bool versioned = leaf->tensor < 64 && call->in.tensor[leaf->tensor].version >= 0;
  bool named = parts->info->inplace && leaf->top == 0;
  bool changed = versioned ? call->changed >> leaf->tensor & 1 : named;
  changed |= named && call->flags & ENGINE_CALL_ATEN;  // the counter was raised before the call came here
  if (!changed) {
    return OVERFLOW_PART_INPUT;
  }
  bool unread = leaf->top == 0 && (parts->info->effect == OVERFLOW_FILLS || (parts->look && parts->look->py_patch));
  return unread ? OVERFLOW_PART_TARGET : OVERFLOW_PART_CHANGED;
}

uint8_t overflow_parts_get_coverage(const struct overflow_parts *parts, const struct engine_leaf *leaf) {
  if (!parts->look || leaf->tensor < 0 || leaf->tensor >= 64) {
    return OVERFLOW_WRITTEN;
  }
  if (parts->look->py_patch && leaf->top == 0) {
    return OVERFLOW_UNREAD;
  }
  return parts->look->all >> leaf->tensor & 1      ? OVERFLOW_UNWRITTEN
         : parts->look->partly >> leaf->tensor & 1 ? OVERFLOW_PARTLY
                                                   : OVERFLOW_WRITTEN;
}

bool overflow_parts_have_changed(const struct overflow_parts *parts) {
  for (int i = 0; i < parts->call->in.leaf_count; i++) {
    if (overflow_part_get(parts, &parts->call->in.leaf[i]) == OVERFLOW_PART_CHANGED) {
      return true;
    }
  }
  return false;
}

// Results

bool overflow_result_is_input(const struct overflow_parts *parts, int index) {
  const struct engine_call *call = parts->call;
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor >= 0 && call->in.tensor[leaf->tensor].py_tensor == call->out.tensor[index].py_tensor &&
        overflow_part_get(parts, leaf) != OVERFLOW_PART_INPUT) {
      return true;
    }
  }
  return false;
}

// A number's bits keep their meaning from one type to the other: the same, or a complex one and its parts.
static bool dtypes_are_alike(int16_t a, int16_t b) {
  if (a == b) {
    return true;
  }
  enum dit_dtype_class a_class = dit_dtype_get_class(a), b_class = dit_dtype_get_class(b);
  return (a_class == DIT_DTYPE_CLASS_COMPLEX && b_class == DIT_DTYPE_CLASS_FLOAT) ||
         (a_class == DIT_DTYPE_CLASS_FLOAT && b_class == DIT_DTYPE_CLASS_COMPLEX);
}

bool overflow_result_is_old(const struct overflow_parts *parts, int index) {
  const struct engine_call *call = parts->call;
  const struct engine_tensor *result = &call->out.tensor[index];
  struct engine_span span = engine_tensor_get_span(result);
  if (!span.low || overflow_result_is_input(parts, index)) {
    return false;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0) {
      continue;
    }
    const struct engine_tensor *input = &call->in.tensor[leaf->tensor];
    if (input->place != result->place || input->device_index != result->device_index ||
        !dtypes_are_alike(input->dtype, result->dtype)) {
      continue;
    }
    struct engine_span memory = engine_tensor_get_span(input);
    if (engine_spans_meet(&span, &memory) && overflow_part_get(parts, leaf) == OVERFLOW_PART_INPUT) {
      return true;
    }
  }
  return parts->state->unwritten.count &&
         overflow_unwritten_get(&parts->state->unwritten, result) == OVERFLOW_UNWRITTEN;
}

// What was written

// An input that is also a result, or came earlier among the arguments, is looked at once.
static bool input_is_seen(const struct engine_call *call, int input) {
  PyObject *py_tensor = call->in.tensor[input].py_tensor;
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (call->out.tensor[i].py_tensor == py_tensor) {
      return true;
    }
  }
  for (int i = 0; i < input && i < 64; i++) {
    if (call->in.tensor[i].py_tensor == py_tensor) {
      return true;
    }
  }
  return false;
}

void overflow_parts_visit_written(const struct overflow_parts *parts, overflow_written_visit visit, void *context) {
  const struct engine_call *call = parts->call;
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (!overflow_result_is_old(parts, i)) {
      visit(context, &call->out.tensor[i], OVERFLOW_OUT, i);
    }
  }
  if (!call->changed && !parts->info->inplace) {
    return;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    enum overflow_part part = overflow_part_get(parts, leaf);
    if ((part == OVERFLOW_PART_CHANGED || part == OVERFLOW_PART_TARGET) && !input_is_seen(call, leaf->tensor)) {
      bool patch = parts->look && parts->look->py_patch && leaf->top == 0;
      visit(context, patch ? &parts->look->patch : &call->in.tensor[leaf->tensor], OVERFLOW_IN_AFTER, leaf->tensor);
    }
  }
}
