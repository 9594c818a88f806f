// OpOverflowCheck: who made the first NaN or Inf. The tool's slots in the engine, and the checks of host memory.
//
// What is read: every output, and every input that the call overwrote. Inputs are read after the call, and only when an
// output is bad or the call has a backward; inputs that the call will overwrite are read before it. An output that
// shows the memory of an untouched input (a view) holds nothing new and is not read. On a CUDA device everything goes
// into one batch per call instead (overflow_device.c), because nobody waits for the flags.
#include "tools/overflow.h"

#include <math.h>
#include <string.h>

#define BIG_NUMEL (1 << 18)  // from here on the GIL is dropped while a tensor is read
#define DEFAULT_EVERY 4096

// engine_call.data between before, after and keep on host memory: facts in the pointer's own bits.
enum note {
  NOTE_TAG = 1,           // not a pending event
  NOTE_BEFORE = 2,        // inputs that will be overwritten were read before the call ...
  NOTE_BEFORE_SHIFT = 2,  // ... with these flags
  NOTE_KNOWN = 32,        // inputs were read after the call too ...
  NOTE_FLAGS_SHIFT = 6,   // ... and this is what was found in inputs and outputs
};

// ---- reading host memory

static uint8_t view_scan(const struct dit_tensor_view *view) {
  bool nan = false, inf = false;
  enum dit_status status;
  if (view->numel >= BIG_NUMEL) {
    Py_BEGIN_ALLOW_THREADS;
    status = dit_tensor_get_nonfinite(view, &nan, &inf, NULL);
    Py_END_ALLOW_THREADS;
  } else {
    status = dit_tensor_get_nonfinite(view, &nan, &inf, NULL);
  }
  return status != DIT_OK ? OVERFLOW_UNKNOWN : (uint8_t)((nan ? DIT_NONFINITE_NAN : 0) | (inf ? DIT_NONFINITE_INF : 0));
}

// Devices without a helper: torch's own operators, through Python.
static uint8_t torch_scan(struct overflow_state *state, PyObject *tensor) {
  if (!state->py_flags) {
    return OVERFLOW_UNKNOWN;
  }
  PyObject *py_flags = PyObject_CallOneArg(state->py_flags, tensor);
  long flags = py_flags ? PyLong_AsLong(py_flags) : -1;
  Py_XDECREF(py_flags);
  PyErr_Clear();
  return flags < 0 ? OVERFLOW_UNKNOWN : (uint8_t)(flags & OVERFLOW_BAD);
}

static uint8_t tensor_scan(struct overflow_state *state, const struct engine_tensor *tensor) {
  struct dit_tensor_view view;
  if (!overflow_can_be_bad(tensor)) {
    return 0;
  }
  struct engine_tensor plain = *tensor;  // conjugation and sign do not touch finiteness
  plain.flags &= (uint8_t) ~(ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
  uint8_t flags = OVERFLOW_UNKNOWN;
  if (tensor->place <= ENGINE_PLACE_HOST && engine_tensor_get_view(&plain, &view)) {
    flags = view_scan(&view);
  } else if (tensor->place == ENGINE_PLACE_CUDA || tensor->place == ENGINE_PLACE_OTHER) {
    flags = torch_scan(state, tensor->py_tensor);
  }
  state->unchecked += flags == OVERFLOW_UNKNOWN;
  return flags;
}

// ---- statistics for a finding

static double dict_get(PyObject *dict, const char *name) {
  PyObject *value = PyDict_GetItemString(dict, name);
  double number = value ? PyFloat_AsDouble(value) : NAN;
  PyErr_Clear();
  return number;
}

static bool torch_stats(struct overflow_state *state, PyObject *tensor, struct dit_tensor_stats *stats) {
  PyObject *py_stats = state->py_stats ? PyObject_CallOneArg(state->py_stats, tensor) : NULL;
  bool done = py_stats && PyDict_Check(py_stats);
  if (done) {
    *stats = (struct dit_tensor_stats){.nan = (int64_t)dict_get(py_stats, "nan"),
                                       .pos_inf = (int64_t)dict_get(py_stats, "pos_inf"),
                                       .neg_inf = (int64_t)dict_get(py_stats, "neg_inf"),
                                       .zero = (int64_t)dict_get(py_stats, "zero"),
                                       .min = dict_get(py_stats, "min"),
                                       .max = dict_get(py_stats, "max"),
                                       .mean = dict_get(py_stats, "mean"),
                                       .std_sample = dict_get(py_stats, "std"),
                                       .norm = dict_get(py_stats, "norm")};
  }
  Py_XDECREF(py_stats);
  PyErr_Clear();
  return done;
}

static void tensor_fill(struct overflow_state *state, struct overflow_tensor *out, const struct engine_tensor *tensor,
                        enum overflow_role role, int index) {
  struct dit_tensor_view view;
  overflow_meta_set(&out->meta, tensor, role, index);
  if (role == OVERFLOW_IN_BEFORE || !overflow_can_be_bad(tensor) || !state->stats) {
    return;
  }
  if (tensor->place <= ENGINE_PLACE_HOST && engine_tensor_get_view(tensor, &view)) {
    out->has_stats = dit_tensor_get_stats(&view, &out->stats, NULL) == DIT_OK;
  } else if (tensor->place != ENGINE_PLACE_NONE) {
    out->has_stats = torch_stats(state, tensor->py_tensor, &out->stats);
  }
  if (out->has_stats) {
    out->meta.flags = (uint8_t)((out->stats.nan ? DIT_NONFINITE_NAN : 0) |
                                (out->stats.pos_inf || out->stats.neg_inf ? DIT_NONFINITE_INF : 0));
  }
}

// ---- one call, taken apart

/// A call and what is known of its arguments.
struct parts {
  const struct engine_call *call;
  const struct overflow_op *info;
  int out_top;  // index of the top-level argument "out", -1 when there is none
};

/// How a leaf of the arguments takes part.
enum part {
  PART_NONE,     // not a tensor
  PART_INPUT,    // read, not written
  PART_CHANGED,  // read and written
  PART_TARGET,   // only written: out=
};

static void parts_set(struct parts *parts, const struct engine_call *call, const struct overflow_op *info) {
  *parts = (struct parts){.call = call, .info = info, .out_top = -1};
  if (!call->kwargs || !PyDict_GET_SIZE(call->kwargs)) {
    return;
  }
  Py_ssize_t at = 0;
  PyObject *key, *value;
  int top = (int)PyTuple_GET_SIZE(call->args);
  while (PyDict_Next(call->kwargs, &at, &key, &value)) {
    if (PyUnicode_CompareWithASCIIString(key, "out") == 0) {
      parts->out_top = value == Py_None ? -1 : top;
      return;
    }
    top++;
  }
}

static bool kwargs_say_inplace(const struct engine_call *call) {
  PyObject *value =
      call->kwargs && PyDict_GET_SIZE(call->kwargs) ? PyDict_GetItemString(call->kwargs, "inplace") : NULL;
  return value == Py_True;
}

static enum part part_get(const struct parts *parts, const struct engine_leaf *leaf) {
  const struct engine_call *call = parts->call;
  if (leaf->tensor < 0) {
    return PART_NONE;
  }
  if (leaf->top == parts->out_top) {
    return PART_TARGET;
  }
  bool versioned = leaf->tensor < 64 && call->in.tensor[leaf->tensor].version >= 0;
  bool changed = versioned ? call->changed >> leaf->tensor & 1 : parts->info->inplace && leaf->top == 0;
  return changed ? PART_CHANGED : PART_INPUT;
}

// An input that is also a result, or came earlier among the arguments, is looked at once.
static bool input_is_seen(const struct engine_call *call, int input) {
  PyObject *py_tensor = call->in.tensor[input].py_tensor;
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (call->out.tensor[i].py_tensor == py_tensor) {
      return true;
    }
  }
  for (int i = 0; i < input && i < 64; i++) {
    if (call->in.tensor[i].py_tensor == py_tensor) {
      return true;
    }
  }
  return false;
}

// A result that shows an untouched input's memory, with the same type, from the same address, and not more of it.
static bool result_is_old(const struct parts *parts, int index) {
  const struct engine_call *call = parts->call;
  const struct engine_tensor *result = &call->out.tensor[index];
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0 || call->in.tensor[leaf->tensor].data != result->data || !result->data) {
      continue;
    }
    const struct engine_tensor *input = &call->in.tensor[leaf->tensor];
    if (input->dtype == result->dtype && result->numel <= input->numel && result->place == input->place &&
        part_get(parts, leaf) == PART_INPUT) {
      return true;
    }
  }
  return false;
}

/// Called for each tensor that the call wrote.
typedef void (*written_visit)(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index);

static void parts_visit_written(const struct parts *parts, written_visit visit, void *context) {
  const struct engine_call *call = parts->call;
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (!result_is_old(parts, i)) {
      visit(context, &call->out.tensor[i], OVERFLOW_OUT, i);
    }
  }
  if (!call->changed && !parts->info->inplace) {
    return;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (part_get(parts, leaf) == PART_CHANGED && !input_is_seen(call, leaf->tensor)) {
      visit(context, &call->in.tensor[leaf->tensor], OVERFLOW_IN_AFTER, leaf->tensor);
    }
  }
}

static bool parts_have_changed(const struct parts *parts) {
  for (int i = 0; i < parts->call->in.leaf_count; i++) {
    if (part_get(parts, &parts->call->in.leaf[i]) == PART_CHANGED) {
      return true;
    }
  }
  return false;
}

static uint8_t number_scan(PyObject *value) {
  double number = PyFloat_Check(value) ? PyFloat_AS_DOUBLE(value) : 0;
  return isnan(number) ? DIT_NONFINITE_NAN : isinf(number) ? DIT_NONFINITE_INF : 0;
}

static uint8_t call_scan_constants(const struct engine_call *call) {
  uint8_t flags = 0;
  for (int i = 0; i < call->in.leaf_count; i++) {
    flags |= call->in.leaf[i].kind == ENGINE_LEAF_FLOAT ? number_scan(call->in.leaf[i].value) : 0;
  }
  return flags;
}

// ---- host: at once

struct scan {
  struct overflow_state *state;
  uint8_t flags;
};

static void scan_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct scan *scan = context;
  (void)role;
  (void)index;
  scan->flags |= tensor_scan(scan->state, tensor);
}

// Flags of what went in; what was overwritten is known from before the call, or not at all.
static uint8_t parts_scan_inputs(struct overflow_state *state, const struct parts *parts, uintptr_t note) {
  const struct engine_call *call = parts->call;
  uint8_t flags = 0;
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    switch (part_get(parts, leaf)) {
      case PART_INPUT:
        flags |= tensor_scan(state, &call->in.tensor[leaf->tensor]);
        break;
      case PART_CHANGED:
        flags |= note & NOTE_BEFORE ? (uint8_t)(note >> NOTE_BEFORE_SHIFT & 7) : OVERFLOW_UNKNOWN;
        break;
      default:
        break;
    }
  }
  return flags;
}

struct fill {
  struct overflow_state *state;
  const struct parts *parts;
  const struct engine_backward *backward;
  uint8_t before_flags;
  struct overflow_event *event;
};

static void fill_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct fill *fill = context;
  struct overflow_event *event = fill->event;
  if (event->out_count < OVERFLOW_TENSORS) {
    tensor_fill(fill->state, &event->tensor[event->in_count + event->out_count++], tensor, role, index);
  }
}

static void call_fill(struct overflow_event *event) {
  struct fill *fill = (struct fill *)event->source;
  const struct engine_call *call = fill->parts->call;
  event->tensor = PyMem_Calloc(2 * OVERFLOW_TENSORS, sizeof *event->tensor);
  if (!event->tensor) {
    return;
  }
  for (int i = 0; i < call->in.leaf_count && event->in_count < OVERFLOW_TENSORS; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    enum part part = part_get(fill->parts, leaf);
    if (part == PART_INPUT || part == PART_CHANGED) {
      struct overflow_tensor *tensor = &event->tensor[event->in_count++];
      bool changed = part == PART_CHANGED;
      tensor_fill(fill->state, tensor, &call->in.tensor[leaf->tensor], changed ? OVERFLOW_IN_BEFORE : OVERFLOW_IN,
                  leaf->tensor);
      tensor->meta.flags = changed ? fill->before_flags : tensor->meta.flags;
    }
  }
  fill->event = event;
  parts_visit_written(fill->parts, fill_visit, fill);
}

static void call_event_set(struct overflow_event *event, const struct engine_call *call) {
  *event = (struct overflow_event){.op = call->op,
                                   .id = call->id,
                                   .step = call->step,
                                   .location = call->location,
                                   .module = call->module,
                                   .kind = OVERFLOW_FORWARD,
                                   .constant_flags = call_scan_constants(call),
                                   .func = call->func,
                                   .args = call->args,
                                   .kwargs = call->kwargs,
                                   .result = call->result};
}

static int call_check_now(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info) {
  struct overflow_state *state = tool->state;
  uintptr_t note = (uintptr_t)call->data[tool->slot] | NOTE_TAG;
  struct scan scan = {.state = state};
  struct parts parts;
  parts_set(&parts, call, info);
  parts_visit_written(&parts, scan_visit, &scan);
  if (scan.flags & OVERFLOW_BAD) {
    struct overflow_event event;
    call_event_set(&event, call);
    event.out_flags = scan.flags;
    event.in_flags = parts_scan_inputs(state, &parts, note);
    struct fill fill = {
        .state = state,
        .parts = &parts,
        .before_flags = note & NOTE_BEFORE ? (uint8_t)(note >> NOTE_BEFORE_SHIFT & 7) : OVERFLOW_UNKNOWN};
    event.fill = call_fill;
    event.source = &fill;
    int status = overflow_judge(tool, &event);
    PyMem_Free(event.tensor);
    if (status < 0) {
      return status;
    }
    note |= NOTE_KNOWN | (uintptr_t)(event.in_flags | event.out_flags) << NOTE_FLAGS_SHIFT;
  }
  if (call->changed && !(note & NOTE_BEFORE) && parts_have_changed(&parts)) {
    info->mutates = true;  // its name does not say that it overwrites: look before it runs, from now on
  }
  call->data[tool->slot] = (void *)note;
  return overflow_tick(tool);
}

// ---- device: into slots

struct add {
  struct overflow_state *state;
  struct overflow_pending *pending;
};

static void add_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct add *add = context;
  overflow_pending_add(add->state, add->pending, tensor, role, index);
}

// Inputs count twice: before and after. Results are not known yet when this is before the call.
static int call_get_capacity(const struct engine_call *call) {
  return 2 * call->in.tensor_count + call->out.tensor_count;
}

static struct overflow_pending *call_pending_create(struct engine_tool *tool, const struct engine_call *call,
                                                    struct overflow_batch *batch, const struct tools_site *site) {
  int capacity = call_get_capacity(call);
  return overflow_batch_reserve(tool, batch, capacity) < 0 ? NULL : overflow_pending_create(batch, site, capacity);
}

// What waits on will find the call's objects gone.
static void objects_forget(struct overflow_state *state, struct overflow_pending *pending) {
  if (state->latest == pending) {
    struct overflow_event *event = overflow_pending_get_event(pending);
    event->func = event->args = event->kwargs = event->result = NULL;
  }
}

static int call_check_later(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info,
                            struct overflow_batch *batch, const struct tools_site *site) {
  struct overflow_state *state = tool->state;
  struct overflow_pending *pending = call->data[tool->slot];
  bool before = pending != NULL;
  call->data[tool->slot] = NULL;
  if (!pending && !(pending = call_pending_create(tool, call, batch, site))) {
    return PyErr_Occurred() ? -1 : 0;
  }
  overflow_pending_renew(state, pending);
  pending = overflow_pending_grow(pending, call_get_capacity(call));
  struct parts parts;
  parts_set(&parts, call, info);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    enum part part = part_get(&parts, leaf);
    if (part == PART_INPUT) {
      overflow_pending_add(state, pending, &call->in.tensor[leaf->tensor], OVERFLOW_IN, leaf->tensor);
    } else if (part == PART_CHANGED && !before) {
      info->mutates = true;
      overflow_pending_add_unknown(pending, &call->in.tensor[leaf->tensor], OVERFLOW_IN_BEFORE, leaf->tensor);
    }
  }
  struct add add = {.state = state, .pending = pending};
  parts_visit_written(&parts, add_visit, &add);
  overflow_pending_launch(state, pending);
  struct overflow_event *event = overflow_pending_get_event(pending), facts;
  call_event_set(&facts, call);
  facts.in_count = event->in_count;
  facts.out_count = event->out_count;
  *event = facts;
  overflow_pending_commit(state, pending, NULL, false);
  int status = overflow_batches_poll(tool);
  objects_forget(state, pending);
  return status;
}

// ---- the tool's slots: forward

static bool is_deferred(const struct overflow_state *state, const struct tools_site *site) {
  return site->place == ENGINE_PLACE_CUDA || (state->deferred && site->place <= ENGINE_PLACE_HOST);
}

static bool call_may_change(const struct engine_call *call, const struct overflow_op *info) {
  return info->inplace || info->mutates || kwargs_say_inplace(call);
}

static int overflow_before(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_op *info = overflow_op_find(state, call->op);
  call->data[tool->slot] = NULL;
  if (!info || info->scaler || !call_may_change(call, info)) {
    return 0;
  }
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct overflow_batch *batch = is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  struct overflow_pending *pending = batch ? call_pending_create(tool, call, batch, &site) : NULL;
  if (batch && !pending) {
    return PyErr_Occurred() ? -1 : 0;
  }
  tools_site_settle(&site);
  uint8_t flags = 0;
  struct parts parts;
  parts_set(&parts, call, info);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0 || leaf->top == parts.out_top || (leaf->top != 0 && !info->mutates)) {
      continue;
    }
    const struct engine_tensor *tensor = &call->in.tensor[leaf->tensor];
    if (pending) {
      overflow_pending_add(state, pending, tensor, OVERFLOW_IN_BEFORE, leaf->tensor);
    } else {
      flags |= tensor_scan(state, tensor);
    }
  }
  if (pending) {
    overflow_pending_launch(state, pending);
    call->data[tool->slot] = pending;
  } else {
    call->data[tool->slot] = (void *)(NOTE_TAG | NOTE_BEFORE | (uintptr_t)flags << NOTE_BEFORE_SHIFT);
  }
  return 0;
}

// Where a call is checked: where its results are, or its inputs when there is no result to see.
static void call_find_site(const struct engine_call *call, struct tools_site *site) {
  tools_site_find(&call->out, site);
  if (site->place == ENGINE_PLACE_NONE || site->place == ENGINE_PLACE_CPU) {
    struct tools_site in;
    tools_site_find(&call->in, &in);
    *site = site->place == ENGINE_PLACE_NONE || call->changed ? in : *site;
  }
}

static int scaler_note(struct engine_tool *tool, const struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct overflow_batch *batch = is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  struct overflow_pending *marker = batch ? overflow_pending_create(batch, &site, 0) : NULL;
  if (marker) {
    overflow_pending_commit(state, marker, NULL, true);
  } else {
    overflow_excuse(state);
  }
  return 0;
}

static int overflow_after(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_op *info = overflow_op_find(state, call->op);
  void *data = call->data[tool->slot];
  bool waits = data && !((uintptr_t)data & NOTE_TAG);
  if (call->flags & ENGINE_CALL_FAILED || !info) {
    overflow_pending_destroy(state, waits ? data : NULL);
    call->data[tool->slot] = NULL;
    return 0;
  }
  if (info->scaler) {
    return scaler_note(tool, call);
  }
  state->checked++;
  overflow_module_note(state, call->module);
  struct tools_site site;
  call_find_site(call, &site);
  struct overflow_batch *batch = is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  tools_site_settle(&site);
  if (batch) {
    return call_check_later(tool, call, info, batch, &site);
  }
  if (waits) {  // begun on a device, ended elsewhere: what was found before is not to be had now
    overflow_pending_destroy(state, data);
    call->data[tool->slot] = NULL;
  }
  return call_check_now(tool, call, info);
}

// ---- backward

void overflow_kept_release(struct overflow_kept *kept) {
  if (kept && --kept->references == 0) {
    PyMem_Free(kept);
  }
}

static void *overflow_keep(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_kept *kept = state->backward ? PyMem_Calloc(1, sizeof *kept) : NULL;
  if (!kept) {
    return NULL;
  }
  kept->references = 1;
  uintptr_t note = (uintptr_t)call->data[tool->slot];
  if (note & NOTE_TAG) {
    struct overflow_op *info = overflow_op_find(state, call->op);
    struct parts parts;
    parts_set(&parts, call, info);
    kept->flags = note & NOTE_KNOWN ? (uint8_t)(note >> NOTE_FLAGS_SHIFT & 7)
                  : info            ? parts_scan_inputs(state, &parts, note)
                                    : 0;
  } else if (state->recent && state->recent_id == call->id) {
    overflow_pending_attach(state->recent, kept);
  } else if (state->recent_id == call->id) {
    kept->flags = state->recent_flags;
  }
  return kept;
}

static void overflow_release(struct engine_tool *tool, void *data) {
  (void)tool;
  overflow_kept_release(data);
}

static uint8_t gradients_scan(struct overflow_state *state, PyObject *const *gradients, int count) {
  uint8_t flags = 0;
  for (int i = 0; i < count; i++) {
    struct engine_tensor tensor;
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      engine_tensor_read(gradients[i], &tensor);
      flags |= tensor_scan(state, &tensor);
      engine_tensor_reset(&tensor);
    }
  }
  return flags;
}

static int gradients_fill(struct fill *fill, PyObject *const *gradients, int count, struct overflow_tensor *out,
                          enum overflow_role role) {
  int filled = 0;
  for (int i = 0; i < count && filled < OVERFLOW_TENSORS; i++) {
    struct engine_tensor tensor;
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      engine_tensor_read(gradients[i], &tensor);
      tensor_fill(fill->state, &out[filled++], &tensor, role, i);
      engine_tensor_reset(&tensor);
    }
  }
  return filled;
}

static void backward_fill(struct overflow_event *event) {
  struct fill *fill = (struct fill *)event->source;
  const struct engine_backward *backward = fill->backward;
  event->tensor = PyMem_Calloc(2 * OVERFLOW_TENSORS, sizeof *event->tensor);
  if (!event->tensor) {
    return;
  }
  event->in_count =
      gradients_fill(fill, backward->grad_outputs, backward->grad_output_count, event->tensor, OVERFLOW_IN);
  event->out_count = gradients_fill(fill, backward->grad_inputs, backward->grad_input_count,
                                    event->tensor + event->in_count, OVERFLOW_OUT);
}

static PyObject *gradients_pack(PyObject *const *gradients, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyTuple_SET_ITEM(py_tuple, i, Py_NewRef(gradients[i] ? gradients[i] : Py_None));
  }
  return py_tuple;
}

static void backward_event_set(struct overflow_event *event, const struct engine_backward *backward) {
  *event = (struct overflow_event){.op = backward->op,
                                   .id = backward->id,
                                   .step = backward->step,
                                   .round = backward->round,
                                   .location = backward->location,
                                   .module = backward->module,
                                   .kind = OVERFLOW_BACKWARD};
}

static int backward_check_now(struct engine_tool *tool, const struct engine_backward *backward) {
  struct overflow_state *state = tool->state;
  const struct overflow_kept *kept = backward->data;
  uint8_t flags = gradients_scan(state, backward->grad_inputs, backward->grad_input_count);
  if (!(flags & OVERFLOW_BAD)) {
    return 0;
  }
  struct overflow_event event;
  struct fill fill = {.state = state, .backward = backward};
  backward_event_set(&event, backward);
  event.out_flags = flags;
  event.in_flags = gradients_scan(state, backward->grad_outputs, backward->grad_output_count);
  event.forward_flags = kept ? kept->flags : 0;
  event.fill = backward_fill;
  event.source = &fill;
  PyObject *py_in = gradients_pack(backward->grad_outputs, backward->grad_output_count);
  PyObject *py_out = gradients_pack(backward->grad_inputs, backward->grad_input_count);
  int status = -1;
  if (py_in && py_out) {
    event.func = Py_None;
    event.args = py_in;
    event.result = py_out;
    status = overflow_judge(tool, &event);
  }
  Py_XDECREF(py_in);
  Py_XDECREF(py_out);
  PyMem_Free(event.tensor);
  return status;
}

static void gradients_add(struct overflow_state *state, struct overflow_pending *pending, PyObject *const *gradients,
                          int count, enum overflow_role role) {
  struct engine_tensor tensor[DIT_HELPER_BATCH];
  int read = 0;
  for (int i = 0; i < count; i++) {
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      engine_tensor_read(gradients[i], &tensor[read]);
      overflow_pending_add(state, pending, &tensor[read], role, i);
      read++;
    }
    if (read && (read == DIT_HELPER_BATCH || i == count - 1)) {
      overflow_pending_launch(state, pending);  // before the sizes that it may borrow from `tensor` go
      while (read) {
        engine_tensor_reset(&tensor[--read]);
      }
    }
  }
}

static int backward_check_later(struct engine_tool *tool, const struct engine_backward *backward,
                                struct overflow_batch *batch, const struct tools_site *site) {
  struct overflow_state *state = tool->state;
  int capacity = backward->grad_input_count + backward->grad_output_count;
  if (overflow_batch_reserve(tool, batch, capacity) < 0) {
    return -1;
  }
  struct overflow_pending *pending = overflow_pending_create(batch, site, capacity);
  if (!pending) {
    return 0;
  }
  gradients_add(state, pending, backward->grad_outputs, backward->grad_output_count, OVERFLOW_IN);
  gradients_add(state, pending, backward->grad_inputs, backward->grad_input_count, OVERFLOW_OUT);
  struct overflow_event *event = overflow_pending_get_event(pending), facts;
  backward_event_set(&facts, backward);
  facts.in_count = event->in_count;
  facts.out_count = event->out_count;
  if (state->every == 1) {  // judged below: the gradients are at hand
    facts.func = Py_None;
    facts.args = gradients_pack(backward->grad_outputs, backward->grad_output_count);
    facts.result = facts.args ? gradients_pack(backward->grad_inputs, backward->grad_input_count) : NULL;
    facts.func = facts.result ? facts.func : NULL;
    PyErr_Clear();
  }
  *event = facts;
  overflow_pending_commit(state, pending, backward->data, false);
  int status = overflow_batches_poll(tool);
  objects_forget(state, pending);
  Py_XDECREF(facts.args);
  Py_XDECREF(facts.result);
  return status;
}

static int overflow_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  struct overflow_state *state = tool->state;
  struct tools_site site;
  state->checked++;
  tools_site_find_among(backward->grad_inputs, backward->grad_input_count, &site);
  struct overflow_batch *batch = is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  tools_site_settle(&site);
  return batch ? backward_check_later(tool, backward, batch, &site) : backward_check_now(tool, backward);
}

// ---- life

static int overflow_start(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  overflow_batches_destroy(state);
  overflow_findings_clear(state);
  memset(state->counts, 0, sizeof state->counts);
  state->checked = state->unchecked = state->reads = state->dropped = state->scaled = 0;
  state->scaler_seen = state->producer_seen = state->orphan_seen = false;
  state->inf_step = -1;
  return 0;
}

static int overflow_flush(struct engine_tool *tool) {
  int status = overflow_batches_read(tool);
  return status < 0 ? status : overflow_release_held(tool);
}

static int overflow_step(struct engine_tool *tool, int64_t step) {
  (void)step;
  return overflow_flush(tool);
}

static int overflow_configure(struct engine_tool *tool, PyObject *options) {
  struct overflow_state *state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
    return -1;
  }
  tool->state = state;
  state->inf_step = -1;
  state->every = DEFAULT_EVERY;
  state->backward = state->stats = state->log = true;
  const struct {
    const char *name;
    PyObject **object;
    bool *flag;
  } slots[] = {{"allow", &state->py_allow, NULL},
               {"report", &state->py_report, NULL},
               {"torch_flags", &state->py_flags, NULL},
               {"torch_stats", &state->py_stats, NULL},
               {"stats", NULL, &state->stats},
               {"deferred", NULL, &state->deferred},
               {"eager", NULL, &state->eager_backward},
               {"backward", NULL, &state->backward},
               {"log", NULL, &state->log}};
  for (size_t i = 0; options && i < sizeof slots / sizeof *slots; i++) {
    PyObject *value = PyDict_GetItemString(options, slots[i].name);
    if (!value || value == Py_None) {
      continue;
    }
    if (slots[i].object) {
      *slots[i].object = Py_NewRef(value);
    } else {
      *slots[i].flag = PyObject_IsTrue(value) > 0;
    }
  }
  PyObject *every = options ? PyDict_GetItemString(options, "read_every") : NULL;
  if (every && every != Py_None) {
    state->every = PyLong_AsLongLong(every);
    if (state->every < 1) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "OpOverflowCheck: read_every is %R; it must be 1 or more", every);
      }
      return -1;
    }
  }
  return 0;
}

static void overflow_destroy(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  if (!state) {
    return;
  }
  overflow_batches_destroy(state);
  overflow_findings_clear(state);
  for (size_t i = 0; i < sizeof state->ops / sizeof *state->ops; i++) {
    while (state->ops[i]) {
      struct overflow_op *info = state->ops[i];
      state->ops[i] = info->next;
      PyMem_Free(info);
    }
  }
  for (size_t i = 0; i < state->module_count; i++) {
    Py_XDECREF(state->modules[i]);
  }
  PyMem_Free(state->modules);
  Py_XDECREF(state->py_allow);
  Py_XDECREF(state->py_report);
  Py_XDECREF(state->py_flags);
  Py_XDECREF(state->py_stats);
  PyMem_Free(state);
  tool->state = NULL;
}

static PyObject *counts_describe(const int64_t *counts) {
  return Py_BuildValue("{s:L,s:L,s:L}", "producer", (long long)counts[OVERFLOW_PRODUCER], "propagator",
                       (long long)counts[OVERFLOW_PROPAGATOR], "allowed", (long long)counts[OVERFLOW_ALLOWED]);
}

static PyObject *overflow_describe(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  PyObject *py_findings = overflow_findings_describe(state);
  if (!py_findings) {
    return NULL;
  }
  return Py_BuildValue("{s:N,s:N,s:N,s:L,s:L,s:L,s:L,s:L}", "findings", py_findings, "forward",
                       counts_describe(state->counts[OVERFLOW_FORWARD]), "backward",
                       counts_describe(state->counts[OVERFLOW_BACKWARD]), "checked", (long long)state->checked,
                       "unchecked", (long long)state->unchecked, "reads", (long long)state->reads, "dropped",
                       (long long)state->dropped, "scaled", (long long)state->scaled);
}

const struct engine_tool_vtable engine_tool_overflow = {
    .name = "overflow",
    .hook = "OpOverflowCheckHook",
    .needs = ENGINE_NEED_BACKWARD | ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE | ENGINE_NEED_VERSION,
    .order = 300,
    .configure = overflow_configure,
    .start = overflow_start,
    .before = overflow_before,
    .after = overflow_after,
    .keep = overflow_keep,
    .release = overflow_release,
    .backward_end = overflow_backward_end,
    .step = overflow_step,
    .stop = overflow_flush,
    .destroy = overflow_destroy,
    .describe = overflow_describe,
};
