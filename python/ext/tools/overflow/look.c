// Around one call: what of its tensors nobody wrote before it, and what is written after it.
//
// Both ask and tell overflow/unwritten.c, by the operator's effect (overflow/effect.c). Values that are only carried on
// (clone, cat, copy_) are unwritten where they go, perhaps: a program may copy a buffer before it fills it.
#include <string.h>

#include "tools/overflow/parts.h"

// Before

static bool number_is_plain(PyObject *value) {
  return value == Py_None || (PyLong_Check(value) && !PyBool_Check(value));
}

// Slices and numbers alone: `tensor[index]` is a view then.
static bool index_is_plain(PyObject *index) {
  if (PyTuple_Check(index)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); i++) {
      if (PyTuple_Check(PyTuple_GET_ITEM(index, i)) || !index_is_plain(PyTuple_GET_ITEM(index, i))) {
        return false;
      }
    }
    return true;
  }
  if (PySlice_Check(index)) {
    const PySliceObject *slice = (const PySliceObject *)index;
    return number_is_plain(slice->start) && number_is_plain(slice->stop) && number_is_plain(slice->step);
  }
  return index == Py_Ellipsis || number_is_plain(index);
}

static void look_find_patch(struct overflow_look *look, const struct engine_call *call) {
  if (PyTuple_GET_SIZE(call->args) != 3 || !strstr(call->op->name, "__setitem__") || !call->in.tensor_count ||
      call->in.tensor[0].py_tensor != PyTuple_GET_ITEM(call->args, 0) ||
      !index_is_plain(PyTuple_GET_ITEM(call->args, 1))) {
    return;
  }
  PyObject *py_plain = PyObject_CallMethod(call->in.tensor[0].py_tensor, "detach", NULL);
  PyObject *py_patch = py_plain ? PyObject_GetItem(py_plain, PyTuple_GET_ITEM(call->args, 1)) : NULL;
  Py_XDECREF(py_plain);
  py_error_drop();
  if (!py_patch || !engine_is_tensor(py_patch)) {
    Py_XDECREF(py_patch);
    return;
  }
  look->py_patch = py_patch;
  engine_tensor_read(py_patch, &look->patch);
}

void overflow_look_set(struct overflow_look *look, struct overflow_state *state, const struct engine_call *call,
                       const struct overflow_op *info) {
  look->all = look->partly = 0;
  look->py_patch = NULL;
  for (int i = 0; state->unwritten.count && i < call->in.tensor_count && i < 64; i++) {
    uint8_t coverage = overflow_unwritten_get(&state->unwritten, &call->in.tensor[i]);
    look->all |= (uint64_t)(coverage == OVERFLOW_UNWRITTEN) << i;
    look->partly |= (uint64_t)(coverage == OVERFLOW_PARTLY) << i;
  }
  if ((look->all | look->partly) & 1 && info->effect == OVERFLOW_PATCHES) {
    look_find_patch(look, call);
  }
}

// After

// A tensor that the call read and did not write is unwritten, wholly or partly.
static bool parts_read_junk(const struct overflow_parts *parts) {
  const struct overflow_look *look = parts->look;
  for (int i = 0; i < parts->call->in.leaf_count && look->all | look->partly; i++) {
    const struct engine_leaf *leaf = &parts->call->in.leaf[i];
    if (overflow_part_get(parts, leaf) == OVERFLOW_PART_INPUT &&
        overflow_parts_get_coverage(parts, leaf) != OVERFLOW_WRITTEN) {
      return true;
    }
  }
  return false;
}

static void results_note(const struct overflow_parts *parts, bool carried) {
  struct overflow_unwritten *unwritten = &parts->state->unwritten;
  for (int i = 0; i < parts->call->out.tensor_count; i++) {
    const struct engine_tensor *result = &parts->call->out.tensor[i];
    bool concerns = carried || overflow_unwritten_meets(unwritten, result);
    if (!concerns || overflow_result_is_input(parts, i) || overflow_result_is_old(parts, i)) {
      continue;
    }
    if (carried) {
      overflow_unwritten_add(unwritten, result, true);
    } else {
      overflow_unwritten_remove(unwritten, result);
    }
  }
}

static void inputs_note(const struct overflow_parts *parts, bool junk) {
  struct overflow_unwritten *unwritten = &parts->state->unwritten;
  enum overflow_effect effect = parts->info->effect;
  for (int i = 0; i < parts->call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &parts->call->in.leaf[i];
    enum overflow_part part = overflow_part_get(parts, leaf);
    const struct engine_tensor *tensor = part == OVERFLOW_PART_NONE ? NULL : &parts->call->in.tensor[leaf->tensor];
    if (!tensor || (part == OVERFLOW_PART_INPUT && effect != OVERFLOW_HIDES)) {
      continue;
    }
    bool first = leaf->top == 0;
    if (first && parts->look->py_patch) {
      overflow_unwritten_remove(unwritten, &parts->look->patch);
    } else if (first && effect == OVERFLOW_PATCHES) {
      overflow_unwritten_blur(unwritten, tensor);
    } else if (junk && (effect == OVERFLOW_FILLS || effect == OVERFLOW_MOVES)) {
      overflow_unwritten_add(unwritten, tensor, true);
    } else {
      overflow_unwritten_remove(unwritten, tensor);
    }
  }
}

void overflow_look_end(struct overflow_look *look, struct overflow_state *state, const struct engine_call *call,
                       const struct overflow_op *info) {
  if (state->unwritten.count) {
    struct overflow_parts parts;
    overflow_parts_set(&parts, state, call, info, look);
    bool junk = parts_read_junk(&parts);
    results_note(&parts, junk && info->effect == OVERFLOW_MOVES);
    if (call->changed || info->inplace || info->effect == OVERFLOW_HIDES) {
      inputs_note(&parts, junk);
    }
  }
  if (look->py_patch) {
    engine_tensor_reset(&look->patch);
    Py_CLEAR(look->py_patch);
  }
}

// Calls that write nothing

/// A storage before it is resized.
struct storage {
  uintptr_t base, size;
};

static struct storage storage_read(const struct engine_tensor *tensor) {
  struct storage storage = {0};
  PyObject *py_storage =
      tensor->place == ENGINE_PLACE_NONE ? NULL : PyObject_CallMethod(tensor->py_tensor, "untyped_storage", NULL);
  py_error_drop();
  if (py_storage) {
    storage.base = overflow_storage_ask(py_storage, "data_ptr");
    storage.size = overflow_storage_ask(py_storage, "nbytes");
    Py_DECREF(py_storage);
  }
  return storage;
}

void overflow_follow_begin(struct engine_tool *tool, struct engine_call *call, const struct overflow_op *info) {
  bool resizes = info->effect == OVERFLOW_RESIZES && call->in.tensor_count;
  struct storage *storage = resizes ? PyMem_Malloc(sizeof *storage) : NULL;
  if (storage) {
    *storage = storage_read(&call->in.tensor[0]);
    call->data[tool->slot] = (char *)storage + 1;  // odd, as other notes: no event was begun
  }
}

// Tensor.new takes sizes, or data.
static bool call_has_data(const struct engine_call *call) {
  size_t size = strlen(call->op->name);
  if (size < 4 || strcmp(call->op->name + size - 4, ".new") != 0) {
    return false;
  }
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(call->args); i++) {
    PyObject *value = PyTuple_GET_ITEM(call->args, i);
    if (!PyLong_Check(value) && strcmp(Py_TYPE(value)->tp_name, "torch.Size") != 0) {
      return true;
    }
  }
  return false;
}

static void resize_note(struct overflow_unwritten *unwritten, const struct storage *before,
                        const struct engine_tensor *tensor) {
  struct storage after = storage_read(tensor);
  if (!after.base) {
    return;
  }
  if (before->base && before->base != after.base) {
    overflow_unwritten_move(unwritten, before->base, after.base);
  }
  if (after.size > before->size) {
    overflow_unwritten_add_tail(unwritten, tensor, after.base + before->size);
  }
}

void overflow_follow_end(struct engine_tool *tool, struct engine_call *call, const struct overflow_op *info) {
  struct overflow_state *state = tool->state;
  struct storage *before = call->data[tool->slot] ? (void *)((char *)call->data[tool->slot] - 1) : NULL;
  call->data[tool->slot] = NULL;
  bool failed = call->flags & ENGINE_CALL_FAILED;
  if (before && !failed) {
    resize_note(&state->unwritten, before, &call->in.tensor[0]);
  }
  PyMem_Free(before);
  bool fresh = !failed && info->effect == OVERFLOW_HANDS_OUT && !call_has_data(call);
  for (int i = 0; fresh && i < call->out.tensor_count; i++) {
    if (i >= 64 || call->same[i] < 0) {
      overflow_unwritten_add(&state->unwritten, &call->out.tensor[i], false);
    }
  }
}
