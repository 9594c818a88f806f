// OpObserve: one record per call with all arguments and results. Nothing else.
#include <string.h>

#include "engine/log.h"

static int observe_after(struct engine_tool *tool, struct engine_call *call) {
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
  engine_log_commit(builder);
  return 0;
}

const struct engine_tool_vtable engine_tool_observe = {
    .name = "observe",
    .hook = "OpObserveHook",
    .needs = ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE,
    .order = 10,
    .after = observe_after,
};
