// CPU twins of tensors.
//
// Most tensors are dense and alone: torch's own .cpu() gives the twin. A tensor with gaps gets memory of the same
// strides. Tensors that share elements, overlap with themselves (expanded) or carry the conjugate or negative bit get
// views of one copy of the bytes that they cover; their gradients flow through a .cpu() whose data is then replaced by
// that view. Depends on the engine's metadata and on torch_names.h.
#include "tools/twin.h"

#include <string.h>

#include "engine/internal.h"
#include "tools/remap.h"
#include "tools/twin_plan.h"
#include "torch_tensor.h"

// Copies

// A copy by torch itself; differentiable.
static PyObject *tensor_move(const struct twin_plan *plan, PyObject *tensor, bool on_cpu) {
  if (plan->target) {
    PyObject *arguments[] = {tensor, plan->target};
    return PyObject_Vectorcall(torch_names.py_to, arguments, 2, NULL);
  }
  return PyObject_CallOneArg(on_cpu ? torch_names.py_clone : torch_names.py_cpu, tensor);
}

static PyObject *tensor_require_grad(PyObject *py_twin, bool wanted) {
  if (!py_twin || !wanted) {
    return py_twin;
  }
  PyObject *arguments[] = {py_twin, Py_True};
  PyObject *py_done = PyObject_Vectorcall(torch_names.py_requires_grad, arguments, 2, NULL);
  Py_DECREF(py_twin);
  return py_done;
}

static PyObject *tensor_detach(const struct engine_tensor *tensor) {
  return tensor->flags & ENGINE_TENSOR_GRAD ? PyObject_CallOneArg(torch_names.py_detach, tensor->py_tensor)
                                            : Py_NewRef(tensor->py_tensor);
}

static PyObject *twin_move(const struct twin_plan *plan, const struct engine_tensor *tensor, bool on_cpu) {
  if (plan->mode == TWIN_ATTACHED) {
    return tensor_move(plan, tensor->py_tensor, on_cpu);
  }
  PyObject *py_source = tensor_detach(tensor);
  PyObject *py_twin = py_source ? tensor_move(plan, py_source, on_cpu) : NULL;
  Py_XDECREF(py_source);
  return tensor_require_grad(py_twin, tensor->flags & ENGINE_TENSOR_GRAD);
}

static PyObject *plan_get_target(const struct twin_plan *plan) {
  return plan->target ? plan->target : torch_names.py_host;
}

static PyObject *strided_create(const struct twin_plan *plan, const struct engine_tensor *tensor) {
  PyObject *py_dtype = engine_tensor_get(tensor->py_tensor, engine_torch.dtype);
  PyObject *py_made =
      py_dtype ? torch_strided_make(tensor->sizes, tensor->strides, tensor->ndim, py_dtype, plan_get_target(plan))
               : NULL;
  Py_XDECREF(py_dtype);
  return py_made;
}

// With gaps, but every element is written once.
static PyObject *twin_make_strided(const struct twin_plan *plan, const struct engine_tensor *tensor) {
  bool attached = plan->mode == TWIN_ATTACHED;
  PyObject *py_source = attached ? Py_NewRef(tensor->py_tensor) : tensor_detach(tensor);
  PyObject *py_made = py_source ? strided_create(plan, tensor) : NULL, *py_twin = NULL;
  if (py_made) {
    PyObject *arguments[] = {py_made, py_source};
    py_twin = PyObject_Vectorcall(torch_names.py_copy, arguments, 2, NULL);
  }
  Py_XDECREF(py_made);
  Py_XDECREF(py_source);
  return tensor_require_grad(py_twin, !attached && (tensor->flags & ENGINE_TENSOR_GRAD));
}

// Copies of bytes

// torch.empty(0, dtype, device).set_(storage, offset, sizes, strides): a tensor that autograd does not take for a view.
static PyObject *view_make(PyObject *dtype, PyObject *device, PyObject *storage, int64_t offset, PyObject *sizes,
                           PyObject *strides) {
  PyObject *py_offset = PyLong_FromLongLong(offset), *py_view = NULL;
  PyObject *py_empty = py_offset ? torch_empty_make(dtype, device) : NULL;
  if (py_empty) {
    PyObject *arguments[] = {py_empty, storage, py_offset, sizes, strides};
    py_view = PyObject_Vectorcall(torch_names.py_set, arguments, 5, NULL);
  }
  Py_XDECREF(py_empty);
  Py_XDECREF(py_offset);
  return py_view;
}

// The storage of a tensor, its size, and where the tensor's first element is in it. NULL with an exception.
static PyObject *storage_find(const struct engine_tensor *tensor, int64_t *bytes, int64_t *offset) {
  PyObject *py_storage = PyObject_CallOneArg(torch_names.py_storage, tensor->py_tensor);
  PyObject *py_bytes = py_storage ? PyObject_CallMethod(py_storage, "nbytes", NULL) : NULL;
  PyObject *py_offset = py_bytes ? PyObject_CallOneArg(torch_names.py_offset, tensor->py_tensor) : NULL;
  if (py_offset) {
    *bytes = PyLong_AsLongLong(py_bytes);
    *offset = PyLong_AsLongLong(py_offset) * twin_plan_get_item_size(tensor);
  }
  if (!py_offset || PyErr_Occurred()) {
    Py_CLEAR(py_storage);
  }
  Py_XDECREF(py_offset);
  Py_XDECREF(py_bytes);
  return py_storage;
}

// Bytes [begin, end) of the memory behind `tensor`, as the storage of a tensor on the CPU. NULL without an exception
// when they are not all in the tensor's storage (memory that two storages share).
static PyObject *bytes_copy(const struct twin_plan *plan, const struct engine_tensor *tensor, uintptr_t begin,
                            uintptr_t end) {
  int64_t bytes = 0, offset = 0, size = (int64_t)(end - begin), one = 1;
  PyObject *py_storage = storage_find(tensor, &bytes, &offset), *py_copy = NULL, *py_result = NULL;
  if (!py_storage) {
    return NULL;
  }
  offset += (int64_t)begin - (int64_t)(uintptr_t)tensor->data;
  if (offset >= 0 && offset + size <= bytes) {
    PyObject *py_device = engine_tensor_get(tensor->py_tensor, engine_torch.device);
    PyObject *py_size = py_numbers_pack(&size, 1), *py_stride = py_numbers_pack(&one, 1), *py_flat = NULL;
    if (py_device && py_size && py_stride) {
      py_flat = view_make(torch_names.py_dtypes[DIT_DTYPE_U8], py_device, py_storage, offset, py_size, py_stride);
    }
    py_copy = py_flat ? tensor_move(plan, py_flat, tensor->place == ENGINE_PLACE_CPU) : NULL;
    Py_XDECREF(py_flat);
    Py_XDECREF(py_stride);
    Py_XDECREF(py_size);
    Py_XDECREF(py_device);
    py_result = py_copy ? PyObject_CallOneArg(torch_names.py_storage, py_copy) : NULL;
  }
  Py_XDECREF(py_copy);
  Py_DECREF(py_storage);
  return py_result;
}

// A twin over copied bytes that begin at address `begin`; its bits as the original's.
static PyObject *bytes_view(const struct twin_plan *plan, const struct engine_tensor *tensor, PyObject *storage,
                            uintptr_t begin) {
  PyObject *py_dtype = engine_tensor_get(tensor->py_tensor, engine_torch.dtype);
  PyObject *py_sizes = py_numbers_pack(tensor->sizes, tensor->ndim);
  PyObject *py_strides = py_numbers_pack(tensor->strides, tensor->ndim), *py_twin = NULL;
  if (py_dtype && py_sizes && py_strides) {
    int64_t offset = (int64_t)((uintptr_t)tensor->data - begin) / twin_plan_get_item_size(tensor);
    py_twin = view_make(py_dtype, plan_get_target(plan), storage, offset, py_sizes, py_strides);
  }
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  Py_XDECREF(py_dtype);
  PyObject *const bits[] = {tensor->flags & ENGINE_TENSOR_CONJ ? torch_names.py_conj : NULL,
                            tensor->flags & ENGINE_TENSOR_NEG ? torch_names.py_neg_view : NULL};
  bool has_bits = bits[0] || bits[1];
  for (int i = 0; py_twin && i < 2; i++) {
    if (bits[i]) {
      Py_SETREF(py_twin, PyObject_CallOneArg(bits[i], py_twin));
    }
  }
  if (py_twin && has_bits) {  // .data: the same tensor, no longer a view
    Py_SETREF(py_twin, PyObject_GetAttr(py_twin, torch_names.py_text_data));
  }
  return py_twin;
}

// Let the gradient of a finished twin flow to the original: a .cpu() of it, with the twin's memory. Takes py_twin.
static PyObject *twin_attach(const struct twin_plan *plan, const struct engine_tensor *tensor, PyObject *py_twin) {
  PyObject *py_moved = tensor_move(plan, tensor->py_tensor, tensor->place == ENGINE_PLACE_CPU);
  if (py_moved && PyObject_SetAttr(py_moved, torch_names.py_text_data, py_twin) < 0) {
    Py_CLEAR(py_moved);
  }
  Py_DECREF(py_twin);
  return py_moved;
}

static PyObject *twin_finish(const struct twin_plan *plan, const struct engine_tensor *tensor, PyObject *py_twin) {
  if (!py_twin || !(tensor->flags & ENGINE_TENSOR_GRAD)) {
    return py_twin;
  }
  return plan->mode == TWIN_ATTACHED ? twin_attach(plan, tensor, py_twin) : tensor_require_grad(py_twin, true);
}

// The bytes that a group covers, from an address on that suits the elements of all its members.
static bool group_find_bytes(const struct twin_plan *plan, int group, uintptr_t *begin, uintptr_t *end) {
  uintptr_t item = 1;
  *begin = UINTPTR_MAX;
  *end = 0;
  for (int i = group; i < plan->count; i++) {
    if (plan->group[i] == group) {
      const struct engine_tensor *tensor = &plan->tensors[i];
      uintptr_t first = (uintptr_t)tensor->data, last = first + (uintptr_t)twin_plan_get_span(tensor);
      uintptr_t size = (uintptr_t)twin_plan_get_item_size(tensor);
      *begin = first < *begin ? first : *begin;
      *end = last > *end ? last : *end;
      item = size > item ? size : item;
    }
  }
  *begin -= *begin % item;
  for (int i = group; i < plan->count; i++) {
    if (plan->group[i] == group &&
        ((uintptr_t)plan->tensors[i].data - *begin) % (uintptr_t)twin_plan_get_item_size(&plan->tensors[i]) != 0) {
      return false;
    }
  }
  return true;
}

// All members of a group (or one tensor that overlaps with itself) over one copy of their bytes. 0 or -1; 1: their
// memory cannot be had as one piece.
static int group_make(struct twin_plan *plan, int group) {
  uintptr_t begin, end;
  if (!group_find_bytes(plan, group, &begin, &end)) {
    return 1;
  }
  PyObject *py_storage = bytes_copy(plan, &plan->tensors[group], begin, end);
  if (!py_storage) {
    return PyErr_Occurred() ? -1 : 1;
  }
  int status = 0;
  int last = plan->shared ? plan->count : group + 1;
  for (int i = group; status == 0 && i < last; i++) {
    if (plan->group[i] == group) {
      const struct engine_tensor *tensor = &plan->tensors[i];
      for (int j = group; j < i && !plan->twins[i]; j++) {
        plan->twins[i] = plan->tensors[j].py_tensor == tensor->py_tensor ? Py_XNewRef(plan->twins[j]) : NULL;
      }
      if (!plan->twins[i]) {
        plan->twins[i] = twin_finish(plan, tensor, bytes_view(plan, tensor, py_storage, begin));
      }
      status = plan->twins[i] ? 0 : -1;
    }
  }
  Py_DECREF(py_storage);
  return status;
}

// All kinds of tensors

// The subclass of the original, with its attributes; __torch_function__ is off while twins are made.
static PyObject *twin_convert(const struct engine_tensor *tensor, PyObject *py_twin) {
  if (!py_twin || !(tensor->flags & ENGINE_TENSOR_SUBCLASS)) {
    return py_twin;
  }
  if (Py_TYPE(py_twin) != Py_TYPE(tensor->py_tensor)) {
    PyObject *arguments[] = {py_twin, (PyObject *)Py_TYPE(tensor->py_tensor)};
    Py_SETREF(py_twin, PyObject_Vectorcall(torch_names.py_as_subclass, arguments, 2, NULL));
  }
  PyObject *py_from = py_twin ? PyObject_GetAttrString(tensor->py_tensor, "__dict__") : NULL;
  PyObject *py_to = py_from ? PyObject_GetAttrString(py_twin, "__dict__") : NULL;
  if (py_to && PyDict_Check(py_to) && PyDict_Check(py_from) && PyDict_Merge(py_to, py_from, 0) < 0) {
    Py_CLEAR(py_twin);
  } else if (py_twin) {
    py_error_drop();
  }
  Py_XDECREF(py_to);
  Py_XDECREF(py_from);
  return py_twin;
}

static int twin_refuse(const struct engine_tensor *tensor, int index) {
  PyObject *py_device = engine_tensor_get(tensor->py_tensor, engine_torch.device);
  py_error_drop();
  PyErr_Format(PyExc_TypeError,
               "tensor %d (%s on %S) has no values that could be copied to the CPU: meta, fake and functorch tensors "
               "are left to the device",
               index, Py_TYPE(tensor->py_tensor)->tp_name, py_device ? py_device : Py_None);
  Py_XDECREF(py_device);
  return -1;
}

static bool tensor_is_on_cpu(const struct engine_tensor *tensor) {
  if (tensor->place == ENGINE_PLACE_CPU) {
    return true;
  }
  PyObject *py_device = tensor->place == ENGINE_PLACE_NONE && !(tensor->flags & ENGINE_TENSOR_DEVICE)
                            ? engine_tensor_get(tensor->py_tensor, engine_torch.device)
                            : NULL;
  py_error_drop();
  PyObject *py_equal = py_device ? PyObject_RichCompare(py_device, torch_names.py_host, Py_EQ) : NULL;
  bool yes = py_equal == Py_True;
  py_error_drop();
  Py_XDECREF(py_equal);
  Py_XDECREF(py_device);
  return yes && !strstr(Py_TYPE(tensor->py_tensor)->tp_name, "FakeTensor") && !engine_guard_has_functorch();
}

// Sparse, quantized, nested tensors and wrappers: torch knows how.
static int twin_make_other(struct twin_plan *plan, int index) {
  const struct engine_tensor *tensor = &plan->tensors[index];
  bool on_cpu = tensor_is_on_cpu(tensor);
  if (!on_cpu && tensor->place == ENGINE_PLACE_NONE) {
    return twin_refuse(tensor, index);
  }
  for (int i = 0; i < index && !plan->twins[index]; i++) {
    plan->twins[index] = plan->tensors[i].py_tensor == tensor->py_tensor ? Py_NewRef(plan->twins[i]) : NULL;
  }
  if (!plan->twins[index]) {
    bool own = on_cpu && !plan->copy_cpu;
    plan->twins[index] = own ? Py_NewRef(tensor->py_tensor) : twin_convert(tensor, twin_move(plan, tensor, on_cpu));
  }
  return plan->twins[index] ? 0 : -1;
}

static PyObject *twin_make_alone(const struct twin_plan *plan, const struct engine_tensor *tensor, bool dense) {
  return dense ? twin_move(plan, tensor, tensor->place == ENGINE_PLACE_CPU) : twin_make_strided(plan, tensor);
}

static bool tensor_is_ordinary(const struct engine_tensor *tensor, bool *dense) {
  bool bits = tensor->flags & (ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
  return twin_plan_is_simple(tensor, dense) && (!bits || tensor->numel == 0);
}

static bool group_is_one(const struct twin_plan *plan, int group) {
  for (int i = group + 1; plan->shared && i < plan->count; i++) {
    if (plan->group[i] == group && plan->tensors[i].py_tensor != plan->tensors[group].py_tensor) {
      return false;
    }
  }
  return true;
}

// Each member for itself. 0 or -1.
static int group_make_apart(struct twin_plan *plan, int group) {
  const struct engine_tensor *first = &plan->tensors[group];
  int end = plan->shared ? plan->count : group + 1;
  for (int i = group; i < end; i++) {
    const struct engine_tensor *member = &plan->tensors[i];
    if (plan->group[i] != group) {
      continue;
    }
    if (i > group && member->py_tensor == first->py_tensor) {
      plan->twins[i] = Py_NewRef(plan->twins[group]);
      continue;
    }
    bool dense = false, simple = twin_plan_is_simple(member, &dense);
    plan->twins[i] = twin_make_alone(plan, member, dense || !simple);
    if (!plan->twins[i]) {
      return -1;
    }
  }
  return 0;
}

// The group whose first member is `group`, which may be all of it. 0 or -1.
static int twin_make_group(struct twin_plan *plan, int group) {
  bool dense = false, ordinary = tensor_is_ordinary(&plan->tensors[group], &dense);
  int status = 1;
  if (!ordinary || !group_is_one(plan, group)) {
    status = group_make(plan, group);
  }
  if (status == 1) {
    status = group_make_apart(plan, group);
  }
  int end = plan->shared ? plan->count : group + 1;
  for (int i = group; status == 0 && i < end; i++) {
    if (plan->group[i] == group && (plan->tensors[i].flags & ENGINE_TENSOR_SUBCLASS)) {
      plan->twins[i] = twin_convert(&plan->tensors[i], plan->twins[i]);
      status = plan->twins[i] ? 0 : -1;
    }
  }
  return status;
}

static int plan_run(struct twin_plan *plan) {
  if (twin_plan_group(plan) < 0) {
    return -1;
  }
  for (int i = 0; i < plan->count; i++) {
    const struct engine_tensor *tensor = &plan->tensors[i];
    int status = 0;
    if (tensor->place == ENGINE_PLACE_CPU && !plan->copy_cpu) {
      plan->twins[i] = Py_NewRef(tensor->py_tensor);
    } else if (plan->group[i] < 0) {
      status = twin_make_other(plan, i);
    } else if (plan->group[i] == i) {
      status = twin_make_group(plan, i);
    }
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

static int plan_start(struct twin_plan *plan) {
  int inline_group[TWIN_INLINE];
  bool subclasses = false;
  memset(plan->twins, 0, sizeof *plan->twins * (size_t)plan->count);
  plan->group = plan->count > TWIN_INLINE ? PyMem_Malloc(sizeof(int) * (size_t)plan->count) : inline_group;
  if (!plan->group) {
    PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < plan->count; i++) {
    subclasses |= (plan->tensors[i].flags & ENGINE_TENSOR_SUBCLASS) != 0;
  }
  PyObject *py_disabled = subclasses ? engine_dispatch_disable() : NULL;
  int status = plan_run(plan);
  engine_dispatch_enable(py_disabled);
  if (plan->group != inline_group) {
    PyMem_Free(plan->group);
  }
  if (status < 0) {
    twin_release(plan->twins, plan->count);
  }
  return status;
}

int twin_make(const struct engine_tensor *tensors, int count, enum twin_mode mode, bool copy_cpu, PyObject **twins) {
  struct twin_plan plan = {.tensors = tensors, .twins = twins, .count = count, .mode = mode, .copy_cpu = copy_cpu};
  return plan_start(&plan);
}

int twin_send(const struct engine_tensor *tensors, int count, enum twin_mode mode, PyObject *device,
              PyObject **copies) {
  struct twin_plan plan = {.tensors = tensors, .twins = copies, .count = count, .mode = mode, .target = device};
  plan.copy_cpu = true;
  return plan_start(&plan);
}

void twin_release(PyObject **twins, int count) {
  for (int i = 0; i < count; i++) {
    Py_CLEAR(twins[i]);
  }
}

// For tests

static PyObject *py_tools_twin(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *words[] = {"args", "attached", "copy_cpu", NULL};
  PyObject *arguments, *py_args = NULL, *py_kwargs = NULL;
  int attached = 0, copy_cpu = 0;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|pp", words, &PyTuple_Type, &arguments, &attached, &copy_cpu) ||
      engine_torch_load() < 0) {
    return NULL;
  }
  struct engine_call call = {.args = arguments};
  engine_leaves_init(&call.in);
  int token = engine_guard_raise();
  PyObject **twins = NULL;
  if (engine_leaves_add_call(&call.in, arguments, NULL) == 0) {
    twins = PyMem_Calloc((size_t)call.in.tensor_count + 1, sizeof *twins);
    if (!twins) {
      PyErr_NoMemory();
    } else if (twin_make(call.in.tensor, call.in.tensor_count, attached ? TWIN_ATTACHED : TWIN_DETACHED, copy_cpu,
                         twins) == 0) {
      int status = remap_call(&call, twins, torch_names.py_host, &py_args, &py_kwargs);
      (void)status;  // py_args is NULL then
      twin_release(twins, call.in.tensor_count);
    }
  }
  PyMem_Free(twins);
  engine_guard_lower(token);
  engine_leaves_reset(&call.in);
  return py_args;
}

PyMethodDef py_twin_methods[] = {
    {"tools_twin", (PyCFunction)(void (*)(void))py_tools_twin, METH_VARARGS | METH_KEYWORDS,
     "tools_twin(args: tuple[Any, ...], attached: bool = False, copy_cpu: bool = False) -> tuple[Any, "
     "...]\n\nArguments with CPU twins in the tensors' places."},
    {NULL, NULL, 0, NULL},
};
