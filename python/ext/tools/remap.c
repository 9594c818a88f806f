// Arguments and results rebuilt around other tensors.
//
// The walk is that of engine/walk.c, container by container, so tensors come in the order of engine_call.in.tensor. A
// container is rebuilt only when something inside it changed. Depends on the engine's metadata of a call alone.
#include "tools/remap.h"

#include <string.h>

#include "device_object.h"

/// Where a value stands: devices are named only in some places.
enum position {
  POSITION_NESTED,  // inside a container
  POSITION_FIRST,   // the first positional argument: "dit" there is an equation of einsum, not a device
  POSITION_LATER,   // another positional argument
  POSITION_KEYWORD,
  POSITION_DEVICE,  // the keyword argument `device`
};

struct walker {
  remap_function map;
  void *context;
  PyObject *device;  // borrowed; NULL: devices stay
};

static PyObject *value_walk(const struct walker *walker, PyObject *value, enum position position, int depth);

// Devices

static bool value_names_device(PyObject *value, enum position position) {
  if (Py_IS_TYPE(value, (PyTypeObject *)torch_names.py_device_type)) {
    int8_t type = dit_device_object_get(value)->type;
    return type != DIT_C10_CPU && type != DIT_C10_META;
  }
  if (PyUnicode_Check(value)) {
    return (position == POSITION_LATER || position == POSITION_DEVICE) && engine_text_is_device(value);
  }
  return position == POSITION_DEVICE && PyLong_Check(value) && !PyBool_Check(value);
}

// Rebuilding

// The items of a container passed through the walk: a new array of new references, NULL when nothing changed (*failed
// false) or with an exception (*failed true).
static PyObject **items_walk(const struct walker *walker, PyObject *const *items, Py_ssize_t count, int depth,
                             bool *failed) {
  PyObject **py_items = NULL;
  *failed = false;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *py_item = value_walk(walker, items[i], POSITION_NESTED, depth + 1);
    if (py_item && py_item != items[i] && !py_items) {
      py_items = PyMem_Malloc(sizeof *py_items * (size_t)count);
      for (Py_ssize_t j = 0; py_items && j < i; j++) {
        py_items[j] = Py_NewRef(items[j]);
      }
      if (!py_items) {
        Py_DECREF(py_item);
        PyErr_NoMemory();
        py_item = NULL;
      }
    }
    if (!py_item) {
      for (Py_ssize_t j = 0; py_items && j < i; j++) {
        Py_DECREF(py_items[j]);
      }
      PyMem_Free(py_items);
      *failed = true;
      return NULL;
    }
    if (py_items) {
      py_items[i] = py_item;
    } else {
      Py_DECREF(py_item);
    }
  }
  return py_items;
}

// Takes the references of the items, which are gone afterwards.
static PyObject *items_pack(PyObject **py_items, Py_ssize_t count, bool list) {
  PyObject *py_packed = list ? PyList_New(count) : PyTuple_New(count);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!py_packed) {
      Py_DECREF(py_items[i]);
    } else if (list) {
      PyList_SET_ITEM(py_packed, i, py_items[i]);
    } else {
      PyTuple_SET_ITEM(py_packed, i, py_items[i]);
    }
  }
  PyMem_Free(py_items);
  return py_packed;
}

// The attributes that an instance of a subclass carries besides its items.
static int attributes_copy(PyObject *from, PyObject *to) {
  PyObject *py_from = PyObject_GetAttrString(from, "__dict__");
  if (!py_from) {
    py_error_drop();
    return 0;
  }
  PyObject *py_to = PyObject_GetAttrString(to, "__dict__");
  int status = py_to ? PyDict_Update(py_to, py_from) : -1;
  Py_XDECREF(py_to);
  Py_DECREF(py_from);
  return status;
}

// A tuple subclass: torch.return_types are made by their type, all others (named tuples) as tuple itself makes them,
// whatever arguments their constructors want.
static PyObject *tuple_convert(PyObject *like, PyObject *py_plain) {
  PyTypeObject *type = Py_TYPE(like);
  if (!py_plain || type == &PyTuple_Type) {
    return py_plain;
  }
  PyObject *py_result = NULL;
  if (PyObject_HasAttrString((PyObject *)type, "n_sequence_fields")) {
    py_result = PyObject_CallOneArg((PyObject *)type, py_plain);
  } else {
    PyObject *py_arguments = PyTuple_Pack(1, py_plain);
    py_result = py_arguments ? PyTuple_Type.tp_new(type, py_arguments, NULL) : NULL;
    Py_XDECREF(py_arguments);
    if (py_result && attributes_copy(like, py_result) < 0) {
      Py_CLEAR(py_result);
    }
  }
  Py_DECREF(py_plain);
  return py_result;
}

static PyObject *tuple_walk(const struct walker *walker, PyObject *tuple, int depth) {
  Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  bool failed;
  PyObject **py_items = items_walk(walker, ((PyTupleObject *)(void *)tuple)->ob_item, count, depth, &failed);
  if (!py_items) {
    return failed ? NULL : Py_NewRef(tuple);
  }
  return tuple_convert(tuple, items_pack(py_items, count, false));
}

static PyObject *list_walk(const struct walker *walker, PyObject *list, int depth) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  bool failed;
  PyObject **py_items = items_walk(walker, ((PyListObject *)(void *)list)->ob_item, count, depth, &failed);
  if (!py_items) {
    return failed ? NULL : Py_NewRef(list);
  }
  PyObject *py_plain = items_pack(py_items, count, true);
  if (!py_plain || PyList_CheckExact(list)) {
    return py_plain;
  }
  PyObject *py_copy = PyObject_CallOneArg(torch_names.py_copy_shallow, list);
  if (py_copy && (!PyList_Check(py_copy) || PyList_SetSlice(py_copy, 0, PyList_GET_SIZE(py_copy), py_plain) < 0)) {
    Py_CLEAR(py_copy);
  }
  Py_DECREF(py_plain);
  return py_copy;
}

static PyObject *set_walk(const struct walker *walker, PyObject *set, int depth) {
  PyObject *py_order = PySequence_Tuple(set);
  Py_ssize_t count = py_order ? PyTuple_GET_SIZE(py_order) : 0;
  bool failed = !py_order;
  PyObject **py_items =
      py_order ? items_walk(walker, ((PyTupleObject *)(void *)py_order)->ob_item, count, depth, &failed) : NULL;
  Py_XDECREF(py_order);
  if (!py_items) {
    return failed ? NULL : Py_NewRef(set);
  }
  PyObject *py_plain = items_pack(py_items, count, false);
  PyObject *py_result = py_plain ? PyObject_CallOneArg((PyObject *)Py_TYPE(set), py_plain) : NULL;
  Py_XDECREF(py_plain);
  return py_result;
}

// Calls back into the walk while it steps through the dictionary: nothing there changes it, as the copy is another one.
static PyObject *dict_walk(const struct walker *walker, PyObject *dict, int depth, bool keywords) {
  PyObject *py_copy = NULL, *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    bool device = keywords && PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "device") == 0;
    enum position position = device ? POSITION_DEVICE : keywords ? POSITION_KEYWORD : POSITION_NESTED;
    PyObject *py_value = value_walk(walker, value, position, depth + 1);
    int status = py_value ? 0 : -1;
    if (py_value && py_value != value) {
      if (!py_copy) {
        py_copy = PyDict_CheckExact(dict) ? PyDict_Copy(dict) : PyObject_CallOneArg(torch_names.py_copy_shallow, dict);
      }
      status = py_copy ? PyObject_SetItem(py_copy, key, py_value) : -1;
    }
    Py_XDECREF(py_value);
    if (status < 0) {
      Py_XDECREF(py_copy);
      return NULL;
    }
  }
  return py_copy ? py_copy : Py_NewRef(dict);
}

// object.__setattr__ also reaches the fields of frozen classes.
static int field_set(PyObject *object, PyObject *key, PyObject *value) {
  return PyObject_GenericSetAttr(object, key, value);
}

static PyObject *dataclass_walk(const struct walker *walker, PyObject *object, PyObject *fields, int depth) {
  PyObject *py_copy = NULL, *key, *field;
  Py_ssize_t at = 0;
  while (PyDict_Next(fields, &at, &key, &field)) {
    PyObject *py_old = PyObject_GetAttr(object, key);
    py_error_drop();
    if (!py_old || Py_REFCNT(py_old) < 2) {  // as in engine/walk.c: a value that only this lookup holds
      Py_XDECREF(py_old);
      continue;
    }
    PyObject *py_new = value_walk(walker, py_old, POSITION_NESTED, depth + 1);
    int status = py_new ? 0 : -1;
    if (py_new && py_new != py_old) {
      py_copy = py_copy ? py_copy : PyObject_CallOneArg(torch_names.py_copy_shallow, object);
      status = py_copy ? field_set(py_copy, key, py_new) : -1;
    }
    Py_XDECREF(py_new);
    Py_DECREF(py_old);
    if (status < 0) {
      Py_XDECREF(py_copy);
      return NULL;
    }
  }
  return py_copy ? py_copy : Py_NewRef(object);
}

static PyObject *other_walk(const struct walker *walker, PyObject *value, int depth) {
  if (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    PyObject *py_fields = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__dataclass_fields__");
    py_error_drop();
    PyObject *py_result = py_fields && PyDict_Check(py_fields) ? dataclass_walk(walker, value, py_fields, depth) : NULL;
    bool opened = py_fields && PyDict_Check(py_fields);
    Py_XDECREF(py_fields);
    if (opened) {
      return py_result;
    }
  }
  return Py_NewRef(value);
}

static PyObject *value_walk(const struct walker *walker, PyObject *value, enum position position, int depth) {
  if (engine_is_tensor(value)) {
    return walker->map(walker->context, value);
  }
  if (walker->device && value_names_device(value, position)) {
    return Py_NewRef(walker->device);
  }
  if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) ||
      depth >= ENGINE_MAX_DEPTH) {
    return Py_NewRef(value);
  }
  if (PyTuple_Check(value)) {
    return tuple_walk(walker, value, depth);
  }
  if (PyList_Check(value)) {
    return list_walk(walker, value, depth);
  }
  if (PyDict_Check(value)) {
    return dict_walk(walker, value, depth, false);
  }
  return PyAnySet_Check(value) ? set_walk(walker, value, depth) : other_walk(walker, value, depth);
}

PyObject *remap_value(PyObject *value, remap_function map, void *context) {
  struct walker walker = {.map = map, .context = context};
  return value_walk(&walker, value, POSITION_NESTED, 0);
}

// Calls

struct replacements {
  const struct engine_leaves *leaves;
  PyObject *const *replacement;
  int next;
};

static PyObject *tensor_replace(void *context, PyObject *tensor) {
  struct replacements *all = context;
  const struct engine_leaves *leaves = all->leaves;
  int at = all->next;
  if (at >= leaves->tensor_count || leaves->tensor[at].py_tensor != tensor) {
    // A set's order or a property may have changed since the engine's walk.
    for (at = 0; at < leaves->tensor_count && leaves->tensor[at].py_tensor != tensor; at++) {
    }
  }
  if (at == leaves->tensor_count) {
    return Py_NewRef(tensor);
  }
  all->next = at + 1;
  return Py_NewRef(all->replacement && all->replacement[at] ? all->replacement[at] : tensor);
}

PyObject *remap_leaves(PyObject *value, const struct engine_leaves *leaves, PyObject *const *replacement) {
  struct replacements all = {.leaves = leaves, .replacement = replacement};
  return remap_value(value, tensor_replace, &all);
}

static PyObject *args_walk(const struct walker *walker, PyObject *args) {
  Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject *py_args = PyTuple_New(count);
  for (Py_ssize_t i = 0; py_args && i < count; i++) {
    enum position position = i ? POSITION_LATER : POSITION_FIRST;
    PyObject *py_value = value_walk(walker, PyTuple_GET_ITEM(args, i), position, 1);
    if (!py_value) {
      Py_CLEAR(py_args);
      break;
    }
    PyTuple_SET_ITEM(py_args, i, py_value);
  }
  return py_args;
}

int remap_call(const struct engine_call *call, PyObject *const *replacement, PyObject *device, PyObject **py_args,
               PyObject **py_kwargs) {
  struct replacements all = {.leaves = &call->in, .replacement = replacement};
  struct walker walker = {.map = tensor_replace, .context = &all, .device = device};
  *py_kwargs = NULL;
  *py_args = args_walk(&walker, call->args);
  if (!*py_args) {
    return -1;
  }
  if (call->kwargs) {
    *py_kwargs = dict_walk(&walker, call->kwargs, 0, true);
    if (!*py_kwargs) {
      Py_CLEAR(*py_args);
      return -1;
    }
  }
  return 0;
}
