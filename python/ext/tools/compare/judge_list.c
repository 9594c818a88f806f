// What the judge does with the operator table: lengths of sums, indices, results that are not unique.
#include <math.h>
#include <stdarg.h>

#include "tools/compare/judge.h"

// ---- the length of sums

double judge_get_length(const struct compare_case *c, enum compare_what what, const struct dit_operator *entry,
                        int64_t numel, bool mixes) {
  double first = 0, second = 0, longest = 1;
  for (int i = 0; i < c->twin_count; i++) {
    struct engine_tensor info;
    engine_tensor_read(c->twins[i], &info);
    double elements = (double)info.numel, last = info.ndim > 0 ? (double)info.sizes[info.ndim - 1] : 1;
    longest = fmax(longest, fmax(last, last > 0 ? elements / last : 0));
    engine_tensor_reset(&info);
    if (elements > first) {
      second = first;
      first = elements;
    } else if (elements > second) {
      second = elements;
    }
  }
  double out = numel > 0 ? (double)numel : 1, length = first / out;
  if (entry && entry->traits & DIT_OPERATOR_CONTRACTION) {
    // [m, k] x [k, n]: k = sqrt(mk * kn / mn). Of gradients it is m or n: an extent of an argument, or its rows.
    length = fmax(length, what == COMPARE_GRAD ? longest : sqrt(first * second / out));
  }
  return fmax(1, mixes ? fmax(length, longest) : length);
}

// ---- indices

// The argument `dim`: by place or by name; None when it is not given. New reference or NULL.
static PyObject *dim_get(const struct compare_case *c, const struct dit_operator *entry) {
  PyObject *value = c->py_kwargs ? PyDict_GetItemString(c->py_kwargs, "dim") : NULL;
  if (!value && entry->dim >= 0 && PyTuple_GET_SIZE(c->py_args) > entry->dim) {
    value = PyTuple_GET_ITEM(c->py_args, entry->dim);
  }
  return Py_NewRef(value && PyLong_Check(value) && !PyBool_Check(value) ? value : Py_None);
}

PyObject *judge_helper_call(const char *function, const char *format, ...) {
  static PyObject *py_module;
  if (!py_module && !(py_module = PyImport_ImportModule("op_tools.judging"))) {
    return NULL;
  }
  va_list arguments;
  va_start(arguments, format);
  PyObject *py_args = Py_VaBuildValue(format, arguments);
  va_end(arguments);
  if (py_args && !PyTuple_Check(py_args)) {
    PyObject *py_one = PyTuple_Pack(1, py_args);
    Py_SETREF(py_args, py_one);
  }
  PyObject *py_function = py_args ? PyObject_GetAttrString(py_module, function) : NULL;
  PyObject *py_result = py_function ? PyObject_CallObject(py_function, py_args) : NULL;
  Py_XDECREF(py_function);
  Py_XDECREF(py_args);
  return py_result;
}

int judge_scatter_check(struct compare_case *c, const struct dit_operator *entry) {
  PyObject *py_repeats =
      judge_helper_call("has_repeats", "sOO", entry->name, c->py_args, c->py_kwargs ? c->py_kwargs : Py_None);
  int answer = py_repeats ? PyObject_IsTrue(py_repeats) : -1;
  Py_XDECREF(py_repeats);
  return answer;
}

int judge_ties_check(struct compare_case *c, const struct dit_operator *entry) {
  if (c->twin_count == 0) {
    return 0;
  }
  PyObject *py_dim = dim_get(c, entry);
  PyObject *py_ties = judge_helper_call("has_ties", "sOO", entry->name, c->twins[0], py_dim);
  Py_DECREF(py_dim);
  int ties = py_ties ? PyObject_IsTrue(py_ties) : -1;
  Py_XDECREF(py_ties);
  return ties;
}

int judge_index_check(struct compare_case *c, const struct dit_operator *entry, PyObject *device, PyObject *reference) {
  if (c->twin_count == 0) {
    return 0;
  }
  PyObject *py_dim = dim_get(c, entry);
  PyObject *py_same = judge_helper_call("point_alike", "sOOOO", entry->name, c->twins[0], py_dim, device, reference);
  Py_DECREF(py_dim);
  int same = py_same ? PyObject_IsTrue(py_same) : -1;
  Py_XDECREF(py_same);
  return same;
}
