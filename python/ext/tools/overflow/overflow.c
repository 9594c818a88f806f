// OpOverflowCheck: who made the first NaN or Inf. The tool's slots in the engine, its options and its answers.
//
// A call is checked where its results are: at once in host memory (overflow/call.c), through slots and a queue on a
// CUDA device (overflow/device.c). Both end in overflow_judge (overflow/finding.c).
#include "tools/overflow/overflow.h"

#include <string.h>

#include "tools/option.h"

#define DEFAULT_EVERY 4096

// After the call

bool overflow_is_deferred(const struct overflow_state *state, const struct tools_site *site) {
  return site->place == ENGINE_PLACE_CUDA || (state->deferred && site->place <= ENGINE_PLACE_HOST);
}

// Where a call is checked: where its results are, or its inputs when there is no result to see. False: not at all, a
// copy to the host may still be under way.
static bool call_find_site(const struct engine_call *call, struct tools_site *site) {
  tools_site_find(&call->out, site);
  if (site->place != ENGINE_PLACE_NONE && site->place != ENGINE_PLACE_CPU) {
    return true;
  }
  struct tools_site in;
  tools_site_find(&call->in, &in);
  if (site->place == ENGINE_PLACE_CPU && in.place == ENGINE_PLACE_HOST) {
    tools_site_settle(&in);
  } else if (site->place == ENGINE_PLACE_CPU && in.place != ENGINE_PLACE_CPU && in.place != ENGINE_PLACE_NONE) {
    for (int i = 0; i < call->in.leaf_count; i++) {
      if (call->in.leaf[i].value == Py_True) {  // non_blocking
        return false;
      }
    }
  }
  *site = site->place == ENGINE_PLACE_NONE || call->changed ? in : *site;
  return true;
}

static int scaler_note(struct engine_tool *tool, const struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct overflow_batch *batch = overflow_is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  struct overflow_pending *marker = batch ? overflow_pending_create(batch, &site, 0) : NULL;
  if (marker) {
    overflow_pending_commit(state, marker, NULL, true);
  } else {
    overflow_excuse(state);
  }
  return 0;
}

// What the call wrote to may have been resized or moved: look again, before anybody reads through the old description.
static void inputs_refresh(struct engine_call *call, const struct overflow_op *info) {
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0) {
      continue;
    }
    bool changed = leaf->tensor >= 64 || call->changed >> leaf->tensor & 1;
    if (changed || (info->inplace && leaf->top == 0)) {
      struct engine_tensor *tensor = &call->in.tensor[leaf->tensor], fresh;
      engine_tensor_read(tensor->py_tensor, &fresh);
      fresh.version = tensor->version;
      engine_tensor_reset(tensor);
      *tensor = fresh;
    }
  }
}

// Where the call's results are decides how it is checked.
static int call_check(struct engine_tool *tool, struct engine_call *call, struct overflow_op *info,
                      const struct overflow_look *look) {
  struct overflow_state *state = tool->state;
  struct overflow_pending *begun = overflow_call_get_pending(tool, call);
  struct tools_site site;
  if (!call_find_site(call, &site)) {
    overflow_pending_destroy(state, begun);
    call->data[tool->slot] = NULL;
    return 0;
  }
  struct overflow_batch *batch = overflow_is_deferred(state, &site) ? overflow_batch_get(state, &site) : NULL;
  tools_site_settle(&site);
  if (batch) {
    return overflow_call_check_later(tool, call, info, batch, &site, look);
  }
  if (begun) {  // begun on a device, ended elsewhere: what was found before is not to be had now
    overflow_pending_destroy(state, begun);
    call->data[tool->slot] = NULL;
  }
  return overflow_call_check_now(tool, call, info, look);
}

static int overflow_after(struct engine_tool *tool, struct engine_call *call) {
  struct overflow_state *state = tool->state;
  struct overflow_op *info = overflow_op_find(state, call->op);
  struct overflow_pending *begun = overflow_call_get_pending(tool, call);
  if (info && call->flags & ENGINE_CALL_FAILED && overflow_effect_is_followed(info->effect)) {
    overflow_follow_end(tool, call, info);
    return 0;
  }
  if (call->flags & ENGINE_CALL_FAILED || !info) {
    overflow_pending_destroy(state, begun);
    call->data[tool->slot] = NULL;
    return 0;
  }
  if (info->scaler) {
    return scaler_note(tool, call);
  }
  if (info->rescales) {
    return overflow_rescale(state, call);
  }
  state->checked++;
  engine_modules_note(&state->modules, call->module);
  if (call->changed || info->inplace) {
    inputs_refresh(call, info);
  }
  if (overflow_effect_is_followed(info->effect)) {
    overflow_follow_end(tool, call, info);
    return 0;
  }
  struct overflow_look look;
  overflow_look_set(&look, state, call, info);
  int status = call_check(tool, call, info, &look);
  overflow_look_end(&look, state, call, info);
  return status;
}

// Life

static int overflow_start(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  overflow_batches_destroy(state);
  overflow_findings_clear(state);
  overflow_unwritten_clear(&state->unwritten);
  state->unwritten.dropped = 0;
  state->unwritten.unversioned = tool->aten;
  memset(state->counts, 0, sizeof state->counts);
  state->checked = state->unchecked = state->reads = state->dropped = state->scaled = 0;
  state->scaler_seen = state->producer_seen = state->orphan_seen = state->excused = state->scale_spent = false;
  state->inf_step = state->excused_step = state->searched_step = -1;
  return 0;
}

static int overflow_flush(struct engine_tool *tool) {
  int status = overflow_batches_read(tool);
  return status < 0 ? status : overflow_release_held(tool);
}

static int overflow_stop(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  overflow_unwritten_clear(&state->unwritten);  // what is written from now on is not seen
  return overflow_flush(tool);
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
  state->inf_step = state->excused_step = state->searched_step = -1;
  state->every = DEFAULT_EVERY;
  state->backward = state->stats = state->log = true;
  state->py_allow = Py_XNewRef(option_get(options, "allow"));
  state->py_report = Py_XNewRef(option_get(options, "report"));
  state->py_excuse = Py_XNewRef(option_get(options, "excuse"));
  state->py_scaler = Py_XNewRef(option_get(options, "scaler"));
  state->py_flags = Py_XNewRef(option_get(options, "torch_flags"));
  state->py_stats = Py_XNewRef(option_get(options, "torch_stats"));
  state->py_hold = Py_XNewRef(option_get(options, "hold"));
  if (option_read_flag(options, "stats", &state->stats) < 0 ||
      option_read_flag(options, "deferred", &state->deferred) < 0 ||
      option_read_flag(options, "at_once", &state->at_once) < 0 ||
      option_read_flag(options, "backward", &state->backward) < 0 ||
      option_read_flag(options, "log", &state->log) < 0) {
    return -1;
  }
  return option_read_number(options, "OpOverflowCheck", "read_every", 1, &state->every);
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
  overflow_unwritten_reset(&state->unwritten);
  engine_modules_reset(&state->modules);
  Py_XDECREF(state->py_allow);
  Py_XDECREF(state->py_report);
  Py_XDECREF(state->py_excuse);
  Py_XDECREF(state->py_scaler);
  Py_XDECREF(state->py_flags);
  Py_XDECREF(state->py_stats);
  Py_XDECREF(state->py_hold);
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
  return Py_BuildValue("{s:N,s:N,s:N,s:L,s:L,s:L,s:L,s:L,s:i,s:L}", "findings", py_findings, "forward",
                       counts_describe(state->counts[OVERFLOW_FORWARD]), "backward",
                       counts_describe(state->counts[OVERFLOW_BACKWARD]), "checked", (long long)state->checked,
                       "unchecked", (long long)state->unchecked, "reads", (long long)state->reads, "dropped",
                       (long long)state->dropped, "scaled", (long long)state->scaled, "unwritten",
                       state->unwritten.count, "unwritten_dropped", (long long)state->unwritten.dropped);
}

const struct engine_tool_vtable engine_tool_overflow = {
    .name = "overflow",
    .hook = "OpOverflowCheckHook",
    .needs = ENGINE_NEED_BACKWARD | ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE | ENGINE_NEED_VERSION,
    .order = 300,
    .configure = overflow_configure,
    .start = overflow_start,
    .before = overflow_call_before,
    .after = overflow_after,
    .keep = overflow_keep,
    .release = overflow_release,
    .backward_end = overflow_backward_end,
    .step = overflow_step,
    .stop = overflow_stop,
    .destroy = overflow_destroy,
    .describe = overflow_describe,
};
