// The Python redirect: "cuda" in the arguments of PyTorch's C functions becomes the chosen device before PyTorch parses
// it.
//
// For machines where the import slots of PyTorch's libraries cannot be rewritten. Function objects are not replaced:
// the method definition that a function object points to is exchanged for a copy with another entry point, so
// torch.empty stays the object that torch.compile, TorchScript, torch.overrides and torch-function modes know by
// identity. Classes get another tp_new. Invariant: everything is checked before anything is written; slots live for
// ever, because bound methods keep pointing at their definitions. Depends on: CPython's function, descriptor and type
// objects; Python-level torch.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "device_object.h"
#include "exempt.h"

enum { FUNCTION_MAX = 128, CLASS_MAX = 8, NAME_MAX_LENGTH = 32, FAST_ARGUMENTS = 16 };

// What a function takes where a device is meant.
enum form {
  FORM_DEVICE,    // a torch.device would do: hand one over
  FORM_TEXT,      // a str only: hand over the real name
  FORM_AUTOCAST,  // as FORM_TEXT; called without a device it means CUDA
  FORM_NOTHING,   // no device at all, but its error names one
  FORM_KEY,       // the name of a dispatch key
  FORMS
};

static const char *const form_names[FORMS] = {"device", "text", "autocast", "nothing", "key"};

struct function_slot {
  PyObject *py_object;  // PyCFunction or method descriptor; owned once used
  PyMethodDef *before;  // NULL: free
  PyMethodDef now;
  enum form form;
  PyObject *
      py_substitute;  // called with the device's name in front, for a function that has CUDA built in; owned; else NULL
};

struct class_slot {
  PyTypeObject *py_class;  // owned once used
  newfunc before;
};

static struct {
  bool installed;
  bool show;  // errors of redirected functions say "cuda:0", not the real name
  int8_t target;
  char name[NAME_MAX_LENGTH];
  PyTypeObject *py_device_class;  // torch.device; owned once used
  newfunc device_before;
  PyObject
      *py_devices;  // "cuda:1" -> torch.device, for every text seen so far; at most one entry per valid device text
  PyObject *py_name;
  char second[NAME_MAX_LENGTH];  // a second name of the device, such as "dipu"; empty: none
  int function_count, class_count;
  struct class_slot classes[CLASS_MAX];
} state;

static struct function_slot functions[FUNCTION_MAX];

// Translation

static bool is_name(const char *text, Py_ssize_t length, const char *name) {
  Py_ssize_t size = (Py_ssize_t)strlen(name);
  return size > 0 && length >= size && memcmp(text, name, (size_t)size) == 0 && (length == size || text[size] == ':');
}

static bool is_second_text(PyObject *value) {
  return state.second[0] && PyUnicode_Check(value) && PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND &&
         is_name((const char *)PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value), state.second);
}

static bool is_cuda_text(PyObject *value) {
  if (!PyUnicode_Check(value) || PyUnicode_KIND(value) != PyUnicode_1BYTE_KIND) {
    return false;
  }
  Py_ssize_t length = PyUnicode_GET_LENGTH(value);
  const char *text = (const char *)PyUnicode_1BYTE_DATA(value);
  return is_name(text, length, "cuda") || (state.second[0] && is_name(text, length, state.second));
}

// The running code says "cuda" and means it.
static bool is_exempt(void) {
  return dit_exempt_is(DIT_EXEMPT_ALL, "\"cuda\"");
}

// The device that `text` names. New reference; a bad text raises PyTorch's own error.
static PyObject *device_find(PyObject *text) {
  if (!PyUnicode_CheckExact(text)) {  // an Enum, say: its hash is its own affair
    return PyObject_CallOneArg((PyObject *)state.py_device_class, text);
  }
  PyObject *device = PyDict_GetItemWithError(state.py_devices, text);
  if (device || PyErr_Occurred()) {
    return Py_XNewRef(device);
  }
  PyObject *py_device = PyObject_CallOneArg((PyObject *)state.py_device_class, text);
  if (py_device && PyDict_SetItem(state.py_devices, text, py_device) < 0) {
    Py_CLEAR(py_device);
  }
  return py_device;
}

// What stands for a text that is_cuda_text. New reference.
static PyObject *text_translate(PyObject *text, enum form form) {
  if (form == FORM_DEVICE) {
    return device_find(text);
  }
  const char *rest = (const char *)PyUnicode_1BYTE_DATA(text) + (is_second_text(text) ? strlen(state.second) : 4);
  return *rest ? PyUnicode_FromFormat("%s%s", state.name, rest) : Py_NewRef(state.py_name);
}

// *out: a translated copy, or a new reference to `args` when there is nothing to translate. 0, or -1 with an exception.
static int tuple_translate(PyObject *args, enum form form, PyObject **out) {
  Py_ssize_t count = PyTuple_GET_SIZE(args), first = 0;
  while (first < count && !is_cuda_text(PyTuple_GET_ITEM(args, first))) {
    first++;
  }
  if (first == count || is_exempt()) {
    *out = Py_NewRef(args);
    return 0;
  }
  PyObject *py_copy = PyTuple_New(count);
  for (Py_ssize_t i = 0; py_copy && i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(args, i);
    PyObject *py_item = i >= first && is_cuda_text(item) ? text_translate(item, form) : Py_NewRef(item);
    if (!py_item) {
      Py_CLEAR(py_copy);
      break;
    }
    PyTuple_SET_ITEM(py_copy, i, py_item);
  }
  *out = py_copy;
  return py_copy ? 0 : -1;
}

// The same for keyword arguments; `kwargs` may be NULL and is never changed: it may be the caller's own dictionary.
static int dict_translate(PyObject *kwargs, enum form form, PyObject **out) {
  PyObject *key, *value, *py_copy = NULL;
  Py_ssize_t position = 0;
  while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
    if (!is_cuda_text(value) || (!py_copy && is_exempt())) {
      continue;
    }
    PyObject *py_value = text_translate(value, form);
    if (py_value && !py_copy) {
      py_copy = PyDict_Copy(kwargs);
    }
    int failed = !py_value || !py_copy || PyDict_SetItem(py_copy, key, py_value) < 0;
    Py_XDECREF(py_value);
    if (failed) {
      Py_XDECREF(py_copy);
      return -1;
    }
  }
  *out = py_copy ? py_copy : Py_XNewRef(kwargs);
  return 0;
}

// The dispatch key that a text names instead of CUDA's; NULL without an exception: it is no key of CUDA's. New
// reference.
static PyObject *key_translate(PyObject *value) {
  char name[DIT_DISPATCH_KEY_MAX];
  if (!PyUnicode_Check(value) || PyUnicode_KIND(value) != PyUnicode_1BYTE_KIND) {
    return NULL;
  }
  size_t length = dit_dispatch_key_translate((const char *)PyUnicode_1BYTE_DATA(value),
                                             (size_t)PyUnicode_GET_LENGTH(value), state.target, name);
  return length && !is_exempt() ? PyUnicode_FromStringAndSize(name, (Py_ssize_t)length) : NULL;
}

// *args and *kwargs become copies in which every key of CUDA's is the target's. 0, or -1 with an exception.
static int keys_translate(PyObject **args, PyObject **kwargs) {
  Py_ssize_t count = PyTuple_GET_SIZE(*args);
  PyObject *py_copy = PyTuple_New(count);
  for (Py_ssize_t i = 0; py_copy && i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(*args, i), *py_key = key_translate(item);
    if (PyErr_Occurred()) {
      Py_CLEAR(py_copy);
      break;
    }
    PyTuple_SET_ITEM(py_copy, i, py_key ? py_key : Py_NewRef(item));
  }
  if (!py_copy) {
    return -1;
  }
  Py_SETREF(*args, py_copy);
  if (*kwargs) {
    PyObject *py_dict = PyDict_New(), *name, *value;
    for (Py_ssize_t position = 0; py_dict && PyDict_Next(*kwargs, &position, &name, &value);) {
      PyObject *py_key = key_translate(value);
      if (PyErr_Occurred() || PyDict_SetItem(py_dict, name, py_key ? py_key : value) < 0) {
        Py_CLEAR(py_dict);
      }
      Py_XDECREF(py_key);
    }
    if (!py_dict) {
      return -1;
    }
    Py_SETREF(*kwargs, py_dict);
  }
  return 0;
}

// torch.is_autocast_enabled() and set_autocast_enabled(True) speak of CUDA. *args is replaced by a copy with the device
// in front; calls that PyTorch would refuse stay as they are.
static int autocast_complete(PyObject **args, PyObject *kwargs) {
  PyObject *before = *args;
  Py_ssize_t count = PyTuple_GET_SIZE(before) + (kwargs ? PyDict_GET_SIZE(kwargs) : 0);
  bool named = PyTuple_GET_SIZE(before) > 0 ? !PyBool_Check(PyTuple_GET_ITEM(before, 0))
                                            : kwargs && PyDict_GetItemString(kwargs, "device_type");
  if (count > 1 || named) {
    return 0;
  }
  PyObject *py_first = PyTuple_Pack(1, state.py_name);
  PyObject *py_args = py_first ? PySequence_Concat(py_first, before) : NULL;
  Py_XDECREF(py_first);
  if (!py_args) {
    return -1;
  }
  Py_SETREF(*args, py_args);
  return 0;
}

// Entry points of functions

static PyObject *slot_call(const struct function_slot *slot, PyObject *self, PyObject *args, PyObject *kwargs) {
  PyCFunctionWithKeywords original = (PyCFunctionWithKeywords)(void (*)(void))slot->before->ml_meth;
  if (!state.installed) {
    return original(self, args, kwargs);
  }
  PyObject *py_args = NULL, *py_kwargs = NULL, *py_result = NULL;
  if (slot->form == FORM_NOTHING || slot->form == FORM_KEY) {
    py_args = Py_NewRef(args);
    py_kwargs = Py_XNewRef(kwargs);
  } else if (tuple_translate(args, slot->form, &py_args) < 0 || dict_translate(kwargs, slot->form, &py_kwargs) < 0) {
    goto done;
  }
  if ((slot->form == FORM_AUTOCAST && autocast_complete(&py_args, py_kwargs) < 0) ||
      (slot->form == FORM_KEY && keys_translate(&py_args, &py_kwargs) < 0)) {
    goto done;
  }
  py_result = original(self, py_args, py_kwargs);
  if (!py_result && state.show) {
    py_error_show(state.name);
  }
done:
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

typedef PyObject *fast_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

static PyObject *slot_call_fast(const struct function_slot *slot, PyObject *self, PyObject *const *args,
                                Py_ssize_t count, PyObject *names) {
  fast_function *original = (fast_function *)(void (*)(void))slot->before->ml_meth;
  Py_ssize_t total = count + (names ? PyTuple_GET_SIZE(names) : 0), done = 0;
  if (!state.installed || total > FAST_ARGUMENTS) {  // none of the functions takes that many: let PyTorch say so
    return original(self, args, count, names);
  }
  PyObject *py_args[FAST_ARGUMENTS], *py_result = NULL;
  for (; done < total; done++) {
    py_args[done] = slot->form == FORM_KEY                     ? key_translate(args[done])
                    : is_cuda_text(args[done]) && !is_exempt() ? text_translate(args[done], slot->form)
                                                               : Py_NewRef(args[done]);
    if (!py_args[done] && slot->form == FORM_KEY && !PyErr_Occurred()) {
      py_args[done] = Py_NewRef(args[done]);
    }
    if (!py_args[done]) {
      goto done;
    }
  }
  py_result = original(self, py_args, count, names);
done:
  while (done-- > 0) {
    Py_DECREF(py_args[done]);
  }
  return py_result;
}

// torch.get_autocast_gpu_dtype() and set_autocast_gpu_dtype(dtype). The original is called for its deprecation warning.
static PyObject *slot_call_substitute(const struct function_slot *slot, PyObject *self, PyObject *argument) {
  PyObject *py_result = slot->before->ml_meth(self, argument);
  if (!py_result || !state.installed) {
    return py_result;
  }
  Py_DECREF(py_result);
  PyObject *const args[] = {state.py_name, argument};
  return PyObject_Vectorcall(slot->py_substitute, args, argument ? 2 : 1, NULL);
}

// A C function is told nothing about the object it was called through, so every slot has an entry point of its own.
#define ENTRY(n)                                                                                        \
  static PyObject *entry_##n(PyObject *self, PyObject *args, PyObject *kwargs) {                        \
    return slot_call(&functions[0x##n], self, args, kwargs);                                            \
  }                                                                                                     \
  static PyObject *fast_##n(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
    return slot_call_fast(&functions[0x##n], self, args, count, names);                                 \
  }                                                                                                     \
  static PyObject *substitute_##n(PyObject *self, PyObject *argument) {                                 \
    return slot_call_substitute(&functions[0x##n], self, argument);                                     \
  }
#define ROW(item, r)                                                                                            \
  item(r##0) item(r##1) item(r##2) item(r##3) item(r##4) item(r##5) item(r##6) item(r##7) item(r##8) item(r##9) \
      item(r##A) item(r##B) item(r##C) item(r##D) item(r##E) item(r##F)
#define ROWS(item) \
  ROW(item, 0) ROW(item, 1) ROW(item, 2) ROW(item, 3) ROW(item, 4) ROW(item, 5) ROW(item, 6) ROW(item, 7)
ROWS(ENTRY)

#define ENTRY_NAME(n) entry_##n,
#define FAST_NAME(n) fast_##n,
#define SUBSTITUTE_NAME(n) substitute_##n,
static const PyCFunctionWithKeywords entries[FUNCTION_MAX] = {ROWS(ENTRY_NAME)};
static fast_function *const fast_entries[FUNCTION_MAX] = {ROWS(FAST_NAME)};
static const PyCFunction substitute_entries[FUNCTION_MAX] = {ROWS(SUBSTITUTE_NAME)};

// Constructors

// A device by the second name of its type: PyTorch gets the real name.
static PyObject *device_new_second(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *py_args = NULL, *py_kwargs = NULL, *py_device = NULL;
  if (tuple_translate(args, FORM_TEXT, &py_args) == 0 && dict_translate(kwargs, FORM_TEXT, &py_kwargs) == 0) {
    py_device = state.device_before(type, py_args, py_kwargs);
  }
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_device;
}

// torch.device: PyTorch parses, then a CUDA device becomes one of the target type. Errors are therefore PyTorch's own.
static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *named = PyTuple_GET_SIZE(args)      ? PyTuple_GET_ITEM(args, 0)
                    : kwargs && state.second[0] ? PyDict_GetItemString(kwargs, "type")
                                                : NULL;
  if (named && state.installed && is_second_text(named)) {
    return device_new_second(type, args, kwargs);
  }
  PyObject *py_device = state.device_before(type, args, kwargs);
  if (py_device && state.installed && Py_TYPE(py_device) == state.py_device_class) {
    struct dit_c10_device *device = dit_device_object_get(py_device);
    if (device->type == DIT_C10_CUDA && !is_exempt()) {
      device->type = state.target;
    }
  }
  return py_device;
}

static PyObject *class_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  const struct class_slot *slot = NULL;
  for (int i = 0; i < state.class_count && !slot; i++) {
    slot = PyType_IsSubtype(type, state.classes[i].py_class) ? &state.classes[i] : NULL;
  }
  if (!slot) {
    return PyErr_Format(PyExc_TypeError, "%.100s is none of the redirected classes", type->tp_name);
  }
  PyObject *py_args = NULL, *py_kwargs = NULL, *py_result = NULL;
  if (!state.installed) {
    return slot->before(type, args, kwargs);
  }
  if (tuple_translate(args, FORM_DEVICE, &py_args) == 0 && dict_translate(kwargs, FORM_DEVICE, &py_kwargs) == 0) {
    py_result = slot->before(type, py_args, py_kwargs);
  }
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

// The slot of the class, and those that subclasses copied from it.
static int new_replace(PyTypeObject *type, newfunc before, newfunc now) {
  if (type->tp_new == before) {
    type->tp_new = now;
  }
  PyObject *py_subclasses = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
  int result = py_subclasses ? 0 : -1;
  for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(py_subclasses); i++) {
    result = new_replace((PyTypeObject *)PyList_GET_ITEM(py_subclasses, i), before, now);
  }
  Py_XDECREF(py_subclasses);
  return result;
}

// Install and restore

static PyMethodDef **definition_get(PyObject *function) {
  if (PyCFunction_Check(function)) {
    return &((PyCFunctionObject *)function)->m_ml;
  }
  return Py_TYPE(function) == &PyMethodDescr_Type ? &((PyMethodDescrObject *)function)->d_method : NULL;
}

static int form_find(const char *text) {
  for (int i = 0; i < FORMS; i++) {
    if (strcmp(text, form_names[i]) == 0) {
      return i;
    }
  }
  PyErr_Format(PyExc_ValueError, "form '%s' is unknown; valid: device, text, autocast, nothing, key", text);
  return -1;
}

// The entry point that fits how CPython calls `definition`; NULL when this file has none.
static PyCFunction entry_find(const PyMethodDef *definition, int index, enum form form, bool substituted) {
  int kind = definition->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_NOARGS | METH_O);
  if (substituted) {
    return kind == METH_NOARGS || kind == METH_O ? substitute_entries[index] : NULL;
  }
  if (kind == (METH_VARARGS | METH_KEYWORDS)) {
    return (PyCFunction)(void (*)(void))entries[index];
  }
  bool fast = kind == (METH_FASTCALL | METH_KEYWORDS) && (form <= FORM_TEXT || form == FORM_KEY);
  return fast ? (PyCFunction)(void (*)(void))fast_entries[index] : NULL;
}

// A free or the known slot for one function; nothing of PyTorch is changed. 0, or -1 with an exception.
static int function_prepare(PyObject *tuple) {
  PyObject *function = NULL, *substitute = NULL;
  const char *form_text = NULL;
  if (!PyArg_ParseTuple(tuple, "Os|O;functions must be (function, form[, substitute])", &function, &form_text,
                        &substitute)) {
    return -1;
  }
  int form = form_find(form_text), index = 0;
  if (form < 0) {
    return -1;
  }
  PyMethodDef **definition = definition_get(function);
  while (definition && index < state.function_count && functions[index].before != *definition) {
    index++;
  }
  if (index == FUNCTION_MAX) {
    PyErr_Format(PyExc_NotImplementedError, "more than %d functions to redirect", FUNCTION_MAX);
    return -1;
  }
  PyCFunction entry = definition ? entry_find(*definition, index, (enum form)form, substitute != NULL) : NULL;
  if (!entry) {
    PyErr_Format(PyExc_NotImplementedError, "%R cannot be redirected: it is not a C function of a known kind",
                 function);
    return -1;
  }
  struct function_slot *slot = &functions[index];
  state.function_count += index == state.function_count;
  Py_XSETREF(slot->py_object, Py_NewRef(function));
  Py_XSETREF(slot->py_substitute, Py_XNewRef(substitute));
  slot->before = *definition;
  slot->now = *slot->before;
  slot->now.ml_meth = entry;
  slot->form = (enum form)form;
  return 0;
}

static int class_prepare(PyObject *candidate) {
  if (!PyType_Check(candidate) || !((PyTypeObject *)candidate)->tp_new) {
    PyErr_Format(PyExc_NotImplementedError, "%R cannot be redirected: it is not a class with a constructor", candidate);
    return -1;
  }
  int index = 0;
  while (index < state.class_count && state.classes[index].py_class != (PyTypeObject *)candidate) {
    index++;
  }
  if (index == CLASS_MAX) {
    PyErr_Format(PyExc_NotImplementedError, "more than %d classes to redirect", CLASS_MAX);
    return -1;
  }
  if (index == state.class_count) {
    state.classes[index] =
        (struct class_slot){(PyTypeObject *)Py_NewRef(candidate), ((PyTypeObject *)candidate)->tp_new};
    state.class_count++;
  }
  return 0;
}

static int lists_prepare(PyObject *function_list, PyObject *class_list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(function_list); i++) {
    PyObject *tuple = PyList_GET_ITEM(function_list, i);
    if (!PyTuple_Check(tuple)) {
      PyErr_SetString(PyExc_TypeError, "functions must be (function, form[, substitute]) tuples");
      return -1;
    }
    if (function_prepare(tuple) < 0) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(class_list); i++) {
    if (class_prepare(PyList_GET_ITEM(class_list, i)) < 0) {
      return -1;
    }
  }
  return 0;
}

static int everything_switch(bool on) {
  state.installed = on;
  for (int i = 0; i < state.function_count; i++) {
    PyMethodDef **definition = definition_get(functions[i].py_object);
    if (*definition == (on ? functions[i].before : &functions[i].now)) {
      *definition = on ? &functions[i].now : functions[i].before;
    }
  }
  newfunc device_now = on ? device_new : state.device_before;
  int result = new_replace(state.py_device_class, on ? state.device_before : device_new, device_now);
  for (int i = 0; i < state.class_count; i++) {
    const struct class_slot *slot = &state.classes[i];
    result |= new_replace(slot->py_class, on ? slot->before : class_new, on ? class_new : slot->before);
  }
  return result;
}

PyDoc_STRVAR(
    redirect_install_doc,
    "redirect_install(device_class: type, device_type: int, name: str, show: bool, functions: list[tuple[Any, "
    "...]], classes: list[type], /) -> None\n\nMake 'cuda' mean the device type of this number and real name: "
    "in torch.device, in the C functions of the (function, form[, substitute]) tuples (form 'device', 'text', "
    "'autocast', 'nothing' or 'key') and in the constructors of the classes. Installed already: does nothing.");
static PyObject *py_redirect_install(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *device_class, *function_list, *class_list;
  int target = 0, show = 0;
  const char *name = NULL;
  if (!PyArg_ParseTuple(args, "O!ispO!O!:redirect_install", &PyType_Type, &device_class, &target, &name, &show,
                        &PyList_Type, &function_list, &PyList_Type, &class_list)) {
    return NULL;
  }
  if (target <= DIT_C10_CUDA || target == DIT_C10_META || target > DIT_C10_PRIVATEUSE1 ||
      strlen(name) >= NAME_MAX_LENGTH) {
    return PyErr_Format(
        PyExc_ValueError,
        "device type %d '%.100s' cannot stand behind 'cuda'; valid: types 2 to 20 except 14 (meta), names of up "
        "to %d bytes",
        target, name, NAME_MAX_LENGTH - 1);
  }
  if (state.installed) {
    Py_RETURN_NONE;
  }
  if (dit_device_object_check((PyTypeObject *)device_class, DIT_C10_CUDA, DIT_C10_CUDA) < 0 ||
      lists_prepare(function_list, class_list) < 0) {
    return NULL;
  }
  Py_XSETREF(state.py_devices, PyDict_New());
  Py_XSETREF(state.py_name, PyUnicode_FromString(name));
  if (!state.py_devices || !state.py_name) {
    return NULL;
  }
  memcpy(state.name, name, strlen(name) + 1);
  state.target = (int8_t)target;
  state.show = show;
  Py_XSETREF(state.py_device_class, (PyTypeObject *)Py_NewRef(device_class));
  state.device_before = state.py_device_class->tp_new;
  if (everything_switch(true) < 0) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    (void)everything_switch(false);
    PyErr_Restore(kind, value, traceback);
    return NULL;
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(redirect_second_name_doc,
             "redirect_second_name(name: str | None, /) -> None\n\nMake `name` (and `name:1` ...) mean what 'cuda' "
             "means; None takes it back.");
static PyObject *py_redirect_second_name(PyObject *module, PyObject *argument) {
  (void)module;
  const char *name = NULL;
  if (py_optional_text(argument, "name", &name) < 0) {
    return NULL;
  }
  if (name && (!*name || strlen(name) >= NAME_MAX_LENGTH || strchr(name, ':'))) {
    return PyErr_Format(PyExc_ValueError, "'%s' cannot be a device name; valid: 1 to %d bytes without a colon", name,
                        NAME_MAX_LENGTH - 1);
  }
  (void)snprintf(state.second, sizeof state.second, "%s", name ? name : "");
  Py_RETURN_NONE;
}

PyDoc_STRVAR(redirect_restore_doc,
             "redirect_restore() -> None\n\nTake every redirect back. Does nothing when not installed.");
static PyObject *py_redirect_restore(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (state.installed && everything_switch(false) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(
    redirect_status_doc,
    "redirect_status() -> dict[str, Any]\n\ninstalled, device_type, and the redirected functions and classes by name.");
static PyObject *py_redirect_status(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *py_functions = PyList_New(0), *py_classes = PyList_New(0), *py_result = NULL;
  for (int i = 0; py_functions && state.installed && i < state.function_count; i++) {
    PyObject *py_name = PyUnicode_FromString(functions[i].before->ml_name);
    if (!py_name || PyList_Append(py_functions, py_name) < 0) {
      Py_CLEAR(py_functions);
    }
    Py_XDECREF(py_name);
  }
  for (int i = 0; py_classes && state.installed && i < state.class_count; i++) {
    if (PyList_Append(py_classes, (PyObject *)state.classes[i].py_class) < 0) {
      Py_CLEAR(py_classes);
    }
  }
  if (py_functions && py_classes) {
    py_result = Py_BuildValue("{s:O,s:i,s:O,s:O}", "installed", state.installed ? Py_True : Py_False, "device_type",
                              state.installed ? state.target : -1, "functions", py_functions, "classes", py_classes);
  }
  Py_XDECREF(py_functions);
  Py_XDECREF(py_classes);
  return py_result;
}

PyMethodDef py_redirect_methods[] = {
    {"redirect_install", py_redirect_install, METH_VARARGS, redirect_install_doc},
    {"redirect_restore", py_redirect_restore, METH_NOARGS, redirect_restore_doc},
    {"redirect_second_name", py_redirect_second_name, METH_O, redirect_second_name_doc},
    {"redirect_status", py_redirect_status, METH_NOARGS, redirect_status_doc},
    {NULL, NULL, 0, NULL},
};
