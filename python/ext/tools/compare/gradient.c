// Gradients of one call: those of the device against those that the CPU makes of the same gradients of the results.
//
// The device's gradients of the results are copied to the CPU, where the kept graph of the CPU's run is walked
// (compare/backward.c); gradients of the inputs are read where they are. Runs on the autograd threads.
#include <stdio.h>
#include <string.h>

#include "py_call.h"
#include "tools/compare/state.h"
#include "tools/device.h"
#include "tools/twin.h"

bool compare_graph_is_kept(void) {
  PyObject *ask = torch_names_load(TORCH_AUTOGRAD) == 0 ? torch_names.py_graph_is_kept : NULL;
  int kept = ask ? py_call_bool(ask, NULL) : 1;
  py_error_drop();
  return kept != 0;
}

/// Gradients of one side as the CPU can read them.
struct gradients {
  struct engine_tensor *tensors;
  PyObject **value;  // NULL where there is none
  PyObject **owned;
  int *place;
  int count, known;
};

static void gradients_reset(struct gradients *gradients) {
  for (int i = 0; i < gradients->known; i++) {
    engine_tensor_reset(&gradients->tensors[i]);
    if (gradients->owned) {
      Py_XDECREF(gradients->owned[i]);
    }
  }
  PyMem_Free(gradients->owned);
  PyMem_Free(gradients->tensors);
  PyMem_Free(gradients->value);
  PyMem_Free(gradients->place);
}

// `copies`: CPU tensors whatever the place; else those that can be read stay as they are.
static int gradients_fetch(struct gradients *out, PyObject *const *given, int count, bool copies) {
  *out = (struct gradients){.count = count};
  out->tensors = PyMem_Calloc((size_t)count + 1, sizeof *out->tensors);
  out->value = PyMem_Calloc((size_t)count + 1, sizeof *out->value);
  out->place = PyMem_Calloc((size_t)count + 1, sizeof *out->place);
  if (!out->tensors || !out->value || !out->place) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < count; i++) {
    if (given[i] && engine_is_tensor(given[i])) {
      engine_tensor_read(given[i], &out->tensors[out->known]);
      out->place[out->known++] = i;
    }
  }
  if (copies || compare_tensors_need_copies(out->tensors, out->known)) {
    PyObject **owned = PyMem_Calloc((size_t)out->known + 1, sizeof *owned);
    if (!owned) {
      (void)PyErr_NoMemory();
      return -1;
    }
    if (out->known && twin_make(out->tensors, out->known, TWIN_DETACHED, false, owned) < 0) {
      PyMem_Free(owned);
      return -1;
    }
    out->owned = owned;
  }
  for (int k = 0; k < out->known; k++) {
    out->value[out->place[k]] = out->owned ? out->owned[k] : out->tensors[k].py_tensor;
  }
  return 0;
}

static const struct engine_tensor *gradients_get(const struct gradients *gradients, int i) {
  for (int k = 0; k < gradients->known; k++) {
    if (gradients->place[k] == i) {
      return &gradients->tensors[k];
    }
  }
  return NULL;
}

// The files of the backward, and those of its forward, which was right: the CPU's result is computed again.
static bool gradients_save(const struct compare_event *event, const struct gradients *out, const struct gradients *in,
                           PyObject *const *reference, char *folder, size_t size) {
  const struct engine_backward *backward = event->backward;
  struct compare_state *state = event->tool->state;
  struct compare_run run = {0};
  if (state->save && !event->c->saved && compare_run_forward(event->c, COMPARE_LEGACY, false, &run) < 0) {
    py_error_drop();
  }
  const struct compare_files files = {
      .cpu_result = run.py_result,
      .grad_outputs = backward->grad_outputs,
      .grad_inputs = backward->grad_inputs,
      .cpu_grad_outputs = out->value,
      .cpu_grad_inputs = reference,
      .grad_output_count = out->count,
      .grad_input_count = in->count,
  };
  bool saved = compare_save_backward(event, &files, folder, size);
  compare_run_reset(&run);
  return saved;
}

static PyObject *gradients_pack(PyObject *const *gradients, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyTuple_SET_ITEM(py_tuple, i, Py_NewRef(gradients[i] ? gradients[i] : Py_None));
  }
  return py_tuple;
}

static int gradients_report(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                            const struct engine_backward *backward, const struct gradients *out,
                            const struct gradients *in, PyObject *const *reference,
                            const struct compare_judgement *judgements) {
  struct compare_event event = {.tool = tool, .c = c, .backward = backward, .id = c->id, .step = backward->step};
  struct compare_wrong wrong = {0};
  bool close = true, saved = false;
  char folder[COMPARE_FOLDER_BYTES] = "";
  event.py_rows = tool->py_console ? PyList_New(0) : NULL;
  for (int i = 0; i < in->count; i++) {
    if (!in->value[i] && (!reference[i] || reference[i] == Py_None)) {
      continue;
    }
    int index = in->count > 1 ? i : -1;
    compare_report_row(&event, COMPARE_GRAD, index, &judgements[i]);
    compare_wrong_note(&wrong, &judgements[i], COMPARE_GRAD, index, gradients_get(in, i));
    close &= judgements[i].close;
  }
  compare_note_direction(tool->state, info, c->id, true, wrong.judgement != NULL, close);
  if (wrong.judgement) {
    saved = gradients_save(&event, out, in, reference, folder, sizeof folder);
    event.bad_inputs = compare_case_has_bad_inputs(c);
  }
  compare_report_settle(tool);
  if (event.py_rows) {
    compare_extra_put(
        tool->state, -(int64_t)c->id,
        Py_BuildValue("{s:N,s:N,s:N,s:N,s:z}", "rows", event.py_rows, "grad_outputs",
                      gradients_pack(out->value, out->count), "grad_inputs", gradients_pack(reference, in->count),
                      "casts", compare_casts_describe(c), "folder", saved ? folder : NULL));
    event.py_rows = NULL;
  }
  return wrong.judgement ? compare_report_wrong(&event, wrong.what, wrong.index, wrong.tensor, wrong.judgement,
                                                saved ? folder : NULL)
                         : 0;
}

static bool judgements_have_wrong(const struct compare_judgement *judgements, int count) {
  for (int i = 0; i < count; i++) {
    if (judgements[i].verdict == COMPARE_WRONG) {
      return true;
    }
  }
  return false;
}

// Why nothing could be said about any of them; NULL when something could.
static const char *judgements_find_reason(const struct compare_judgement *judgements, PyObject *const *mine,
                                          PyObject *const *reference, int count) {
  const char *reason = NULL;
  for (int i = 0; i < count; i++) {
    if (!mine[i] && !reference[i]) {
      continue;
    }
    if (judgements[i].verdict != COMPARE_UNKNOWN) {
      return NULL;
    }
    reason = reason ? reason : judgements[i].reason;
  }
  return reason;
}

static int gradients_judge(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                           const struct engine_backward *backward, const struct gradients *out,
                           const struct gradients *in, PyObject *py_grads) {
  PyObject **reference = PyMem_Calloc((size_t)in->count + 1, sizeof *reference);
  struct compare_judgement *judgements = PyMem_Calloc((size_t)in->count + 1, sizeof *judgements);
  int status = reference && judgements ? 0 : -1;
  if (status < 0) {
    (void)PyErr_NoMemory();
  }
  for (int i = 0; i < in->count && status == 0; i++) {
    PyObject *grad = i < PyList_GET_SIZE(py_grads) ? PyList_GET_ITEM(py_grads, i) : Py_None;
    reference[i] = grad == Py_None || (!backward->complete && !in->value[i]) ? NULL : grad;
  }
  status = status < 0 ? status : compare_judge_all(c, COMPARE_GRAD, in->value, reference, in->count, judgements);
  uint64_t spoiler =
      status == 0 && judgements_have_wrong(judgements, in->count) ? compare_spoiled_find(tool->state, c) : 0;
  const char *unknown = status == 0 ? judgements_find_reason(judgements, in->value, reference, in->count) : NULL;
  if (status < 0) {
    status = compare_note_error(tool->state, info);
  } else if (unknown) {
    status = compare_note_unable(tool->state, info, unknown);
  } else if (spoiler) {
    char reason[128];
    snprintf(reason, sizeof reason, "call %llu changed what it had saved for its backward",
             (unsigned long long)spoiler);
    status = compare_note_unable(tool->state, info, reason);
  } else {
    status = gradients_report(tool, info, c, backward, out, in, reference, judgements);
  }
  PyMem_Free(judgements);
  PyMem_Free(reference);
  return status;
}

int compare_gradient_run(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                         const struct engine_backward *backward) {
  struct gradients out = {0}, in = {0};
  PyObject *py_grads = NULL;
  char reason[256] = "";
  struct tools_site site;
  if (c->is_on_site) {
    int seen = compare_site_backward(tool, info, c, backward);
    if (seen > 0) {
      return 0;
    }
    info->suspects++;
    if (seen < 0 || compare_site_leave(c) < 0) {
      return compare_note_error(tool->state, info);
    }
  }
  tools_site_find_among(backward->grad_inputs, backward->grad_input_count, &site);
  tools_site_settle(&site);
  int status = gradients_fetch(&out, backward->grad_outputs, backward->grad_output_count, true);
  status = status < 0 ? status : gradients_fetch(&in, backward->grad_inputs, backward->grad_input_count, false);
  if (status == 0) {
    status = compare_run_backward(c, COMPARE_LEGACY, out.value, out.count, &py_grads, reason);
  }
  if (status < 0) {
    status = compare_note_error(tool->state, info);
  } else if (!py_grads) {
    status = compare_note_unable(tool->state, info, reason);
  } else {
    status = gradients_judge(tool, info, c, backward, &out, &in, py_grads);
  }
  Py_XDECREF(py_grads);
  gradients_reset(&out);
  gradients_reset(&in);
  return status;
}
