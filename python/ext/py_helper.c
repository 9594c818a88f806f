// Numbers about torch tensors for Python: bindings of dit/numerics.h and dit/helper.h.
//
// A tensor is read where it is: CPU and embedded device by src/numerics, real CUDA devices by the kernels of
// libdit_cuda, everything else (another accelerator, a library without kernels, lazy conjugates, sparse layouts) by a
// function that Python hands down (ditorch/helper_torch.py), with torch's own operators or after making a plain copy.
// Results are dictionaries with the fields of the C structs. The GIL is dropped while numbers are computed; the tensors
// are held by the caller.
#include "py_helper.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "torch_tensor.h"

// Results as dictionaries

enum field_kind { FIELD_INT, FIELD_DOUBLE, FIELD_BOOL, FIELD_EXTREMUM, FIELD_WORD };

struct field {
  const char *name;
  size_t offset;
  enum field_kind kind;
};

#define FIELD(type, name, kind) {#name, offsetof(struct type, name), kind}

static const struct field stats_fields[] = {
    FIELD(dit_tensor_stats, numel, FIELD_INT),
    FIELD(dit_tensor_stats, finite, FIELD_INT),
    FIELD(dit_tensor_stats, zero, FIELD_INT),
    FIELD(dit_tensor_stats, nan, FIELD_INT),
    FIELD(dit_tensor_stats, pos_inf, FIELD_INT),
    FIELD(dit_tensor_stats, neg_inf, FIELD_INT),
    FIELD(dit_tensor_stats, min, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, max, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, abs_max, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, mean, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, mean_imag, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, finite_mean, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, finite_mean_imag, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, std, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, std_sample, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, finite_std, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, finite_std_sample, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, norm, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, finite_norm, FIELD_DOUBLE),
    FIELD(dit_tensor_stats, min_int, FIELD_EXTREMUM),
    FIELD(dit_tensor_stats, max_int, FIELD_EXTREMUM),
};

static const struct field compare_fields[] = {
    FIELD(dit_compare_result, allclose, FIELD_BOOL),
    FIELD(dit_compare_result, numel, FIELD_INT),
    FIELD(dit_compare_result, finite_pairs, FIELD_INT),
    FIELD(dit_compare_result, unequal, FIELD_INT),
    FIELD(dit_compare_result, over_tolerance, FIELD_INT),
    FIELD(dit_compare_result, nonfinite_mismatch, FIELD_INT),
    FIELD(dit_compare_result, max_abs_diff, FIELD_DOUBLE),
    FIELD(dit_compare_result, max_rel_diff, FIELD_DOUBLE),
    FIELD(dit_compare_result, max_rel_diff_sym, FIELD_DOUBLE),
    FIELD(dit_compare_result, mean_abs_diff, FIELD_DOUBLE),
    FIELD(dit_compare_result, cosine, FIELD_DOUBLE),
    FIELD(dit_compare_result, dot, FIELD_DOUBLE),
    FIELD(dit_compare_result, sum_abs_diff, FIELD_DOUBLE),
    FIELD(dit_compare_result, min_a, FIELD_DOUBLE),
    FIELD(dit_compare_result, max_a, FIELD_DOUBLE),
    FIELD(dit_compare_result, norm_a, FIELD_DOUBLE),
    FIELD(dit_compare_result, min_b, FIELD_DOUBLE),
    FIELD(dit_compare_result, max_b, FIELD_DOUBLE),
    FIELD(dit_compare_result, norm_b, FIELD_DOUBLE),
};

static const struct field hash_fields[] = {
    FIELD(dit_hash, low, FIELD_WORD),
    FIELD(dit_hash, high, FIELD_WORD),
};

static PyObject *field_read(const void *result, const struct field *field, int dtype) {
  const char *at = (const char *)result + field->offset;
  int64_t number;
  double value;
  bool flag;
  switch (field->kind) {
    case FIELD_DOUBLE:
      memcpy(&value, at, sizeof value);
      return PyFloat_FromDouble(value);
    case FIELD_BOOL:
      memcpy(&flag, at, sizeof flag);
      return PyBool_FromLong(flag);
    default:
      memcpy(&number, at, sizeof number);
      if (field->kind == FIELD_WORD || (field->kind == FIELD_EXTREMUM && dtype == DIT_DTYPE_U64)) {
        return PyLong_FromUnsignedLongLong((unsigned long long)number);
      }
      return PyLong_FromLongLong(number);
  }
}

static PyObject *result_describe(const void *result, const struct field *fields, size_t count, int dtype) {
  PyObject *py_dict = PyDict_New();
  for (size_t i = 0; py_dict && i < count; i++) {
    if (py_dict_take(py_dict, fields[i].name, field_read(result, &fields[i], dtype)) < 0) {
      Py_CLEAR(py_dict);
    }
  }
  return py_dict;
}

// Kinds of questions

static const struct {
  const char *name;  // for the function that Python hands down
  size_t size;
  const struct field *fields;
  size_t count;
} kinds[] = {
    [NUMBER_NONFINITE] = {"nonfinite", sizeof(uint8_t), NULL, 0},
    [NUMBER_STATS] = {"stats", sizeof(struct dit_tensor_stats), stats_fields,
                      sizeof stats_fields / sizeof(struct field)},
    [NUMBER_HASH] = {"hash", sizeof(struct dit_hash), hash_fields, sizeof hash_fields / sizeof(struct field)},
    [NUMBER_COMPARE] = {"compare", sizeof(struct dit_compare_result), compare_fields,
                        sizeof compare_fields / sizeof(struct field)},
};

union number {
  uint8_t flags;
  struct dit_tensor_stats stats;
  struct dit_hash hash;
  struct dit_compare_result compare;
};

static PyObject *number_describe(enum number_kind kind, const union number *number, int dtype) {
  if (kind == NUMBER_NONFINITE) {
    return PyLong_FromLong(number->flags);
  }
  return result_describe(number, kinds[kind].fields, kinds[kind].count, dtype);
}

static enum dit_status question_enqueue(const struct question *q, void *slots, struct dit_error *err) {
  switch (q->kind) {
    case NUMBER_NONFINITE:
      return q->helper->nonfinite(q->views, 1, q->stream, slots, 0, err);
    case NUMBER_STATS:
      return q->helper->stats(q->views, 1, q->stream, slots, 0, err);
    case NUMBER_HASH:
      return q->helper->hash(q->views, 1, q->stream, slots, 0, err);
    default:
      return q->helper->compare(&q->views[0], &q->views[1], &q->options, q->stream, slots, 0, err);
  }
}

// Without the GIL.
static enum dit_status question_answer(const struct question *q, union number *answer, struct dit_error *err) {
  void *slots = NULL;
  if (q->settle) {
    DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->stream_synchronize(q->device, q->stream, err));
  }
  DIT_RETURN_IF_NOT_OK(q->helper->slots_create(q->device, kinds[q->kind].size, 1, &slots, err));
  enum dit_status status = question_enqueue(q, slots, err);
  if (status == DIT_OK) {
    status = q->helper->slots_read(slots, 0, 1, q->stream, answer, err);
  }
  q->helper->slots_destroy(slots);
  return status;
}

// Tensors

/// The table that can read a tensor; NULL: torch's operators must. `forced` is the caller's wish, or NULL.
static const struct dit_helper_vtable *helper_choose(const struct engine_tensor *tensor, const char *forced) {
  const struct dit_helper_vtable *helper = NULL;
  const char *name = tensor->place == ENGINE_PLACE_CUDA ? "cuda" : "host";
  if (forced && strcmp(forced, name) != 0) {
    return NULL;
  }
  if (dit_helper_get(name, &helper, NULL) != DIT_OK || !helper->stats) {
    return NULL;
  }
  return helper;
}

int question_prepare(struct question *q, PyObject *const *tensors, int count, const char *forced) {
  const struct dit_helper_vtable *helpers[2] = {NULL, NULL};
  int ready = 1;
  for (int i = 0; i < count && ready; i++) {
    struct engine_tensor tensor;
    engine_tensor_read(tensors[i], &tensor);
    ready = engine_tensor_get_view(&tensor, &q->views[i]);
    if (ready) {
      size_t bytes = sizeof(int64_t) * (size_t)tensor.ndim;
      memcpy(q->sizes[i], tensor.sizes, bytes);
      memcpy(q->strides[i], tensor.strides, bytes);
      q->views[i].sizes = q->sizes[i];
      q->views[i].strides = q->strides[i];
      helpers[i] = helper_choose(&tensor, forced);
      ready = helpers[i] != NULL && helpers[i] == helpers[0] &&
              (tensor.place != ENGINE_PLACE_CUDA || i == 0 || tensor.device_index == q->device);
      if (i == 0 || tensor.place == ENGINE_PLACE_HOST) {
        q->device = tensor.device_index < 0 ? 0 : tensor.device_index;
        q->stream = engine_stream_get_current(&tensor);
        q->settle = tensor.place == ENGINE_PLACE_HOST && q->stream != NULL;
      }
    }
    engine_tensor_reset(&tensor);
  }
  q->helper = helpers[0];
  return ready;
}

// By what Python handed down: answer(kind, tensors, helper, rtol, atol, equal_nan).
static PyObject *torch_answer(PyObject *module, enum number_kind kind, PyObject *const *tensors, int count,
                              const struct dit_compare_options *options, const char *forced) {
  const struct module_state *state = PyModule_GetState(module);
  if (!state->py_answer) {
    PyErr_SetString(PyExc_RuntimeError,
                    "these tensors need torch's operators, which ditorch hands down when it is installed: call "
                    "ditorch.install() first");
    return NULL;
  }
  PyObject *py_tensors = count == 2 ? PyTuple_Pack(2, tensors[0], tensors[1]) : PyTuple_Pack(1, tensors[0]);
  return py_tensors ? PyObject_CallFunction(state->py_answer, "sNzddO", kinds[kind].name, py_tensors, forced,
                                            options ? options->rtol : 0.0, options ? options->atol : 0.0,
                                            options && options->equal_nan ? Py_True : Py_False)
                    : NULL;
}

PyDoc_STRVAR(set_answer_doc,
             "helper_set_answer(function)\n\nHand down what answers for tensors that C does not read by itself: "
             "function(kind, tensors, helper, rtol, atol, equal_nan); None takes it back.");
static PyObject *py_helper_set_answer(PyObject *module, PyObject *function) {
  struct module_state *state = PyModule_GetState(module);
  if (function != Py_None && !PyCallable_Check(function)) {
    return PyErr_Format(PyExc_TypeError, "function must be callable or None, not %.100s", Py_TYPE(function)->tp_name);
  }
  Py_XSETREF(state->py_answer, function == Py_None ? NULL : Py_NewRef(function));
  Py_RETURN_NONE;
}

PyDoc_STRVAR(plain_doc,
             "tensor_plain(tensor, on_cpu=False) -> Tensor\n\nThe same values in plain strided memory without history: "
             "conjugate and negative bits resolved, sparse made dense, nested ones flat. TypeError for tensors without "
             "values (meta, fake).");
static PyObject *py_tensor_plain(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"tensor", "on_cpu", NULL};
  PyObject *tensor = NULL;
  int on_cpu = 0;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:tensor_plain", names, &tensor, &on_cpu) ||
      question_check_tensor(tensor, "tensor") < 0) {
    return NULL;
  }
  return torch_plain_make(tensor, on_cpu);
}

static int helper_check(const char *forced) {
  if (!forced || strcmp(forced, "host") == 0 || strcmp(forced, "cuda") == 0 || strcmp(forced, "torch") == 0) {
    return 0;
  }
  PyErr_Format(PyExc_ValueError, "helper is '%s'; valid: host, cuda, torch, or None to choose by the tensor", forced);
  return -1;
}

int question_check_tensor(PyObject *object, const char *what) {
  if (engine_torch_load() < 0) {
    return -1;
  }
  if (!engine_is_tensor(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a torch.Tensor, not %.100s", what, Py_TYPE(object)->tp_name);
    return -1;
  }
  return 0;
}

static PyObject *numbers_ask(PyObject *module, enum number_kind kind, PyObject *const *tensors, int count,
                             const struct dit_compare_options *options, const char *forced) {
  struct question q = {.kind = kind};
  union number answer;
  struct dit_error err = {0};
  if (options) {
    q.options = *options;
  }
  int token = engine_guard_raise();
  int ready = question_prepare(&q, tensors, count, forced);
  engine_guard_lower(token);
  if (!ready) {
    return torch_answer(module, kind, tensors, count, options, forced);
  }
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = question_answer(&q, &answer, &err);
  Py_END_ALLOW_THREADS;
  if (status == DIT_ERR_UNSUPPORTED && q.views[0].device_index >= 0 && !forced && strcmp(q.helper->name, "cuda") == 0) {
    return torch_answer(module, kind, tensors, count, options, forced);
  }
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  return number_describe(kind, &answer, q.views[0].dtype);
}

// Functions

static PyObject *single_ask(PyObject *module, PyObject *args, PyObject *kwargs, enum number_kind kind) {
  static char *names[] = {"tensor", "helper", NULL};
  PyObject *tensor = NULL;
  const char *forced = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|z", names, &tensor, &forced) || helper_check(forced) < 0 ||
      question_check_tensor(tensor, "tensor") < 0) {
    return NULL;
  }
  return numbers_ask(module, kind, &tensor, 1, NULL, forced);
}

PyDoc_STRVAR(stats_doc,
             "tensor_stats(tensor: Tensor, helper: str | None = None) -> dict[str, Any]\n\nStatistics with the fields "
             "of struct dit_tensor_stats.");
static PyObject *py_tensor_stats(PyObject *module, PyObject *args, PyObject *kwargs) {
  return single_ask(module, args, kwargs, NUMBER_STATS);
}

PyDoc_STRVAR(
    nonfinite_doc,
    "tensor_nonfinite(tensor: Tensor, helper: str | None = None) -> int\n\n1: has NaN, 2: has infinities, 3: both.");
static PyObject *py_tensor_nonfinite(PyObject *module, PyObject *args, PyObject *kwargs) {
  return single_ask(module, args, kwargs, NUMBER_NONFINITE);
}

PyDoc_STRVAR(hash_doc,
             "tensor_hash(tensor: Tensor, helper: str | None = None) -> dict[str, Any]\n\n128 bits of dtype, shape and "
             "elements: low, high.");
static PyObject *py_tensor_hash(PyObject *module, PyObject *args, PyObject *kwargs) {
  return single_ask(module, args, kwargs, NUMBER_HASH);
}

/// (a, b, rtol, atol, equal_nan[, helper]).
static int pair_parse(PyObject *args, PyObject *kwargs, const char *format, PyObject **tensors,
                      struct dit_compare_options *options, const char **forced) {
  static char *long_names[] = {"a", "b", "rtol", "atol", "equal_nan", "helper", NULL};
  static char *short_names[] = {"a", "b", "rtol", "atol", "equal_nan", NULL};
  char **names = strchr(format, 'z') ? long_names : short_names;
  int equal_nan = 0;
  *options = (struct dit_compare_options){.rtol = 1e-5, .atol = 1e-8};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &tensors[0], &tensors[1], &options->rtol,
                                   &options->atol, &equal_nan, forced)) {
    return -1;
  }
  options->equal_nan = equal_nan != 0;
  return question_check_tensor(tensors[0], "a") < 0 || question_check_tensor(tensors[1], "b") < 0 ||
                 helper_check(*forced) < 0
             ? -1
             : 0;
}

PyDoc_STRVAR(compare_doc,
             "tensor_compare(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False, "
             "helper: str | None = None) -> dict[str, Any]\n\nThe candidate a against the reference b, with the fields "
             "of struct dit_compare_result.");
static PyObject *py_tensor_compare(PyObject *module, PyObject *args, PyObject *kwargs) {
  PyObject *tensors[2];
  struct dit_compare_options options;
  const char *forced = NULL;
  if (pair_parse(args, kwargs, "OO|ddpz:tensor_compare", tensors, &options, &forced) < 0) {
    return NULL;
  }
  return numbers_ask(module, NUMBER_COMPARE, tensors, 2, &options, forced);
}

static PyObject *list_from(const int64_t *values, int count) {
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyObject *py_value = PyLong_FromLongLong(values[i]);
    if (!py_value) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_value);
  }
  return py_list;
}

static PyObject *detail_describe(const struct dit_compare_detail *detail, int ndim) {
  return Py_BuildValue("{s:L,s:L,s:L,s:N,s:N,s:N,s:s,s:N,s:L,s:L}", "worst_abs_index",
                       (long long)detail->worst_abs_index, "worst_rel_index", (long long)detail->worst_rel_index,
                       "first_mismatch_index", (long long)detail->first_mismatch_index, "worst_abs",
                       list_from(detail->worst_abs, ndim), "worst_rel", list_from(detail->worst_rel, ndim),
                       "first_mismatch", list_from(detail->first_mismatch, ndim), "ulp_dtype",
                       dit_dtype_get_name(detail->ulp_dtype), "ulp", list_from(detail->ulp, DIT_ULP_BUCKETS),
                       "ulp_nan_both", (long long)detail->ulp_nan_both, "ulp_nan_one", (long long)detail->ulp_nan_one);
}

PyDoc_STRVAR(detail_doc,
             "tensor_compare_detail(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = "
             "False) -> dict[str, Any]\n\nWhere and how far they differ (struct dit_compare_detail). Tensors of other "
             "devices are copied to the CPU.");
static PyObject *py_tensor_compare_detail(PyObject *module, PyObject *args, PyObject *kwargs) {
  PyObject *tensors[2], *py_plain[2] = {NULL, NULL}, *py_result = NULL;
  struct dit_compare_options options;
  struct dit_compare_detail detail;
  struct dit_error err = {0};
  struct question q = {.kind = NUMBER_COMPARE};
  const char *forced = NULL;
  if (pair_parse(args, kwargs, "OO|ddp:tensor_compare_detail", tensors, &options, &forced) < 0) {
    return NULL;
  }
  int token = engine_guard_raise();
  int ready = question_prepare(&q, tensors, 2, "host");
  engine_guard_lower(token);
  if (!ready) {
    for (int i = 0; i < 2; i++) {
      if (!(py_plain[i] = torch_plain_make(tensors[i], true))) {
        goto done;
      }
    }
    token = engine_guard_raise();
    ready = question_prepare(&q, py_plain, 2, "host");
    engine_guard_lower(token);
    if (!ready) {
      PyErr_SetString(PyExc_TypeError, "the tensors have no memory that can be read, not even after a copy to the CPU");
      goto done;
    }
  }
  enum dit_status status = DIT_OK;
  Py_BEGIN_ALLOW_THREADS;
  if (q.settle) {
    status = dit_runtime_get_vtable()->stream_synchronize(q.device, q.stream, &err);
  }
  if (status == DIT_OK) {
    status = dit_tensor_compare_detail(&q.views[0], &q.views[1], &options, &detail, &err);
  }
  Py_END_ALLOW_THREADS;
  py_result = status == DIT_OK ? detail_describe(&detail, q.views[0].ndim) : py_status_raise(module, status, &err);
done:
  Py_XDECREF(py_plain[0]);
  Py_XDECREF(py_plain[1]);
  return py_result;
}

// Several tensors in few launches

struct batch {
  struct question first;  ///< the first tensor: helper, device, stream
  struct question *all;
  Py_ssize_t count;
};

static enum dit_status batch_enqueue(const struct batch *batch, Py_ssize_t from, int count, void *slots,
                                     struct dit_error *err) {
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  const struct question *q = &batch->first;
  for (int i = 0; i < count; i++) {
    views[i] = batch->all[from + i].views[0];
  }
  switch (q->kind) {
    case NUMBER_NONFINITE:
      return q->helper->nonfinite(views, count, q->stream, slots, (size_t)from, err);
    case NUMBER_STATS:
      return q->helper->stats(views, count, q->stream, slots, (size_t)from, err);
    default:
      return q->helper->hash(views, count, q->stream, slots, (size_t)from, err);
  }
}

// Without the GIL.
static enum dit_status batch_answer(const struct batch *batch, char *answers, struct dit_error *err) {
  const struct question *q = &batch->first;
  void *slots = NULL;
  if (q->settle) {
    DIT_RETURN_IF_NOT_OK(dit_runtime_get_vtable()->stream_synchronize(q->device, q->stream, err));
  }
  DIT_RETURN_IF_NOT_OK(q->helper->slots_create(q->device, kinds[q->kind].size, (size_t)batch->count, &slots, err));
  enum dit_status status = DIT_OK;
  for (Py_ssize_t from = 0; from < batch->count && status == DIT_OK; from += DIT_HELPER_BATCH) {
    Py_ssize_t left = batch->count - from;
    status = batch_enqueue(batch, from, left < DIT_HELPER_BATCH ? (int)left : DIT_HELPER_BATCH, slots, err);
  }
  if (status == DIT_OK) {
    status = q->helper->slots_read(slots, 0, (size_t)batch->count, q->stream, answers, err);
  }
  q->helper->slots_destroy(slots);
  return status;
}

/// True when one helper reads all of them on one device.
static bool batch_prepare(struct batch *batch, PyObject *const *tensors, enum number_kind kind) {
  bool ready = true;
  int token = engine_guard_raise();
  for (Py_ssize_t i = 0; i < batch->count && ready; i++) {
    struct question *q = &batch->all[i];
    *q = (struct question){.kind = kind};
    ready = question_prepare(q, &tensors[i], 1, NULL) &&
            (i == 0 || (q->helper == batch->all[0].helper && q->device == batch->all[0].device));
  }
  engine_guard_lower(token);
  batch->first = batch->all[0];
  return ready;
}

static PyObject *batch_describe(const struct batch *batch, const char *answers) {
  enum number_kind kind = batch->first.kind;
  PyObject *py_list = PyList_New(batch->count);
  for (Py_ssize_t i = 0; py_list && i < batch->count; i++) {
    union number number;
    memcpy(&number, answers + (size_t)i * kinds[kind].size, kinds[kind].size);
    PyObject *py_number = number_describe(kind, &number, batch->all[i].views[0].dtype);
    if (!py_number) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, i, py_number);
  }
  return py_list;
}

static int kind_find(const char *name, enum number_kind *kind) {
  for (*kind = NUMBER_NONFINITE; *kind < NUMBER_COMPARE; (*kind)++) {
    if (strcmp(name, kinds[*kind].name) == 0) {
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "kind is '%s'; valid: nonfinite, stats, hash", name);
  return -1;
}

PyDoc_STRVAR(batch_doc,
             "tensor_batch(kind: str, tensors: Sequence[Tensor], /) -> list[Any]\n\nThe numbers 'nonfinite', 'stats' "
             "or 'hash' of tensors of one device, up to 16 in one launch, read back once.");
static PyObject *py_tensor_batch(PyObject *module, PyObject *args) {
  PyObject *sequence = NULL, *py_fast = NULL, *py_result = NULL;
  const char *name = NULL;
  char *answers = NULL;
  enum number_kind kind;
  struct batch batch = {.all = NULL};
  struct dit_error err = {0};
  if (!PyArg_ParseTuple(args, "sO:tensor_batch", &name, &sequence) || kind_find(name, &kind) < 0 ||
      !(py_fast = PySequence_Fast(sequence, "tensors must be a sequence"))) {
    return NULL;
  }
  batch.count = PySequence_Fast_GET_SIZE(py_fast);
  PyObject **tensors = PySequence_Fast_ITEMS(py_fast);
  for (Py_ssize_t i = 0; i < batch.count; i++) {
    if (question_check_tensor(tensors[i], "every tensor") < 0) {
      goto done;
    }
  }
  if (batch.count == 0) {
    py_result = PyList_New(0);
    goto done;
  }
  batch.all = PyMem_Calloc((size_t)batch.count, sizeof *batch.all);
  answers = PyMem_Calloc((size_t)batch.count, kinds[kind].size);
  if (!batch.all || !answers) {
    PyErr_NoMemory();
    goto done;
  }
  if (!batch_prepare(&batch, tensors, kind)) {
    PyErr_SetString(PyExc_ValueError,
                    "the tensors are not all plain ones of one device that a helper in C reads; ask one by one");
    goto done;
  }
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = batch_answer(&batch, answers, &err);
  Py_END_ALLOW_THREADS;
  py_result = status == DIT_OK ? batch_describe(&batch, answers) : py_status_raise(module, status, &err);
done:
  PyMem_Free(batch.all);
  PyMem_Free(answers);
  Py_DECREF(py_fast);
  return py_result;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

PyMethodDef py_helper_methods[] = {
    {"helper_set_answer", py_helper_set_answer, METH_O, set_answer_doc},
    {"tensor_plain", KEYWORDS(py_tensor_plain), plain_doc},
    {"tensor_batch", py_tensor_batch, METH_VARARGS, batch_doc},
    {"tensor_stats", KEYWORDS(py_tensor_stats), stats_doc},
    {"tensor_nonfinite", KEYWORDS(py_tensor_nonfinite), nonfinite_doc},
    {"tensor_hash", KEYWORDS(py_tensor_hash), hash_doc},
    {"tensor_compare", KEYWORDS(py_tensor_compare), compare_doc},
    {"tensor_compare_detail", KEYWORDS(py_tensor_compare_detail), detail_doc},
    {NULL, NULL, 0, NULL},
};
