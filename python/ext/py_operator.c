// Bindings of dit/operator.h: rows of the operator table as dicts.
#include <math.h>

#include "dit/operator.h"
#include "dit/operator_name.h"
#include "module.h"

static PyObject *traits_describe(uint64_t traits) {
  PyObject *py_traits = PyFrozenSet_New(NULL);
  const char *name;
  for (int bit = 0; py_traits && (name = dit_operator_trait_get_name(bit)); bit++) {
    PyObject *py_name = traits >> bit & 1 ? PyUnicode_InternFromString(name) : Py_NewRef(Py_None);
    if (!py_name || (py_name != Py_None && PySet_Add(py_traits, py_name) < 0)) {
      Py_CLEAR(py_traits);
    }
    Py_XDECREF(py_name);
  }
  return py_traits;
}

// The numbers of the bits; None for all of them.
static PyObject *results_describe(uint32_t bits) {
  int64_t numbers[32];
  int count = 0;
  for (int bit = 0; bit < 32; bit++) {
    if (bits >> bit & 1) {
      numbers[count++] = bit;
    }
  }
  return bits == DIT_OPERATOR_ALL ? Py_NewRef(Py_None) : py_numbers_pack(numbers, count);
}

static PyObject *place_describe(int place) {
  return place < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(place);
}

static PyObject *dim_describe(int dim) {
  return dim == DIT_OPERATOR_FIRST    ? PyUnicode_FromString("first")
         : dim == DIT_OPERATOR_PLANE  ? PyUnicode_FromString("plane")
         : dim == DIT_OPERATOR_VOLUME ? PyUnicode_FromString("volume")
                                      : place_describe(dim);
}

static PyObject *number_describe(double number) {
  return isnan(number) ? Py_NewRef(Py_None) : PyFloat_FromDouble(number);
}

static PyObject *writes_describe(const struct dit_operator *row) {
  if (row->writes_count == 0) {
    return Py_NewRef(Py_None);
  }
  return Py_BuildValue("(ii)", row->writes_first, row->writes_count);
}

static PyObject *text_describe(const char *text) {
  return text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
}

static PyObject *row_describe(const struct dit_operator *row, uint64_t traits) {
  static const char *const draws[] = {NULL, "continuous", "discrete", "dropout", "alpha", "permutation"};
  static const char *const lengths[] = {NULL, "shared", "ratio", "window"};
  PyObject *py_row = PyDict_New();
  if (py_row && (py_dict_take(py_row, "name", text_describe(row->name)) < 0 ||
                 py_dict_take(py_row, "traits", traits_describe(traits)) < 0 ||
                 py_dict_take(py_row, "dim", dim_describe(row->dim)) < 0 ||
                 py_dict_take(py_row, "index", place_describe(row->index)) < 0 ||
                 py_dict_take(py_row, "places", place_describe(row->places)) < 0 ||
                 py_dict_take(py_row, "sorted", place_describe(row->sorted)) < 0 ||
                 py_dict_take(py_row, "loose", results_describe(row->loose)) < 0 ||
                 py_dict_take(py_row, "private", results_describe(row->private_results)) < 0 ||
                 py_dict_take(py_row, "draw", text_describe(draws[row->draw])) < 0 ||
                 py_dict_take(py_row, "channels", PyLong_FromLong(row->channels)) < 0 ||
                 py_dict_take(py_row, "low", number_describe(row->low)) < 0 ||
                 py_dict_take(py_row, "high", number_describe(row->high)) < 0 ||
                 py_dict_take(py_row, "length", text_describe(lengths[row->length])) < 0 ||
                 py_dict_take(py_row, "writes", writes_describe(row)) < 0 ||
                 py_dict_take(py_row, "writes_if", place_describe(row->writes_if)) < 0 ||
                 py_dict_take(py_row, "writes_default", PyBool_FromLong(row->writes_default)) < 0 ||
                 py_dict_take(py_row, "castable", PyLong_FromLong(row->castable)) < 0 ||
                 py_dict_take(py_row, "unless", text_describe(row->unless)) < 0 ||
                 py_dict_take(py_row, "unless_place", place_describe(row->unless_place)) < 0 ||
                 py_dict_take(py_row, "reason", text_describe(row->reason)) < 0)) {
    Py_CLEAR(py_row);
  }
  return py_row;
}

PyDoc_STRVAR(
    operator_find_doc,
    "operator_find(name) -> dict | None\n\nWhat the operator table (standard/operators.tsv) knows about a name "
    "of any spelling; the traits are those of exactly this name. None: nothing.");
static PyObject *py_operator_find(PyObject *module, PyObject *argument) {
  (void)module;
  if (!PyUnicode_Check(argument)) {
    PyErr_Format(PyExc_TypeError, "name is a str, not %s", Py_TYPE(argument)->tp_name);
    return NULL;
  }
  const char *name = PyUnicode_AsUTF8(argument);
  if (!name) {
    return NULL;
  }
  const struct dit_operator *row = dit_operator_find(name);
  return row ? row_describe(row, dit_operator_get_traits(name)) : Py_NewRef(Py_None);
}

static PyObject *py_operator_list(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *py_words = PyList_New(0);
  const char *word;
  for (size_t i = 0; py_words && (word = dit_operator_get_name(i)); i++) {
    PyObject *py_word = PyUnicode_FromString(word);
    if (!py_word || PyList_Append(py_words, py_word) < 0) {
      Py_CLEAR(py_words);
    }
    Py_XDECREF(py_word);
  }
  return py_words;
}

PyDoc_STRVAR(operator_parts_doc,
             "operator_parts(name: str, /) -> list[str]\n\nWords of the operators that may do the work of a function: "
             "_softmax of softmax, convolution of conv2d. Not all of them exist.");
static PyObject *py_operator_parts(PyObject *module, PyObject *argument) {
  (void)module;
  const char *name = PyUnicode_Check(argument) ? PyUnicode_AsUTF8(argument) : NULL;
  if (!name) {
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "name is a str, not %s", Py_TYPE(argument)->tp_name);
  }
  PyObject *py_parts = PyList_New(0);
  char buffer[256];
  const char *part;
  for (size_t i = 0; py_parts && (part = dit_operator_name_get_part(name, i, buffer, sizeof buffer)); i++) {
    PyObject *py_part = PyUnicode_FromString(part);
    if (!py_part || PyList_Append(py_parts, py_part) < 0) {
      Py_CLEAR(py_parts);
    }
    Py_XDECREF(py_part);
  }
  return py_parts;
}

PyMethodDef py_operator_methods[] = {
    {"operator_find", py_operator_find, METH_O, operator_find_doc},
    {"operator_parts", py_operator_parts, METH_O, operator_parts_doc},
    {"operator_list", py_operator_list, METH_NOARGS,
     "operator_list() -> list[str]\n\nEvery word of the operator table, sorted."},
    {NULL, NULL, 0, NULL},
};
