// A tool for tests and measurements: hands every event to a Python function, the backward's begin and completeness
// included.
#include "engine/backward.h"
#include "engine/internal.h"

struct probe {
  PyObject *py_callback;  // owned; NULL: nothing is told
  int64_t kept;           // windows that live
};

static int told(struct engine_tool *tool, const char *kind, PyObject *py_event) {
  const struct probe *probe = tool->state;
  PyObject *py_done = py_event ? PyObject_CallFunction(probe->py_callback, "sO", kind, py_event) : NULL;
  Py_XDECREF(py_event);
  Py_XDECREF(py_done);
  return py_done ? 0 : -1;
}

static int probe_after(struct engine_tool *tool, struct engine_call *call) {
  const struct probe *probe = tool->state;
  if (!probe->py_callback) {
    return 0;
  }
  PyObject *py_tensors = PyTuple_New(call->in.tensor_count);
  for (int i = 0; py_tensors && i < call->in.tensor_count; i++) {
    PyTuple_SET_ITEM(py_tensors, i, Py_NewRef(call->in.tensor[i].py_tensor));
  }
  return told(
      tool, "call",
      Py_BuildValue("{s:K,s:O,s:O,s:O,s:O,s:O,s:N,s:O,s:O}", "id", (unsigned long long)call->id, "name",
                    call->op->py_name, "func", call->func, "args", call->args, "kwargs",
                    call->kwargs ? call->kwargs : Py_None, "result", call->result ? call->result : Py_None, "tensors",
                    py_tensors, "recompute", call->flags & ENGINE_CALL_RECOMPUTE ? Py_True : Py_False, "failed",
                    call->flags & ENGINE_CALL_FAILED ? Py_True : Py_False));
}

static void *probe_keep(struct engine_tool *tool, struct engine_call *call) {
  (void)call;
  struct probe *probe = tool->state;
  probe->kept++;
  return probe;
}

static void probe_release(struct engine_tool *tool, void *data) {
  (void)data;
  ((struct probe *)tool->state)->kept--;
}

static PyObject *gradients_copy(PyObject *const *gradients, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyTuple_SET_ITEM(py_tuple, i, Py_NewRef(gradients[i] ? gradients[i] : Py_None));
  }
  return py_tuple;
}

static int backward_tell(struct engine_tool *tool, const char *kind, const struct engine_backward *backward) {
  const struct probe *probe = tool->state;
  if (!probe->py_callback) {
    return 0;
  }
  return told(tool, kind,
              Py_BuildValue("{s:K,s:O,s:i,s:O,s:O,s:L,s:L,s:N,s:N}", "id", (unsigned long long)backward->id, "name",
                            backward->op->py_name, "round", (int)backward->round, "complete",
                            backward->complete ? Py_True : Py_False, "recompute",
                            backward->flags & ENGINE_CALL_RECOMPUTE ? Py_True : Py_False, "begin_ns",
                            (long long)backward->begin_ns, "end_ns", (long long)backward->end_ns, "grad_outputs",
                            gradients_copy(backward->grad_outputs, backward->grad_output_count), "grad_inputs",
                            gradients_copy(backward->grad_inputs, backward->grad_input_count)));
}

static int probe_backward_begin(struct engine_tool *tool, struct engine_backward *backward) {
  return backward_tell(tool, "begin", backward);
}

static int probe_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  return backward_tell(tool, "end", backward);
}

static void probe_destroy(struct engine_tool *tool) {
  struct probe *probe = tool->state;
  if (probe) {
    Py_XDECREF(probe->py_callback);
    PyMem_Free(probe);
  }
}

static PyObject *probe_describe(struct engine_tool *tool) {
  return Py_BuildValue("{s:L}", "kept", (long long)((const struct probe *)tool->state)->kept);
}

static const struct engine_tool_vtable probe_vtable = {
    .name = "probe",
    .hook = "Probe",
    .needs = ENGINE_NEED_BACKWARD,
    .after = probe_after,
    .keep = probe_keep,
    .release = probe_release,
    .backward_begin = probe_backward_begin,
    .backward_end = probe_backward_end,
    .destroy = probe_destroy,
    .describe = probe_describe,
};

PyDoc_STRVAR(probe_doc,
             "backward_probe(callback: Callable[[str, dict[str, Any]], Any] | None, /) -> Tool\n\nA tool for tests: "
             "callback(kind, event) with kind 'call', 'begin' or 'end' gets every event, CPU operators included; None: "
             "nothing is told, describe() counts windows.");
static PyObject *py_probe(PyObject *module, PyObject *callback) {
  (void)module;
  if (engine_torch_load() < 0) {
    return NULL;
  }
  struct probe *probe = PyMem_Calloc(1, sizeof *probe);
  PyObject *py_tool = probe ? engine_tool_type.tp_alloc(&engine_tool_type, 0) : PyErr_NoMemory();
  if (!py_tool) {
    PyMem_Free(probe);
    return NULL;
  }
  probe->py_callback = callback == Py_None ? NULL : Py_NewRef(callback);
  struct engine_tool *tool = (struct engine_tool *)(void *)py_tool;
  tool->vtable = &probe_vtable;
  tool->state = probe;
  tool->slot = -1;
  tool->due = tool->cpu = true;
  tool->numel_max = tool->first = INT64_MAX;
  return py_tool;
}

PyMethodDef py_backward_probe_methods[] = {
    {"backward_probe", py_probe, METH_O, probe_doc},
    {NULL, NULL, 0, NULL},
};
