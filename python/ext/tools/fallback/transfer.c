// Calls of operators that convert or copy only sometimes: to, type, copy_, reshape, contiguous ...
//
// What moves a tensor from one place to another in the same dtype stays a move, what returns a view or the argument
// itself stays one; whatever converts, or copies within a device, is work for the CPU. Whether a call copies is asked
// of the operator itself with tensors of the meta device, which have the same sizes and strides and no values.
#include <string.h>

#include "device_object.h"
#include "engine/internal.h"
#include "py_call.h"
#include "tools/fallback/fallback.h"
#include "tools/remap.h"
#include "torch_tensor.h"

// What was asked for

// The tensor that top-level argument `top` is; NULL when it is none.
static const struct engine_tensor *tensor_at(const struct engine_call *call, int top) {
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->top == top && leaf->tensor >= 0) {
      return &call->in.tensor[leaf->tensor];
    }
  }
  return NULL;
}

static int device_set(struct fallback_transfer *transfer, PyObject *py_device) {
  Py_XSETREF(transfer->py_device, py_device);
  return py_device ? 0 : -1;
}

static int device_parse(struct fallback_transfer *transfer, PyObject *value) {
  bool made = Py_IS_TYPE(value, (PyTypeObject *)torch_names.py_device_type);
  return device_set(transfer, made ? Py_NewRef(value) : PyObject_CallOneArg(torch_names.py_device_type, value));
}

// One of torch's tensor types (torch.cuda.HalfTensor), itself or as text: its dtype, and where it is.
static int type_parse(struct fallback_transfer *transfer, PyObject *value, const struct engine_tensor *source) {
  PyObject *py_type = PyUnicode_Check(value) ? engine_name_find_object(PyUnicode_AsUTF8(value)) : Py_NewRef(value);
  PyObject *py_dtype = py_type ? PyObject_GetAttr(py_type, torch_names.py_text_dtype) : NULL;
  PyObject *py_cuda = py_dtype ? PyObject_GetAttrString(py_type, "is_cuda") : NULL;
  py_error_drop();
  int status = 0;
  if (py_cuda && Py_IS_TYPE(py_dtype, (PyTypeObject *)torch_names.py_dtype_type)) {
    Py_XSETREF(transfer->py_dtype, Py_NewRef(py_dtype));
    if (py_cuda != Py_True) {
      status = device_set(transfer, Py_NewRef(torch_names.py_host));
    } else if (!(source->flags & ENGINE_TENSOR_DEVICE)) {
      status = device_parse(transfer, torch_names.py_text_cuda);
    }
  }
  Py_XDECREF(py_cuda);
  Py_XDECREF(py_dtype);
  Py_XDECREF(py_type);
  return status;
}

static int leaf_read(struct fallback_transfer *transfer, const struct engine_call *call, const struct engine_leaf *leaf,
                     const struct engine_tensor *source) {
  PyObject *value = leaf->value;
  bool type = strcmp(engine_name_get_last(call->op->name), "type") == 0;
  if (Py_IS_TYPE(value, (PyTypeObject *)torch_names.py_dtype_type)) {
    Py_XSETREF(transfer->py_dtype, Py_NewRef(value));
  } else if (type && (leaf->kind == ENGINE_LEAF_STRING || leaf->kind == ENGINE_LEAF_OTHER)) {
    return type_parse(transfer, value, source);
  } else if (leaf->kind == ENGINE_LEAF_STRING || Py_IS_TYPE(value, (PyTypeObject *)torch_names.py_device_type)) {
    return device_parse(transfer, value);
  } else if (leaf->kind == ENGINE_LEAF_INT && leaf->top == 1) {  // x.to(0)
    return device_parse(transfer, value);
  } else if (leaf->kind == ENGINE_LEAF_OTHER ||
             value == Py_True) {  // memory_format=, copy=True, non_blocking=True: perhaps
    transfer->copies = true;
  }
  return 0;
}

// Of to(other), type_as(other).
static int other_read(struct fallback_transfer *transfer, const struct engine_tensor *other) {
  Py_XSETREF(transfer->py_dtype, engine_tensor_get(other->py_tensor, engine_torch.dtype));
  return transfer->py_dtype ? device_set(transfer, engine_tensor_get(other->py_tensor, engine_torch.device)) : -1;
}

// The index of a device; "cuda" is the current one.
static int device_get_index(PyObject *device) {
  int index = dit_device_object_get(device)->index;
  if (index >= 0) {
    return index;
  }
  PyObject *py_module = PyObject_CallOneArg(torch_names.py_get_device_module, device);
  PyObject *py_index = py_module ? PyObject_CallMethod(py_module, "current_device", NULL) : NULL;
  index = py_index && PyLong_Check(py_index) ? (int)PyLong_AsLong(py_index) : 0;
  Py_XDECREF(py_index);
  Py_XDECREF(py_module);
  py_error_drop();
  return index;
}

static bool devices_differ(PyObject *a, PyObject *b) {
  int8_t type = dit_device_object_get(a)->type;
  if (type != dit_device_object_get(b)->type) {
    return true;
  }
  return type != DIT_C10_CPU && device_get_index(a) != device_get_index(b);
}

// Does it copy?

// A number that tensors over the same memory share; -1 with an exception.
static int storage_get(PyObject *tensor, PyObject **py_number) {
  PyObject *py_storage = PyObject_CallOneArg(torch_names.py_storage, tensor);
  *py_number = py_storage ? PyObject_GetAttrString(py_storage, "_cdata") : NULL;
  Py_XDECREF(py_storage);
  return *py_number ? 0 : -1;
}

static bool storages_are_same(PyObject *a, PyObject *b) {
  PyObject *py_a = NULL, *py_b = NULL;
  bool same = storage_get(a, &py_a) == 0 && storage_get(b, &py_b) == 0 && PyObject_RichCompareBool(py_a, py_b, Py_EQ);
  Py_XDECREF(py_a);
  Py_XDECREF(py_b);
  return same;
}

// The operator on tensors of the meta device: is its result a copy? False when it cannot be asked.
static bool result_is_copy(const struct engine_call *call, PyObject *const *metas, PyObject *device) {
  PyObject *py_args = NULL, *py_kwargs = NULL;
  if (remap_call(call, metas, device, &py_args, &py_kwargs) < 0) {
    return false;
  }
  PyObject *py_result = PyObject_Call(call->func, py_args, py_kwargs);
  bool copy = py_result && engine_is_tensor(py_result) && !storages_are_same(py_result, metas[0]);
  Py_XDECREF(py_result);
  Py_XDECREF(py_kwargs);
  Py_XDECREF(py_args);
  return copy;
}

static bool call_copies(const struct engine_call *call) {
  const struct engine_tensor *source = tensor_at(call, 0);
  PyObject *metas[2] = {NULL, NULL};
  if (!source || call->in.tensor_count > 2 || !(source->flags & ENGINE_TENSOR_STRIDED)) {
    return false;
  }
  if (strncmp(engine_name_get_last(call->op->name), "resolve_", 8) == 0) {  // the meta device has no such bits
    return source->flags & (ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
  }
  PyObject *py_device = PyObject_CallFunction(torch_names.py_device_type, "s", "meta");
  bool made = py_device != NULL;
  for (int i = 0; made && i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    PyObject *dtype = (tensor->flags & ENGINE_TENSOR_STRIDED) ? torch_dtype_get(tensor->dtype) : NULL;
    metas[i] = dtype ? torch_strided_make(tensor->sizes, tensor->strides, tensor->ndim, dtype, py_device) : NULL;
    made = metas[i] != NULL;
  }
  bool copy = made && result_is_copy(call, metas, py_device);
  py_error_drop();
  Py_XDECREF(metas[0]);
  Py_XDECREF(metas[1]);
  Py_XDECREF(py_device);
  return copy;
}

// The kinds

static enum fallback_reason conversion_find(const struct engine_call *call, struct fallback_transfer *transfer) {
  const struct engine_tensor *source = tensor_at(call, 0);
  if (!source) {
    return FALLBACK_BOOKKEEPING;  // as_tensor of numbers
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->top == 0) {
      continue;
    }
    if ((leaf->tensor >= 0 ? other_read(transfer, &call->in.tensor[leaf->tensor])
                           : leaf_read(transfer, call, leaf, source)) < 0) {
      py_error_drop();  // the operator will say it in its own words
      return FALLBACK_TRANSFER;
    }
  }
  PyObject *py_dtype = engine_tensor_get(source->py_tensor, engine_torch.dtype);
  PyObject *py_device = engine_tensor_get(source->py_tensor, engine_torch.device);
  bool converts = py_dtype && transfer->py_dtype && py_dtype != transfer->py_dtype;
  bool moves = py_device && transfer->py_device && devices_differ(py_device, transfer->py_device);
  Py_XDECREF(py_dtype);
  Py_XDECREF(py_device);
  py_error_drop();
  if (converts || (!moves && strcmp(engine_name_get_last(call->op->name), "_to_copy") == 0)) {
    return FALLBACK_APPLIES;
  }
  return transfer->copies && !moves && call_copies(call) ? FALLBACK_APPLIES : FALLBACK_TRANSFER;
}

static enum fallback_reason copy_find(const struct engine_call *call) {
  const struct engine_tensor *target = tensor_at(call, 0), *source = tensor_at(call, 1);
  if (!target || !source) {
    return FALLBACK_BOOKKEEPING;
  }
  bool same = ((target->flags ^ source->flags) & ENGINE_TENSOR_DEVICE) == 0 &&
              (!(target->flags & ENGINE_TENSOR_DEVICE) || target->device_index == source->device_index);
  return same || target->dtype != source->dtype ? FALLBACK_APPLIES : FALLBACK_TRANSFER;
}

enum fallback_reason fallback_transfer_find(const struct fallback_row *row, const struct engine_call *call,
                                            struct fallback_transfer *transfer) {
  if (strcmp(engine_name_get_last(row->op->name), "copy_") == 0) {
    return copy_find(call);
  }
  if (row->reason == FALLBACK_VIEW || row->reason == FALLBACK_APPLIES) {
    return call_copies(call) ? FALLBACK_APPLIES : FALLBACK_VIEW;
  }
  return conversion_find(call, transfer);
}

void fallback_transfer_reset(struct fallback_transfer *transfer) {
  Py_CLEAR(transfer->py_device);
  Py_CLEAR(transfer->py_dtype);
}
