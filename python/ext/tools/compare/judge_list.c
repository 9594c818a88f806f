// What is known of operators' results by name: contractions, indices, results that are not unique.
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare/judge.h"

#define ALL UINT32_MAX
#define FIRST 1u
#define SECOND 2u
#define THIRD 4u

static const char vectors[] = "eigenvectors are unique up to their length, sign and phase";
static const char signs[] = "the factors are unique up to signs and phases";
static const char repeats[] = "an index occurs more than once: any of its values may be the last one written";
static const char bases[] = "the singular vectors are unique up to their sign and phase";

// Sorted by name (strcmp).
static const struct judge_list_entry list[] = {
    {"__matmul__", JUDGE_CONTRACTION, 0, 0, NULL},
    {"__rmatmul__", JUDGE_CONTRACTION, 0, 0, NULL},
    {"_convolution", JUDGE_CONTRACTION, 0, 0, NULL},
    {"_efficient_attention_forward", JUDGE_CONTRACTION, 0, 0, NULL},
    {"_flash_attention_forward", JUDGE_CONTRACTION, 0, 0, NULL},
    {"_linalg_eigh", JUDGE_LOOSE, 0, SECOND, vectors},
    {"_linalg_svd", JUDGE_LOOSE, 0, FIRST | THIRD, bases},
    {"_native_multi_head_attention", JUDGE_CONTRACTION, 0, 0, NULL},
    {"_scaled_dot_product_attention_math", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addbmm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addbmm_", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addmm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addmm_", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addmv", JUDGE_CONTRACTION, 0, 0, NULL},
    {"addmv_", JUDGE_CONTRACTION, 0, 0, NULL},
    {"argmax", JUDGE_INDEX, 1, 0, NULL},
    {"argmin", JUDGE_INDEX, 1, 0, NULL},
    {"argsort", JUDGE_INDEX, 1, 0, NULL},
    {"as_strided", JUDGE_LOOSE, 0, ALL,
     "it reads by places of the storage, of which only the argument's own part was copied"},
    {"as_strided_copy", JUDGE_LOOSE, 0, ALL,
     "it reads by places of the storage, of which only the argument's own part was copied"},
    {"as_strided_scatter", JUDGE_LOOSE, 0, ALL,
     "it reads by places of the storage, of which only the argument's own part was copied"},
    {"baddbmm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"baddbmm_", JUDGE_CONTRACTION, 0, 0, NULL},
    {"bilinear", JUDGE_CONTRACTION, 0, 0, NULL},
    {"bmm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"cdist", JUDGE_CONTRACTION, 0, 0, NULL},
    {"chain_matmul", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv1d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv2d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv3d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv_transpose1d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv_transpose2d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"conv_transpose3d", JUDGE_CONTRACTION, 0, 0, NULL},
    {"convolution", JUDGE_CONTRACTION, 0, 0, NULL},
    {"convolution_backward", JUDGE_CONTRACTION, 0, 0, NULL},
    {"corrcoef", JUDGE_CONTRACTION, 0, 0, NULL},
    {"cov", JUDGE_CONTRACTION, 0, 0, NULL},
    {"cudnn_convolution", JUDGE_CONTRACTION, 0, 0, NULL},
    {"cummax", JUDGE_INDEX, 1, 0, NULL},
    {"cummin", JUDGE_INDEX, 1, 0, NULL},
    {"cumprod", JUDGE_SCAN, 0, 0, NULL},
    {"cumprod_", JUDGE_SCAN, 0, 0, NULL},
    {"cumsum", JUDGE_SCAN, 0, 0, NULL},
    {"cumsum_", JUDGE_SCAN, 0, 0, NULL},
    {"cumulative_trapezoid", JUDGE_SCAN, 0, 0, NULL},
    {"dot", JUDGE_CONTRACTION, 0, 0, NULL},
    {"eig", JUDGE_LOOSE, 0, SECOND, vectors},
    {"eigh", JUDGE_LOOSE, 0, SECOND, vectors},
    {"einsum", JUDGE_CONTRACTION, 0, 0, NULL},
    {"geqrf", JUDGE_LOOSE, 0, FIRST | SECOND, signs},
    {"gru", JUDGE_CONTRACTION, 0, 0, NULL},
    {"gru_cell", JUDGE_CONTRACTION, 0, 0, NULL},
    {"index_copy", JUDGE_SCATTER, 1, 0, repeats},
    {"index_copy_", JUDGE_SCATTER, 1, 0, repeats},
    {"inner", JUDGE_CONTRACTION, 0, 0, NULL},
    {"kthvalue", JUDGE_INDEX, 2, 0, NULL},
    {"linalg_eig", JUDGE_LOOSE, 0, SECOND, vectors},
    {"linalg_eigh", JUDGE_LOOSE, 0, SECOND, vectors},
    {"linalg_qr", JUDGE_LOOSE, 0, FIRST | SECOND, signs},
    {"linalg_svd", JUDGE_LOOSE, 0, FIRST | THIRD, bases},
    {"linear", JUDGE_CONTRACTION, 0, 0, NULL},
    {"linear_backward", JUDGE_CONTRACTION, 0, 0, NULL},
    {"linear_cross_entropy", JUDGE_CONTRACTION, 0, 0, NULL},
    {"lobpcg", JUDGE_LOOSE, 0, SECOND, vectors},
    {"logcumsumexp", JUDGE_SCAN, 0, 0, NULL},
    {"lstm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"lstm_cell", JUDGE_CONTRACTION, 0, 0, NULL},
    {"matmul", JUDGE_CONTRACTION, 0, 0, NULL},
    {"matrix_power", JUDGE_CONTRACTION, 0, 0, NULL},
    {"max", JUDGE_INDEX, 1, 0, NULL},
    {"max_pool2d_with_indices", JUDGE_INDEX, 255, 0, NULL},
    {"max_pool3d_with_indices", JUDGE_INDEX, 255, 0, NULL},
    {"median", JUDGE_INDEX, 1, 0, NULL},
    {"min", JUDGE_INDEX, 1, 0, NULL},
    {"mkldnn_convolution", JUDGE_CONTRACTION, 0, 0, NULL},
    {"mm", JUDGE_CONTRACTION, 0, 0, NULL},
    {"mode", JUDGE_INDEX, 1, 0, NULL},
    {"msort", JUDGE_INDEX, 1, 0, NULL},
    {"multi_dot", JUDGE_CONTRACTION, 0, 0, NULL},
    {"multi_head_attention_forward", JUDGE_CONTRACTION, 0, 0, NULL},
    {"mv", JUDGE_CONTRACTION, 0, 0, NULL},
    {"nanmedian", JUDGE_INDEX, 1, 0, NULL},
    {"pca_lowrank", JUDGE_LOOSE, 0, ALL, bases},
    {"qr", JUDGE_LOOSE, 0, FIRST | SECOND, signs},
    {"rnn_relu", JUDGE_CONTRACTION, 0, 0, NULL},
    {"rnn_relu_cell", JUDGE_CONTRACTION, 0, 0, NULL},
    {"rnn_tanh", JUDGE_CONTRACTION, 0, 0, NULL},
    {"rnn_tanh_cell", JUDGE_CONTRACTION, 0, 0, NULL},
    {"scaled_dot_product_attention", JUDGE_CONTRACTION, 0, 0, NULL},
    {"scatter", JUDGE_SCATTER, 1, 0, repeats},
    {"scatter_", JUDGE_SCATTER, 1, 0, repeats},
    {"sort", JUDGE_INDEX, 1, 0, NULL},
    {"svd", JUDGE_LOOSE, 0, FIRST | THIRD, bases},
    {"svd_lowrank", JUDGE_LOOSE, 0, ALL, bases},
    {"tensordot", JUDGE_CONTRACTION, 0, 0, NULL},
    {"topk", JUDGE_INDEX, 2, 0, NULL},
    {"vdot", JUDGE_CONTRACTION, 0, 0, NULL},
};

static int entry_compare(const void *key, const void *entry) {
  return strcmp(key, ((const struct judge_list_entry *)entry)->name);
}

const struct judge_list_entry *judge_list_find(const char *name) {
  return bsearch(engine_name_get_last(name), list, sizeof list / sizeof *list, sizeof *list, entry_compare);
}

// ---- the length of sums

double judge_get_length(const struct compare_case *c, enum compare_what what, const struct judge_list_entry *entry,
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
  if (entry && entry->kind == JUDGE_CONTRACTION) {
    // [m, k] x [k, n]: k = sqrt(mk * kn / mn). Of gradients it is m or n: an extent of an argument, or its rows.
    length = fmax(length, what == COMPARE_GRAD ? longest : sqrt(first * second / out));
  }
  return fmax(1, mixes ? fmax(length, longest) : length);
}

// ---- indices

// The argument `dim`: by place or by name; None when it is not given. New reference or NULL.
static PyObject *dim_get(const struct compare_case *c, const struct judge_list_entry *entry) {
  PyObject *value = c->py_kwargs ? PyDict_GetItemString(c->py_kwargs, "dim") : NULL;
  if (!value && PyTuple_GET_SIZE(c->py_args) > entry->dim) {
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

int judge_scatter_check(struct compare_case *c, const struct judge_list_entry *entry) {
  PyObject *py_repeats =
      judge_helper_call("has_repeats", "sOO", entry->name, c->py_args, c->py_kwargs ? c->py_kwargs : Py_None);
  int answer = py_repeats ? PyObject_IsTrue(py_repeats) : -1;
  Py_XDECREF(py_repeats);
  return answer;
}

int judge_ties_check(struct compare_case *c, const struct judge_list_entry *entry) {
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

int judge_index_check(struct compare_case *c, const struct judge_list_entry *entry, PyObject *device,
                      PyObject *reference) {
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
