// Exemption and audit: the calling module decides which of two answers it gets, and can be counted.
//
// The caller is the module whose Python code makes the call: the globals of the running frame. Nothing is looked up
// while nobody is exempt and nothing is counted. Invariant: a question never raises, and never runs Python code.
// Depends on: CPython's frames; alias_hooks.h for the one place that cannot call Python.
#include <string.h>

#include "alias_hooks.h"
#include "exempt.h"
#include "module.h"
#include "structmember.h"

enum { COUNT_MAX = 4096 };  // callers kept apart by the audit; more share one line

_Atomic int dit_exempt_watched;

// Calls of this thread that went to an original: what that calls in its turn is exempt too.
static _Thread_local int originals;

static struct {
  PyObject *py_packages;  // dict: name -> DIT_EXEMPT value; NULL while there are none
  PyObject *py_counts;    // dict: (label, module) -> int; NULL while the audit is off
  PyObject *py_name;      // "__name__"
} state;

// Who asks

// The name of the module whose code is running. Borrowed; NULL when it is not known.
static PyObject *caller_get(void) {
  PyObject *globals = PyEval_GetGlobals();
  PyObject *name = globals && state.py_name ? PyDict_GetItemWithError(globals, state.py_name) : NULL;
  return name && PyUnicode_Check(name) ? name : NULL;
}

// `name` is the package or one of its modules.
static bool name_belongs(PyObject *name, PyObject *package) {
  Py_ssize_t length = PyUnicode_GET_LENGTH(package);
  return PyUnicode_Tailmatch(name, package, 0, PY_SSIZE_T_MAX, -1) == 1 &&
         (PyUnicode_GET_LENGTH(name) == length || PyUnicode_READ_CHAR(name, length) == '.');
}

static int caller_exemption(PyObject *name) {
  PyObject *package, *value;
  Py_ssize_t position = 0;
  while (name && state.py_packages && PyDict_Next(state.py_packages, &position, &package, &value)) {
    if (name_belongs(name, package)) {
      return (int)PyLong_AsLong(value);
    }
  }
  return 0;
}

static void question_count(PyObject *name, const char *label) {
  PyObject *py_key = Py_BuildValue("(sO)", label, name ? name : Py_None);
  PyObject *known = py_key ? PyDict_GetItemWithError(state.py_counts, py_key) : NULL;
  if (py_key && !known && PyDict_GET_SIZE(state.py_counts) >= COUNT_MAX) {
    Py_SETREF(py_key, Py_BuildValue("(ss)", label, "(others)"));
    known = py_key ? PyDict_GetItemWithError(state.py_counts, py_key) : NULL;
  }
  PyObject *py_number = py_key ? PyLong_FromLong(known ? PyLong_AsLong(known) + 1 : 1) : NULL;
  if (py_number) {
    (void)PyDict_SetItem(state.py_counts, py_key, py_number);
  }
  Py_XDECREF(py_number);
  Py_XDECREF(py_key);
}

bool dit_exempt_ask(int what, const char *label) {
  if (!Py_IsInitialized() || !PyGILState_Check()) {
    return false;
  }
  if (originals > 0) {
    return true;
  }
  PyObject *kind, *value, *traceback;  // an error of the caller's may be pending
  PyErr_Fetch(&kind, &value, &traceback);
  PyObject *name = caller_get();
  bool exempt = (caller_exemption(name) & what) == what;
  if (state.py_counts && !exempt) {
    question_count(name, label);
  }
  py_error_drop();
  PyErr_Restore(kind, value, traceback);
  return exempt;
}

static bool cuda_is_meant(void) {
  return dit_exempt_is(DIT_EXEMPT_ALL, "\"cuda\"");
}

static void watch(void) {
  bool on = state.py_counts || (state.py_packages && PyDict_GET_SIZE(state.py_packages) > 0);
  dit_alias_set_exempt(on ? cuda_is_meant : NULL);
  atomic_store_explicit(&dit_exempt_watched, on, memory_order_relaxed);
}

// A function with two answers

struct gate {
  PyObject_HEAD vectorcallfunc call;
  PyObject *py_old, *py_new, *py_label;
};

static PyObject *gate_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names) {
  struct gate *gate = (struct gate *)self;
  const char *label = PyUnicode_AsUTF8(gate->py_label);
  if (!label) {
    return NULL;
  }
  if (!dit_exempt_is(DIT_EXEMPT_ALL, label)) {
    return PyObject_Vectorcall(gate->py_new, args, count, names);
  }
  originals++;
  PyObject *py_result = PyObject_Vectorcall(gate->py_old, args, count, names);
  originals--;
  return py_result;
}

static PyObject *gate_bind(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *gate_getattr(PyObject *self, PyObject *name) {
  PyObject *py_value = PyObject_GenericGetAttr(self, name);
  if (py_value || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return py_value;
  }
  PyErr_Clear();
  return PyObject_GetAttr(((struct gate *)self)->py_new, name);
}

static PyObject *gate_get_wrapped(PyObject *self, void *closure) {
  (void)closure;
  return Py_NewRef(((struct gate *)self)->py_new);
}

static PyObject *gate_get_text(PyObject *self, void *name) {
  return PyObject_GetAttrString(((struct gate *)self)->py_new, name);
}

static PyObject *gate_repr(PyObject *self) {
  struct gate *gate = (struct gate *)self;
  return PyUnicode_FromFormat("<ditorch gate of %U: %R>", gate->py_label, gate->py_new);
}

static int gate_traverse(PyObject *self, visitproc visit, void *arg) {
  struct gate *gate = (struct gate *)self;
  Py_VISIT(gate->py_old);
  Py_VISIT(gate->py_new);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int gate_clear(PyObject *self) {
  struct gate *gate = (struct gate *)self;
  Py_CLEAR(gate->py_old);
  Py_CLEAR(gate->py_new);
  return 0;
}

static void gate_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)gate_clear(self);
  Py_XDECREF(((struct gate *)self)->py_label);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"old", "new", "label", NULL};
  PyObject *old = NULL, *new = NULL, *label = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOU:Gate", keywords, &old, &new, &label)) {
    return NULL;
  }
  if (!PyCallable_Check(old) || !PyCallable_Check(new)) {
    return PyErr_Format(PyExc_TypeError, "a gate stands between two callables, not %R and %R", old, new);
  }
  struct gate *gate = (struct gate *)type->tp_alloc(type, 0);
  if (gate) {
    gate->call = gate_call;
    gate->py_old = Py_NewRef(old);
    gate->py_new = Py_NewRef(new);
    gate->py_label = Py_NewRef(label);
  }
  return (PyObject *)gate;
}

static PyMemberDef gate_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct gate, call), READONLY, NULL},
    {"old", T_OBJECT, offsetof(struct gate, py_old), READONLY, "Any: What was there before ditorch"},
    {"label", T_OBJECT, offsetof(struct gate, py_label), READONLY, "str: The name that the audit counts under"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef gate_attributes[] = {
    {"__wrapped__", gate_get_wrapped, NULL, "Any: What callers get that are not exempt", NULL},
    {"__doc__", gate_get_text, NULL, NULL, "__doc__"},
    {"__module__", gate_get_text, NULL, NULL, "__module__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)gate_new},
    {Py_tp_dealloc, (void *)(uintptr_t)gate_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)gate_traverse},
    {Py_tp_clear, (void *)(uintptr_t)gate_clear},
    {Py_tp_call, (void *)(uintptr_t)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)(uintptr_t)gate_bind},
    {Py_tp_getattro, (void *)(uintptr_t)gate_getattr},
    {Py_tp_repr, (void *)(uintptr_t)gate_repr},
    {Py_tp_members, gate_members},
    {Py_tp_getset, gate_attributes},
    {0, NULL},
};

static PyType_Spec gate_spec = {
    .name = "ditorch._C.Gate",
    .basicsize = sizeof(struct gate),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = gate_slots,
};

int py_exempt_add_types(PyObject *module) {
  PyObject *py_type = PyType_FromSpec(&gate_spec);
  int result = py_type ? PyModule_AddObjectRef(module, "Gate", py_type) : -1;
  Py_XDECREF(py_type);
  return result;
}

// The module's functions

PyDoc_STRVAR(exempt_set_doc,
             "exempt_set(packages: dict[str, int], /) -> None\n\nThe exempt packages: a dict of name -> 1 (names) or 3 "
             "(everything); it replaces the one before.");
static PyObject *py_exempt_set(PyObject *module, PyObject *packages) {
  (void)module;
  PyObject *key, *value, *py_copy = PyDict_Check(packages) ? PyDict_New() : NULL;
  Py_ssize_t position = 0;
  if (!py_copy) {
    return PyErr_Occurred()
               ? NULL
               : PyErr_Format(PyExc_TypeError, "packages must be a dict, not %.100s", Py_TYPE(packages)->tp_name);
  }
  while (PyDict_Next(packages, &position, &key, &value)) {
    if (!PyUnicode_Check(key) || !PyLong_Check(value) || PyUnicode_GET_LENGTH(key) == 0 ||
        (PyLong_AsLong(value) != DIT_EXEMPT_NAMES && PyLong_AsLong(value) != DIT_EXEMPT_ALL)) {
      PyErr_Format(PyExc_ValueError, "an exempt package is a name and %d (names) or %d (all), not %R: %R",
                   DIT_EXEMPT_NAMES, DIT_EXEMPT_ALL, key, value);
      Py_DECREF(py_copy);
      return NULL;
    }
    if (PyDict_SetItem(py_copy, key, value) < 0) {
      Py_DECREF(py_copy);
      return NULL;
    }
  }
  if (!state.py_name && !(state.py_name = PyUnicode_InternFromString("__name__"))) {
    Py_DECREF(py_copy);
    return NULL;
  }
  Py_XSETREF(state.py_packages, py_copy);
  watch();
  Py_RETURN_NONE;
}

PyDoc_STRVAR(exempt_count_doc,
             "exempt_count(on: bool, /) -> None\n\nStart counting who asks (from zero), or stop and forget.");
static PyObject *py_exempt_count(PyObject *module, PyObject *on) {
  (void)module;
  int wanted = PyObject_IsTrue(on);
  if (wanted < 0 || (!state.py_name && !(state.py_name = PyUnicode_InternFromString("__name__")))) {
    return NULL;
  }
  PyObject *py_counts = wanted ? PyDict_New() : NULL;
  if (wanted && !py_counts) {
    return NULL;
  }
  Py_XSETREF(state.py_counts, py_counts);
  watch();
  Py_RETURN_NONE;
}

PyDoc_STRVAR(exempt_counts_doc,
             "exempt_counts() -> dict[tuple[str, str | None], int] | None\n\n(label, module) -> calls since "
             "exempt_count(True); None: not counting.");
static PyObject *py_exempt_counts(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return state.py_counts ? PyDict_Copy(state.py_counts) : Py_NewRef(Py_None);
}

PyMethodDef py_exempt_methods[] = {
    {"exempt_set", py_exempt_set, METH_O, exempt_set_doc},
    {"exempt_count", py_exempt_count, METH_O, exempt_count_doc},
    {"exempt_counts", py_exempt_counts, METH_NOARGS, exempt_counts_doc},
    {NULL, NULL, 0, NULL},
};
