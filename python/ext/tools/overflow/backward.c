// The backward of a call: gradients that came in against gradients that go out.
//
// Gradients that go out are read; those that came in only when one of them is bad (on a CUDA device: both, in one
// batch). What the forward had read and written is known from its own check. Runs on the autograd threads.
#include "tools/overflow/overflow.h"

// What the forward leaves for the backward

void overflow_kept_release(struct overflow_kept *kept) {
  if (kept && --kept->references == 0) {
    Py_XDECREF(kept->py_held);
    PyMem_Free(kept);
  }
}

// The forward's arguments, for whoever saves what a backward was given. Failing is no reason to disturb the program.
static PyObject *arguments_hold(struct overflow_state *state, const struct engine_call *call) {
  if (!state->py_hold) {
    return NULL;
  }
  PyObject *py_held =
      PyObject_CallFunctionObjArgs(state->py_hold, call->args, call->kwargs ? call->kwargs : Py_None, NULL);
  py_error_drop();
  return py_held;
}

void *overflow_keep(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_kept *kept = state->backward ? PyMem_Calloc(1, sizeof *kept) : NULL;
  if (!kept) {
    return NULL;
  }
  kept->references = 1;
  kept->py_held = arguments_hold(state, call);
  if (overflow_call_is_noted(tool, call)) {
    kept->flags = overflow_call_get_flags(tool, call);
  } else if (state->recent && state->recent_id == call->id) {
    overflow_pending_attach(state->recent, kept);
  } else if (state->recent_id == call->id) {
    kept->flags = state->recent_flags;
  }
  return kept;
}

void overflow_release(struct engine_tool *tool, void *data) {
  (void)tool;
  overflow_kept_release(data);
}

// Reading

static uint8_t gradient_get_coverage(struct overflow_state *state, const struct engine_tensor *tensor) {
  return state->unwritten.count ? overflow_unwritten_get(&state->unwritten, tensor) : OVERFLOW_WRITTEN;
}

static void gradients_scan(struct overflow_state *state, PyObject *const *gradients, int count, bool output,
                           struct overflow_event *event) {
  for (int i = 0; i < count; i++) {
    struct engine_tensor tensor;
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      engine_tensor_read(gradients[i], &tensor);
      uint8_t flags = overflow_tensor_scan(state, &tensor);
      if (flags) {
        overflow_event_add(event, output, flags, gradient_get_coverage(state, &tensor));
      }
      engine_tensor_reset(&tensor);
    }
  }
}

/// For backward_fill.
struct fill {
  struct overflow_state *state;
  const struct engine_backward *backward;
};

static int gradients_fill(struct fill *fill, PyObject *const *gradients, int count, struct overflow_tensor *out,
                          enum overflow_role role) {
  int filled = 0;
  for (int i = 0; i < count && filled < OVERFLOW_TENSORS; i++) {
    struct engine_tensor tensor;
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      engine_tensor_read(gradients[i], &tensor);
      overflow_tensor_fill(fill->state, &out[filled], &tensor, role, i);
      out[filled++].meta.coverage = gradient_get_coverage(fill->state, &tensor);
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

// In the place of the function: what was held of the forward, or None.
static PyObject *held_get(const struct engine_backward *backward) {
  const struct overflow_kept *kept = backward->data;
  return kept && kept->py_held ? kept->py_held : Py_None;
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
  struct overflow_event event;
  backward_event_set(&event, backward);
  gradients_scan(state, backward->grad_inputs, backward->grad_input_count, true, &event);
  if (!(event.out_flags & OVERFLOW_BAD)) {
    return 0;
  }
  struct fill fill = {.state = state, .backward = backward};
  gradients_scan(state, backward->grad_outputs, backward->grad_output_count, false, &event);
  event.forward_flags = kept ? kept->flags : 0;
  event.fill = backward_fill;
  event.source = &fill;
  PyObject *py_in = gradients_pack(backward->grad_outputs, backward->grad_output_count);
  PyObject *py_out = gradients_pack(backward->grad_inputs, backward->grad_input_count);
  int status = -1;
  if (py_in && py_out) {
    event.func = held_get(backward);
    event.args = py_in;
    event.result = py_out;
    status = overflow_judge(tool, &event);
  }
  Py_XDECREF(py_in);
  Py_XDECREF(py_out);
  PyMem_Free(event.tensor);
  return status;
}

/// Gradients that wait for their launch, with what it borrows from them.
struct waiting {
  struct overflow_launch launch;
  struct engine_tensor *tensor;
  int count;
};

static void gradients_add(struct overflow_state *state, struct overflow_pending *pending, struct waiting *waiting,
                          PyObject *const *gradients, int count, enum overflow_role role) {
  for (int i = 0; i < count; i++) {
    if (gradients[i] && engine_is_tensor(gradients[i])) {
      struct engine_tensor *tensor = &waiting->tensor[waiting->count++];
      engine_tensor_read(gradients[i], tensor);
      overflow_pending_add(state, pending, &waiting->launch, tensor, role, i);
      overflow_pending_mark_last(pending, gradient_get_coverage(state, tensor));
    }
  }
}

// Gradients that came in are asked about when those that go out are bad.
static int gradients_launch(struct overflow_state *state, struct overflow_pending *pending,
                            const struct engine_backward *backward) {
  int capacity = backward->grad_input_count + backward->grad_output_count;
  struct waiting waiting = {.tensor = PyMem_Calloc((size_t)capacity + 1, sizeof *waiting.tensor)};
  if (!waiting.tensor) {
    (void)PyErr_NoMemory();
    return -1;
  }
  overflow_launch_init(&waiting.launch, true);
  gradients_add(state, pending, &waiting, backward->grad_outputs, backward->grad_output_count, OVERFLOW_IN);
  gradients_add(state, pending, &waiting, backward->grad_inputs, backward->grad_input_count, OVERFLOW_OUT);
  overflow_pending_launch(state, pending, &waiting.launch);
  for (int i = 0; i < waiting.count; i++) {
    engine_tensor_reset(&waiting.tensor[i]);
  }
  PyMem_Free(waiting.tensor);
  return 0;
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
  if (gradients_launch(state, pending, backward) < 0) {
    overflow_pending_destroy(state, pending);
    return -1;
  }
  struct overflow_event *event = overflow_pending_get_event(pending), facts;
  backward_event_set(&facts, backward);
  facts.in_count = event->in_count;
  facts.out_count = event->out_count;
  if (state->every == 1) {  // judged below: the gradients are at hand
    facts.func = held_get(backward);
    facts.args = gradients_pack(backward->grad_outputs, backward->grad_output_count);
    facts.result = facts.args ? gradients_pack(backward->grad_inputs, backward->grad_input_count) : NULL;
    facts.func = facts.result ? facts.func : NULL;
    py_error_drop();
  }
  *event = facts;
  overflow_pending_commit(state, pending, backward->data, false);
  int status = overflow_batches_poll(tool);
  overflow_objects_forget(state, pending);
  Py_XDECREF(facts.args);
  Py_XDECREF(facts.result);
  return status;
}

int overflow_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  struct overflow_state *state = tool->state;
  struct tools_site site;
  state->checked++;
  tools_site_find_among(backward->grad_inputs, backward->grad_input_count, &site);
  struct overflow_batch *batch = overflow_is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  tools_site_settle(&site);
  return batch ? backward_check_later(tool, backward, batch, &site) : backward_check_now(tool, backward);
}
