// What the judge reads of Python's tensors, for OpAutoCompare (judge.c) and for whoever asks from Python (py_judge.c):
// the values of further runs, and the arguments, of which a few operators' verdicts depend.
#include "engine/internal.h"
#include "tools/compare/judge.h"

static enum dit_status pending_set(struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_INTERNAL, "an exception of Python is pending");
}

enum dit_status judge_reading_open(struct judge_reading *reading, enum dit_verdict_run kind, PyObject *value,
                                   const char *reason, struct dit_tensor_view *view, struct dit_error *err) {
  struct judge_tensor *tensor = &reading->runs[kind];
  judge_tensor_close(tensor);
  if (!value || !engine_is_tensor(value)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%.200s", *reason ? reason : "the run gave no such tensor");
  }
  if (judge_tensor_open(tensor, value) < 0) {
    return pending_set(err);
  }
  *view = tensor->view;
  return DIT_OK;
}

// An argument by name or by place; borrowed, NULL when it is not given.
static PyObject *argument_get(PyObject *args, PyObject *kwargs, int place, const char *name) {
  PyObject *value = kwargs ? PyDict_GetItemString(kwargs, name) : NULL;
  return value || place < 0 || PyTuple_GET_SIZE(args) <= place ? value : PyTuple_GET_ITEM(args, place);
}

static void arguments_fill(const char *name, PyObject *args, PyObject *kwargs, PyObject *const *inputs,
                           struct dit_verdict_arguments *arguments) {
  const struct dit_operator *op = dit_operator_find(name);
  if (!op) {
    return;
  }
  PyObject *dim = argument_get(args, kwargs, op->dim, "dim");
  if (dim && PyLong_Check(dim) && !PyBool_Check(dim)) {
    arguments->dim = PyLong_AsLongLong(dim);
    arguments->has_dim = true;
  }
  PyObject *index = argument_get(args, kwargs, op->index, "index");
  for (int i = 0; index && i < arguments->input_count; i++) {
    arguments->index = inputs[i] == index ? i : arguments->index;
  }
  PyObject *given = op->unless ? argument_get(args, kwargs, op->unless_place, op->unless) : NULL;
  arguments->is_inexact = given && given != Py_None;
  arguments->is_unsorted = op->sorted >= 0 && argument_get(args, kwargs, op->sorted, "sorted") == Py_False;
  arguments->input_roundoff = dit_operator_has(name, DIT_OPERATOR_CONTRACTION) ? judge_input_roundoff(op->name) : 0;
  py_error_drop();
}

enum dit_status judge_reading_open_arguments(struct judge_reading *reading, const char *name, PyObject *args,
                                             PyObject *kwargs, PyObject *const *inputs, int count,
                                             struct dit_verdict_arguments *arguments, struct dit_error *err) {
  reading->inputs = PyMem_Calloc((size_t)count + 1, sizeof *reading->inputs);
  reading->views = PyMem_Calloc((size_t)count + 1, sizeof *reading->views);
  if (!reading->inputs || !reading->views) {
    (void)PyErr_NoMemory();
    return pending_set(err);
  }
  for (; reading->input_count < count; reading->input_count++) {
    struct judge_tensor *input = &reading->inputs[reading->input_count];
    if (judge_tensor_open(input, inputs[reading->input_count]) < 0) {
      return pending_set(err);
    }
    reading->views[reading->input_count] = input->view;
  }
  arguments->inputs = reading->views;
  arguments->input_count = count;
  arguments_fill(name, args, kwargs, inputs, arguments);
  return DIT_OK;
}

void judge_reading_reset(struct judge_reading *reading) {
  for (size_t i = 0; i < sizeof reading->runs / sizeof *reading->runs; i++) {
    judge_tensor_close(&reading->runs[i]);
  }
  for (int i = 0; i < reading->input_count; i++) {
    judge_tensor_close(&reading->inputs[i]);
  }
  PyMem_Free(reading->inputs);
  PyMem_Free(reading->views);
  *reading = (struct judge_reading){0};
}
