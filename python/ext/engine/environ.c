// Watch of the environment: a change through os.environ (or os.putenv, os.unsetenv) takes effect at the next call.
//
// CPython raises the audit events "os.putenv" and "os.unsetenv" for both; a C audit hook counts those that concern the
// operator tools. The mode compares the counter with the one it saw last: one relaxed load per call. An audit hook
// cannot be removed, so it is installed once, when the first tool starts, and touches nothing but the counter.
//
// A second list of variables (environ_listen) is followed without any operator: what was set is handed to a function
// as soon as the interpreter comes to it, which is before the next line of the program.
//
// What this cannot see: setenv() called by C code. Such a change is found at the next start().
#include <string.h>

#include "dit/options.h"
#include "engine/internal.h"

_Atomic uint64_t engine_environ_generation = 1;

static PyObject *py_callback;                          // under the GIL
static PyObject *py_names, *py_listener, *py_changes;  // of environ_listen; under the GIL
static _Atomic bool hook_is_live;                      // the hook answered its own event
static const char probe_event[] = "ditorch.environ_watch";

static int changes_deliver(void *unused) {
  (void)unused;
  int status = 0;
  while (status == 0 && py_listener && PyList_GET_SIZE(py_changes) > 0) {
    PyObject *py_change = Py_NewRef(PyList_GET_ITEM(py_changes, 0)), *py_function = Py_NewRef(py_listener);
    PyObject *py_done =
        PyList_SetSlice(py_changes, 0, 1, NULL) < 0 ? NULL : PyObject_CallObject(py_function, py_change);
    status = py_done ? 0 : -1;
    Py_XDECREF(py_done);
    Py_DECREF(py_function);
    Py_DECREF(py_change);
  }
  return status;
}

// Remember (name, value), None for a variable that goes, until the change has been made.
static void change_note(PyObject *name, PyObject *args) {
  if (!py_listener || PySet_Contains(py_names, name) != 1) {
    py_error_drop();
    return;
  }
  PyObject *value = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : Py_None;
  PyObject *py_change = PyTuple_Pack(2, name, value);
  if (py_change && PyList_Append(py_changes, py_change) == 0) {
    (void)!Py_AddPendingCall(changes_deliver, NULL);
  }
  Py_XDECREF(py_change);
  py_error_drop();
}

// Before the change is made, and with the GIL: whoever sees the new generation runs later and finds the new value.
static int audit(const char *event, PyObject *args, void *unused) {
  (void)unused;
  if (event[0] != 'o' || event[1] != 's') {
    if (strcmp(event, probe_event) == 0) {
      atomic_store(&hook_is_live, true);
    }
    return 0;
  }
  if (strcmp(event, "os.putenv") != 0 && strcmp(event, "os.unsetenv") != 0) {
    return 0;
  }
  PyObject *name = args && PyTuple_Check(args) && PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL;
  if (name && PyBytes_Check(name)) {
    change_note(name, args);
  }
  if (name && PyBytes_Check(name) && dit_tool_variable_is_ours(PyBytes_AS_STRING(name))) {
    atomic_fetch_add_explicit(&engine_environ_generation, 1, memory_order_relaxed);
  }
  return 0;
}

// Another audit hook may refuse ours; CPython then says nothing, so the hook is asked.
static int hook_install(void) {
  if (atomic_load(&hook_is_live)) {
    return 0;
  }
  return PySys_AddAuditHook(audit, NULL) < 0 || PySys_Audit(probe_event, NULL) < 0 ? -1 : 0;
}

int engine_environ_refresh(void) {
  // Before the variables are read: a change while they are makes the next call come here again.
  engine_state.environ_seen = atomic_load_explicit(&engine_environ_generation, memory_order_relaxed);
  if (!py_callback) {
    return 0;
  }
  PyObject *py_function = Py_NewRef(py_callback);
  PyObject *py_answer = PyObject_CallNoArgs(py_function);
  Py_DECREF(py_function);
  Py_XDECREF(py_answer);
  return py_answer ? 0 : -1;
}

PyDoc_STRVAR(environ_watch_doc,
             "environ_watch(callable: Callable[[], Any] | None, /) -> bool\n\nCall it (no arguments; None: nothing) at "
             "the first operator after a variable of the operator tools changed. False when changes cannot be seen: an "
             "audit hook of the program refused ours.");
static PyObject *py_environ_watch(PyObject *module, PyObject *argument) {
  (void)module;
  if (argument != Py_None && !PyCallable_Check(argument)) {
    return PyErr_Format(PyExc_TypeError, "environ_watch needs a callable or None, not %R", argument);
  }
  if (argument != Py_None && hook_install() < 0) {
    return NULL;
  }
  PyObject *py_old = py_callback;
  py_callback = argument == Py_None ? NULL : Py_NewRef(argument);
  Py_XDECREF(py_old);
  return PyBool_FromLong(atomic_load(&hook_is_live));
}

PyDoc_STRVAR(environ_listen_doc,
             "environ_listen(names: frozenset[bytes], function: Callable[[bytes, bytes | None], Any] | None, /) -> "
             "bool\n\nCall it with the name and the new value (None: it was removed) soon after one of these variables "
             "changed; None: nobody listens any more. False when changes cannot be seen.");
static PyObject *py_environ_listen(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *names = NULL, *function = NULL;
  if (!PyArg_ParseTuple(args, "O!O:environ_listen", &PyFrozenSet_Type, &names, &function)) {
    return NULL;
  }
  if (function != Py_None && !PyCallable_Check(function)) {
    return PyErr_Format(PyExc_TypeError, "environ_listen needs a callable or None, not %R", function);
  }
  if ((function != Py_None && hook_install() < 0) || (!py_changes && !(py_changes = PyList_New(0)))) {
    return NULL;
  }
  Py_XSETREF(py_names, Py_NewRef(names));
  Py_XSETREF(py_listener, function == Py_None ? NULL : Py_NewRef(function));
  return PyBool_FromLong(atomic_load(&hook_is_live));
}

static PyObject *py_environ_generation(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromUnsignedLongLong(atomic_load_explicit(&engine_environ_generation, memory_order_relaxed));
}

static PyObject *py_environ_refresh(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (engine_environ_refresh() < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *py_environ_changed(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(engine_environ_changed());
}

PyMethodDef py_environ_methods[] = {
    {"environ_watch", py_environ_watch, METH_O, environ_watch_doc},
    {"environ_listen", py_environ_listen, METH_VARARGS, environ_listen_doc},
    {"environ_changed", py_environ_changed, METH_NOARGS,
     "environ_changed() -> bool\n\nWhether a variable of the tools changed since the last refresh."},
    {"environ_generation", py_environ_generation, METH_NOARGS,
     "environ_generation() -> int\n\nChanges of the tools' variables seen so far."},
    {"environ_refresh", py_environ_refresh, METH_NOARGS,
     "environ_refresh() -> None\n\nWhat the engine does after a change."},
    {NULL, NULL, 0, NULL},
};
