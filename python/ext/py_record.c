// Bindings of dit/ledger.h, conversion.h, op.h, fault.h, log.h, version.h and parallel.h: what ran, what to break, what
// to say.
#include <stdio.h>
#include <string.h>

#include "dit/conversion.h"
#include "dit/diopi.h"
#include "dit/dtype.h"
#include "dit/fault.h"
#include "dit/ledger.h"
#include "dit/log.h"
#include "dit/op.h"
#include "dit/version.h"
#include "module.h"

#if defined(__has_include)
#if __has_include("dit/parallel.h")
#include "dit/parallel.h"
#define HAVE_PARALLEL 1
#endif
#endif

// Ledger

static PyObject *kind_describe(const struct dit_ledger_row *row, enum dit_ledger_kind kind) {
  return Py_BuildValue("{s:K,s:K,s:K}", "calls", (unsigned long long)row->calls[kind], "bytes",
                       (unsigned long long)row->bytes[kind], "nanoseconds", (unsigned long long)row->nanoseconds[kind]);
}

static PyObject *rows_describe(const struct dit_ledger_row *rows, int count) {
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyObject *py_row = Py_BuildValue("{s:s,s:N,s:N}", "name", rows[i].name, "c", kind_describe(&rows[i], DIT_LEDGER_C),
                                     "fallback", kind_describe(&rows[i], DIT_LEDGER_FALLBACK));
    if (!py_row) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_row);
  }
  return py_list;
}

PyDoc_STRVAR(
    ledger_doc,
    "ledger() -> list[dict[str, Any]]\n\nMost calls first: name, c and fallback, each with calls, bytes, nanoseconds.");
static PyObject *py_ledger_read(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct dit_ledger_row *rows = NULL;
  int capacity = 0, count = dit_ledger_read(NULL, 0);
  while (count > capacity) {  // other threads may add operators in between
    capacity = count + 16;
    struct dit_ledger_row *grown = PyMem_Realloc(rows, (size_t)capacity * sizeof *rows);
    if (!grown) {
      PyMem_Free(rows);
      return PyErr_NoMemory();
    }
    rows = grown;
    count = dit_ledger_read(rows, capacity);
  }
  PyObject *py_list = rows_describe(rows, count);
  PyMem_Free(rows);
  return py_list;
}

static PyObject *pairs_describe(const struct dit_conversions *did) {
  PyObject *py_pairs = PyDict_New();
  for (int i = 0; py_pairs && i < did->pair_count; i++) {
    const struct dit_conversion_pair *pair = &did->pairs[i];
    char name[64] = "other";
    if (pair->from >= 0) {
      snprintf(name, sizeof name, "%s->%s", dit_dtype_get_name(pair->from), dit_dtype_get_name(pair->to));
    }
    PyObject *py_count = PyLong_FromUnsignedLongLong(pair->tensors);
    if (!py_count || PyDict_SetItemString(py_pairs, name, py_count) != 0) {
      Py_CLEAR(py_pairs);
    }
    Py_XDECREF(py_count);
  }
  return py_pairs;
}

PyDoc_STRVAR(conversions_doc,
             "conversions() -> dict[str, dict[str, Any]]\n\nWhat the adaptor did, by operator: converted, composed "
             "(calls), layouts, written (tensors), dtypes ('float16->float32' to the number of tensors).");
static PyObject *py_conversions(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  const int capacity = dit_conversion_read(NULL, 0) + 16;
  struct dit_conversion_row *rows = PyMem_Calloc((size_t)capacity, sizeof *rows);
  PyObject *py_rows = rows ? PyDict_New() : PyErr_NoMemory();
  const int count = rows ? dit_conversion_read(rows, capacity) : 0;
  for (int i = 0; py_rows && i < (count < capacity ? count : capacity); i++) {
    const struct dit_conversions *did = &rows[i].did;
    PyObject *py_row =
        Py_BuildValue("{s:K,s:K,s:K,s:K,s:N}", "converted", (unsigned long long)did->converted, "composed",
                      (unsigned long long)did->composed, "layouts", (unsigned long long)did->layouts, "written",
                      (unsigned long long)did->written, "dtypes", pairs_describe(did));
    if (!py_row || PyDict_SetItemString(py_rows, rows[i].name, py_row) != 0) {
      Py_CLEAR(py_rows);
    }
    Py_XDECREF(py_row);
  }
  PyMem_Free(rows);
  return py_rows;
}

static PyObject *py_ledger_reset(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  dit_ledger_reset();
  Py_RETURN_NONE;
}

static PyObject *py_ledger_set_timing(PyObject *module, PyObject *argument) {
  (void)module;
  int on = PyObject_IsTrue(argument);
  if (on < 0) {
    return NULL;
  }
  dit_ledger_set_timing(on != 0);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(operators_c_doc,
             "operators_c() -> list[str]\n\nThe operators implemented in C: 'aten::add.Tensor', 'aten::relu'.");
static PyObject *py_operators_list(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  int count = 0;
  const struct dit_op *table = dit_op_get_table(&count);
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    const char *overload = table[i].overload ? table[i].overload : "";
    PyObject *py_name = PyUnicode_FromFormat("%s%s%s", table[i].name, overload[0] ? "." : "", overload);
    if (!py_name) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_name);
  }
  return py_list;
}

PyDoc_STRVAR(operators_diopi_doc,
             "operators_diopi() -> dict[str, str]\n\nThe DIOPI function behind each operator of operators_c() that has "
             "one: {'aten::relu': 'diopiRelu'}. Others, such as its form for numbers, may be used as well.");
static PyObject *py_operators_diopi(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  int count = 0;
  const struct dit_op *table = dit_op_get_table(&count);
  PyObject *py_result = PyDict_New();
  for (int i = 0; py_result && i < count; i++) {
    if (table[i].function <= 0) {
      continue;
    }
    const char *overload = table[i].overload ? table[i].overload : "";
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", table[i].name, overload[0] ? "." : "", overload);
    const char *function = dit_diopi_get_functions(NULL)[table[i].function].name;
    if (py_dict_take(py_result, name, PyUnicode_FromString(function)) < 0) {
      Py_CLEAR(py_result);
    }
  }
  return py_result;
}

// Faults

PyDoc_STRVAR(fault_configure_doc,
             "fault_configure(text: str | None, /) -> str\n\nReplace the rules of the fault hook; None or '' removes "
             "them all. Returns what the user should be told: rules that match no operator.");
static PyObject *py_fault_configure(PyObject *module, PyObject *argument) {
  const char *text = NULL;
  if (py_optional_text(argument, "the fault rules", &text) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  char warning[1024];
  PyObject *py_done = py_status_return(module, dit_fault_configure(text, &err), &err);
  if (!py_done) {
    return NULL;
  }
  Py_DECREF(py_done);
  dit_fault_get_warning(warning, sizeof warning);
  return PyUnicode_FromString(warning);
}

static PyObject *py_fault_idle(PyObject *module, PyObject *unused) {
  char text[1024];
  (void)module;
  (void)unused;
  dit_fault_list_idle(text, sizeof text);
  return PyUnicode_FromString(text);
}

static PyObject *py_fault_count(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromUnsignedLongLong(dit_fault_get_count());
}

// Log, version, threads

PyDoc_STRVAR(log_set_level_doc, "log_set_level(name: str, /) -> None\n\n'debug', 'info', 'warning', 'error' or 'off'.");
static PyObject *py_log_set_level(PyObject *module, PyObject *args) {
  (void)module;
  static const char *const names[] = {"debug", "info", "warning", "error", "off"};
  const char *name = NULL;
  if (!PyArg_ParseTuple(args, "s:log_set_level", &name)) {
    return NULL;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) == 0) {
      dit_log_set_level((enum dit_log_level)i);
      Py_RETURN_NONE;
    }
  }
  return PyErr_Format(PyExc_ValueError, "log level '%s' is unknown; valid: debug, info, warning, error, off", name);
}

static PyObject *py_version_get(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyUnicode_FromString(dit_version_get());
}

#ifdef HAVE_PARALLEL
static PyObject *py_threads_get(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLong(dit_parallel_get_threads());
}

static PyObject *py_threads_set(PyObject *module, PyObject *args) {
  int count = 0;
  (void)module;
  if (!PyArg_ParseTuple(args, "i:set_num_threads", &count)) {
    return NULL;
  }
  if (count < 0 || count > 1024) {
    return PyErr_Format(PyExc_ValueError, "number of threads is %d; valid: 1 to 1024, or 0 for the default", count);
  }
  Py_BEGIN_ALLOW_THREADS;
  dit_parallel_set_threads(count);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}
#endif

PyMethodDef py_record_methods[] = {
    {"ledger", py_ledger_read, METH_NOARGS, ledger_doc},
    {"conversions", py_conversions, METH_NOARGS, conversions_doc},
    {"ledger_reset", py_ledger_reset, METH_NOARGS, "ledger_reset() -> None\n\nForget all counts."},
    {"ledger_set_timing", py_ledger_set_timing, METH_O,
     "ledger_set_timing(on: bool, /) -> None\n\nAlso take the times of C operators."},
    {"operators_diopi", py_operators_diopi, METH_NOARGS, operators_diopi_doc},
    {"operators_c", py_operators_list, METH_NOARGS, operators_c_doc},
    {"fault_configure", py_fault_configure, METH_O, fault_configure_doc},
    {"fault_idle", py_fault_idle, METH_NOARGS,
     "fault_idle() -> str\n\nRules that have not acted since the last configure, and why, once operators have run."},
    {"fault_count", py_fault_count, METH_NOARGS, "fault_count() -> int\n\nFaults injected since the last configure."},
    {"log_set_level", py_log_set_level, METH_VARARGS, log_set_level_doc},
    {"version", py_version_get, METH_NOARGS, "version() -> str\n\nOf libdit."},
#ifdef HAVE_PARALLEL
    {"num_threads", py_threads_get, METH_NOARGS, "num_threads() -> int\n\nThreads of the C operators."},
    {"set_num_threads", py_threads_set, METH_VARARGS, "set_num_threads(count: int, /) -> None\n\n0 is the default."},
#endif
    {NULL, NULL, 0, NULL},
};
