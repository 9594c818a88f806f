// From the CPU back to the device: arguments that the operator changed, and its results.
//
// What changed is told by the version counters of the twins and by the operator's schema. A result that is
// an argument's twin is the argument itself. A result that is a view of one means that nothing was computed: the device
// runs the operator. All other results are copied, sharing memory among themselves as on the CPU.
#include <string.h>

#include "dit/dtype.h"
#include "engine/backward_torch.h"
#include "engine/internal.h"
#include "py_call.h"
#include "tools/cast/dtypes.h"
#include "tools/fallback/fallback.h"
#include "tools/remap.h"
#include "tools/twin.h"

// Back into the arguments

// An `out` argument that the operator resized: the same shape and strides for the original.
static int argument_resize(PyObject *original, const struct engine_tensor *twin) {
  PyObject *py_sizes = py_numbers_pack(twin->sizes, twin->ndim),
           *py_strides = py_numbers_pack(twin->strides, twin->ndim);
  PyObject *py_resized = NULL, *py_done = NULL;
  if (py_sizes && py_strides) {
    PyObject *arguments[] = {original, py_sizes};
    py_resized = PyObject_Vectorcall(torch_names.py_resize, arguments, 2, NULL);
    if (py_resized) {
      py_done = PyObject_CallMethod(original, "as_strided_", "OO", py_sizes, py_strides);
    }
  }
  int status = py_done ? 0 : -1;
  Py_XDECREF(py_done);
  Py_XDECREF(py_resized);
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  return status;
}

static bool shapes_differ(const struct engine_tensor *a, const struct engine_tensor *b) {
  return a->ndim != b->ndim || memcmp(a->sizes, b->sizes, sizeof *a->sizes * (size_t)a->ndim) != 0;
}

// Autograd saw the change: the twin's node was made during the run. Else (an operator that works under no_grad inside)
// it must not see the copy either.
static bool change_is_recorded(const struct fallback_run *run, PyObject *twin) {
  PyObject *py_node = engine_tensor_get(twin, engine_torch.grad_fn);
  if (!py_node) {
    py_error_drop();
    return false;
  }
  struct backward_node_type storage;
  const struct backward_node_type *type = py_node == Py_None ? NULL : backward_node_get_type(py_node, &storage);
  uint64_t sequence = type ? backward_node_get_sequence(py_node, type) : UINT64_MAX;
  py_error_drop();
  Py_DECREF(py_node);
  return sequence != UINT64_MAX && sequence >= run->sequence;
}

static int grad_set(bool on) {
  return py_call_none(torch_names.py_grad_set, on ? Py_True : Py_False);
}

static int argument_copy(PyObject *original, PyObject *twin) {
  return py_call_pair(torch_names.py_copy, original, twin);
}

// A leaf that requires grad and was changed with autograd watching: copy_ raises what the operator would have raised.
static int argument_return(struct fallback_run *run, int index) {
  const struct engine_tensor *original = &run->call->in.tensor[index];
  struct engine_tensor twin;
  PyObject *py_twin = run->twins[index];
  engine_tensor_read(py_twin, &twin);
  int status = 0;
  bool strided = (original->flags & ENGINE_TENSOR_STRIDED) && (twin.flags & ENGINE_TENSOR_STRIDED);
  if (strided && shapes_differ(original, &twin)) {
    status = argument_resize(original->py_tensor, &twin);
  }
  run->up += twin.dtype >= 0 ? twin.numel * (int64_t)dit_dtype_get_size(twin.dtype) : 0;
  bool grad = (original->flags | twin.flags) & ENGINE_TENSOR_GRAD;
  bool quiet = status == 0 && grad && backward_grad_is_enabled() == 1 && !change_is_recorded(run, py_twin);
  if (quiet) {
    status = grad_set(false);
  }
  status = status < 0 ? status : argument_copy(original->py_tensor, py_twin);
  if (quiet) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    (void)!grad_set(true);
    py_error_drop();
    PyErr_Restore(kind, value, traceback);
  }
  engine_tensor_reset(&twin);
  return status;
}

static int arguments_return(struct fallback_run *run, const bool *changed) {
  const struct engine_leaves *in = &run->call->in;
  for (int i = 0; i < in->tensor_count; i++) {
    bool seen = !changed[i];
    for (int j = 0; j < i && !seen; j++) {
      seen = changed[j] && in->tensor[j].py_tensor == in->tensor[i].py_tensor;
    }
    if (!seen && argument_return(run, i) < 0) {
      return -1;
    }
  }
  return 0;
}

// Results

enum fate {
  FATE_SEND,      // copied to the device
  FATE_STAY,      // as it is
  FATE_ARGUMENT,  // it is the argument
  FATE_VIEW,      // it is a view of the argument
};

struct outcome {
  struct engine_leaves out;
  struct engine_span *memories;  // of the twins, as the run left them
  PyObject **places;             // owned: what stands for each result
  uint8_t *fates;
  int *arguments;  // of FATE_ARGUMENT and FATE_VIEW
};

static enum fate result_judge(const struct fallback_run *run, struct outcome *outcome, int index) {
  const struct engine_leaves *in = &run->call->in;
  const struct engine_tensor *result = &outcome->out.tensor[index];
  struct engine_span memory = engine_tensor_get_span(result);
  for (int i = 0; i < in->tensor_count; i++) {
    if (run->twins[i] == result->py_tensor) {
      outcome->arguments[index] = i;
      return fallback_twin_is_copy(run, i) ? FATE_ARGUMENT : FATE_STAY;
    }
  }
  bool on_cpu = result->place == ENGINE_PLACE_CPU || result->place == ENGINE_PLACE_NONE;
  bool lengths = (run->row->traits & FALLBACK_LENGTHS) && index > 0;
  if (run->stays || !on_cpu || lengths) {
    return FATE_STAY;
  }
  for (int i = 0; memory.low && i < in->tensor_count; i++) {
    if (engine_spans_meet(&memory, &outcome->memories[i])) {
      outcome->arguments[index] = i;
      return fallback_twin_is_copy(run, i) ? FATE_VIEW : FATE_STAY;
    }
  }
  return FATE_SEND;
}

static int outcome_make(const struct fallback_run *run, struct outcome *outcome) {
  engine_leaves_init(&outcome->out);
  if (engine_leaves_add(&outcome->out, run->py_result, "out") < 0) {
    return -1;
  }
  size_t count = (size_t)outcome->out.tensor_count, inputs = (size_t)run->call->in.tensor_count;
  char *block =
      count ? PyMem_Calloc(1, count * (sizeof(PyObject *) + sizeof(int) + 1) + inputs * sizeof(struct engine_span))
            : NULL;
  if (count && !block) {
    PyErr_NoMemory();
    return -1;
  }
  outcome->memories = (struct engine_span *)(void *)block;
  outcome->places = (PyObject **)(void *)(outcome->memories + inputs);
  outcome->arguments = (int *)(void *)(outcome->places + count);
  outcome->fates = (uint8_t *)(outcome->arguments + count);
  for (size_t i = 0; count && i < inputs; i++) {
    struct engine_tensor twin;
    engine_tensor_read(run->twins[i], &twin);
    outcome->memories[i] = engine_tensor_get_span(&twin);
    engine_tensor_reset(&twin);
  }
  for (size_t i = 0; i < count; i++) {
    outcome->fates[i] = (uint8_t)result_judge(run, outcome, (int)i);
  }
  return 0;
}

static void outcome_reset(struct outcome *outcome) {
  for (int i = 0; outcome->places && i < outcome->out.tensor_count; i++) {
    Py_XDECREF(outcome->places[i]);
  }
  PyMem_Free(outcome->memories);
  engine_leaves_reset(&outcome->out);
}

// The same view of the original, for an operator that changed its argument and returns a part of it.
static PyObject *view_make(const struct fallback_run *run, const struct outcome *outcome, int index) {
  const struct engine_tensor *result = &outcome->out.tensor[index];
  int argument = outcome->arguments[index];
  struct engine_tensor twin;
  engine_tensor_read(run->twins[argument], &twin);
  PyObject *original = run->call->in.tensor[argument].py_tensor;
  int64_t distance = (int64_t)((uintptr_t)result->data - (uintptr_t)twin.data);
  int64_t shift = distance / (int64_t)dit_dtype_get_size(result->dtype);
  engine_tensor_reset(&twin);
  PyObject *py_base = PyObject_CallOneArg(torch_names.py_offset, original);
  PyObject *py_sizes = py_numbers_pack(result->sizes, result->ndim);
  PyObject *py_strides = py_numbers_pack(result->strides, result->ndim), *py_offset = NULL, *py_view = NULL;
  if (py_base && py_sizes && py_strides) {
    py_offset = PyLong_FromLongLong(PyLong_AsLongLong(py_base) + shift);
  }
  if (py_offset) {
    PyObject *arguments[] = {original, py_sizes, py_strides, py_offset};
    py_view = PyObject_Vectorcall(torch_names.py_as_strided, arguments, 4, NULL);
  }
  Py_XDECREF(py_offset);
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  Py_XDECREF(py_base);
  return py_view;
}

// After the retry in float32: the dtype that the operator gives for what the program passed.
static int results_cast(const struct fallback_run *run, struct outcome *outcome) {
  int count = outcome->out.tensor_count;
  int16_t *dtypes = PyMem_Malloc(sizeof *dtypes * (size_t)(count + 1));
  int status = dtypes ? cast_result_dtypes(run->call, &outcome->out, dtypes) : -1;
  if (!dtypes) {
    PyErr_NoMemory();
  }
  for (int i = 0; status == 0 && i < count; i++) {
    if (outcome->fates[i] == FATE_SEND && dtypes[i] >= 0 && dtypes[i] != outcome->out.tensor[i].dtype) {
      PyObject *arguments[] = {outcome->out.tensor[i].py_tensor, torch_dtype_get(dtypes[i])};
      outcome->places[i] = arguments[1] ? PyObject_Vectorcall(torch_names.py_to, arguments, 2, NULL) : NULL;
      status = outcome->places[i] ? 0 : -1;
    }
  }
  PyMem_Free(dtypes);
  return status;
}

static bool results_are_leaves(const struct engine_tensor *tensors, int count) {
  for (int i = 0; i < count; i++) {
    if (tensors[i].flags & ENGINE_TENSOR_GRAD) {
      PyObject *py_node = engine_tensor_get(tensors[i].py_tensor, engine_torch.grad_fn);
      bool leaf = py_node == Py_None;
      py_error_drop();
      Py_XDECREF(py_node);
      return leaf;
    }
  }
  return false;
}

// All results that are copied, together: they may share memory.
static int results_send(struct fallback_run *run, struct outcome *outcome) {
  struct engine_tensor inline_tensors[4], *tensors = inline_tensors;
  PyObject *inline_copies[4], **copies = inline_copies;
  int all = outcome->out.tensor_count, count = 0, status = 0;
  if (all > 4) {
    tensors = PyMem_Malloc((sizeof *tensors + sizeof *copies) * (size_t)all);
    copies = (PyObject **)(void *)(tensors + (tensors ? all : 0));
    if (!tensors) {
      PyErr_NoMemory();
      return -1;
    }
  }
  for (int i = 0; i < all; i++) {
    if (outcome->fates[i] == FATE_SEND) {
      tensors[count] = outcome->out.tensor[i];
      if (outcome->places[i]) {  // cast
        engine_tensor_read(outcome->places[i], &tensors[count]);
      }
      run->up +=
          tensors[count].dtype >= 0 ? tensors[count].numel * (int64_t)dit_dtype_get_size(tensors[count].dtype) : 0;
      count++;
    }
  }
  enum twin_mode mode = results_are_leaves(tensors, count) ? TWIN_DETACHED : TWIN_ATTACHED;
  status = count ? twin_send(tensors, count, mode, run->py_device, copies) : 0;
  for (int i = 0, at = 0; i < all; i++) {
    if (outcome->fates[i] == FATE_SEND) {
      if (outcome->places[i]) {
        engine_tensor_reset(&tensors[at]);
      }
      if (status == 0) {
        Py_XSETREF(outcome->places[i], copies[at]);
      }
      at++;
    }
  }
  if (tensors != inline_tensors) {
    PyMem_Free(tensors);
  }
  return status;
}

static int results_place(struct fallback_run *run, struct outcome *outcome) {
  if (run->cast && results_cast(run, outcome) < 0) {
    return -1;
  }
  if (results_send(run, outcome) < 0) {
    return -1;
  }
  for (int i = 0; i < outcome->out.tensor_count; i++) {
    if (outcome->fates[i] == FATE_ARGUMENT) {
      outcome->places[i] = Py_NewRef(run->call->in.tensor[outcome->arguments[i]].py_tensor);
    } else if (outcome->fates[i] == FATE_VIEW && !(outcome->places[i] = view_make(run, outcome, i))) {
      return -1;
    }
  }
  return 0;
}

static bool outcome_has_view(const struct outcome *outcome) {
  for (int i = 0; i < outcome->out.tensor_count; i++) {
    if (outcome->fates[i] == FATE_VIEW) {
      return true;
    }
  }
  return false;
}

static PyObject *result_assemble(const struct fallback_run *run, const struct outcome *outcome) {
  if (outcome->out.tensor_count == 0) {
    return Py_NewRef(run->py_result);
  }
  if (outcome->out.tensor[0].py_tensor == run->py_result) {
    return Py_NewRef(outcome->places[0] ? outcome->places[0] : run->py_result);
  }
  return remap_leaves(run->py_result, &outcome->out, outcome->places);
}

PyObject *fallback_run_finish(struct fallback_run *run) {
  bool inline_changed[FALLBACK_INLINE], *changed = inline_changed, any = false;
  struct outcome outcome = {0};
  PyObject *py_result = NULL;
  if (run->call->in.tensor_count > FALLBACK_INLINE) {
    changed = PyMem_Malloc((size_t)run->call->in.tensor_count);
    if (!changed) {
      return PyErr_NoMemory();
    }
  }
  if (outcome_make(run, &outcome) == 0 && fallback_changes_find(run, changed, &any) == 0) {
    bool view = outcome_has_view(&outcome) && !any;
    if (!view && arguments_return(run, changed) == 0 && results_place(run, &outcome) == 0) {
      py_result = result_assemble(run, &outcome);
    }
  }
  outcome_reset(&outcome);
  if (changed != inline_changed) {
    PyMem_Free(changed);
  }
  return py_result;
}
