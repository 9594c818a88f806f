// Bindings of dit/memory_check.h: the memory checker, and the Python line that an allocation comes from.
#include "dit/memory.h"
#include "dit/memory_check.h"
#include "dit/options.h"
#include "module.h"

// Where the program is

static bool is_finalizing(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

static bool frame_describe(char *text, size_t size) {
  PyFrameObject *frame = PyEval_GetFrame();
  if (!frame) {
    return false;
  }
  PyCodeObject *py_code = PyFrame_GetCode(frame);
  const char *file = PyUnicode_AsUTF8(py_code->co_filename);
  const char *name = file ? PyUnicode_AsUTF8(py_code->co_name) : NULL;
  if (name) {
    snprintf(text, size, "%s:%d in %s", file, PyFrame_GetLineNumber(frame), name);
  }
  py_error_drop();
  Py_DECREF(py_code);
  return name != NULL;
}

// Allocations come from inside operators, which dropped the GIL: it is taken for a moment, as PyTorch's own recording
// of memory history does. Threads that Python does not know have no Python line.
static bool place_locate(char *text, size_t size) {
  if (!Py_IsInitialized() || is_finalizing() || !PyGILState_GetThisThreadState()) {
    return false;
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *py_type, *py_value, *py_traceback;  // an allocation may come while an exception is on its way
  PyErr_Fetch(&py_type, &py_value, &py_traceback);
  bool found = frame_describe(text, size);
  PyErr_Restore(py_type, py_value, py_traceback);
  PyGILState_Release(gil);
  return found;
}

// The checker

PyDoc_STRVAR(check_start_doc,
             "memory_check_start(backtrace: bool, max_blocks: int, interval: int, guard: int, /) -> None\n\nWatch "
             "every block of device and pinned memory that is allocated from now on.");
static PyObject *py_check_start(PyObject *module, PyObject *args) {
  int backtrace = 0;
  unsigned long long max_blocks = 0, interval = 0;
  Py_ssize_t guard = 0;
  if (!PyArg_ParseTuple(args, "pKKn:memory_check_start", &backtrace, &max_blocks, &interval, &guard)) {
    return NULL;
  }
  if (guard < 0) {
    return PyErr_Format(PyExc_ValueError, "guard is %zd; it must not be negative", guard);
  }
  struct dit_memory_check_options options = {backtrace != 0, max_blocks, interval, (size_t)guard};
  struct dit_error err = {0};
  dit_memory_check_set_locator(place_locate);
  return py_status_return(module, dit_memory_check_start(&options, &err), &err);
}

static PyObject *py_check_stop(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  dit_memory_check_stop();
  Py_RETURN_NONE;
}

static PyObject *py_check_is_on(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(dit_memory_check_is_on());
}

#define STATE_NUMBERS(X) \
  X(blocks)              \
  X(bytes)               \
  X(inserts) X(damaged) X(double_frees) X(unknown_frees) X(unknown_copies) X(stray_accesses)

PyDoc_STRVAR(check_state_doc,
             "memory_check_state() -> dict[str, Any]\n\nEvery field of struct dit_memory_check_state.");
static PyObject *py_check_state(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct dit_memory_check_state state = {0};
  dit_memory_check_get_state(&state);
  PyObject *py_result = PyDict_New();
  if (!py_result) {
    return NULL;
  }
  int failed = 0;
#define STATE_ADD(field) \
  failed = failed < 0 ? failed : py_dict_take(py_result, #field, PyLong_FromUnsignedLongLong(state.field));
  STATE_NUMBERS(STATE_ADD)
#undef STATE_ADD
  if (failed < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

static PyObject *frames_describe(const struct dit_memory_check_block *block) {
  PyObject *py_frames = PyList_New(block->depth);
  for (int i = 0; py_frames && i < block->depth; i++) {
    char text[512];
    dit_memory_check_describe_frame(block->frames[i], text, sizeof(text));
    PyObject *py_text = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!py_text) {
      Py_CLEAR(py_frames);
      break;
    }
    PyList_SET_ITEM(py_frames, i, py_text);
  }
  return py_frames;
}

static bool block_add(void *context, const struct dit_memory_check_block *block) {
  PyObject *list = context;
  PyObject *py_frames = frames_describe(block);
  PyObject *py_place =
      py_frames ? PyUnicode_DecodeUTF8(block->place, (Py_ssize_t)strlen(block->place), "replace") : NULL;
  if (!py_place) {
    Py_XDECREF(py_frames);
    return false;
  }
  PyObject *py_block =
      Py_BuildValue("{s:N,s:n,s:i,s:L,s:K,s:N,s:N}", "address", PyLong_FromVoidPtr((void *)(uintptr_t)block->address),
                    "size", (Py_ssize_t)block->size, "device", block->device, "stream", (long long)block->stream,
                    "number", (unsigned long long)block->number, "place", py_place, "frames", py_frames);
  int result = py_block ? PyList_Append(list, py_block) : -1;
  Py_XDECREF(py_block);
  return result == 0;
}

PyDoc_STRVAR(check_blocks_doc,
             "memory_check_blocks(since: int = 0, /) -> list[dict[str, Any]]\n\nThe live blocks whose allocation "
             "number is above `since`: address, size, device (-1: pinned), stream, number, place, frames.");
static PyObject *py_check_blocks(PyObject *module, PyObject *args) {
  unsigned long long since = 0;
  if (!PyArg_ParseTuple(args, "|K:memory_check_blocks", &since)) {
    return NULL;
  }
  PyObject *py_list = PyList_New(0);
  if (!py_list) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status = dit_memory_check_visit(since, block_add, py_list, &err);
  if (status != DIT_OK && !PyErr_Occurred()) {
    (void)py_status_raise(module, status, &err);
  }
  if (PyErr_Occurred()) {
    Py_CLEAR(py_list);
  }
  return py_list;
}

PyDoc_STRVAR(check_verify_doc,
             "memory_check_verify() -> int\n\nWait for the devices and look at all guard zones; the number of damaged "
             "ones that were not reported before.");
static PyObject *py_check_verify(PyObject *module, PyObject *unused) {
  (void)unused;
  uint64_t damaged = 0;
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_memory_check_verify(&damaged, &err);
  Py_END_ALLOW_THREADS;
  return status == DIT_OK ? PyLong_FromUnsignedLongLong(damaged) : py_status_raise(module, status, &err);
}

static PyObject *py_check_report(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  Py_BEGIN_ALLOW_THREADS;
  dit_memory_check_report();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

// Options and algorithms

PyDoc_STRVAR(apply_options_doc,
             "memory_apply_options() -> None\n\nPut the options about memory in force, after they changed.");
static PyObject *py_memory_apply_options(PyObject *module, PyObject *unused) {
  (void)unused;
  struct dit_error err = {0};
  enum dit_status status;
  dit_memory_check_set_locator(place_locate);
  Py_BEGIN_ALLOW_THREADS;
  status = dit_memory_apply_options(&err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

static PyObject *py_memory_get_algorithm(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyUnicode_FromString(dit_algorithm_get_name(dit_memory_get_algorithm()));
}

PyDoc_STRVAR(option_aliases_doc,
             "option_aliases() -> list[tuple[str, str, str]]\n\nVariables of DIPU that set options of ditorch.");
static PyObject *py_option_aliases(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *py_list = PyList_New(0);
  const struct dit_option_alias *alias;
  for (int i = 0; py_list && (alias = dit_option_get_alias(i)); i++) {
    PyObject *py_row = Py_BuildValue("(sss)", alias->variable, alias->option, alias->unit);
    int result = py_row ? PyList_Append(py_list, py_row) : -1;
    Py_XDECREF(py_row);
    if (result < 0) {
      Py_CLEAR(py_list);
    }
  }
  return py_list;
}

PyMethodDef py_memory_check_methods[] = {
    {"memory_check_start", py_check_start, METH_VARARGS, check_start_doc},
    {"memory_check_stop", py_check_stop, METH_NOARGS, "memory_check_stop() -> None\n\nLater blocks are not watched."},
    {"memory_check_is_on", py_check_is_on, METH_NOARGS, "memory_check_is_on() -> bool"},
    {"memory_check_state", py_check_state, METH_NOARGS, check_state_doc},
    {"memory_check_blocks", py_check_blocks, METH_VARARGS, check_blocks_doc},
    {"memory_check_verify", py_check_verify, METH_NOARGS, check_verify_doc},
    {"memory_check_report", py_check_report, METH_NOARGS,
     "memory_check_report() -> None\n\nWrite the report that comes at exit."},
    {"memory_apply_options", py_memory_apply_options, METH_NOARGS, apply_options_doc},
    {"memory_get_algorithm", py_memory_get_algorithm, METH_NOARGS,
     "memory_get_algorithm() -> str\n\ntorch, bf, bs or raw."},
    {"option_aliases", py_option_aliases, METH_NOARGS, option_aliases_doc},
    {NULL, NULL, 0, NULL},
};
