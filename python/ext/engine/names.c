// Which operator is this? A table keyed by the address of the function object, which it owns: an address is never
// reused while its entry lives. Attribute getters arrive as fresh method-wrapper objects and are told by the descriptor
// inside.
//
// 77 functions of torch have several names (torch.mm is torch.spmm). torch.overrides.resolve_name gives one of them;
// the function's own __name__ wins when it is a name of the same object in the same namespace. Functions that it does
// not know are "<module>.<name>".
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"

struct entry {
  PyObject *py_func;  // owned
  struct engine_op *op;
};

static struct {
  struct entry *entries;
  size_t capacity, count;
} table;

static size_t slot_find(const struct entry *entries, size_t capacity, PyObject *func) {
  size_t at = (((uintptr_t)func >> 4) * 0x9E3779B97F4A7C15u) >> 20 & (capacity - 1);
  while (entries[at].py_func && entries[at].py_func != func) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

static int table_grow(void) {
  size_t capacity = table.capacity ? table.capacity * 2 : 1024;
  struct entry *entries = PyMem_Calloc(capacity, sizeof *entries);
  if (!entries) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < table.capacity; i++) {
    if (table.entries[i].py_func) {
      entries[slot_find(entries, capacity, table.entries[i].py_func)] = table.entries[i];
    }
  }
  PyMem_Free(table.entries);
  table.entries = entries;
  table.capacity = capacity;
  return 0;
}

// Names

// "<module>.<name>"; either part may be missing (both: the empty string).
static PyObject *name_assemble(PyObject *func) {
  PyObject *py_module = PyObject_GetAttrString(func, "__module__");
  py_error_drop();
  PyObject *py_name = PyObject_GetAttrString(func, "__name__");
  py_error_drop();
  bool has_module = py_module && PyUnicode_Check(py_module), has_name = py_name && PyUnicode_Check(py_name);
  PyObject *py_text = NULL;
  if (has_module && has_name) {
    py_text = PyUnicode_FromFormat("%U.%U", py_module, py_name);
  } else if (has_module || has_name) {
    py_text = Py_NewRef(has_name ? py_name : py_module);
  } else {
    py_text = PyUnicode_FromString("");
  }
  Py_XDECREF(py_name);
  Py_XDECREF(py_module);
  return py_text;
}

// An OpOverload: "aten::addmm", without the overload.
static PyObject *name_of_overload(PyObject *func) {
  PyObject *py_schema = PyObject_GetAttrString(func, "_schema");
  PyObject *py_name = py_schema ? PyObject_GetAttrString(py_schema, "name") : NULL;
  Py_XDECREF(py_schema);
  if (!py_name) {
    py_error_drop();
    return name_assemble(func);
  }
  return py_name;
}

// The object that a dotted name means; new reference, NULL (no exception) when there is none.
PyObject *engine_name_find_object(const char *name) {
  PyObject *py_object = name ? Py_NewRef(torch_names.py_torch) : NULL;
  const char *part = name ? strchr(name, '.') : NULL;
  while (py_object && part) {
    const char *next = strchr(part + 1, '.');
    size_t size = next ? (size_t)(next - part - 1) : strlen(part + 1);
    PyObject *py_part = PyUnicode_FromStringAndSize(part + 1, (Py_ssize_t)size);
    PyObject *py_next = py_part ? PyObject_GetAttr(py_object, py_part) : NULL;
    Py_XDECREF(py_part);
    Py_DECREF(py_object);
    py_object = py_next;
    part = next;
  }
  py_error_drop();
  return py_object;
}

// Takes `py_name` and returns it or the canonical one.
static PyObject *name_canonical(PyObject *py_name, PyObject *func) {
  PyObject *py_own = PyObject_GetAttrString(func, "__name__");
  py_error_drop();
  const char *name = PyUnicode_AsUTF8(py_name);
  const char *own = py_own && PyUnicode_Check(py_own) ? PyUnicode_AsUTF8(py_own) : NULL;
  const char *dot = name ? strrchr(name, '.') : NULL;
  PyObject *py_better = NULL;
  bool differs = dot && own && strncmp(name, "torch.", 6) == 0 && strcmp(dot + 1, own) != 0;
  if (differs && strncmp(own, "__", 2) != 0) {  // `==` stays torch.Tensor.eq
    PyObject *py_space = PyUnicode_FromStringAndSize(name, dot - name);
    py_better = py_space ? PyUnicode_FromFormat("%U.%s", py_space, own) : NULL;
    Py_XDECREF(py_space);
    PyObject *py_object = py_better ? engine_name_find_object(PyUnicode_AsUTF8(py_better)) : NULL;
    if (py_object != func) {
      Py_CLEAR(py_better);
    }
    Py_XDECREF(py_object);
  }
  py_error_drop();
  Py_XDECREF(py_own);
  if (!py_better) {
    return py_name;
  }
  Py_DECREF(py_name);
  return py_better;
}

static PyObject *name_resolve(PyObject *func) {
  PyObject *py_name = PyObject_CallOneArg(torch_names.py_resolve_name, func);
  if (py_name && PyUnicode_Check(py_name)) {
    return name_canonical(py_name, func);
  }
  Py_XDECREF(py_name);
  py_error_drop();
  return name_assemble(func);
}

const char *engine_name_get_last(const char *name) {
  const char *dot = strrchr(name, '.'), *colon = strrchr(name, ':');
  return dot && (!colon || dot > colon) ? dot + 1 : colon ? colon + 1 : name;
}

// What kind

static bool list_has(const char *const *list, const char *name) {
  for (; *list; list++) {
    if (strcmp(*list, name) == 0) {
      return true;
    }
  }
  return false;
}

// Methods of torch.Tensor that compute nothing: questions, bookkeeping, hooks.
static const char *const never_methods[] = {"data_ptr",
                                            "backward",
                                            "has_names",
                                            "numel",
                                            "size",
                                            "__repr__",
                                            "__format__",
                                            "dim",
                                            "requires_grad_",
                                            "stride",
                                            "storage_offset",
                                            "element_size",
                                            "get_device",
                                            "is_contiguous",
                                            "is_floating_point",
                                            "is_complex",
                                            "is_signed",
                                            "is_pinned",
                                            "is_shared",
                                            "is_inference",
                                            "is_neg",
                                            "is_conj",
                                            "is_set_to",
                                            "is_same_size",
                                            "ndimension",
                                            "nelement",
                                            "untyped_storage",
                                            "storage",
                                            "storage_type",
                                            "typed_storage",
                                            "_typed_storage",
                                            "__len__",
                                            "__hash__",
                                            "__reduce_ex__",
                                            "__setstate__",
                                            "__deepcopy__",
                                            "__dir__",
                                            "__cuda_array_interface__",
                                            "__dlpack__",
                                            "__dlpack_device__",
                                            "register_hook",
                                            "register_post_accumulate_grad_hook",
                                            "retain_grad",
                                            "_is_view",
                                            "dim_order",
                                            "record_stream",
                                            "share_memory_",
                                            "module_load",
                                            "_has_symbolic_sizes_strides",
                                            "sparse_dim",
                                            "dense_dim",
                                            "is_coalesced",
                                            "__tensor_flatten__",
                                            "as_subclass",
                                            "_is_zerotensor",
                                            "_is_any_true",
                                            "_is_all_true",
                                            NULL};
static const char *const never_functions[] = {"torch.is_floating_point",
                                              "torch.is_complex",
                                              "torch.is_nonzero",
                                              "torch.is_same_size",
                                              "torch.is_conj",
                                              "torch.is_neg",
                                              "torch.is_inference",
                                              "torch.is_signed",
                                              "torch.is_distributed",
                                              "torch.numel",
                                              "torch.device",
                                              "torch.get_device",
                                              "torch.result_type",
                                              "torch.can_cast",
                                              "torch.is_tensor",
                                              "torch._has_compatible_shallow_copy_type",
                                              "torch._C._set_grad_enabled",
                                              "torch._C.set_grad_enabled",
                                              "torch.set_grad_enabled",
                                              "torch.autograd.grad",
                                              "torch.autograd.backward",
                                              "torch.nn.functional.has_torch_function",
                                              "torch._C._nn._parse_to",
                                              "torch.typename",
                                              "torch._dynamo.is_compiling",
                                              NULL};

static unsigned flags_find(const char *name) {
  static const char prefix[] = "torch.Tensor.";
  const size_t length = sizeof prefix - 1;
  size_t size = strlen(name);
  unsigned flags = 0;
  if (strncmp(name, prefix, length) == 0) {
    const char *method = name + length;
    if (list_has(never_methods, method)) {
      flags |= ENGINE_OP_NEVER;
    }
    if (strcmp(method, "type") == 0) {
      flags |= ENGINE_OP_QUESTION;
    }
    if (strcmp(method, "cuda") == 0 || strcmp(method, "pin_memory") == 0) {
      flags |= ENGINE_OP_DEVICE;
    }
    if (strcmp(method, "__setitem__") == 0) {
      flags |= ENGINE_OP_INPLACE;
    }
  } else if (list_has(never_functions, name)) {
    flags |= ENGINE_OP_NEVER;
  }
  if (engine_collective_get_target(name) == 0) {
    flags |= ENGINE_OP_INPLACE;
  }
  // torch.Tensor.add_, torch.relu_, aten::add_; not torch.Tensor.__add__.
  if (size > 1 && name[size - 1] == '_' && name[size - 2] != '_') {
    flags |= ENGINE_OP_INPLACE;
  }
  return flags | engine_class_find(name);
}

struct engine_op *engine_op_create(PyObject *py_name) {
  const char *name = py_name ? PyUnicode_AsUTF8(py_name) : NULL;
  struct engine_op *op = name ? PyMem_Calloc(1, sizeof *op) : NULL;
  if (!op) {
    if (name) {
      PyErr_NoMemory();
    }
    Py_XDECREF(py_name);
    return NULL;
  }
  op->py_name = py_name;
  op->name = name;
  op->flags = flags_find(name);
  if (dit_record_intern(name, strlen(name), &op->key, NULL) != DIT_OK) {
    op->key = 0;
  }
  return op;
}

static struct engine_op *op_add(PyObject *func, PyObject *py_name) {
  if (table.count * 2 >= table.capacity && table_grow() < 0) {
    Py_XDECREF(py_name);
    return NULL;
  }
  struct engine_op *op = engine_op_create(py_name);
  if (op) {
    struct entry *entry = &table.entries[slot_find(table.entries, table.capacity, func)];
    entry->py_func = Py_NewRef(func);
    entry->op = op;
    table.count++;
  }
  return op;
}

// Getters

// The attributes that are operators though they look like data.
static const char *const operator_getters[] = {"T", "mT", "H", "mH", "real", "imag", "data", NULL};

static struct engine_op *getter_find(PyObject *func) {
  PyObject *py_descriptor = PyObject_GetAttr(func, torch_names.py_text_self);
  if (!py_descriptor || !Py_IS_TYPE(py_descriptor, &PyGetSetDescr_Type)) {
    py_error_drop();
    Py_XDECREF(py_descriptor);
    return NULL;
  }
  struct engine_op *op = NULL;
  if (table.capacity) {
    op = table.entries[slot_find(table.entries, table.capacity, py_descriptor)].op;
  }
  if (!op && list_has(operator_getters, ((PyGetSetDescrObject *)(void *)py_descriptor)->d_getset->name)) {
    // __set__ of .data and friends has the same descriptor; the name below is asked of the wrapper only once, so the
    // few setters are told apart by their own lookup.
    PyObject *py_name = name_resolve(func);
    const char *text = py_name ? PyUnicode_AsUTF8(py_name) : NULL;
    size_t size = text ? strlen(text) : 0;
    if (size > 7 && strcmp(text + size - 7, "__get__") == 0) {
      op = op_add(py_descriptor, py_name);
    } else {
      Py_XDECREF(py_name);
    }
  }
  py_error_drop();
  Py_DECREF(py_descriptor);
  return op;
}

static bool wrapper_is_setter(PyObject *func) {
  PyObject *py_name = PyObject_GetAttrString(func, "__name__");
  bool setter = py_name && PyUnicode_Check(py_name) && PyUnicode_CompareWithASCIIString(py_name, "__get__") != 0;
  py_error_drop();
  Py_XDECREF(py_name);
  return setter;
}

struct engine_op *engine_op_find(PyObject *func, bool aten) {
  if (Py_IS_TYPE(func, &_PyMethodWrapper_Type)) {
    struct engine_op *op = getter_find(func);
    return op && !wrapper_is_setter(func) ? op : &engine_op_none;
  }
  if (table.capacity) {
    struct engine_op *op = table.entries[slot_find(table.entries, table.capacity, func)].op;
    if (op) {
      return op;
    }
  }
  return op_add(func, aten ? name_of_overload(func) : name_resolve(func));
}

struct engine_op engine_op_none = {.name = "", .flags = ENGINE_OP_NEVER};
