// OpObserve: one record per call with all arguments and results. With stats=1 also numbers and a hash of what the call
// wrote, and a record per backward with those of its gradients: another vtable, so that without it nothing is asked.
#include <string.h>

#include "engine/log.h"
#include "tools/observe_stats.h"
#include "tools/option.h"

struct observe_state {
  PyObject *py_stats;  // for tensors that C cannot read
};

static const struct engine_tool_vtable observe_with_stats;

static int observe_configure(struct engine_tool *tool, PyObject *options) {
  bool stats = false;
  if (option_read_flag(options, "stats", &stats) < 0) {
    return -1;
  }
  if (stats) {
    struct observe_state *state = PyMem_Calloc(1, sizeof *state);
    if (!state) {
      (void)PyErr_NoMemory();
      return -1;
    }
    state->py_stats = Py_XNewRef(option_get(options, "torch_stats"));
    tool->state = state;
    tool->vtable = &observe_with_stats;
  }
  return 0;
}

static int call_write(struct engine_tool *tool, struct engine_call *call, const struct observe_stats *stats) {
  struct dit_record_builder *builder = engine_log_begin(tool, call, ENGINE_RECORD_CALL);
  if (!builder) {
    return 0;
  }
  dit_record_field_i64(builder, engine_key_host_ns, call->end_ns - call->begin_ns);
  if (call->error) {
    const char *kind = Py_TYPE(call->error)->tp_name;
    dit_record_field_string(builder, engine_key_error, kind, strlen(kind));
  }
  engine_log_leaves(builder, &call->in);
  engine_log_leaves(builder, &call->out);
  if (stats) {
    observe_stats_write(stats, builder);
  }
  engine_log_commit(builder);
  return 0;
}

static int observe_after(struct engine_tool *tool, struct engine_call *call) {
  return call_write(tool, call, NULL);
}

static int stats_after(struct engine_tool *tool, struct engine_call *call) {
  const struct observe_state *state = tool->state;
  struct observe_stats stats = {0};
  if (engine_log_get()) {
    observe_stats_of_call(&stats, call, state->py_stats);
  }
  return call_write(tool, call, &stats);
}

static int stats_backward(struct engine_tool *tool, struct engine_backward *backward) {
  const struct observe_state *state = tool->state;
  struct observe_stats stats = {0};
  if (!engine_log_get()) {
    return 0;
  }
  observe_stats_of_backward(&stats, backward, state->py_stats);
  struct dit_record_builder *builder = engine_log_begin_backward(tool, backward, ENGINE_RECORD_BACKWARD);
  if (builder) {
    dit_record_field_i64(builder, engine_key_host_ns, backward->end_ns - backward->begin_ns);
    engine_log_gradients(builder, backward);
    observe_stats_write(&stats, builder);
    engine_log_commit(builder);
  }
  return 0;
}

static void observe_destroy(struct engine_tool *tool) {
  struct observe_state *state = tool->state;
  if (state) {
    Py_XDECREF(state->py_stats);
    PyMem_Free(state);
    tool->state = NULL;
  }
}

static const struct engine_tool_vtable observe_with_stats = {
    .name = "observe",
    .hook = "OpObserveHook",
    .needs = ENGINE_NEED_BACKWARD | ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE | ENGINE_NEED_VERSION,
    .order = 10,
    .after = stats_after,
    .backward_end = stats_backward,
    .destroy = observe_destroy,
};

const struct engine_tool_vtable engine_tool_observe = {
    .name = "observe",
    .hook = "OpObserveHook",
    .needs = ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE,
    .order = 10,
    .configure = observe_configure,
    .after = observe_after,
};
