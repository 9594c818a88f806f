// Bindings of dit/metrics.h: the series as Python objects and as the text of Prometheus.
#include "dit/alloc.h"
#include "dit/metrics.h"
#include "module.h"

static PyObject *py_metrics_enable(PyObject *module, PyObject *argument) {
  (void)module;
  int enable = PyObject_IsTrue(argument);
  if (enable < 0) {
    return NULL;
  }
  dit_metrics_enable(enable != 0);
  Py_RETURN_NONE;
}

static PyObject *py_metrics_is_enabled(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(dit_metrics_is_enabled());
}

static PyObject *py_metrics_reset(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  dit_metrics_reset();
  Py_RETURN_NONE;
}

static PyObject *labels_describe(const struct dit_metric *metric) {
  PyObject *py_labels = PyDict_New();
  for (int i = 0; py_labels && i < metric->label_count; i++) {
    if (py_dict_take(py_labels, metric->labels[i].name, PyUnicode_FromString(metric->labels[i].value)) < 0) {
      Py_CLEAR(py_labels);
    }
  }
  return py_labels;
}

static PyObject *numbers_describe(const uint64_t *numbers, int count) {
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyObject *py_number = PyLong_FromUnsignedLongLong(numbers[i]);
    if (!py_number) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_number);
  }
  return py_list;
}

static PyObject *value_describe(const struct dit_metric *metric) {
  if (metric->type != DIT_METRIC_HISTOGRAM) {
    return PyLong_FromUnsignedLongLong(metric->value);
  }
  PyObject *py_thresholds = numbers_describe(metric->thresholds, metric->bucket_count);
  PyObject *py_counts = py_thresholds ? numbers_describe(metric->counts, metric->bucket_count + 1) : NULL;
  if (!py_counts) {
    Py_XDECREF(py_thresholds);
    return NULL;
  }
  return Py_BuildValue("{s:N,s:N,s:K,s:K}", "thresholds", py_thresholds, "buckets", py_counts, "sum",
                       (unsigned long long)metric->sum, "count", (unsigned long long)metric->value);
}

static bool series_add(void *context, const struct dit_metric *metric) {
  PyObject *list = context;
  PyObject *py_labels = labels_describe(metric);
  PyObject *py_value = py_labels ? value_describe(metric) : NULL;
  if (!py_value) {
    Py_XDECREF(py_labels);
    return false;
  }
  PyObject *py_row =
      Py_BuildValue("(sssNN)", metric->name, dit_metric_type_get_name(metric->type), metric->info, py_labels, py_value);
  int result = py_row ? PyList_Append(list, py_row) : -1;
  Py_XDECREF(py_row);
  return result == 0;
}

PyDoc_STRVAR(metrics_doc,
             "metrics() -> list[tuple[str, str, str, dict[str, str], Any]]\n\nEvery series that has counted something; "
             "the value of a histogram is a dict of thresholds, buckets, sum and count.");
static PyObject *py_metrics_list(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  PyObject *py_list = PyList_New(0);
  if (py_list) {
    dit_metrics_visit(series_add, py_list);
    if (PyErr_Occurred()) {
      Py_CLEAR(py_list);
    }
  }
  return py_list;
}

static PyObject *py_metrics_text(PyObject *module, PyObject *unused) {
  (void)unused;
  char *text = NULL;
  struct dit_error err = {0};
  enum dit_status status = dit_metrics_get_text(&text, &err);
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  PyObject *py_text = PyUnicode_FromString(text);
  dit_free(text);
  return py_text;
}

PyMethodDef py_metrics_methods[] = {
    {"metrics_enable", py_metrics_enable, METH_O, "metrics_enable(on: bool, /) -> None"},
    {"metrics_is_enabled", py_metrics_is_enabled, METH_NOARGS, "metrics_is_enabled() -> bool"},
    {"metrics_reset", py_metrics_reset, METH_NOARGS, "metrics_reset() -> None\n\nCounters and histograms back to 0."},
    {"metrics", py_metrics_list, METH_NOARGS, metrics_doc},
    {"metrics_text", py_metrics_text, METH_NOARGS, "metrics_text() -> str\n\nThe text format of Prometheus."},
    {NULL, NULL, 0, NULL},
};
