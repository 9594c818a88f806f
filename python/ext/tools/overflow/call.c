// One forward call: what it read, what it wrote, and the check of both.
//
// What is read: every output, and every input that the call overwrote. Inputs are read after the call, and only when an
// output is bad or the call has a backward; inputs that the call will overwrite are read before it. An output that
// shows the memory of an untouched input (a view) holds nothing new and is not read. On a CUDA device everything goes
// into one batch per call instead (overflow/device.c), because nobody waits for the flags.
#include <math.h>

#include "tools/overflow/parts.h"

// engine_call.data between before, after and keep on host memory: facts in the pointer's own bits.
enum note {
  NOTE_TAG = 1,           // not a pending event
  NOTE_BEFORE = 2,        // inputs that will be overwritten were read before the call ...
  NOTE_BEFORE_SHIFT = 2,  // ... with these flags
  NOTE_KNOWN = 32,        // inputs were read after the call too ...
  NOTE_FLAGS_SHIFT = 6,   // ... and this is what was found in inputs and outputs
};

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

// host: at once

struct scan {
  struct overflow_state *state;
  uint8_t flags;
};

static void scan_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct scan *scan = context;
  (void)role;
  (void)index;
  scan->flags |= overflow_tensor_scan(scan->state, tensor);
}

// What went in; what was overwritten is known from before the call, or not at all.
static void parts_scan_inputs(const struct overflow_parts *parts, uintptr_t note, struct overflow_event *event) {
  const struct engine_call *call = parts->call;
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    enum overflow_part part = overflow_part_get(parts, leaf);
    uint8_t flags = 0;
    if (part == OVERFLOW_PART_INPUT) {
      flags = overflow_tensor_scan(parts->state, &call->in.tensor[leaf->tensor]);
    } else if (part == OVERFLOW_PART_CHANGED) {
      flags = note & NOTE_BEFORE ? (uint8_t)(note >> NOTE_BEFORE_SHIFT & 7) : OVERFLOW_UNKNOWN;
    }
    if (flags) {
      overflow_event_add(event, false, flags, overflow_parts_get_coverage(parts, leaf));
    }
  }
}

struct fill {
  struct overflow_state *state;
  const struct overflow_parts *parts;
  uint8_t before_flags;
  struct overflow_event *event;
};

static void fill_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct fill *fill = context;
  struct overflow_event *event = fill->event;
  if (event->out_count < OVERFLOW_TENSORS) {
    overflow_tensor_fill(fill->state, &event->tensor[event->in_count + event->out_count++], tensor, role, index);
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
    enum overflow_part part = overflow_part_get(fill->parts, leaf);
    if (part == OVERFLOW_PART_INPUT || part == OVERFLOW_PART_CHANGED) {
      struct overflow_tensor *tensor = &event->tensor[event->in_count++];
      bool changed = part == OVERFLOW_PART_CHANGED;
      overflow_tensor_fill(fill->state, tensor, &call->in.tensor[leaf->tensor],
                           changed ? OVERFLOW_IN_BEFORE : OVERFLOW_IN, leaf->tensor);
      tensor->meta.flags = changed ? fill->before_flags : tensor->meta.flags;
      tensor->meta.coverage = overflow_parts_get_coverage(fill->parts, leaf);
    }
  }
  fill->event = event;
  overflow_parts_visit_written(fill->parts, fill_visit, fill);
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

int overflow_call_check_now(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info,
                            const struct overflow_look *look) {
  struct overflow_state *state = tool->state;
  uintptr_t note = (uintptr_t)call->data[tool->slot] | NOTE_TAG;
  struct scan scan = {.state = state};
  struct overflow_parts parts;
  overflow_parts_set(&parts, state, call, info, look);
  overflow_parts_visit_written(&parts, scan_visit, &scan);
  if (scan.flags & OVERFLOW_BAD) {
    struct overflow_event event;
    call_event_set(&event, call);
    event.out_flags = scan.flags;
    parts_scan_inputs(&parts, note, &event);
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
    note |= NOTE_KNOWN | (uintptr_t)(event.in_flags | event.junk_flags | event.out_flags) << NOTE_FLAGS_SHIFT;
  }
  if (call->changed && !(note & NOTE_BEFORE) && overflow_parts_have_changed(&parts)) {
    info->mutates = true;  // its name does not say that it overwrites: look before it runs, from now on
  }
  call->data[tool->slot] = (void *)note;
  return 0;
}

// device: into slots

struct add {
  struct overflow_state *state;
  struct overflow_pending *pending;
  struct overflow_launch launch;
};

static void add_visit(void *context, const struct engine_tensor *tensor, enum overflow_role role, int index) {
  struct add *add = context;
  overflow_pending_add(add->state, add->pending, &add->launch, tensor, role, index);
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

static bool call_may_have_backward(const struct overflow_state *state, const struct engine_call *call) {
  bool found = false;
  for (int i = 0; state->backward && i < call->out.tensor_count; i++) {
    found |= (call->out.tensor[i].flags & ENGINE_TENSOR_GRAD) != 0;
  }
  for (int i = 0; state->backward && call->changed && i < call->in.tensor_count; i++) {
    found |= (call->in.tensor[i].flags & ENGINE_TENSOR_GRAD) != 0;
  }
  return found;
}

static bool results_can_be_bad(const struct engine_call *call) {
  for (int i = 0; i < call->out.tensor_count; i++) {
    if (!overflow_can_be_bad(&call->out.tensor[i])) {
      return false;
    }
  }
  return call->out.tensor_count > 0;
}

// Finite results of a call that has a backward say little about its inputs, which its gradients depend on; unless they
// could not be finite otherwise, or are the inputs' own memory.
static bool call_is_lazy(const struct overflow_state *state, const struct engine_call *call,
                         const struct overflow_op *info, bool has_results) {
  return !call_may_have_backward(state, call) || !has_results || (info->passes_all && results_can_be_bad(call));
}

int overflow_call_check_later(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info,
                              struct overflow_batch *batch, const struct tools_site *site,
                              const struct overflow_look *look) {
  struct overflow_state *state = tool->state;
  struct overflow_pending *pending = call->data[tool->slot];
  bool before = pending != NULL;
  call->data[tool->slot] = NULL;
  if (!pending && !(pending = call_pending_create(tool, call, batch, site))) {
    return PyErr_Occurred() ? -1 : 0;
  }
  pending = overflow_pending_grow(pending, call_get_capacity(call));
  struct overflow_parts parts;
  struct add add;
  add.state = state;
  add.pending = pending;
  overflow_launch_init(&add.launch, false);
  overflow_parts_set(&parts, state, call, info, look);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    enum overflow_part part = overflow_part_get(&parts, leaf);
    if (part == OVERFLOW_PART_INPUT) {
      add_visit(&add, &call->in.tensor[leaf->tensor], OVERFLOW_IN, leaf->tensor);
    } else if (part == OVERFLOW_PART_CHANGED && !before) {
      info->mutates = true;
      overflow_pending_add_unknown(pending, &call->in.tensor[leaf->tensor], OVERFLOW_IN_BEFORE, leaf->tensor);
    }
    uint8_t coverage = overflow_parts_get_coverage(&parts, leaf);
    if (coverage != OVERFLOW_WRITTEN) {
      overflow_pending_mark(pending, leaf->tensor, coverage);
    }
  }
  overflow_parts_visit_written(&parts, add_visit, &add);
  add.launch.lazy = call_is_lazy(state, call, info, overflow_pending_get_event(pending)->out_count > 0);
  overflow_pending_launch(state, pending, &add.launch);
  struct overflow_event *event = overflow_pending_get_event(pending), facts;
  call_event_set(&facts, call);
  facts.in_count = event->in_count;
  facts.out_count = event->out_count;
  *event = facts;
  overflow_pending_commit(state, pending, NULL, false);
  int status = overflow_batches_poll(tool);
  overflow_objects_forget(state, pending);
  return status;
}

// Notes

struct overflow_pending *overflow_call_get_pending(const struct engine_tool *tool, const struct engine_call *call) {
  void *data = call->data[tool->slot];
  return (uintptr_t)data & NOTE_TAG ? NULL : data;
}

bool overflow_call_is_noted(const struct engine_tool *tool, const struct engine_call *call) {
  return (uintptr_t)call->data[tool->slot] & NOTE_TAG;
}

// Before the call

static bool kwargs_say_inplace(const struct engine_call *call) {
  PyObject *value =
      call->kwargs && PyDict_GET_SIZE(call->kwargs) ? PyDict_GetItemString(call->kwargs, "inplace") : NULL;
  return value == Py_True;
}

static bool call_may_change(const struct engine_call *call, const struct overflow_op *info) {
  return info->effect != OVERFLOW_FILLS && (info->inplace || info->mutates || kwargs_say_inplace(call));
}

int overflow_call_before(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_op *info = overflow_op_find(state, call->op);
  call->data[tool->slot] = NULL;
  if (!info || info->scaler || !call_may_change(call, info)) {
    return 0;
  }
  if (overflow_effect_is_followed(info->effect)) {
    overflow_follow_begin(tool, call, info);
    return 0;
  }
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct overflow_batch *batch = overflow_is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  struct overflow_pending *pending = batch ? call_pending_create(tool, call, batch, &site) : NULL;
  if (batch && !pending) {
    return PyErr_Occurred() ? -1 : 0;
  }
  tools_site_settle(&site);
  uint8_t flags = 0;
  struct overflow_parts parts;
  struct overflow_launch launch;
  overflow_launch_init(&launch, false);
  overflow_parts_set(&parts, state, call, info, NULL);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0 || leaf->top == parts.out_top || (leaf->top != 0 && !info->mutates)) {
      continue;
    }
    const struct engine_tensor *tensor = &call->in.tensor[leaf->tensor];
    if (pending) {
      overflow_pending_add(state, pending, &launch, tensor, OVERFLOW_IN_BEFORE, leaf->tensor);
    } else {
      flags |= overflow_tensor_scan(state, tensor);
    }
  }
  if (pending) {
    overflow_pending_launch(state, pending, &launch);
    call->data[tool->slot] = pending;
  } else {
    call->data[tool->slot] = (void *)(NOTE_TAG | NOTE_BEFORE | (uintptr_t)flags << NOTE_BEFORE_SHIFT);
  }
  return 0;
}

// What the forward knew, for its backward.
uint8_t overflow_call_get_flags(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  uintptr_t note = (uintptr_t)call->data[tool->slot];
  struct overflow_op *info = overflow_op_find(state, call->op);
  if (note & NOTE_KNOWN) {
    return (uint8_t)(note >> NOTE_FLAGS_SHIFT & 7);
  }
  struct overflow_parts parts;
  if (!info) {
    return 0;
  }
  overflow_parts_set(&parts, state, call, info, NULL);
  struct overflow_event event = {.in_flags = 0};
  parts_scan_inputs(&parts, note, &event);
  return event.in_flags;
}
