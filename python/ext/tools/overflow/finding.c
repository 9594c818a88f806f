// Judging and telling: from flags to findings.
//
// Findings are kept per (operator, location, direction, verdict): the first is told with its numbers, later ones are
// counted. Where a gradient scaler is at work a backward finding waits until that looked at the gradients: what it saw
// is expected, unless the scale is down to 1 already. Invariant: a finding is in the list of its state for good, and at
// most once among the held ones.
#include <stdio.h>
#include <string.h>

#include "dit/operator.h"
#include "engine/internal.h"
#include "engine/log.h"
#include "tools/overflow/overflow.h"

struct overflow_finding {
  struct overflow_finding *next, *next_held;
  struct overflow_event event;  // owns event.tensor; the objects are NULL
  int64_t nan, inf, numel;      // of the outputs; -1 unknown
  int64_t count, held_count, last_step;
  uint8_t key_verdict;  // as judged
  uint8_t verdict;      // as told
  uint8_t reason;
  bool held, told;
};

static const char *const verdicts[] = {"producer", "propagator", "allowed"};
static const char *const reasons[] = {
    "inputs finite", "NaN from Inf", "uninitialised memory", "passed on",           "source not watched", "constant",
    "allow list",    "mask",         "gradient scaler",      "uninitialised memory"};
static const char *const roles[] = {"in", "in", "out", "in"};

// Operators

// "add_", "_foreach_add_", "__iadd__", "__setitem__", but not "__int__".
static bool name_is_inplace(const char *name) {
  static const char *const operators[] = {"add", "sub", "mul", "truediv", "floordiv", "mod",   "pow",
                                          "and", "or",  "xor", "lshift",  "rshift",   "matmul"};
  const char *last = engine_name_get_last(name);
  size_t size = strlen(last);
  if (size > 1 && last[size - 1] == '_' && last[size - 2] != '_') {
    return true;
  }
  for (size_t i = 0; strncmp(last, "__i", 3) == 0 && i < sizeof operators / sizeof *operators; i++) {
    size_t length = strlen(operators[i]);
    if (strncmp(last + 3, operators[i], length) == 0 && strcmp(last + 3 + length, "__") == 0) {
      return true;
    }
  }
  return strcmp(last, "__setitem__") == 0;
}

struct overflow_op *overflow_op_find(struct overflow_state *state, struct engine_op *op) {
  struct overflow_op **bucket = &state->ops[((uintptr_t)op >> 5) & 255];
  for (struct overflow_op *info = *bucket; info; info = info->next) {
    if (info->op == op) {
      return info;
    }
  }
  struct overflow_op *info = PyMem_Calloc(1, sizeof *info);
  if (info) {
    info->op = op;
    info->inplace = op->flags & ENGINE_OP_INPLACE || name_is_inplace(op->name);
    info->scaler = dit_operator_has(op->name, DIT_OPERATOR_SCALER);
    info->rescales = dit_operator_has(op->name, DIT_OPERATOR_RESCALES);
    info->effect = overflow_effect_find(op);
    info->passes_all = overflow_op_passes_all(op);
    info->next = *bucket;
    *bucket = info;
  }
  return info;
}

// Ask the list once per operator. A list that raises allows nothing; its exception is not the user's operator's fault.
static uint8_t op_get_allowed(struct overflow_state *state, struct engine_op *op) {
  struct overflow_op *info = overflow_op_find(state, op);
  if (!info || info->asked || !state->py_allow) {
    return info ? info->allowed : 0;
  }
  info->asked = true;
  PyObject *py_flags = PyObject_CallOneArg(state->py_allow, op->py_name);
  long flags = py_flags ? PyLong_AsLong(py_flags) : 0;
  Py_XDECREF(py_flags);
  if (PyErr_Occurred()) {
    PyErr_WriteUnraisable(state->py_allow);
    flags = 0;
  }
  info->allowed = (uint8_t)(flags & OVERFLOW_BAD);
  return info->allowed;
}

// Tensors

bool overflow_can_be_bad(const struct engine_tensor *tensor) {
  enum dit_dtype_class class = dit_dtype_get_class(tensor->dtype);
  return tensor->numel > 0 && (class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX);
}

void overflow_meta_set(struct overflow_meta *out, const struct engine_tensor *tensor, enum overflow_role role,
                       int index) {
  out->numel = tensor->numel;
  out->dtype = tensor->dtype;
  out->index = (int16_t)(index > INT16_MAX ? INT16_MAX : index);
  out->role = (uint8_t)role;
  out->flags = 0;
  out->coverage = OVERFLOW_WRITTEN;
  out->slot = -1;
  out->ndim = tensor->flags & ENGINE_TENSOR_STRIDED ? tensor->ndim : 0;
  for (int d = 0; d < out->ndim && d < OVERFLOW_DIMS; d++) {
    out->sizes[d] = tensor->sizes[d];
  }
}

static void event_fill(struct overflow_event *event) {
  if (event->fill) {
    event->fill(event);
    event->fill = NULL;
  }
}

// -Inf and nothing else that is not finite, in the inputs or on both sides. Without statistics infinities pass for a
// mask.
static bool event_is_mask(struct overflow_event *event, bool outputs) {
  event_fill(event);
  for (int i = 0; event->tensor && i < event->in_count + (outputs ? event->out_count : 0); i++) {
    const struct overflow_tensor *tensor = &event->tensor[i];
    if (tensor->has_stats && (tensor->stats.nan || tensor->stats.pos_inf)) {
      return false;
    }
  }
  return true;
}

// Verdicts

static enum overflow_reason backward_decide(const struct overflow_state *state, const struct overflow_event *event) {
  if (event->in_flags & OVERFLOW_BAD || event->forward_flags & DIT_NONFINITE_NAN) {
    return OVERFLOW_PASSED;
  }
  if (event->junk_flags) {
    return OVERFLOW_JUNK;
  }
  if (event->forward_flags & DIT_NONFINITE_INF) {
    return state->inf_step == event->step ? OVERFLOW_PASSED : OVERFLOW_FROM_INF;
  }
  return OVERFLOW_NEW;
}

static enum overflow_reason forward_decide(const struct overflow_state *state, struct overflow_event *event) {
  unsigned in = event->in_flags & OVERFLOW_BAD, constant = event->constant_flags, out = event->out_flags & OVERFLOW_BAD;
  if (in & DIT_NONFINITE_NAN) {
    return OVERFLOW_PASSED;
  }
  if (constant & DIT_NONFINITE_NAN) {
    return OVERFLOW_CONSTANT;
  }
  if (event->junk_flags) {
    return OVERFLOW_JUNK;
  }
  if (!((in | constant) & DIT_NONFINITE_INF)) {
    return OVERFLOW_NEW;
  }
  if (!(out & DIT_NONFINITE_NAN)) {
    return in ? OVERFLOW_PASSED : OVERFLOW_CONSTANT;
  }
  // NaN out of infinities: new when they are a mask's, or when nobody in this step was told to have made them.
  bool known = state->excused_step == event->step || (state->inf_step == event->step && !event_is_mask(event, false));
  return in && known ? OVERFLOW_PASSED : OVERFLOW_FROM_INF;
}

static enum overflow_verdict reason_get_verdict(enum overflow_reason reason) {
  switch (reason) {
    case OVERFLOW_NEW:
    case OVERFLOW_FROM_INF:
    case OVERFLOW_JUNK:
      return OVERFLOW_PRODUCER;
    case OVERFLOW_PASSED:
    case OVERFLOW_ORPHAN:
      return OVERFLOW_PROPAGATOR;
    default:
      return OVERFLOW_ALLOWED;
  }
}

// Whoever only copies memory that nobody wrote, or writes a part of it, did not use it.
static enum overflow_reason junk_decide(struct overflow_state *state, const struct overflow_event *event) {
  const struct overflow_op *info = overflow_op_find(state, event->op);
  bool carries =
      info && (info->effect == OVERFLOW_MOVES || info->effect == OVERFLOW_PATCHES || info->effect == OVERFLOW_FILLS);
  return carries && event->kind == OVERFLOW_FORWARD ? OVERFLOW_CARRIED : OVERFLOW_JUNK;
}

static enum overflow_reason event_decide(struct overflow_state *state, struct overflow_event *event) {
  enum overflow_reason reason =
      event->kind == OVERFLOW_BACKWARD ? backward_decide(state, event) : forward_decide(state, event);
  bool made = reason_get_verdict(reason) == OVERFLOW_PRODUCER;
  if (reason == OVERFLOW_JUNK ||
      (event->partly_junk && (made || (reason == OVERFLOW_PASSED && !state->producer_seen)))) {
    reason = junk_decide(state, event);
  }
  if (reason_get_verdict(reason) == OVERFLOW_PRODUCER &&
      !(event->out_flags & OVERFLOW_BAD & ~op_get_allowed(state, event->op))) {
    return OVERFLOW_LISTED;
  }
  if (reason == OVERFLOW_PASSED && !state->producer_seen && !state->orphan_seen) {
    bool nan = (event->in_flags | event->forward_flags | event->out_flags) & DIT_NONFINITE_NAN;
    return nan || !event_is_mask(event, true) ? OVERFLOW_ORPHAN : OVERFLOW_MASK;
  }
  return reason;
}

// Descriptions

static PyObject *shape_describe(const struct overflow_tensor *tensor) {
  int shown = tensor->meta.ndim < OVERFLOW_DIMS ? tensor->meta.ndim : OVERFLOW_DIMS;
  PyObject *py_shape = PyTuple_New(shown);
  for (int d = 0; py_shape && d < shown; d++) {
    PyObject *py_size = PyLong_FromLongLong(tensor->meta.sizes[d]);
    if (!py_size) {
      Py_CLEAR(py_shape);
      break;
    }
    PyTuple_SET_ITEM(py_shape, d, py_size);
  }
  return py_shape;
}

static PyObject *flags_describe(unsigned flags) {
  static const char *const texts[] = {"finite", "nan", "inf", "nan and inf"};
  return PyUnicode_FromString(flags & OVERFLOW_UNKNOWN && !(flags & OVERFLOW_BAD) ? "unknown"
                                                                                  : texts[flags & OVERFLOW_BAD]);
}

static void label_write(const struct overflow_event *event, const struct overflow_tensor *tensor, char *text,
                        size_t size) {
  const char *role = roles[tensor->meta.role];
  if (event->kind == OVERFLOW_BACKWARD) {
    role = tensor->meta.role == OVERFLOW_IN ? "grad_out" : "grad_in";
  }
  snprintf(text, size, "%s.%d", role, tensor->meta.index);
}

static PyObject *tensor_describe(const struct overflow_event *event, const struct overflow_tensor *tensor) {
  static const char *const moments[] = {"before", "before", "after", "after"};
  char label[32];
  label_write(event, tensor, label, sizeof label);
  static const char *const coverages[] = {"all", "part", "none", "all"};
  PyObject *py_tensor = Py_BuildValue("{s:s,s:s,s:N,s:L,s:N,s:s,s:s}", "tensor", label, "dtype",
                                      dit_dtype_get_name(tensor->meta.dtype), "shape", shape_describe(tensor), "numel",
                                      (long long)tensor->meta.numel, "values", flags_describe(tensor->meta.flags),
                                      "when", moments[tensor->meta.role], "written", coverages[tensor->meta.coverage]);
  if (!py_tensor || !tensor->has_stats) {
    return py_tensor;
  }
  const struct dit_tensor_stats *stats = &tensor->stats;
  PyObject *py_stats = Py_BuildValue("{s:L,s:L,s:L,s:L,s:d,s:d,s:d,s:d,s:d}", "nan", (long long)stats->nan, "pos_inf",
                                     (long long)stats->pos_inf, "neg_inf", (long long)stats->neg_inf, "zero",
                                     (long long)stats->zero, "min", stats->min, "max", stats->max, "mean", stats->mean,
                                     "std", stats->std_sample, "norm", stats->norm);
  if (!py_stats || PyDict_Update(py_tensor, py_stats) < 0) {
    Py_CLEAR(py_tensor);
  }
  Py_XDECREF(py_stats);
  return py_tensor;
}

static PyObject *tensors_describe(const struct overflow_event *event, int first, int count) {
  PyObject *py_list = PyList_New(0);
  for (int i = first; py_list && event->tensor && i < first + count; i++) {
    PyObject *py_tensor = tensor_describe(event, &event->tensor[i]);
    if (!py_tensor || PyList_Append(py_list, py_tensor) < 0) {
      Py_CLEAR(py_list);
    }
    Py_XDECREF(py_tensor);
  }
  return py_list;
}

static PyObject *location_describe(uint32_t location) {
  const char *text = engine_location_get_text(location);
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *module_describe(const struct overflow_state *state, uint32_t module) {
  PyObject *path = engine_modules_get(&state->modules, module);
  return path ? Py_NewRef(path) : PyUnicode_FromString("");
}

static PyObject *finding_describe(const struct overflow_state *state, const struct overflow_finding *finding) {
  const struct overflow_event *event = &finding->event;
  return Py_BuildValue(
      "{s:K,s:O,s:s,s:L,s:i,s:N,s:N,s:s,s:s,s:N,s:N,s:L,s:L,s:L,s:L,s:L,s:N,s:N}", "id", (unsigned long long)event->id,
      "name", event->op->py_name, "kind", event->kind == OVERFLOW_FORWARD ? "forward" : "backward", "step",
      (long long)event->step, "round", (int)event->round, "location", location_describe(event->location), "module",
      module_describe(state, event->module), "verdict", verdicts[finding->verdict], "reason", reasons[finding->reason],
      "input_values", flags_describe(event->in_flags), "output_values", flags_describe(event->out_flags), "nan",
      (long long)finding->nan, "inf", (long long)finding->inf, "numel", (long long)finding->numel, "count",
      (long long)finding->count, "last_step", (long long)finding->last_step, "in",
      tensors_describe(event, 0, event->in_count), "out", tensors_describe(event, event->in_count, event->out_count));
}

PyObject *overflow_findings_describe(struct overflow_state *state) {
  PyObject *py_list = PyList_New(0);
  for (const struct overflow_finding *finding = state->first; py_list && finding; finding = finding->next) {
    PyObject *py_finding = finding_describe(state, finding);
    if (!py_finding || PyList_Append(py_list, py_finding) < 0) {
      Py_CLEAR(py_list);
    }
    Py_XDECREF(py_finding);
  }
  return py_list;
}

// Records

static void stat_write(struct dit_record_builder *builder, const char *label, const char *name, double value) {
  char text[64];
  uint32_t key = 0;
  int size = snprintf(text, sizeof text, "%s.%s", label, name);
  if (dit_record_intern(text, (size_t)size, &key, NULL) == DIT_OK) {
    dit_record_field_f64(builder, key, value);
  }
}

static void stats_write(struct dit_record_builder *builder, const struct overflow_event *event) {
  for (int i = 0; event->tensor && i < event->in_count + event->out_count; i++) {
    const struct overflow_tensor *tensor = &event->tensor[i];
    const struct dit_tensor_stats *stats = &tensor->stats;
    char label[48];
    if (!tensor->has_stats) {
      continue;
    }
    label_write(event, tensor, label, sizeof label - 8);
    if (tensor->meta.role == OVERFLOW_IN_AFTER) {
      strcat(label, ".after");
    }
    stat_write(builder, label, "min", stats->min);
    stat_write(builder, label, "max", stats->max);
    stat_write(builder, label, "mean", stats->mean);
    stat_write(builder, label, "std", stats->std_sample);
    stat_write(builder, label, "norm", stats->norm);
    stat_write(builder, label, "nan", (double)stats->nan);
    stat_write(builder, label, "inf", (double)(stats->pos_inf + stats->neg_inf));
  }
}

static void finding_write(const struct engine_tool *tool, const struct overflow_finding *finding) {
  const struct overflow_event *event = &finding->event;
  const struct overflow_state *state = tool->state;
  const struct engine_call call = {
      .op = event->op, .id = event->id, .step = event->step, .location = event->location, .module = event->module};
  struct dit_record_builder *builder = state->log ? engine_log_begin(tool, &call, ENGINE_RECORD_FINDING) : NULL;
  if (!builder) {
    return;
  }
  const char *kind = event->kind == OVERFLOW_FORWARD ? "forward" : "backward";
  const char *verdict = verdicts[finding->verdict], *reason = reasons[finding->reason];
  dit_record_field_string(builder, engine_key_kind, kind, strlen(kind));
  dit_record_field_i64(builder, engine_key_nan, finding->nan);
  dit_record_field_i64(builder, engine_key_inf, finding->inf);
  dit_record_field_string(builder, engine_key_verdict, verdict, strlen(verdict));
  dit_record_field_string(builder, engine_key_text, reason, strlen(reason));
  stats_write(builder, event);
  engine_log_commit(builder);
}

// Findings

static struct overflow_finding *finding_find(struct overflow_state *state, const struct overflow_event *event,
                                             enum overflow_reason reason) {
  for (struct overflow_finding *finding = state->first; finding; finding = finding->next) {
    if (finding->event.op == event->op && finding->event.location == event->location &&
        finding->event.kind == event->kind && finding->key_verdict == reason_get_verdict(reason) &&
        (finding->reason == OVERFLOW_JUNK) == (reason == OVERFLOW_JUNK)) {
      return finding;
    }
  }
  return NULL;
}

static void finding_count_elements(struct overflow_finding *finding) {
  const struct overflow_event *event = &finding->event;
  finding->nan = finding->inf = finding->numel = -1;
  for (int i = event->in_count; event->tensor && i < event->in_count + event->out_count; i++) {
    const struct overflow_tensor *tensor = &event->tensor[i];
    if (tensor->has_stats) {
      finding->nan = (finding->nan < 0 ? 0 : finding->nan) + tensor->stats.nan;
      finding->inf = (finding->inf < 0 ? 0 : finding->inf) + tensor->stats.pos_inf + tensor->stats.neg_inf;
      finding->numel = (finding->numel < 0 ? 0 : finding->numel) + tensor->meta.numel;
    }
  }
}

// Takes the event's tensors.
static void finding_take_event(struct overflow_finding *finding, struct overflow_event *event) {
  PyMem_Free(finding->event.tensor);
  finding->event = *event;
  finding->event.func = finding->event.args = finding->event.kwargs = finding->event.result = NULL;
  finding->event.source = NULL;
  event->tensor = NULL;
  finding_count_elements(finding);
}

// Takes the event's tensors.
static struct overflow_finding *finding_create(struct overflow_state *state, struct overflow_event *event,
                                               enum overflow_reason reason) {
  struct overflow_finding *finding = state->finding_count < OVERFLOW_FINDINGS ? PyMem_Calloc(1, sizeof *finding) : NULL;
  if (!finding) {
    state->dropped++;
    return NULL;
  }
  finding_take_event(finding, event);
  finding->reason = (uint8_t)reason;
  finding->verdict = finding->key_verdict = (uint8_t)reason_get_verdict(reason);
  if (state->last) {
    state->last->next = finding;
  } else {
    state->first = finding;
  }
  state->last = finding;
  state->finding_count++;
  return finding;
}

static int objects_add(PyObject *py_finding, const struct overflow_event *event) {
  if (!event || !event->func) {
    return 0;
  }
  PyObject *py_objects = PyTuple_Pack(4, event->func, event->args, event->kwargs ? event->kwargs : Py_None,
                                      event->result ? event->result : Py_None);
  return py_dict_take(py_finding, "objects", py_objects);
}

// To the log and to Python. `event` (nullable): the call is still at hand.
static int finding_tell(const struct engine_tool *tool, struct overflow_finding *finding,
                        const struct overflow_event *event) {
  struct overflow_state *state = tool->state;
  finding->told = true;
  finding_write(tool, finding);
  bool wanted = finding->verdict == OVERFLOW_PRODUCER || finding->reason == OVERFLOW_ORPHAN;
  if (!state->py_report || !wanted) {
    return 0;
  }
  PyObject *py_finding = finding_describe(state, finding);
  PyObject *py_answer = NULL;
  if (py_finding && objects_add(py_finding, event) == 0) {
    py_answer = PyObject_CallOneArg(state->py_report, py_finding);
  }
  Py_XDECREF(py_finding);
  Py_XDECREF(py_answer);
  return py_answer ? 0 : -1;
}

// What is told of a finding that was excused before is what happened now.
static void finding_renew(struct overflow_finding *finding, struct overflow_event *event, enum overflow_reason reason) {
  event_fill(event);
  finding_take_event(finding, event);
  finding->verdict = finding->key_verdict;
  finding->reason = (uint8_t)reason;
}

// A gradient scaler provokes overflows. Before one was seen at work the program is searched for one, which takes long:
// once a step.
static bool scaler_may_come(struct overflow_state *state, int64_t step) {
  if (state->scaler_seen || state->scale_spent || !state->py_scaler || state->searched_step == step) {
    return state->scaler_seen && !state->scale_spent;
  }
  state->searched_step = step;
  PyObject *py_found = PyObject_CallNoArgs(state->py_scaler);
  int found = py_found ? PyObject_IsTrue(py_found) : -1;
  Py_XDECREF(py_found);
  if (found < 0) {
    PyErr_WriteUnraisable(state->py_scaler);
  }
  state->scaler_seen = found > 0;
  return state->scaler_seen;
}

// `objects` are gone by the time that it is told: whoever saves does so now.
static int finding_hold(struct overflow_state *state, struct overflow_finding *finding,
                        const struct overflow_event *event) {
  bool begins = !finding->held;
  finding->held_count++;
  if (begins) {
    finding->held = true;
    finding->next_held = state->held;
    state->held = finding;
  }
  if (!begins || finding->told || !state->at_once || !state->py_report) {
    return 0;
  }
  PyObject *py_finding = finding_describe(state, finding);
  PyObject *py_answer = NULL;
  if (py_finding && objects_add(py_finding, event) == 0 && PyDict_SetItemString(py_finding, "held", Py_True) == 0) {
    py_answer = PyObject_CallOneArg(state->py_report, py_finding);
  }
  Py_XDECREF(py_finding);
  Py_XDECREF(py_answer);
  return py_answer ? 0 : -1;
}

int overflow_judge(struct engine_tool *tool, struct overflow_event *event) {
  struct overflow_state *state = tool->state;
  enum overflow_reason reason = event_decide(state, event);
  enum overflow_verdict verdict = reason_get_verdict(reason);
  state->counts[event->kind][verdict]++;
  if (verdict == OVERFLOW_PRODUCER) {
    state->producer_seen = true;
    state->inf_step = event->out_flags & DIT_NONFINITE_INF ? event->step : state->inf_step;
  }
  state->orphan_seen |= reason == OVERFLOW_ORPHAN;
  struct overflow_finding *finding = finding_find(state, event, reason);
  bool known = finding != NULL;
  if (!known) {
    if (verdict == OVERFLOW_PRODUCER || reason == OVERFLOW_ORPHAN) {
      event_fill(event);
    }
    finding = finding_create(state, event, reason);
  }
  if (!finding) {
    return 0;
  }
  finding->count++;
  finding->last_step = event->step;
  if (known && !finding->told && !finding->held) {
    finding_renew(finding, event, reason);
  }
  bool provoked = event->kind == OVERFLOW_BACKWARD && verdict == OVERFLOW_PRODUCER && reason != OVERFLOW_JUNK;
  bool waits = provoked && (!finding->told || state->scaler_seen);  // for what was told nobody is searched for
  if (waits && scaler_may_come(state, event->step)) {
    return finding_hold(state, finding, event);
  }
  return finding->told ? 0 : finding_tell(tool, finding, event);
}

void overflow_excuse(struct overflow_state *state) {
  state->scaler_seen = true;
  state->excused |= state->held != NULL;
  state->excused_step = state->held ? state->inf_step : state->excused_step;
  if (state->held && state->py_excuse) {
    PyObject *py_answer = PyObject_CallNoArgs(state->py_excuse);
    if (!py_answer) {
      PyErr_WriteUnraisable(state->py_excuse);
    }
    Py_XDECREF(py_answer);
  }
  while (state->held) {
    struct overflow_finding *finding = state->held;
    state->held = finding->next_held;
    finding->held = false;
    state->counts[OVERFLOW_BACKWARD][OVERFLOW_PRODUCER] -= finding->held_count;
    state->counts[OVERFLOW_BACKWARD][OVERFLOW_ALLOWED] += finding->held_count;
    state->scaled += finding->held_count;
    finding->held_count = 0;
    if (!finding->told) {
      finding->verdict = OVERFLOW_ALLOWED;
      finding->reason = OVERFLOW_SCALER;
    }
  }
}

int overflow_release_held(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  struct overflow_finding *held = NULL;
  while (state->held) {  // they were pushed: turn them round
    struct overflow_finding *finding = state->held;
    state->held = finding->next_held;
    finding->next_held = held;
    held = finding;
  }
  int status = 0;
  while (held) {
    struct overflow_finding *finding = held;
    held = finding->next_held;
    finding->held = false;
    finding->held_count = 0;
    if (finding->told) {
      continue;
    }
    finding->verdict = finding->key_verdict;
    finding->reason = finding->event.forward_flags & DIT_NONFINITE_INF ? OVERFLOW_FROM_INF : OVERFLOW_NEW;
    if (status == 0) {
      status = finding_tell(tool, finding, NULL);
    } else {  // an exception is pending: the log still gets it
      finding->told = true;
      finding_write(tool, finding);
    }
  }
  return status;
}

int overflow_rescale(struct overflow_state *state, const struct engine_call *call) {
  if ((!state->excused && !state->scale_spent) || call->in.leaf_count == 0 || call->in.leaf[0].tensor < 0) {
    return 0;
  }
  state->excused = false;
  PyObject *py_scale = PyNumber_Float(call->in.tensor[call->in.leaf[0].tensor].py_tensor);
  if (!py_scale) {
    return -1;
  }
  state->scale_spent = PyFloat_AS_DOUBLE(py_scale) <= 1.0;
  Py_DECREF(py_scale);
  return 0;
}

void overflow_findings_clear(struct overflow_state *state) {
  while (state->first) {
    struct overflow_finding *finding = state->first;
    state->first = finding->next;
    PyMem_Free(finding->event.tensor);
    PyMem_Free(finding);
  }
  state->last = state->held = NULL;
  state->finding_count = 0;
}
