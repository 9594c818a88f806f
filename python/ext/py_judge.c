// The judge for Python (dit/verdict.h): replay, run_op_from_data, test-device and module_tools ask it, as OpAutoCompare
// does from C. python/ditorch/judge.py makes the runs.
//
// Values are tensors whose memory the CPU can read (judge_tensor_open copies others). The GIL is dropped while numbers
// are compared and taken back for each run.
#include <math.h>
#include <string.h>

#include "dit/random.h"
#include "module.h"
#include "py_helper.h"
#include "tools/compare/judge.h"

// Of the moves of gradients, as in tools/compare/backward.c.
#define GRADIENT_SEED UINT64_C(0x10000)

static const char *const run_names[] = {
    [DIT_RUN_WIDE] = "wide",     [DIT_RUN_NATIVE] = "native",           [DIT_RUN_SHAKEN] = "shaken",
    [DIT_RUN_JITTER] = "jitter", [DIT_RUN_JITTER_WIDE] = "jitter_wide", [DIT_RUN_OTHER] = "other",
};
#define RUNS (sizeof run_names / sizeof *run_names)

/// What one judgement holds.
struct judging {
  PyThreadState *thread;
  PyObject *run;     ///< borrowed: called with (kind, size, narrow, seed)
  PyObject *inputs;  ///< borrowed: tuple of tensors
  struct judge_tensor open[RUNS];
  struct judge_tensor *tensors;   ///< owned: of the inputs
  struct dit_tensor_view *views;  ///< owned
  Py_ssize_t count;
  struct dit_verdict_arguments arguments;
};

static void judging_reset(struct judging *judging) {
  for (size_t i = 0; i < RUNS; i++) {
    judge_tensor_close(&judging->open[i]);
  }
  for (Py_ssize_t i = 0; i < judging->count; i++) {
    judge_tensor_close(&judging->tensors[i]);
  }
  PyMem_Free(judging->tensors);
  PyMem_Free(judging->views);
}

static enum dit_status pending_set(struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_INTERNAL, "an exception of Python is pending");
}

static enum dit_status value_open(struct judging *judging, const struct dit_verdict_request *request, int index,
                                  struct dit_tensor_view *view, struct dit_error *err) {
  PyObject *py_values = PyObject_CallFunction(judging->run, "sdOK", run_names[request->kind], request->size,
                                              request->narrow ? Py_True : Py_False, (unsigned long long)request->seed);
  if (!py_values) {
    return pending_set(err);
  }
  if (PyUnicode_Check(py_values)) {  // why there is none
    const char *text = PyUnicode_AsUTF8(py_values);
    enum dit_status status = dit_error_set(err, DIT_ERR_UNSUPPORTED, "%.200s", text ? text : "");
    py_error_drop();
    Py_DECREF(py_values);
    return status;
  }
  PyObject *value =
      PySequence_Check(py_values) && index < PySequence_Size(py_values) ? PySequence_GetItem(py_values, index) : NULL;
  Py_DECREF(py_values);
  py_error_drop();
  if (!value || !engine_is_tensor(value)) {
    Py_XDECREF(value);
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the run gave no such tensor");
  }
  struct judge_tensor *tensor = &judging->open[request->kind];
  judge_tensor_close(tensor);
  int opened = judge_tensor_open(tensor, value);
  Py_DECREF(value);
  if (opened < 0) {
    return pending_set(err);
  }
  *view = tensor->view;
  return DIT_OK;
}

static enum dit_status judging_run(void *context, const struct dit_verdict_request *request, int index,
                                   struct dit_tensor_view *value, struct dit_error *err) {
  struct judging *judging = context;
  PyEval_RestoreThread(judging->thread);
  enum dit_status status = value_open(judging, request, index, value, err);
  judging->thread = PyEval_SaveThread();
  return status;
}

static enum dit_status arguments_open(struct judging *judging, struct dit_error *err) {
  Py_ssize_t count = PyTuple_GET_SIZE(judging->inputs);
  judging->tensors = PyMem_Calloc((size_t)count + 1, sizeof *judging->tensors);
  judging->views = PyMem_Calloc((size_t)count + 1, sizeof *judging->views);
  if (!judging->tensors || !judging->views) {
    (void)PyErr_NoMemory();
    return pending_set(err);
  }
  for (; judging->count < count; judging->count++) {
    if (judge_tensor_open(&judging->tensors[judging->count], PyTuple_GET_ITEM(judging->inputs, judging->count)) < 0) {
      return pending_set(err);
    }
    judging->views[judging->count] = judging->tensors[judging->count].view;
  }
  judging->arguments.inputs = judging->views;
  judging->arguments.input_count = (int)count;
  return DIT_OK;
}

static enum dit_status judging_arguments(void *context, struct dit_verdict_arguments *arguments,
                                         struct dit_error *err) {
  struct judging *judging = context;
  PyEval_RestoreThread(judging->thread);
  enum dit_status status = arguments_open(judging, err);
  judging->thread = PyEval_SaveThread();
  *arguments = judging->arguments;
  return status;
}

static PyObject *result_describe(const struct dit_verdict_result *result) {
  static const char *const verdicts[] = {
      [DIT_VERDICT_RIGHT] = "right", [DIT_VERDICT_WRONG] = "wrong", [DIT_VERDICT_UNKNOWN] = "unknown"};
  return Py_BuildValue("{s:s,s:s,s:d,s:d,s:d,s:L,s:L,s:L,s:d,s:d}", "verdict", verdicts[result->verdict], "reason",
                       result->reason, "error", result->error, "allowed", result->allowed, "cpu_error",
                       result->cpu_error, "wrong", (long long)result->wrong, "numel", (long long)result->numel, "index",
                       (long long)result->index, "value", result->value, "reference", result->reference);
}

static PyObject *judging_finish(struct judging *judging, const struct dit_verdict_case *c, PyObject *device,
                                PyObject *first) {
  struct judge_tensor a = {0}, b = {0};
  struct dit_verdict_result result;
  struct dit_error err = {0};
  const struct dit_verdict_source source = {judging, judging_run, judging_arguments};
  PyObject *py_answer = NULL;
  if (judge_tensor_open(&a, device) == 0 && judge_tensor_open(&b, first) == 0) {
    judging->thread = PyEval_SaveThread();
    enum dit_status status = dit_verdict_judge(c, &source, &a.view, &b.view, &result, &err);
    PyEval_RestoreThread(judging->thread);
    if (status == DIT_OK) {
      py_answer = result_describe(&result);
    } else if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_NotImplementedError, err.message);
    }
  }
  judge_tensor_close(&a);
  judge_tensor_close(&b);
  return py_answer;
}

static int what_read(const char *text, enum dit_verdict_what *what) {
  static const char *const names[] = {"input", "output", "grad"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, names[i]) == 0) {
      *what = (enum dit_verdict_what)i;
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "what is %s; valid: input, output, grad", text);
  return -1;
}

PyDoc_STRVAR(judge_doc,
             "judge(name, device, first, run, inputs=(), what='output', index=0, careful=False, seed=0, dim=None, "
             "index_input=-1, input_roundoff=0.0, between=0.0) -> dict\n\nIs value number `index` of a call right? "
             "`first` is what "
             "the CPU has at hand; run(kind, size, narrow, seed) makes a further run and returns its values, or a text "
             "that says why there is none.");
static PyObject *py_judge(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name",    "device", "first", "run",         "inputs",         "what",    "index",
                          "careful", "seed",   "dim",   "index_input", "input_roundoff", "between", NULL};
  (void)module;
  const char *name, *what = "output";
  PyObject *device, *first, *py_dim = Py_None, *inputs = NULL;
  struct judging judging = {.arguments = {.index = -1}};
  struct dit_verdict_case c = {0};
  int careful = 0;
  unsigned long long seed = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOOO|O!sipKOidd:judge", names, &name, &device, &first, &judging.run,
                                   &PyTuple_Type, &inputs, &what, &c.index, &careful, &seed, &py_dim,
                                   &judging.arguments.index, &judging.arguments.input_roundoff, &c.between) ||
      what_read(what, &c.what) < 0 || engine_torch_load() < 0) {
    return NULL;
  }
  if (question_check_tensor(device, "device") < 0 || question_check_tensor(first, "first") < 0) {
    return NULL;
  }
  if (py_dim != Py_None) {
    judging.arguments.dim = PyLong_AsLongLong(py_dim);
    judging.arguments.has_dim = true;
  }
  PyObject *py_none = inputs ? NULL : PyTuple_New(0);
  judging.inputs = inputs ? inputs : py_none;
  c.op = dit_operator_find(name);
  c.traits = dit_operator_get_traits(name);
  c.is_careful = careful;
  c.seed = seed;
  PyObject *py_answer = PyErr_Occurred() || !judging.inputs ? NULL : judging_finish(&judging, &c, device, first);
  judging_reset(&judging);
  Py_XDECREF(py_none);
  return py_answer;
}

PyDoc_STRVAR(move_doc,
             "judge_move(tensor, size, seed, place, gradient=False) -> None\n\nMove every number of a dense float64 or "
             "complex128 "
             "CPU tensor by a random relative error of at most `size`, in place, as the judge's further runs want it. "
             "The tensor "
             "is argument number `place`, or the gradient of output number `place`.");
static PyObject *py_judge_move(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *tensor;
  double size;
  unsigned long long seed;
  int place, gradient = 0;
  if (!PyArg_ParseTuple(args, "OdKi|p:judge_move", &tensor, &size, &seed, &place, &gradient) ||
      engine_torch_load() < 0) {
    return NULL;
  }
  uint64_t own = gradient ? dit_random_mix(seed, GRADIENT_SEED) : seed;
  struct engine_tensor info;
  struct dit_tensor_view view;
  if (question_check_tensor(tensor, "tensor") < 0) {
    return NULL;
  }
  engine_tensor_read(tensor, &info);
  bool is_here = info.place == ENGINE_PLACE_CPU && engine_tensor_get_view(&info, &view) &&
                 (view.dtype == DIT_DTYPE_F64 || view.dtype == DIT_DTYPE_C128) &&
                 dit_shape_is_dense(view.ndim, view.sizes, view.strides);
  if (is_here) {
    Py_BEGIN_ALLOW_THREADS;
    dit_verdict_move(view.data, view.numel * (view.dtype == DIT_DTYPE_C128 ? 2 : 1), size, own, place);
    Py_END_ALLOW_THREADS;
  }
  engine_tensor_reset(&info);
  if (!is_here) {
    PyErr_SetString(PyExc_ValueError, "judge_move takes a dense float64 or complex128 tensor of the CPU");
    return NULL;
  }
  Py_RETURN_NONE;
}

PyDoc_STRVAR(numbers_doc,
             "judge_move_numbers(numbers, size, seed) -> list[float]\n\nThe numbers among the arguments of a call, in "
             "order, each off by a random relative error of at most `size`; small integers stay.");
static PyObject *py_judge_move_numbers(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *numbers;
  double size;
  unsigned long long seed;
  if (!PyArg_ParseTuple(args, "O!dK:judge_move_numbers", &PyList_Type, &numbers, &size, &seed)) {
    return NULL;
  }
  uint64_t state = dit_verdict_move_begin(seed);
  PyObject *py_moved = PyList_New(PyList_GET_SIZE(numbers));
  for (Py_ssize_t i = 0; py_moved && i < PyList_GET_SIZE(numbers); i++) {
    double number = PyFloat_AsDouble(PyList_GET_ITEM(numbers, i));
    PyObject *py_number = PyErr_Occurred() ? NULL : PyFloat_FromDouble(dit_verdict_move_number(number, size, &state));
    if (!py_number) {
      Py_CLEAR(py_moved);
      break;
    }
    PyList_SET_ITEM(py_moved, i, py_number);
  }
  return py_moved;
}

PyDoc_STRVAR(roundoff_doc,
             "judge_input_roundoff(name) -> float\n\nThe unit roundoff to which a CUDA device rounds float32 inputs of "
             "this operator on purpose (TF32); 0 where it does not.");
static PyObject *py_judge_input_roundoff(PyObject *module, PyObject *name) {
  (void)module;
  const char *text = PyUnicode_AsUTF8(name);
  if (!text) {
    return NULL;
  }
  const struct dit_operator *op = dit_operator_find(text);
  bool contracts = dit_operator_has(text, DIT_OPERATOR_CONTRACTION);
  return PyFloat_FromDouble(op && contracts ? judge_input_roundoff(op->name) : 0);
}

PyDoc_STRVAR(constants_doc, "judge_constants() -> dict[str, Any]\n\nThe numbers of the rule (dit/verdict.h).");
static PyObject *py_judge_constants(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("{s:d,s:i,s:i,s:d,s:i}", "factor", DIT_VERDICT_FACTOR, "thin", DIT_VERDICT_THIN, "rounds",
                       DIT_VERDICT_ROUNDS, "jitter", DIT_VERDICT_JITTER, "odd", DIT_VERDICT_ODD);
}

PyDoc_STRVAR(forget_doc,
             "judge_forget() -> None\n\nForget what earlier calls left behind for OpAutoCompare: the next results are "
             "judged by full runs, as the first ones were.");
static PyObject *py_judge_forget(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  judge_forget();
  Py_RETURN_NONE;
}

PyMethodDef py_judge_methods[] = {
    {"judge", (PyCFunction)(void (*)(void))py_judge, METH_VARARGS | METH_KEYWORDS, judge_doc},
    {"judge_move", py_judge_move, METH_VARARGS, move_doc},
    {"judge_move_numbers", py_judge_move_numbers, METH_VARARGS, numbers_doc},
    {"judge_constants", py_judge_constants, METH_NOARGS, constants_doc},
    {"judge_forget", py_judge_forget, METH_NOARGS, forget_doc},
    {"judge_input_roundoff", py_judge_input_roundoff, METH_O, roundoff_doc},
    {NULL, NULL, 0, NULL},
};
