// In which dtype the device's own reference runs: float64, or float32 where the program computes in 16 bits.
//
// float32 has 13 (float16) or 16 (bfloat16) bits more than such results, which is as good a reference for them as
// float64 is for float32. Only where nothing else needs more: every tensor of the call is of 16 bits, and sums are kept
// in float32 at least. Matrix products take most of the time of a large step. A number of 11 significant bits or fewer
// is one of TF32, so a single product of such arguments in TF32 has exact terms and a float32 sum; products whose
// arguments were computed on the way (attention, recurrent layers) are not of that kind.
#include <string.h>

#include "dit/operator.h"
#include "tools/compare/on_site.h"

// Both factors of every product are arguments, also in the backward.
static bool is_single_product(const char *word) {
  static const char *const words[] = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(word, words[i]) == 0) {
      return true;
    }
  }
  return false;
}

static const char *word_get(const struct compare_case *c) {
  const struct dit_operator *op = dit_operator_find(c->op->name);
  return op ? op->name : "";
}

// Other contractions stay in float64: cuDNN may transform the arguments of a convolution before it rounds them.
static bool is_contraction_in_single(const char *word) {
  return is_single_product(word) || strcmp(word, "scaled_dot_product_attention") == 0;
}

static bool dtype_is_short(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

static bool dtype_is_real(int dtype) {
  enum dit_dtype_class class = dit_dtype_get_class(dtype);
  return class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX;
}

bool site_is_single(const struct compare_case *c, const struct engine_call *call) {
  if (c->has_autocast ||
      (dit_operator_has(c->op->name, DIT_OPERATOR_CONTRACTION) && !is_contraction_in_single(word_get(c)))) {
    return false;
  }
  int shorts = 0;
  for (int i = 0; i < c->twin_count; i++) {
    if (dtype_is_real(c->dtypes[i]) && !c->fixed[i]) {
      if (!dtype_is_short(c->dtypes[i])) {
        return false;
      }
      shorts++;
    }
  }
  for (int i = 0; i < call->out.tensor_count; i++) {
    int dtype = call->out.tensor[i].dtype;
    if (dtype < 0 || (dtype_is_real(dtype) && !dtype_is_short(dtype))) {
      return false;
    }
  }
  return shorts > 0;
}

// The switch of torch, which is one for the process

static PyObject *setting_call(const char *name, PyObject *value) {
  PyObject *py_module = PyObject_GetAttrString(torch_names.py_torch, "_C");
  PyObject *py_answer = !py_module ? NULL
                        : value    ? PyObject_CallMethod(py_module, name, "ssO", "cuda", "matmul", value)
                                   : PyObject_CallMethod(py_module, name, "ss", "cuda", "matmul");
  Py_XDECREF(py_module);
  py_error_drop();
  return py_answer;
}

static void precision_set(PyObject *value) {
  Py_XDECREF(setting_call("_set_fp32_precision_setter", value));
}

PyObject *site_precision_enter(const struct compare_case *c) {
  if (!c->is_single || !dit_operator_has(c->op->name, DIT_OPERATOR_CONTRACTION)) {
    return NULL;
  }
  const char *wanted = is_single_product(word_get(c)) ? "tf32" : "ieee";
  PyObject *py_before = setting_call("_get_fp32_precision_getter", NULL);
  if (!py_before || !PyUnicode_Check(py_before) || PyUnicode_CompareWithASCIIString(py_before, wanted) == 0) {
    Py_XDECREF(py_before);
    return NULL;
  }
  PyObject *py_wanted = PyUnicode_FromString(wanted);
  if (!py_wanted) {
    py_error_drop();
    Py_DECREF(py_before);
    return NULL;
  }
  precision_set(py_wanted);
  Py_DECREF(py_wanted);
  return py_before;
}

void site_precision_leave(PyObject *py_before) {
  if (py_before) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    precision_set(py_before);
    Py_DECREF(py_before);
    PyErr_Restore(kind, value, traceback);
  }
}
