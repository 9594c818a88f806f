// The mode's place on this thread's mode stacks; the backward pass; the path of modules; threads.
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"
#include "py_call.h"

#define MODULE_DEPTH 64

static _Thread_local struct {
  int torch_pushed, aten_pushed;  // how often the mode is on this thread's stacks
  uint32_t modules[MODULE_DEPTH];
  PyObject *py_paths[MODULE_DEPTH];  // owned
  int module_depth;
} thread;

static int backward_runs;  // in all threads; under the GIL

static int stack_push(bool aten, PyObject *mode) {
  return py_call_none(aten ? torch_names.py_dispatch_push : torch_names.py_function_push, mode);
}

static PyObject *stack_pop(bool aten) {
  return aten ? PyObject_CallOneArg(torch_names.py_dispatch_pop, Py_None)
              : PyObject_CallNoArgs(torch_names.py_function_pop);
}

// Take our mode off wherever it is; modes above it (a user's, a device context) go back in their order.
static int stack_remove(bool aten) {
  PyObject *mode = engine_mode_get();
  PyObject *py_above = PyList_New(0);
  int status = py_above ? 0 : -1;
  bool found = false;
  while (status == 0 && !found) {
    PyObject *py_top = stack_pop(aten);
    if (!py_top) {
      py_error_drop();  // an empty stack: somebody else took it
      break;
    }
    found = py_top == mode;
    status = found ? 0 : PyList_Append(py_above, py_top);
    Py_DECREF(py_top);
  }
  for (Py_ssize_t i = py_above ? PyList_GET_SIZE(py_above) - 1 : -1; i >= 0; i--) {
    if (stack_push(aten, PyList_GET_ITEM(py_above, i)) < 0) {
      status = -1;
    }
  }
  Py_XDECREF(py_above);
  return status;
}

PyObject *engine_dispatch_modes_take(void) {
  PyObject *py_modes = PyList_New(0), *py_top = NULL;
  while (py_modes && py_call_is_true(torch_names.py_dispatch_length, NULL) && (py_top = stack_pop(true))) {
    if (PyList_Append(py_modes, py_top) < 0) {
      (void)!stack_push(true, py_top);
      Py_DECREF(py_top);
      break;
    }
    Py_DECREF(py_top);
  }
  py_error_drop();
  return py_modes;
}

void engine_dispatch_modes_return(PyObject *py_modes) {
  if (!py_modes) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  for (Py_ssize_t i = PyList_GET_SIZE(py_modes) - 1; i >= 0; i--) {
    (void)!stack_push(true, PyList_GET_ITEM(py_modes, i));
    py_error_drop();
  }
  Py_DECREF(py_modes);
  PyErr_Restore(kind, value, traceback);
}

static int level_push(bool aten) {
  int *pushed = aten ? &thread.aten_pushed : &thread.torch_pushed;
  if (*pushed == 0 && (!engine_mode_get() || stack_push(aten, engine_mode_get()) < 0)) {
    return -1;
  }
  ++*pushed;
  return 0;
}

static int level_pop(bool aten) {
  int *pushed = aten ? &thread.aten_pushed : &thread.torch_pushed;
  if (*pushed == 0 || --*pushed > 0) {
    return 0;
  }
  return stack_remove(aten);
}

int engine_mode_enter(bool aten) {
  return level_push(aten);
}

int engine_mode_leave(bool aten) {
  return level_pop(aten);
}

uint32_t engine_mode_get_tools(void) {
  return (thread.torch_pushed > 0 ? engine_state.active_torch : 0) |
         (thread.aten_pushed > 0 ? engine_state.active_aten : 0);
}

// The backward pass

bool engine_is_in_backward(void) {
  return backward_runs > 0 && engine_backward_is_running();
}

PyDoc_STRVAR(
    backward_enter_doc,
    "backward_enter() -> bool\n\nPut the mode back on the stack for a run of the autograd engine that was started "
    "from inside a torch function (torch has taken it off). Returns whether it was pushed; hand the answer to "
    "backward_leave.");
static PyObject *py_backward_enter(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  bool wanted = engine_state.active_torch && !engine_guard_is_up() && thread.torch_pushed > 0;
  // Only when the call came through the mode: otherwise it is still on the stack.
  if (wanted) {
    long length = py_call_long(torch_names.py_stack_length);
    py_error_drop();
    PyObject *py_at = NULL;
    for (long i = 0; wanted && i < length; i++) {
      PyObject *py_index = PyLong_FromLong(i);
      py_at = py_index ? PyObject_CallOneArg(torch_names.py_function_at, py_index) : NULL;
      Py_XDECREF(py_index);
      wanted = !py_at || py_at != engine_mode_get();
      Py_XDECREF(py_at);
      py_error_drop();
    }
  }
  if (wanted && stack_push(false, engine_mode_get()) < 0) {
    return NULL;
  }
  backward_runs++;
  return PyBool_FromLong(wanted);
}

static PyObject *py_backward_leave(PyObject *module, PyObject *pushed) {
  (void)module;
  backward_runs -= backward_runs > 0;
  if (pushed == Py_True && stack_remove(false) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// Modules

uint32_t engine_module_get(void) {
  return thread.module_depth > 0 && thread.module_depth <= MODULE_DEPTH ? thread.modules[thread.module_depth - 1] : 0;
}

PyObject *engine_module_get_path(void) {
  return engine_module_get() ? thread.py_paths[thread.module_depth - 1] : NULL;
}

void engine_modules_note(struct engine_modules *modules, uint32_t module) {
  if (!module || engine_modules_get(modules, module)) {
    return;
  }
  if (module >= modules->count) {
    size_t count = (size_t)module + 64;
    PyObject **grown = PyMem_Realloc(modules->py_paths, count * sizeof(PyObject *));
    if (!grown) {
      return;
    }
    memset(grown + modules->count, 0, (count - modules->count) * sizeof *grown);
    modules->py_paths = grown;
    modules->count = count;
  }
  modules->py_paths[module] = Py_XNewRef(engine_module_get_path());
}

PyObject *engine_modules_get(const struct engine_modules *modules, uint32_t module) {
  return module < modules->count ? modules->py_paths[module] : NULL;
}

void engine_modules_reset(struct engine_modules *modules) {
  for (size_t i = 0; i < modules->count; i++) {
    Py_XDECREF(modules->py_paths[i]);
  }
  PyMem_Free(modules->py_paths);
  *modules = (struct engine_modules){0};
}

PyDoc_STRVAR(module_push_doc,
             "engine_module_push(path: str, /) -> None\n\nThe forward of this module begins on this thread.");
static PyObject *py_module_push(PyObject *module, PyObject *path) {
  (void)module;
  Py_ssize_t size = 0;
  const char *text = PyUnicode_Check(path) ? PyUnicode_AsUTF8AndSize(path, &size) : NULL;
  uint32_t key = 0;
  if (!text) {
    return PyErr_Format(PyExc_TypeError, "the path of a module is a str, not %s", Py_TYPE(path)->tp_name);
  }
  if (dit_record_intern(text, (size_t)size, &key, NULL) != DIT_OK) {
    key = 0;
  }
  if (thread.module_depth < MODULE_DEPTH) {
    thread.modules[thread.module_depth] = key;
    thread.py_paths[thread.module_depth] = Py_NewRef(path);
  }
  thread.module_depth++;
  Py_RETURN_NONE;
}

static PyObject *py_module_pop(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (thread.module_depth > 0 && --thread.module_depth < MODULE_DEPTH) {
    Py_CLEAR(thread.py_paths[thread.module_depth]);
  }
  Py_RETURN_NONE;
}

// Bindings

static PyObject *py_mode_push(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (engine_torch_load() < 0 || (engine_state.active_torch && level_push(false) < 0) ||
      (engine_state.active_aten && level_push(true) < 0)) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *py_mode_pop(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if ((thread.torch_pushed && level_pop(false) < 0) || (thread.aten_pushed && level_pop(true) < 0)) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *py_mode_is_on(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(thread.torch_pushed || thread.aten_pushed);
}

PyMethodDef py_stack_methods[] = {
    {"mode_push", py_mode_push, METH_NOARGS, "mode_push() -> None\n\nShow this thread's calls to the active tools."},
    {"mode_pop", py_mode_pop, METH_NOARGS, "mode_pop() -> None\n\nUndo mode_push."},
    {"mode_is_on", py_mode_is_on, METH_NOARGS, "mode_is_on() -> bool\n\nAre this thread's calls shown to tools?"},
    {"backward_enter", py_backward_enter, METH_NOARGS, backward_enter_doc},
    {"backward_leave", py_backward_leave, METH_O, "backward_leave(pushed: bool, /) -> None\n\nThe run ended."},
    {"engine_module_push", py_module_push, METH_O, module_push_doc},
    {"engine_module_pop", py_module_pop, METH_NOARGS, "engine_module_pop() -> None\n\nIts forward ended."},
    {NULL, NULL, 0, NULL},
};
