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

/// What one judgement holds.
struct judging {
  PyThreadState *thread;
  const char *name;
  PyObject *run;                     ///< borrowed: called with (kind, size, narrow, seed)
  PyObject *args, *kwargs, *inputs;  ///< borrowed: tuple, dict or NULL, tuple of tensors
  struct judge_reading reading;
};

static enum dit_status value_open(struct judging *judging, const struct dit_verdict_request *request, int index,
                                  struct dit_tensor_view *view, struct dit_error *err) {
  PyObject *py_values = PyObject_CallFunction(judging->run, "sdOK", run_names[request->kind], request->size,
                                              request->narrow ? Py_True : Py_False, (unsigned long long)request->seed);
  if (!py_values) {
    return dit_error_set(err, DIT_ERR_INTERNAL, "an exception of Python is pending");
  }
  const char *reason = PyUnicode_Check(py_values) ? PyUnicode_AsUTF8(py_values) : "";  // why there is none
  PyObject *py_value = !PyUnicode_Check(py_values) && PySequence_Check(py_values) && index < PySequence_Size(py_values)
                           ? PySequence_GetItem(py_values, index)
                           : NULL;
  py_error_drop();
  enum dit_status status =
      judge_reading_open(&judging->reading, request->kind, py_value, reason ? reason : "", view, err);
  Py_XDECREF(py_value);
  Py_DECREF(py_values);
  return status;
}

static enum dit_status judging_run(void *context, const struct dit_verdict_request *request, int index,
                                   struct dit_tensor_view *value, struct dit_error *err) {
  struct judging *judging = context;
  PyEval_RestoreThread(judging->thread);
  enum dit_status status = value_open(judging, request, index, value, err);
  judging->thread = PyEval_SaveThread();
  return status;
}

static enum dit_status judging_arguments(void *context, struct dit_verdict_arguments *arguments,
                                         struct dit_error *err) {
  struct judging *judging = context;
  PyEval_RestoreThread(judging->thread);
  enum dit_status status = judge_reading_open_arguments(&judging->reading, judging->name, judging->args,
                                                        judging->kwargs, &PyTuple_GET_ITEM(judging->inputs, 0),
                                                        (int)PyTuple_GET_SIZE(judging->inputs), arguments, err);
  judging->thread = PyEval_SaveThread();
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
             "judge(name, device, first, run, args=(), kwargs=None, inputs=(), what='output', index=0, careful=False, "
             "seed=0, between=0.0) -> dict\n\nIs value number `index` of a call right? `first` is what the CPU has at "
             "hand; run(kind, size, narrow, seed) makes a further run and returns its values, or a text that says why "
             "there is none. `inputs` are the tensors among the arguments.");
static PyObject *py_judge(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "device", "first",   "run",  "args",    "kwargs", "inputs",
                          "what", "index",  "careful", "seed", "between", NULL};
  (void)module;
  const char *what = "output";
  PyObject *device, *first, *py_none = PyTuple_New(0);
  struct judging judging = {.args = py_none, .kwargs = Py_None, .inputs = py_none};
  struct dit_verdict_case c = {0};
  int careful = 0;
  unsigned long long seed = 0;
  PyObject *py_answer = NULL;
  if (py_none &&
      PyArg_ParseTupleAndKeywords(args, kwargs, "sOOO|O!OO!sipKd:judge", names, &judging.name, &device, &first,
                                  &judging.run, &PyTuple_Type, &judging.args, &judging.kwargs, &PyTuple_Type,
                                  &judging.inputs, &what, &c.index, &careful, &seed, &c.between) &&
      what_read(what, &c.what) == 0 && engine_torch_load() == 0 && question_check_tensor(device, "device") == 0 &&
      question_check_tensor(first, "first") == 0) {
    judging.kwargs = PyDict_Check(judging.kwargs) ? judging.kwargs : NULL;
    c.op = dit_operator_find(judging.name);
    c.traits = dit_operator_get_traits(judging.name);
    c.is_careful = careful;
    c.seed = seed;
    py_answer = judging_finish(&judging, &c, device, first);
    judge_reading_reset(&judging.reading);
  }
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
    {NULL, NULL, 0, NULL},
};
