// reference=device: the first look at a call is the same operator on the device itself, in a wider dtype.
//
// Its arguments stay where they are, so nothing travels: a case holds the tensors themselves (copies of those that the
// call may write to), and its run is the operator with float64 (or float32, compare/site_precision.c) in their places.
// A result within what is known to be right (twice the rounding of its dtype; the yardstick that an earlier judgement
// left behind) is right. Everything else is a suspect: the arguments go to the CPU, and the ordinary comparison takes
// over. So a right result costs one run on the device, and "wrong" is said by the CPU alone. What both dtypes of the
// device do wrong alike is not seen. Depends on compare/run.c and backward.c for the runs, compare/site_measure.c.
#include "tools/compare/on_site.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dit/operator.h"
#include "engine/log.h"
#include "py_call.h"
#include "tools/compare/judge.h"
#include "tools/device.h"
#include "tools/remap.h"
#include "tools/twin.h"
#include "torch_names.h"

// Which calls

static bool tensor_is_here(const struct engine_tensor *tensor) {
  return tensor->place == ENGINE_PLACE_CPU;
}

// Two tensors of the arguments over the same memory, of which the call may write to one: copies would come apart.
static bool call_has_overlaps(const struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    struct engine_span a = engine_tensor_get_span(&call->in.tensor[i]);
    for (int j = 0; j < i; j++) {
      struct engine_span b = engine_tensor_get_span(&call->in.tensor[j]);
      if (call->in.tensor[i].py_tensor != call->in.tensor[j].py_tensor && engine_spans_meet(&a, &b)) {
        return true;
      }
    }
  }
  return false;
}

// By its name, its keywords, or without saying so.
static bool call_may_write(struct compare_op *info, const struct engine_call *call) {
  return (call->op->flags & ENGINE_OP_INPLACE) || compare_call_writes(info, call) ||
         dit_operator_has(call->op->name, DIT_OPERATOR_OPTIMIZER) ||
         (call->kwargs && (PyDict_GetItemString(call->kwargs, "out") || PyDict_GetItemString(call->kwargs, "inplace")));
}

// Nothing could be looked at there, so the CPU takes all calls, which is said once.
static bool call_has_helper(struct compare_state *state, const struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    const struct tools_site site = {.place = tensor->place, .device = tensor->device_index};
    if (tensor->place != ENGINE_PLACE_NONE && !tools_site_get_helper(&site)) {
      state->on_site = false;
      engine_log_note("OpAutoCompare: reference=device: this device has no helpers in C, all calls run on the CPU");
      PyObject *py_done = state->py_no_helper ? PyObject_CallNoArgs(state->py_no_helper) : NULL;
      Py_XDECREF(py_done);
      py_error_drop();
      return false;
    }
  }
  return true;
}

bool compare_site_takes(struct compare_state *state, struct compare_op *info, const struct engine_call *call) {
  int away = 0, floating = 0;
  uint64_t strange = DIT_OPERATOR_RUNNING | DIT_OPERATOR_SCRATCH;  // write what nobody declares
  if (!state->on_site || info->moves || (call->op->flags & (ENGINE_OP_RANDOM | ENGINE_OP_COLLECTIVE)) ||
      dit_operator_has(call->op->name, strange) || strstr(call->op->name, "_foreach_") ||
      strstr(call->op->name, "_amp_") ||  // the tracker of a gradient scaler has no version counter that is raised
      !call_has_helper(state, call)) {
    return false;
  }
  for (int i = 0; i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    struct dit_tensor_view view;
    enum dit_dtype_class class = dit_dtype_get_class(tensor->dtype);
    bool is_real = class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX;
    if (tensor->dtype == DIT_DTYPE_F64 || tensor->dtype == DIT_DTYPE_C128 || !engine_tensor_get_view(tensor, &view)) {
      return false;  // nothing is wider; or nothing that C can look at
    }
    away += !tensor_is_here(tensor);
    floating += is_real && !tensor_is_here(tensor);
  }
  return away > 0 && floating > 0 && !(call_may_write(info, call) && call_has_overlaps(call));
}

// The case

// The tensor itself without its history, or a copy; requires_grad as it was. New reference or NULL.
static PyObject *twin_take(const struct engine_tensor *tensor, bool copy) {
  PyObject *py_twin = PyObject_CallOneArg(torch_names.py_detach, tensor->py_tensor);
  if (py_twin && copy) {
    Py_SETREF(py_twin, PyObject_CallOneArg(torch_names.py_clone, py_twin));
  }
  if (py_twin && (tensor->flags & ENGINE_TENSOR_GRAD) && py_call_none(torch_names.py_requires_grad, py_twin) < 0) {
    Py_CLEAR(py_twin);
  }
  return py_twin;
}

static int twins_take(struct compare_case *c, const struct engine_call *call, bool copy) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    int first = 0;
    while (call->in.tensor[first].py_tensor != call->in.tensor[i].py_tensor) {
      first++;
    }
    c->twins[i] = first < i ? Py_NewRef(c->twins[first]) : twin_take(&call->in.tensor[i], copy);
    if (!c->twins[i]) {
      return -1;
    }
    c->versions[i] = copy ? -1 : engine_tensor_get_version(c->twins[i]);
    c->twin_count = i + 1;
  }
  return 0;
}

// Where the host reads the memory it hashes it itself; other devices are asked by compare_guard_begin.
static uint64_t hash_make(PyObject *tensor) {
  struct engine_tensor info;
  struct dit_tensor_view view;
  struct dit_hash hash = {0};
  engine_tensor_read(tensor, &info);
  if (info.place == ENGINE_PLACE_HOST && engine_tensor_get_view(&info, &view)) {
    (void)!dit_tensor_get_hash(&view, &hash, NULL);
  }
  engine_tensor_reset(&info);
  return hash.low;
}

int compare_site_fill(struct compare_case *c, struct compare_op *info, const struct engine_call *call) {
  size_t count = (size_t)call->in.tensor_count;
  c->versions = PyMem_Calloc(count + 1, sizeof *c->versions);
  c->hashes = PyMem_Calloc(count + 1, sizeof *c->hashes);
  c->fixed = PyMem_Calloc(count + 1, sizeof *c->fixed);
  if (!c->versions || !c->hashes || !c->fixed) {
    (void)PyErr_NoMemory();
    return -1;
  }
  c->is_on_site = true;
  if (torch_names_load(TORCH_TENSOR) < 0 || twins_take(c, call, call_may_write(info, call)) < 0 ||
      remap_call(call, c->twins, NULL, &c->py_args, &c->py_kwargs) < 0 ||
      remap_call(call, c->twins, torch_names.py_host, &c->py_home_args, &c->py_home_kwargs) < 0) {
    return -1;
  }
  const struct dit_operator *row = dit_operator_find(call->op->name);
  for (int i = 0; row && row->castable > 0 && i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor >= 0) {
      c->fixed[leaf->tensor] = leaf->top >= row->castable;
    }
  }
  for (int i = 0; i < c->twin_count; i++) {
    c->hashes[i] = hash_make(call->in.tensor[i].py_tensor);
  }
  return 0;
}

void compare_site_reset(struct compare_case *c) {
  Py_CLEAR(c->py_home_args);
  Py_CLEAR(c->py_home_kwargs);
  PyMem_Free(c->versions);
  PyMem_Free(c->hashes);
  PyMem_Free(c->fixed);
  c->fixed = NULL;
  c->versions = NULL;
  c->hashes = NULL;
}

// Somebody wrote to an argument since the call.
static bool case_is_stale(const struct compare_case *c) {
  for (int i = 0; i < c->twin_count; i++) {
    if (c->versions[i] >= 0 && engine_tensor_get_version(c->twins[i]) != c->versions[i]) {
      return true;
    }
  }
  return false;
}

struct homeward {
  PyObject *const *from, *const *to;
  int count;
};

static PyObject *homeward_find(void *context, PyObject *tensor) {
  const struct homeward *homeward = context;
  for (int i = 0; i < homeward->count; i++) {
    if (homeward->from[i] == tensor) {
      return Py_NewRef(homeward->to[i]);
    }
  }
  return Py_NewRef(tensor);
}

static int twins_send_home(const struct compare_case *c, PyObject **twins) {
  struct engine_tensor *tensors = PyMem_Calloc((size_t)c->twin_count + 1, sizeof *tensors);
  if (!tensors) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < c->twin_count; i++) {
    engine_tensor_read(c->twins[i], &tensors[i]);
  }
  int status = twin_make(tensors, c->twin_count, TWIN_DETACHED, true, twins);
  for (int i = 0; i < c->twin_count; i++) {
    engine_tensor_reset(&tensors[i]);
  }
  PyMem_Free(tensors);
  return status;
}

int compare_site_leave(struct compare_case *c) {
  PyObject **twins = PyMem_Calloc((size_t)c->twin_count + 1, sizeof *twins);
  if (!twins || twins_send_home(c, twins) < 0) {
    PyMem_Free(twins);
    return -1;
  }
  struct homeward homeward = {c->twins, twins, c->twin_count};
  PyObject *py_args = remap_value(c->py_home_args, homeward_find, &homeward);
  PyObject *py_kwargs = py_args && c->py_home_kwargs ? remap_value(c->py_home_kwargs, homeward_find, &homeward) : NULL;
  bool failed = !py_args || (c->py_home_kwargs && !py_kwargs);
  PyObject **old = failed ? twins : c->twins;
  for (int i = 0; i < c->twin_count; i++) {
    Py_XDECREF(old[i]);
  }
  PyMem_Free(old);
  if (failed) {
    Py_XDECREF(py_args);
    return -1;
  }
  c->twins = twins;
  Py_XSETREF(c->py_args, py_args);
  Py_XSETREF(c->py_kwargs, py_kwargs);
  c->is_on_site = c->is_single = false;
  compare_site_reset(c);
  return 0;
}

// The first look

/// A value of the device and what the wide run and the shaken run made of it. Borrowed; NULL: none.
struct look {
  enum compare_what what;
  int index;
  PyObject *mine, *wide, *shaken;
  bool near;
};

// What is right whatever the operator: twice the rounding of the dtype, and the roundings of sums, which devices keep
// in float32. A longer way to the result is asked about once, which leaves a yardstick.
static void allowance_get(struct compare_case *c, const struct look *look, double *relative, double *residual) {
  struct dit_judge_type type;
  double seen_relative, seen_residual;
  bool contracts = dit_operator_has(c->op->name, DIT_OPERATOR_CONTRACTION);
  bool exact = dit_operator_has(c->op->name, DIT_OPERATOR_VIEW | DIT_OPERATOR_EXACT) && look->what != COMPARE_GRAD;
  struct engine_tensor info;
  struct dit_tensor_view view;
  engine_tensor_read(look->mine, &info);
  bool floating = engine_tensor_get_view(&info, &view) && dit_judge_type_get(view.dtype, &type, NULL) == DIT_OK;
  *relative = floating && !exact ? 2 * type.roundoff : 0;
  *residual = floating && contracts ? 0x1p-20 : 0;
  if (floating && judge_seen_get(c, look->what, look->index, &view, &seen_relative, &seen_residual)) {
    *relative = fmax(*relative, seen_relative);
    *residual = fmax(*residual, seen_residual);
  }
  engine_tensor_reset(&info);
}

// Is each value of the device near enough to that of the wide run? Anything that cannot be told is not. 0 or -1.
static int looks_take(struct compare_case *c, struct look *looks, int count) {
  struct site_measure *measures = PyMem_Calloc((size_t)count + 1, sizeof *measures);
  int *places = PyMem_Calloc((size_t)count + 1, sizeof *places), asked = 0;
  if (!measures || !places) {
    PyMem_Free(measures);
    PyMem_Free(places);
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < count; i++) {
    struct look *look = &looks[i];
    if (!look->mine || !look->wide || !engine_is_tensor(look->mine) || !engine_is_tensor(look->wide)) {
      bool same = look->mine && look->wide && PyObject_RichCompareBool(look->mine, look->wide, Py_EQ) == 1;
      py_error_drop();
      look->near = same || (!look->mine && !look->wide);
      continue;
    }
    places[asked] = i;
    measures[asked] = (struct site_measure){.a = look->mine, .b = look->wide};
    allowance_get(c, look, &measures[asked].relative, &measures[asked].residual);
    asked++;
  }
  site_measure_all(measures, asked);
  for (int i = 0; i < asked; i++) {
    looks[places[i]].near = measures[i].known && measures[i].near;
  }
  PyMem_Free(measures);
  PyMem_Free(places);
  return 0;
}

static bool looks_are_near(const struct look *looks, int count) {
  for (int i = 0; i < count; i++) {
    if (!looks[i].near) {
      return false;
    }
  }
  return true;
}

// The second look: conditioning, as the judge's (docs/verdict.md, steps 4 and 5)

void compare_site_shake(const struct compare_case *c, PyObject *tensor, double size, int place) {
  const struct compare_state *state = c->tool->state;
  PyObject *py_done = state->py_shake ? PyObject_CallFunction(state->py_shake, "OdK", tensor, size,
                                                              (unsigned long long)(c->shake_seed + (uint64_t)place))
                                      : NULL;
  Py_XDECREF(py_done);
  py_error_drop();
}

// The embedded device takes its inputs as they are and sums in float32: there the CPU decides.
static bool case_may_shake(const struct compare_case *c, enum compare_what what, PyObject *device) {
  struct engine_tensor info;
  engine_tensor_read(device, &info);
  bool careful = info.place == ENGINE_PLACE_HOST || info.place == ENGINE_PLACE_CPU;
  engine_tensor_reset(&info);
  uint64_t traits = dit_operator_get_traits(c->op->name);
  bool cancels = what == COMPARE_GRAD && (traits & DIT_OPERATOR_CANCELS);
  bool exact = what != COMPARE_GRAD && (traits & (DIT_OPERATOR_EXACT | DIT_OPERATOR_VIEW));
  return !careful && !exact && ((traits & DIT_OPERATOR_POINTWISE) == 0 || cancels);
}

// May every value that is not near be asked about that way?
static bool looks_may_shake(const struct compare_case *c, const struct look *looks, int count) {
  for (int i = 0; i < count; i++) {
    const struct look *look = &looks[i];
    if (!look->near && (!look->mine || !look->wide || !engine_is_tensor(look->mine) || !engine_is_tensor(look->wide) ||
                        !case_may_shake(c, look->what, look->mine))) {
      return false;
    }
  }
  return true;
}

// Right within four roundings of the element itself and four times what inputs that are off by a rounding move; half of
// that is left as a yardstick.
static void look_settle(struct compare_case *c, struct look *look, double moved) {
  struct engine_tensor info;
  struct dit_tensor_view view;
  struct dit_judge_type type;
  engine_tensor_read(look->mine, &info);
  if (engine_tensor_get_view(&info, &view) && dit_judge_type_get(view.dtype, &type, NULL) == DIT_OK) {
    struct site_measure own = {.a = look->mine, .b = look->wide, .relative = 4 * type.roundoff, .absolute = 4 * moved};
    site_measure_all(&own, 1);
    look->near = own.known && own.near;
    if (look->near && own.largest > 0) {
      judge_seen_put(c, look->what, look->index, &view, 2 * type.roundoff, 2 * moved / own.largest);
    }
  }
  engine_tensor_reset(&info);
}

static int looks_take_shaken(struct compare_case *c, struct look *looks, int count) {
  struct site_measure *moves = PyMem_Calloc((size_t)count + 1, sizeof *moves);
  if (!moves) {
    (void)PyErr_NoMemory();
    return -1;
  }
  int asked = 0;
  for (int i = 0; i < count; i++) {
    if (!looks[i].near && looks[i].shaken && engine_is_tensor(looks[i].shaken)) {
      moves[asked++] = (struct site_measure){.a = looks[i].shaken, .b = looks[i].wide, .absolute = DBL_MAX};
    }
  }
  site_measure_all(moves, asked);
  for (int i = 0, at = 0; i < count; i++) {
    if (!looks[i].near && looks[i].shaken && engine_is_tensor(looks[i].shaken)) {
      const struct site_measure *move = &moves[at++];
      if (move->known && move->near && isfinite(move->difference)) {
        look_settle(c, &looks[i], move->difference);
      }
    }
  }
  PyMem_Free(moves);
  return 0;
}

// One call

// To which the device rounds the inputs of this call on purpose; 0: it does not.
static double input_roundoff_find(const struct compare_case *c) {
  const struct dit_operator *op = dit_operator_find(c->op->name);
  bool wide = false;
  for (int i = 0; i < c->twin_count; i++) {
    wide |= c->dtypes[i] == DIT_DTYPE_F32;
  }
  return op && wide && dit_operator_has(c->op->name, DIT_OPERATOR_CONTRACTION) ? judge_input_roundoff(op->name) : 0;
}

// The generator of the device, which an operator with dropout in it would draw from. New reference, NULL: not needed.
static PyObject *generator_save(const struct compare_op *info) {
  PyObject *py_cuda = info->may_draw ? PyObject_GetAttrString(torch_names.py_torch, "cuda") : NULL;
  PyObject *py_state = py_cuda ? PyObject_CallMethod(py_cuda, "get_rng_state", NULL) : NULL;
  Py_XDECREF(py_cuda);
  py_error_drop();
  return py_state;
}

static void generator_restore(PyObject *py_state) {
  PyObject *py_cuda = py_state ? PyObject_GetAttrString(torch_names.py_torch, "cuda") : NULL;
  PyObject *py_done = py_cuda ? PyObject_CallMethod(py_cuda, "set_rng_state", "O", py_state) : NULL;
  Py_XDECREF(py_done);
  Py_XDECREF(py_cuda);
  Py_XDECREF(py_state);
  py_error_drop();
}

/// The values of one run in the order of those that are compared: results, then arguments that were written to.
struct site_values {
  struct compare_run run;
  struct engine_leaves leaves;
};

static void site_values_reset(struct site_values *values) {
  engine_leaves_reset(&values->leaves);
  compare_run_reset(&values->run);
}

// 1, 0: it cannot be made, or -1.
static int site_values_make(struct site_values *values, struct compare_case *c, const struct compare_op *info,
                            enum compare_precision precision) {
  *values = (struct site_values){0};
  engine_leaves_init(&values->leaves);
  c->shake = precision == COMPARE_SHAKEN ? input_roundoff_find(c) : 0;
  c->shake_seed = c->id;
  PyObject *py_state = generator_save(info), *py_precision = site_precision_enter(c);
  int status = compare_run_forward(c, precision, false, &values->run);
  site_precision_leave(py_precision);
  generator_restore(py_state);
  c->shake = 0;
  if (status < 0 || !values->run.py_result || values->run.reason[0]) {
    return status < 0 ? -1 : 0;
  }
  int added = engine_leaves_add(&values->leaves, values->run.py_result, "out");
  py_error_drop();
  return added == 0;
}

static PyObject *site_values_get(const struct site_values *values, const struct engine_call *call, int i) {
  int outputs = call->out.leaf_count;
  return i < outputs ? values->leaves.leaf[i].value : values->run.inputs[i - outputs];
}

// The values of the call in the order of looks: results, then arguments that were written to.
static int outputs_list(const struct compare_case *c, const struct engine_call *call, const struct site_values *wide,
                        struct look *looks) {
  int outputs = call->out.leaf_count, count = 0;
  for (int i = 0; i < outputs + c->twin_count; i++) {
    bool is_input = i >= outputs;
    if (is_input && !c->changed[i - outputs]) {
      continue;
    }
    looks[count++] = (struct look){
        .what = is_input ? COMPARE_INPUT : COMPARE_OUTPUT,
        .index = is_input ? i - outputs : i,
        .mine = is_input ? call->in.tensor[i - outputs].py_tensor : call->out.leaf[i].value,
        .wide = site_values_get(wide, call, i),
    };
  }
  return count;
}

static int outputs_look_again(struct compare_case *c, const struct compare_op *info, const struct engine_call *call,
                              struct look *looks, int count) {
  struct site_values shaken;
  int status = site_values_make(&shaken, c, info, COMPARE_SHAKEN);
  if (status > 0 && shaken.leaves.leaf_count == call->out.leaf_count) {
    for (int i = 0; i < count; i++) {
      bool is_input = looks[i].what == COMPARE_INPUT;
      looks[i].shaken = site_values_get(&shaken, call, looks[i].index + (is_input ? call->out.leaf_count : 0));
    }
    status = looks_take_shaken(c, looks, count) < 0 ? -1 : looks_are_near(looks, count);
  } else {
    status = status < 0 ? -1 : 0;
  }
  site_values_reset(&shaken);
  return status;
}

static int outputs_look(struct compare_case *c, const struct compare_op *info, const struct engine_call *call) {
  struct site_values wide;
  struct look *looks = PyMem_Calloc((size_t)(call->out.leaf_count + c->twin_count) + 1, sizeof *looks);
  if (!looks) {
    (void)PyErr_NoMemory();
    return -1;
  }
  int status = site_values_make(&wide, c, info, COMPARE_WIDE);
  if (status > 0 && wide.leaves.leaf_count == call->out.leaf_count) {
    int count = outputs_list(c, call, &wide, looks);
    status = looks_take(c, looks, count) < 0 ? -1 : looks_are_near(looks, count);
    if (status == 0 && looks_may_shake(c, looks, count)) {
      status = outputs_look_again(c, info, call, looks, count);
    }
  } else {
    status = status < 0 ? -1 : 0;
  }
  site_values_reset(&wide);
  PyMem_Free(looks);
  return status;
}

// An argument that the call must not write to and did; -1: none. Its old values are gone.
static int spoiled_find(struct compare_case *c, const struct engine_call *call) {
  bool *untouched = PyMem_Calloc((size_t)c->twin_count + 1, sizeof *untouched);
  int found = -1;
  bool known = untouched && c->guard && compare_guard_read(c, call, untouched);
  struct tools_site site;
  struct dit_tensor_view view;
  tools_site_find(&call->in, &site);
  for (int i = 0; untouched && i < c->twin_count && found < 0; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    bool hashed = known && tensor->place == site.place && tensor->device_index == site.device &&
                  engine_tensor_get_view(tensor, &view);
    bool spoiled = c->hashes[i] ? hash_make(call->in.tensor[i].py_tensor) != c->hashes[i] : hashed && !untouched[i];
    found = !c->changed[i] && spoiled ? i : -1;
  }
  PyMem_Free(untouched);
  return found;
}

static int spoiled_report(struct engine_tool *tool, struct engine_call *call, struct compare_op *info,
                          struct compare_case *c, int input) {
  struct compare_judgement judgement = {.verdict = COMPARE_WRONG, .auto_verdict = COMPARE_WRONG, .index = -1};
  struct compare_event event = {.tool = tool, .c = c, .call = call, .id = c->id, .step = c->step};
  judgement.cosine = -1;
  judgement.cpu_error = judgement.max_abs_diff = judgement.max_relative_diff = NAN;
  judgement.numel = call->in.tensor[input].numel;
  judgement.dtype = call->in.tensor[input].dtype;
  snprintf(judgement.reason, sizeof judgement.reason, "the call changed an input that it must not write to");
  compare_spoiled_note(tool->state, &c->spans[input], c->id);
  compare_report_row(&event, COMPARE_INPUT, input, &judgement);
  compare_note_direction(tool->state, info, c->id, false, true, false);
  compare_report_settle(tool);
  return compare_report_wrong(&event, COMPARE_INPUT, input, &call->in.tensor[input], &judgement, NULL);
}

static void rows_report(struct engine_tool *tool, struct compare_case *c, const struct engine_call *call,
                        const struct engine_backward *backward, enum compare_what what, int count) {
  struct compare_event event = {.tool = tool, .c = c, .call = call, .backward = backward, .id = c->id, .step = c->step};
  for (int i = 0; i < count; i++) {
    struct compare_judgement judgement = {.close = true, .cosine = 1, .index = -1, .cpu_error = NAN, .dtype = -1};
    snprintf(judgement.info, sizeof judgement.info, "near the device's own %s", c->is_single ? "float32" : "float64");
    compare_report_row(&event, what, count > 1 ? i : -1, &judgement);
  }
  compare_report_settle(tool);
}

int compare_site_forward(struct engine_tool *tool, struct engine_call *call, struct compare_op *info,
                         struct compare_case *c) {
  struct compare_state *state = tool->state;
  c->is_single = site_is_single(c, call);
  compare_guard_ask(c, call);
  int near = outputs_look(c, info, call);
  int spoiled = near < 0 ? -1 : spoiled_find(c, call);
  if (spoiled >= 0) {
    return spoiled_report(tool, call, info, c, spoiled) < 0 ? -1 : COMPARE_SITE_WRONG;
  }
  if (near <= 0) {
    return near < 0 ? -1 : COMPARE_SITE_SUSPECT;
  }
  state->near_count++;
  rows_report(tool, c, call, NULL, COMPARE_OUTPUT, call->out.leaf_count);
  compare_note_direction(state, info, c->id, false, false, true);
  return COMPARE_SITE_RIGHT;
}

// Its backward

static PyObject *grads_make(struct compare_case *c, const struct compare_op *info,
                            const struct engine_backward *backward, enum compare_precision precision) {
  PyObject *py_grads = NULL;
  char reason[256] = "";
  c->shake = precision == COMPARE_SHAKEN ? input_roundoff_find(c) : 0;
  c->shake_seed = c->id;
  PyObject *py_state = generator_save(info), *py_precision = site_precision_enter(c);
  int status =
      compare_run_backward(c, precision, backward->grad_outputs, backward->grad_output_count, &py_grads, reason);
  site_precision_leave(py_precision);
  generator_restore(py_state);
  c->shake = 0;
  return status == 0 ? py_grads : NULL;
}

static PyObject *grads_get(PyObject *py_grads, const struct engine_backward *backward, int i, const PyObject *mine) {
  PyObject *grad = i < PyList_GET_SIZE(py_grads) ? PyList_GET_ITEM(py_grads, i) : Py_None;
  return grad == Py_None || (!backward->complete && !mine) ? NULL : grad;
}

static int grads_look_again(struct compare_case *c, const struct compare_op *info,
                            const struct engine_backward *backward, struct look *looks, int count) {
  PyObject *py_shaken = grads_make(c, info, backward, COMPARE_SHAKEN);
  for (int i = 0; i < count && py_shaken; i++) {
    looks[i].shaken = grads_get(py_shaken, backward, i, looks[i].mine);
  }
  int status = !py_shaken ? 0 : looks_take_shaken(c, looks, count) < 0 ? -1 : looks_are_near(looks, count);
  Py_XDECREF(py_shaken);
  return status;
}

static int grads_look(struct compare_case *c, const struct compare_op *info, const struct engine_backward *backward) {
  int count = backward->grad_input_count;
  struct look *looks = PyMem_Calloc((size_t)count + 1, sizeof *looks);
  if (!looks) {
    (void)PyErr_NoMemory();
    return -1;
  }
  PyObject *py_wide = grads_make(c, info, backward, COMPARE_WIDE);
  int status = 0;
  if (py_wide) {
    for (int i = 0; i < count; i++) {
      PyObject *mine = backward->grad_inputs[i] == Py_None ? NULL : backward->grad_inputs[i];
      looks[i] =
          (struct look){.what = COMPARE_GRAD, .index = i, .mine = mine, .wide = grads_get(py_wide, backward, i, mine)};
    }
    status = looks_take(c, looks, count) < 0 ? -1 : looks_are_near(looks, count);
    if (status == 0 && looks_may_shake(c, looks, count)) {
      status = grads_look_again(c, info, backward, looks, count);
    }
  }
  Py_XDECREF(py_wide);
  PyMem_Free(looks);
  return status;
}

int compare_site_backward(struct engine_tool *tool, struct compare_op *info, struct compare_case *c,
                          const struct engine_backward *backward) {
  if (case_is_stale(c)) {
    int status = compare_note_unable(tool->state, info, "an argument was changed between the call and its backward");
    return status < 0 ? -1 : COMPARE_SITE_WRONG;
  }
  int near = grads_look(c, info, backward);
  if (PyErr_Occurred() || near <= 0) {
    return PyErr_Occurred() ? -1 : COMPARE_SITE_SUSPECT;
  }
  struct compare_state *state = tool->state;
  state->near_count++;
  rows_report(tool, c, NULL, backward, COMPARE_GRAD, backward->grad_input_count);
  compare_note_direction(state, info, c->id, true, false, true);
  return COMPARE_SITE_RIGHT;
}
