// The further runs that judging one call may need: their values in the order of those that are judged.
//
// Each run is made when it is first asked for; shaken and jittered ones each time. Values are borrowed from what the
// struct owns until judge_runs_reset.
#include <string.h>

#include "tools/compare/judge.h"
#include "tools/compare/state.h"
#include "torch_names.h"

static int values_take_leaves(struct judge_values *values, PyObject *result) {
  values->leaves = PyMem_Malloc(sizeof *values->leaves);
  if (!values->leaves) {
    (void)PyErr_NoMemory();
    return -1;
  }
  engine_leaves_init(values->leaves);
  if (engine_leaves_add(values->leaves, result, "out") < 0) {
    return -1;
  }
  values->count = values->leaves->leaf_count;
  values->value = PyMem_Calloc((size_t)values->count + 1, sizeof *values->value);
  if (!values->value) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < values->count; i++) {
    values->value[i] = values->leaves->leaf[i].value;
  }
  return 0;
}

// Of a list, which is kept.
static int values_take_list(struct judge_values *values, PyObject *py_list) {
  values->py_owner = py_list;
  values->count = (int)PyList_GET_SIZE(py_list);
  values->value = PyMem_Calloc((size_t)values->count + 1, sizeof *values->value);
  if (!values->value) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < values->count; i++) {
    values->value[i] = PyList_GET_ITEM(py_list, i);
  }
  return 0;
}

static PyObject *inputs_list(const struct compare_run *run) {
  PyObject *py_list = PyList_New(run->input_count);
  for (int i = 0; py_list && i < run->input_count; i++) {
    PyList_SET_ITEM(py_list, i, Py_NewRef(run->inputs[i] ? run->inputs[i] : Py_None));
  }
  return py_list;
}

static int values_make(struct judge_runs *runs, enum compare_precision precision, struct judge_values *values) {
  struct compare_case *c = runs->c;
  if (runs->what == COMPARE_GRAD) {
    PyObject *py_grads = NULL;
    if (compare_run_backward(c, precision, c->grad_outputs, c->grad_output_count, &py_grads, values->reason) < 0) {
      return -1;
    }
    return py_grads ? values_take_list(values, py_grads) : 0;
  }
  struct compare_run run = {0};
  int status = compare_run_forward(c, precision, false, &run);
  if (status == 0 && (!run.py_result || run.reason[0])) {
    memcpy(values->reason, run.reason, sizeof values->reason);
  } else if (status == 0 && runs->what == COMPARE_INPUT) {
    PyObject *py_list = inputs_list(&run);
    status = py_list ? values_take_list(values, py_list) : -1;
  } else if (status == 0) {
    values->py_owner = Py_NewRef(run.py_result);
    status = values_take_leaves(values, run.py_result);
  }
  compare_run_reset(&run);
  return status;
}

static void values_reset(struct judge_values *values) {
  if (values->leaves) {
    engine_leaves_reset(values->leaves);
    PyMem_Free(values->leaves);
  }
  PyMem_Free(values->value);
  Py_XDECREF(values->py_owner);
  *values = (struct judge_values){0};
}

static struct judge_values *values_find(struct judge_runs *runs, enum compare_precision precision) {
  return precision == COMPARE_WIDE          ? &runs->wide
         : precision == COMPARE_NATIVE      ? &runs->native
         : precision == COMPARE_OTHER       ? &runs->other
         : precision == COMPARE_JITTER_WIDE ? &runs->jittered
                                            : &runs->shaken;
}

const char *judge_runs_get_reason(struct judge_runs *runs, enum compare_precision precision) {
  return values_find(runs, precision)->reason;
}

static int values_refresh(struct judge_runs *runs, enum compare_precision precision, struct judge_values *values) {
  values_reset(values);
  values->tried = true;
  return values_make(runs, precision, values);
}

struct judge_values *judge_runs_get(struct judge_runs *runs, enum compare_precision precision) {
  struct judge_values *values = values_find(runs, precision);
  bool again = values == &runs->shaken || values == &runs->jittered;
  if (values->tried && !again) {
    return values->value ? values : NULL;
  }
  if (values_refresh(runs, precision, values) < 0) {
    return NULL;
  }
  bool native = precision == COMPARE_NATIVE || precision == COMPARE_JITTER;
  if (!values->value && native && compare_run_has_other(runs->c)) {
    runs->c->refuses_guests = true;
    if (values_refresh(runs, precision, values) < 0) {
      return NULL;
    }
  }
  return values->value ? values : NULL;
}

void judge_runs_reset(struct judge_runs *runs) {
  values_reset(&runs->wide);
  values_reset(&runs->native);
  values_reset(&runs->other);
  values_reset(&runs->shaken);
  values_reset(&runs->jittered);
}

// Precision of the device

// A setting of torch._C by its getter; -1 when this torch has none, or the program uses the newer settings alone.
static int setting_get(const char *getter) {
  PyObject *py_module = PyObject_GetAttrString(torch_names.py_torch, "_C");
  PyObject *py_value = py_module ? PyObject_CallMethod(py_module, getter, NULL) : NULL;
  int answer = py_value ? PyObject_IsTrue(py_value) : -1;
  Py_XDECREF(py_value);
  Py_XDECREF(py_module);
  py_error_drop();
  return answer;
}

// The newer setting: torch.backends.cuda.matmul.fp32_precision.
static bool precision_is_tf32(const char *operator) {
  PyObject *py_module = PyObject_GetAttrString(torch_names.py_torch, "_C");
  PyObject *py_text =
      py_module ? PyObject_CallMethod(py_module, "_get_fp32_precision_getter", "ss", "cuda", operator) : NULL;
  bool answer = py_text && PyUnicode_Check(py_text) && PyUnicode_CompareWithASCIIString(py_text, "tf32") == 0;
  Py_XDECREF(py_text);
  Py_XDECREF(py_module);
  py_error_drop();
  return answer;
}

double judge_input_roundoff(const char *word) {
  // Attention of float32 in one kernel makes its products of three parts in TF32 each (PyTorch's efficient attention).
  if (strstr(word, "attention")) {
    return 0x1p-21;
  }
  bool is_cudnn =
      strstr(word, "conv") || strncmp(word, "rnn_", 4) == 0 || strcmp(word, "lstm") == 0 || strcmp(word, "gru") == 0;
  int reduced = is_cudnn ? setting_get("_get_cudnn_allow_tf32") : setting_get("_get_cublas_allow_tf32");
  if (is_cudnn && reduced > 0) {
    reduced = setting_get("_get_cudnn_enabled");
  }
  if (reduced < 0) {
    reduced = precision_is_tf32(is_cudnn ? "conv" : "matmul");
  }
  return reduced > 0 ? 0x1p-11 : 0;
}
