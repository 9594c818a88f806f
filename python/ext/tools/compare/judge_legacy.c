// The legacy columns: what compare_result of the original shows for one pair of values.
//
// The rules are those of op_tools/comparison.py, which tests compare with this file. Tensors go through the fused pass
// of dit/numerics.h; the reference is cast to the device's dtype first.
#include <float.h>
#include <math.h>

#include "py_call.h"
#include "tools/compare/judge.h"
#include "torch_tensor.h"

int judge_tensor_open(struct judge_tensor *out, PyObject *tensor) {
  *out = (struct judge_tensor){.py_tensor = Py_NewRef(tensor)};
  engine_tensor_read(tensor, &out->info);
  bool is_here = out->info.place == ENGINE_PLACE_CPU || out->info.place == ENGINE_PLACE_HOST;
  if (is_here && engine_tensor_get_view(&out->info, &out->view)) {
    return 0;
  }
  engine_tensor_reset(&out->info);
  PyObject *py_plain = torch_plain_make(tensor, true);
  if (!py_plain) {
    Py_CLEAR(out->py_tensor);
    return -1;
  }
  Py_SETREF(out->py_tensor, py_plain);
  engine_tensor_read(py_plain, &out->info);
  if (!engine_tensor_get_view(&out->info, &out->view)) {
    PyErr_SetString(PyExc_TypeError, "the tensor has no memory that can be read, not even after a copy to the CPU");
    judge_tensor_close(out);
    return -1;
  }
  return 0;
}

void judge_tensor_close(struct judge_tensor *tensor) {
  if (tensor->py_tensor) {
    engine_tensor_reset(&tensor->info);
    Py_CLEAR(tensor->py_tensor);
  }
}

static void columns_set(struct compare_judgement *out, bool close, double difference, double relative, double atol,
                        double rtol) {
  out->close = close;
  out->cosine = close ? 1 : -1;
  out->max_abs_diff = difference;
  out->max_relative_diff = relative;
  out->atol = atol;
  out->rtol = rtol;
}

// Values that are no tensors

// Appends text with %S of both; what str() raises is no concern of the program.
static void info_add_values(struct compare_judgement *out, const char *end, PyObject *device, PyObject *reference) {
  PyObject *py_text = PyUnicode_FromFormat(" value: %S %S%s", device, reference, end);
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  if (text) {
    size_t used = strlen(out->info);
    (void)snprintf(out->info + used, sizeof out->info - used, "%s", text);
  }
  Py_XDECREF(py_text);
  py_error_drop();
}

static int numbers_judge(PyObject *device, PyObject *reference, struct compare_judgement *out) {
  double a = PyFloat_AsDouble(device), b = PyErr_Occurred() ? 0 : PyFloat_AsDouble(reference);
  bool huge = PyErr_Occurred() != NULL;  // an int that no float holds
  py_error_drop();
  int equal = PyObject_RichCompareBool(device, reference, Py_EQ);
  if (equal < 0) {
    return -1;
  }
  if (equal || (!huge && isnan(a) && isnan(b))) {
    columns_set(out, true, 0, 0, 1e-6, 1e-6);
    return 0;
  }
  double difference = huge ? INFINITY : fabs(a - b);
  double relative = huge ? INFINITY : difference / (fabs(b) + 1e-6);
  bool close = isfinite(difference) && difference <= 1e-6 + 1e-6 * fabs(b);
  relative = isnan(relative) && !isnan(difference) ? INFINITY : relative;
  columns_set(out, close, difference, relative, 1e-6, 1e-6);
  if (!close) {
    info_add_values(out, " ", device, reference);
  }
  return 0;
}

static int objects_judge(PyObject *device, PyObject *reference, struct compare_judgement *out) {
  int equal = PyObject_RichCompareBool(device, reference, Py_EQ);
  if (equal < 0) {  // whatever a foreign __eq__ raises
    char text[101];
    py_error_take(text, sizeof text, NULL);
    (void)snprintf(out->info, sizeof out->info, "%s", text);
  }
  columns_set(out, equal > 0, equal > 0 ? 0 : NAN, equal > 0 ? 0 : NAN, 0, 0);
  info_add_values(out, "", device, reference);
  return 0;
}

bool judge_value_is_opaque(PyObject *device, PyObject *reference) {
  const PyTypeObject *type = Py_TYPE(device);
  if (type != Py_TYPE(reference)) {
    return false;
  }
  // Static types without a comparison, such as torch.dtype, have one object per value.
  if (type->tp_richcompare == PyBaseObject_Type.tp_richcompare && (type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    return true;
  }
  int equal = PyObject_RichCompareBool(device, reference, Py_EQ);
  py_error_drop();
  return equal < 0;
}

int judge_legacy_value(PyObject *device, PyObject *reference, struct compare_judgement *out) {
  if (device == Py_None && reference == Py_None) {
    columns_set(out, true, 0, 0, 0, 0);
    return 0;
  }
  if (Py_TYPE(device) != Py_TYPE(reference)) {
    columns_set(out, false, NAN, NAN, 0, 0);
    PyObject *py_text = PyUnicode_FromFormat("Inconsistent types: %R %R", Py_TYPE(device), Py_TYPE(reference));
    const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
    (void)snprintf(out->info, sizeof out->info, "%s", text ? text : "");
    Py_XDECREF(py_text);
    py_error_drop();
    return 0;
  }
  if (PyBool_Check(device)) {
    bool equal = device == reference;
    columns_set(out, equal, equal ? 0 : NAN, equal ? 0 : NAN, 0, 0);
    if (!equal) {
      info_add_values(out, " ", device, reference);
    }
    return 0;
  }
  return PyLong_Check(device) || PyFloat_Check(device) ? numbers_judge(device, reference, out)
                                                       : objects_judge(device, reference, out);
}

// Tensors

// The reference in the device's dtype, as the original compares them. 0 or -1.
static int reference_cast(const struct judge_tensor *device, const struct judge_tensor *reference,
                          struct judge_tensor *out) {
  PyObject *py_dtype = PyObject_GetAttrString(device->py_tensor, "dtype");
  PyObject *py_plain = PyObject_CallMethod(reference->py_tensor, "detach", NULL);
  PyObject *py_cast = py_dtype && py_plain ? PyObject_CallMethod(py_plain, "to", "O", py_dtype) : NULL;
  Py_XDECREF(py_dtype);
  Py_XDECREF(py_plain);
  int status = py_cast ? judge_tensor_open(out, py_cast) : -1;
  Py_XDECREF(py_cast);
  return status;
}

static int columns_compare(const struct judge_tensor *device, const struct judge_tensor *reference,
                           struct compare_judgement *out, struct dit_compare_result *compared) {
  struct dit_compare_options options = {.rtol = out->rtol, .atol = out->atol, .equal_nan = true};
  struct dit_error err = {0};
  double difference = 0, relative = 0;
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_tensor_compare(&device->view, &reference->view, &options, compared, &err);
  if (status == DIT_OK && compared->unequal > 0) {
    status = dit_judge_relative(&device->view, &reference->view, 1e-6, &difference, &relative, &err);
  }
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    PyErr_SetString(PyExc_NotImplementedError, err.message);
    return -1;
  }
  bool is_narrow =
      dit_dtype_get_class(device->view.dtype) == DIT_DTYPE_CLASS_FLOAT && device->view.dtype != DIT_DTYPE_F64;
  if (is_narrow && fabs(difference) <= FLT_MAX) {
    difference = (double)(float)difference;
  }
  out->close = compared->allclose;
  out->cosine = compared->cosine;
  out->max_abs_diff = difference;
  out->max_relative_diff = relative;
  return 0;
}

int judge_legacy_tensor(struct compare_case *c, const struct judge_tensor *device, const struct judge_tensor *reference,
                        struct compare_judgement *out, struct dit_compare_result *compared) {
  if (compare_tolerance_get(c, device->view.dtype, &out->atol, &out->rtol) < 0) {
    return -1;
  }
  struct judge_tensor cast = {0};
  const struct judge_tensor *right = reference;
  if (device->view.dtype != reference->view.dtype) {
    (void)snprintf(out->info, sizeof out->info, "Inconsistent dtypes: torch.%s torch.%s",
                   dit_dtype_get_name(device->view.dtype), dit_dtype_get_name(reference->view.dtype));
    if (reference_cast(device, reference, &cast) < 0) {
      return -1;
    }
    right = &cast;
  }
  int status = 0;
  if (device->view.numel == 0) {
    columns_set(out, true, 0, 0, out->atol, out->rtol);
    *compared = (struct dit_compare_result){.allclose = true};
  } else {
    status = columns_compare(device, right, out, compared);
  }
  judge_tensor_close(&cast);
  return status;
}
