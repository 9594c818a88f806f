// One call: what the device did against what the CPU does, and what is said about it.
//
// Results first, then the inputs as the call left them: an operator that changes what it must not write to is wrong
// even when its result is right. Depends on compare/run.c (the CPU's run), compare/same.c and the judge.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dit/operator.h"
#include "tools/compare/state.h"
#include "tools/device.h"

// What is compared

struct work {
  struct engine_tool *tool;
  struct engine_call *call;
  struct compare_op *info;
  struct compare_case *c;
  struct compare_run run;
  struct engine_leaves leaves;        // of the CPU's result
  PyObject **reference;               // those
  struct compare_fetched out, in;     // the device's
  struct compare_judgement *outputs;  // of call->out.leaf
  struct compare_judgement *inputs;   // of call->in.tensor
  int output_count;
  bool blind;  // the CPU could not run it: all that can be seen is what happened to the inputs
};

static void work_reset(struct work *work) {
  compare_fetched_reset(&work->out);
  compare_fetched_reset(&work->in);
  PyMem_Free(work->reference);
  PyMem_Free(work->outputs);
  PyMem_Free(work->inputs);
  engine_leaves_reset(&work->leaves);
  compare_run_reset(&work->run);
}

static bool work_is_random(const struct work *work) {
  return work->run.drew || (work->c->op->flags & ENGINE_OP_RANDOM);
}

static int judge(struct work *work, enum compare_what what, PyObject *const *device, PyObject *const *reference,
                 int count, struct compare_judgement *judgements) {
  return work_is_random(work) ? compare_random_judge(work->c, what, device, reference, count, judgements)
                              : compare_judge_all(work->c, what, device, reference, count, judgements);
}

static void judgement_set_lengths(struct compare_judgement *out, int device, int reference) {
  *out = (struct compare_judgement){.verdict = COMPARE_WRONG, .auto_verdict = COMPARE_WRONG, .index = -1};
  out->cosine = -1;
  out->max_abs_diff = out->max_relative_diff = out->atol = out->rtol = out->error = out->allowed = NAN;
  out->cpu_error = out->value = out->reference = NAN;
  snprintf(out->info, sizeof out->info, "Inconsistent output length: %d %d, ", device, reference);
  snprintf(out->reason, sizeof out->reason, "%d results, the CPU has %d", device, reference);
}

static int outputs_judge(struct work *work) {
  int count = work->call->out.leaf_count;
  if (engine_leaves_add(&work->leaves, work->run.py_result, "out") < 0) {
    return -1;
  }
  work->outputs = PyMem_Calloc((size_t)count + 1, sizeof *work->outputs);
  work->reference = PyMem_Calloc((size_t)work->leaves.leaf_count + 1, sizeof *work->reference);
  if (!work->outputs || !work->reference) {
    (void)PyErr_NoMemory();
    return -1;
  }
  if (work->leaves.leaf_count != count) {
    judgement_set_lengths(&work->outputs[0], count, work->leaves.leaf_count);
    work->output_count = 1;
    return 0;
  }
  for (int i = 0; i < count; i++) {
    work->reference[i] = work->leaves.leaf[i].value;
  }
  work->output_count = count;
  if (count == 0) {
    return 0;
  }
  return compare_leaves_fetch(&work->out, &work->call->out) < 0
             ? -1
             : judge(work, COMPARE_OUTPUT, work->out.value, work->reference, count, work->outputs);
}

// Inputs after the call

// An input that is also a result, on both sides: it was judged as such. Index of the result, or -1.
static int input_find_output(const struct work *work, int i) {
  const struct engine_leaves *out = &work->call->out;
  if (work->leaves.leaf_count != out->leaf_count) {
    return -1;
  }
  for (int k = 0; k < out->leaf_count; k++) {
    int tensor = out->leaf[k].tensor;
    if (tensor >= 0 && tensor < 64 && out->tensor[tensor].py_tensor == work->call->in.tensor[i].py_tensor &&
        work->reference[k] == work->run.inputs[i]) {
      return k;
    }
  }
  return -1;
}

// Bytes that only the device's own kernels understand: the reserve of a recurrent layer, which its backward consumes.
static bool input_is_scratch(const struct work *work, int i) {
  return work->blind && work->call->in.tensor[i].dtype == DIT_DTYPE_U8 &&
         dit_operator_has(work->c->op->name, DIT_OPERATOR_SCRATCH);
}

// How input `i` is judged.
enum input_way { INPUT_AS_OUTPUT, INPUT_SAME, INPUT_JUDGED };

// Inputs that the device's own hash says are as they were need no copy; neither do those that were judged as results.
static enum input_way input_choose(const struct work *work, const bool *untouched, int i, int *output) {
  const struct compare_case *c = work->c;
  *output = c->changed[i] ? input_find_output(work, i) : -1;
  if (*output >= 0) {
    return INPUT_AS_OUTPUT;
  }
  if (input_is_scratch(work, i) || (c->changed[i] ? work->blind : untouched[i])) {
    return INPUT_SAME;
  }
  return INPUT_JUDGED;
}

// The inputs that must be looked at, read from the device: device[i], NULL for the others. 0 or -1.
static int inputs_fetch(struct work *work, const bool *wanted, PyObject **device) {
  const struct engine_tensor *tensors = work->call->in.tensor;
  int count = work->c->twin_count, some = 0;
  struct engine_tensor *chosen = PyMem_Calloc((size_t)count + 1, sizeof *chosen);  // borrowed: not reset
  if (!chosen) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < count; i++) {
    if (wanted[i]) {
      chosen[some++] = tensors[i];
    }
  }
  int status = some > 0 ? compare_tensors_fetch(&work->in, chosen, some) : 0;
  for (int i = 0, at = 0; i < count && status == 0; i++) {
    device[i] = wanted[i] ? compare_fetched_get(&work->in, chosen, at++) : NULL;
  }
  PyMem_Free(chosen);
  return status;
}

static int inputs_judge_wanted(struct work *work, PyObject **device, PyObject **reference,
                               struct compare_judgement *judged) {
  struct compare_case *c = work->c;
  bool some = false;
  int status = 0;
  for (int i = 0; i < c->twin_count && status == 0; i++) {
    if (device[i] && !c->changed[i] && compare_tensor_equals(device[i], c->twins[i]) == 1) {
      status = compare_judgement_set_same(c, &work->inputs[i], &work->call->in.tensor[i]);
      device[i] = NULL;
    }
    reference[i] = device[i] ? work->run.inputs[i] : NULL;
    some |= device[i] != NULL;
  }
  if (status < 0 || !some) {
    return status;
  }
  status = judge(work, COMPARE_INPUT, device, reference, c->twin_count, judged);
  for (int i = 0; i < c->twin_count && status == 0; i++) {
    if (!device[i]) {
      continue;
    }
    work->inputs[i] = judged[i];
    if (!c->changed[i] && !judged[i].close) {
      snprintf(work->inputs[i].reason, sizeof work->inputs[i].reason,
               "the call changed an input that it must not write to");
      work->inputs[i].verdict = work->inputs[i].auto_verdict = COMPARE_WRONG;
    }
  }
  return status;
}

// What the device did to its inputs, against what the CPU did.
static int inputs_judge(struct work *work) {
  struct compare_case *c = work->c;
  size_t count = (size_t)c->twin_count + 1;
  work->inputs = PyMem_Calloc(count, sizeof *work->inputs);
  PyObject **device = PyMem_Calloc(count, sizeof *device), **reference = PyMem_Calloc(count, sizeof *reference);
  struct compare_judgement *judged = PyMem_Calloc(count, sizeof *judged);
  bool *wanted = PyMem_Calloc(count, sizeof *wanted), *untouched = PyMem_Calloc(count, sizeof *untouched);
  int status = work->inputs && device && reference && judged && wanted && untouched ? 0 : -1;
  if (status < 0) {
    (void)PyErr_NoMemory();
  } else {
    (void)compare_guard_end(c, work->call, untouched);
  }
  for (int i = 0; i < c->twin_count && status == 0; i++) {
    int output;
    enum input_way way = input_choose(work, untouched, i, &output);
    wanted[i] = way == INPUT_JUDGED;
    if (way == INPUT_AS_OUTPUT) {
      work->inputs[i] = work->outputs[output];
    } else if (way == INPUT_SAME) {
      status = compare_judgement_set_same(c, &work->inputs[i], &work->call->in.tensor[i]);
    }
  }
  status = status < 0 ? status : inputs_fetch(work, wanted, device);
  status = status < 0 ? status : inputs_judge_wanted(work, device, reference, judged);
  PyMem_Free(untouched);
  PyMem_Free(wanted);
  PyMem_Free(judged);
  PyMem_Free(reference);
  PyMem_Free(device);
  return status;
}

// What is said

// Place of a tensor of the arguments among all of them; -1: it is the only one.
static int input_get_index(const struct engine_call *call, int tensor) {
  for (int i = 0; call->in.leaf_count > 1 && i < call->in.leaf_count; i++) {
    if (call->in.leaf[i].tensor == tensor) {
      return i;
    }
  }
  return -1;
}

static void inputs_report(const struct work *work, const struct compare_event *event, struct compare_wrong *wrong) {
  for (int i = 0; i < work->c->twin_count; i++) {
    int index = input_get_index(work->call, i);
    compare_report_row(event, COMPARE_INPUT, index, &work->inputs[i]);
    compare_wrong_note(wrong, &work->inputs[i], COMPARE_INPUT, index, &work->call->in.tensor[i]);
  }
}

static void outputs_report(const struct work *work, const struct compare_event *event, struct compare_wrong *wrong) {
  const struct engine_leaves *out = &work->call->out;
  for (int i = 0; i < work->output_count; i++) {
    int index = work->output_count > 1 ? i : -1;
    int tensor = i < out->leaf_count ? out->leaf[i].tensor : -1;
    compare_report_row(event, COMPARE_OUTPUT, index, &work->outputs[i]);
    compare_wrong_note(wrong, &work->outputs[i], COMPARE_OUTPUT, index, tensor < 0 ? NULL : &out->tensor[tensor]);
  }
}

static bool judgements_are_close(const struct compare_judgement *judgements, int count) {
  for (int i = 0; i < count; i++) {
    if (!judgements[i].close) {
      return false;
    }
  }
  return true;
}

// Nothing could be said about any result: counted, not compared.
static bool work_is_unknown(const struct work *work) {
  for (int i = 0; i < work->output_count; i++) {
    if (work->outputs[i].verdict != COMPARE_UNKNOWN) {
      return false;
    }
  }
  for (int i = 0; i < work->c->twin_count; i++) {
    if (work->inputs[i].verdict == COMPARE_WRONG) {
      return false;
    }
  }
  return work->output_count > 0;
}

static int unknown_report(struct work *work) {
  struct compare_state *state = work->tool->state;
  if (work_is_random(work)) {
    state->skipped[COMPARE_SKIP_RANDOM]++;
    return 0;
  }
  return compare_note_unable(state, work->info, work->outputs[0].reason);
}

static void forward_note(const struct work *work, const struct compare_event *event, const char *folder) {
  PyObject *py_args, *py_kwargs;
  if (compare_run_get_arguments(work->c, &work->run, &py_args, &py_kwargs) < 0) {
    py_error_drop();
    return;
  }
  PyObject *result = work->run.py_result ? work->run.py_result : Py_None;
  PyObject *py_extra = Py_BuildValue("{s:O,s:N,s:N,s:O,s:N,s:z}", "rows", event->py_rows, "args", py_args, "kwargs",
                                     py_kwargs ? py_kwargs : Py_NewRef(Py_None), "result", result, "casts",
                                     compare_casts_describe(work->c), "folder", folder);
  compare_extra_put(work->tool->state, (int64_t)work->c->id, py_extra);
}

// The memory of an input that a call changed behind the program's back: earlier calls that autograd saved it for have
// wrong gradients now, and are not to blame.
static void inputs_note_spoiled(const struct work *work) {
  for (int i = 0; i < work->c->twin_count; i++) {
    if (work->inputs[i].verdict == COMPARE_WRONG && !work->c->changed[i]) {
      compare_spoiled_note(work->tool->state, &work->c->spans[i], work->c->id);
    }
  }
}

static int call_report(struct work *work) {
  struct compare_state *state = work->tool->state;
  if (work_is_unknown(work)) {
    return unknown_report(work);
  }
  struct compare_event event = {
      .tool = work->tool, .c = work->c, .call = work->call, .id = work->c->id, .step = work->c->step};
  struct compare_wrong wrong = {0}, wrong_input = {0};
  char folder[COMPARE_FOLDER_BYTES] = "";
  event.py_rows = work->tool->py_console ? PyList_New(0) : NULL;
  inputs_note_spoiled(work);
  inputs_report(work, &event, &wrong_input);
  outputs_report(work, &event, &wrong);
  wrong = wrong.judgement ? wrong : wrong_input;
  bool close = judgements_are_close(work->outputs, work->output_count) &&
               judgements_are_close(work->inputs, work->c->twin_count);
  compare_note_direction(state, work->info, work->c->id, false, wrong.judgement != NULL, close);
  bool saved = false;
  if (wrong.judgement) {
    const struct compare_files files = {.device_result = work->call->result, .cpu_result = work->run.py_result};
    saved = compare_save_forward(&event, &files, folder, sizeof folder);
    event.bad_inputs = compare_case_has_bad_inputs(work->c);
  }
  compare_report_settle(work->tool);
  if (event.py_rows) {
    forward_note(work, &event, saved ? folder : NULL);
    Py_CLEAR(event.py_rows);
  }
  return wrong.judgement ? compare_report_wrong(&event, wrong.what, wrong.index, wrong.tensor, wrong.judgement,
                                                saved ? folder : NULL)
                         : 0;
}

// What is kept

static bool call_has_grad(const struct compare_state *state, const struct engine_call *call) {
  if (!state->backward || (call->flags & ENGINE_CALL_ATEN)) {
    return false;
  }
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (call->out.tensor[i].flags & ENGINE_TENSOR_GRAD) {
      return true;
    }
  }
  // __setitem__ and others that return nothing: what they wrote to may have a history now.
  for (int i = 0; i < call->in.tensor_count && i < 64; i++) {
    if (call->changed >> i & 1 && (call->in.tensor[i].flags & ENGINE_TENSOR_GRAD)) {
      return true;
    }
  }
  return false;
}

// Places that are others than the CPU's and as good: the judge lets equal values exchange their gradients.
static bool work_chooses(const struct work *work) {
  const struct dit_operator *op = dit_operator_find(work->c->op->name);
  return op && op->dim != -1 && dit_operator_has(work->c->op->name, DIT_OPERATOR_TIES);
}

// Gradients can be compared only where both sides went the same way: results and inputs are right, and indices and
// random numbers are the same ones (*apart: they are not, and nothing else is amiss).
static bool work_is_fit_for_backward(const struct work *work, bool *apart) {
  *apart = false;
  for (int i = 0; i < work->c->twin_count; i++) {
    if (work->inputs[i].verdict == COMPARE_WRONG) {
      return false;
    }
  }
  for (int i = 0; i < work->output_count; i++) {
    const struct compare_judgement *judgement = &work->outputs[i];
    int tensor = i < work->call->out.leaf_count ? work->call->out.leaf[i].tensor : -1;
    int dtype = tensor < 0 ? -1 : work->call->out.tensor[tensor].dtype;
    enum dit_dtype_class class = dit_dtype_get_class(dtype);
    bool real = class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX;
    bool must_equal = work_is_random(work) || (!real && !work_chooses(work));
    if (judgement->verdict != COMPARE_RIGHT) {
      *apart = false;
      return false;
    }
    *apart |= must_equal && !judgement->close;
  }
  return !*apart;
}

static void case_take_run(struct compare_case *c, struct compare_run *run) {
  c->py_run = run->py_result;
  c->run_inputs = run->leaves;
  c->run_left = run->inputs;
  *run = (struct compare_run){0};
}

// Batch and instance norm write their running statistics without raising version counters.
static void norm_note_changes(struct compare_case *c, const struct engine_call *call) {
  if (!dit_operator_has(c->op->name, DIT_OPERATOR_RUNNING)) {
    return;
  }
  for (int i = 0; i < c->twin_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    bool here = tensor->place == ENGINE_PLACE_CPU || tensor->place == ENGINE_PLACE_HOST;
    bool statistics = !(tensor->flags & ENGINE_TENSOR_GRAD) && tensor->ndim == 1;
    c->changed[i] |= statistics && (!here || compare_tensor_equals(tensor->py_tensor, c->twins[i]) != 1);
  }
}

// The CPU cannot run the call. Still, an input that it must not write to has to be as it was before.
static int blind_report(struct work *work) {
  struct compare_case *c = work->c;
  work->blind = true;
  work->run.inputs = PyMem_Calloc((size_t)c->twin_count + 1, sizeof *work->run.inputs);
  if (!work->run.inputs) {
    (void)PyErr_NoMemory();
    return -1;
  }
  work->run.input_count = c->twin_count;
  for (int i = 0; i < c->twin_count; i++) {
    work->run.inputs[i] = Py_NewRef(c->twins[i]);
  }
  if (inputs_judge(work) < 0) {
    return compare_note_error(work->tool->state, work->info);
  }
  for (int i = 0; i < c->twin_count; i++) {
    if (work->inputs[i].verdict == COMPARE_WRONG) {
      return call_report(work);
    }
  }
  return compare_note_unable(work->tool->state, work->info, work->run.reason);
}

int compare_call_run(struct engine_tool *tool, struct engine_call *call, struct compare_op *info,
                     struct compare_case *c, bool *kept) {
  struct compare_state *state = tool->state;
  struct work work = {.tool = tool, .call = call, .info = info, .c = c};
  engine_leaves_init(&work.leaves);
  bool grad = call_has_grad(state, call);
  compare_case_note_changes(c, info, call);
  struct tools_site site;
  tools_site_find(&call->out, &site);
  tools_site_settle(&site);
  tools_site_find(&call->in, &site);
  tools_site_settle(&site);
  if (c->is_on_site) {
    int seen = compare_site_forward(tool, call, info, c);
    *kept = seen == COMPARE_SITE_RIGHT && grad;
    if (*kept) {
      compare_case_note_results(c, call);
    }
    if (seen > 0) {
      return 0;
    }
    info->suspects++;
    if (seen < 0 || compare_site_leave(c) < 0) {
      return compare_note_error(state, info);
    }
  }
  norm_note_changes(c, call);
  int status = compare_run_forward(c, COMPARE_LEGACY, grad, &work.run);
  if (status == 0 && grad && work.run.reason[0]) {  // without a derivative on the CPU the results can still be compared
    grad = false;
    compare_run_reset(&work.run);
    status = compare_run_forward(c, COMPARE_LEGACY, false, &work.run);
  }
  if (status == 0 && work.run.reason[0]) {
    status = blind_report(&work);
    work_reset(&work);
    return status;
  }
  status = status < 0 ? status : outputs_judge(&work);
  status = status < 0 ? status : inputs_judge(&work);
  if (status < 0) {
    status = compare_note_error(state, info);
    work_reset(&work);
    return status;
  }
  status = call_report(&work);
  bool apart = false;
  *kept = status == 0 && grad && work_is_fit_for_backward(&work, &apart);
  if (status == 0 && grad && apart && !work_is_random(&work)) {
    status = compare_note_unable(state, info, "its backward: the device chose other places, which are as good");
  }
  if (*kept) {
    compare_case_note_results(c, call);
    case_take_run(c, &work.run);
  }
  work_reset(&work);
  return status;
}
