// OpFallback: the operator runs on the CPU instead of the device, and the program does not notice.
//
// Invariants: the program's tensors are untouched until the CPU run has succeeded; an exception of the operator reaches
// the program as it is; views, transfers and operators that compute nothing run on the device. What happened in the
// call that a thread just made is kept for the log and the console until its `after`.
#include "tools/fallback/fallback.h"

#include <string.h>

#include "dit/record.h"
#include "engine/log.h"

/// The last call of a thread, between `call` and `after`.
static _Thread_local struct {
  uint64_t id;
  int64_t down, up, down_ns, cpu_ns, up_ns;
  enum fallback_reason reason;
  bool cast;
  PyObject *py_args, *py_kwargs, *py_result;  // owned: on the CPU, for the full console alone
} last;

static void last_clear(void) {
  last.id = 0;
  Py_CLEAR(last.py_args);
  Py_CLEAR(last.py_kwargs);
  Py_CLEAR(last.py_result);
}

static void last_set(const struct fallback_run *run, enum fallback_reason reason) {
  last_clear();
  last.id = run->call->id;
  last.reason = reason;
  last.cast = run->cast;
  last.down = run->down;
  last.up = run->up;
  last.down_ns = run->down_ns;
  last.cpu_ns = run->cpu_ns;
  last.up_ns = run->up_ns;
  if (run->tool->py_console && reason == FALLBACK_APPLIES) {
    last.py_args = Py_XNewRef(run->py_args);
    last.py_kwargs = Py_XNewRef(run->py_kwargs);
    last.py_result = Py_XNewRef(run->py_result);
  }
}

// Which calls

// An index of numbers, slices, None and Ellipsis makes a view; lists, tensors, arrays and booleans make a copy.
static bool index_is_view(PyObject *index) {
  if (PyTuple_Check(index)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); i++) {
      if (PyTuple_Check(PyTuple_GET_ITEM(index, i)) || !index_is_view(PyTuple_GET_ITEM(index, i))) {
        return false;
      }
    }
    return true;
  }
  return index == Py_None || index == Py_Ellipsis || PySlice_Check(index) ||
         (PyLong_Check(index) && !PyBool_Check(index));
}

static enum fallback_reason reason_find(struct fallback_run *run) {
  const struct fallback_row *row = run->row;
  const struct engine_call *call = run->call;
  if (row->reason != FALLBACK_APPLIES && !(row->traits & FALLBACK_COPIES)) {
    return row->reason;
  }
  for (int i = 0; i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    // Wrappers (DTensor ...) hold other tensors, which meet the tool by themselves at level "aten".
    bool wrapper = (tensor->flags & ENGINE_TENSOR_SUBCLASS) && !(tensor->flags & ENGINE_TENSOR_STRIDED);
    if ((tensor->flags & ENGINE_TENSOR_DEVICE) && (tensor->place == ENGINE_PLACE_NONE || wrapper)) {
      return FALLBACK_VALUELESS;
    }
  }
  if (engine_guard_has_tracer()) {
    return FALLBACK_TRACED;
  }
  if (engine_call_has_sparse_gradient(call)) {
    return FALLBACK_SPARSE;
  }
  if (row->traits & FALLBACK_COPIES) {
    return fallback_transfer_find(row, call, &run->transfer);
  }
  bool indexing = (row->traits & FALLBACK_INDEXING) && PyTuple_GET_SIZE(call->args) == 2;
  return indexing && index_is_view(PyTuple_GET_ITEM(call->args, 1)) ? FALLBACK_VIEW : FALLBACK_APPLIES;
}

static PyObject *call_leave(struct fallback_run *run, enum fallback_reason reason) {
  run->row->exempt[reason]++;
  last_set(run, reason);
  return engine_chain_run(run->chain, run->call->args, run->call->kwargs);
}

static void row_add(struct fallback_row *row, const struct fallback_run *run) {
  row->count++;
  row->down += run->down;
  row->up += run->up;
  row->down_ns += run->down_ns;
  row->cpu_ns += run->cpu_ns;
  row->up_ns += run->up_ns;
}

static PyObject *call_run(struct fallback_run *run) {
  enum fallback_reason reason = FALLBACK_APPLIES;
  PyObject *py_result = NULL;
  int status = fallback_run_forward(run);
  if (status == 0) {
    int64_t begin = dit_record_get_time();
    py_result = fallback_run_finish(run);
    run->up_ns = dit_record_get_time() - begin;
    if (!py_result && !PyErr_Occurred()) {
      reason = FALLBACK_ALIAS;
    }
  } else if (status > 0) {
    reason = (enum fallback_reason)status;
  }
  if (py_result) {
    row_add(run->row, run);
    last_set(run, FALLBACK_APPLIES);
  } else if (reason == FALLBACK_APPLIES) {
    run->row->failed++;
    last_clear();
  }
  fallback_run_reset(run);
  return reason == FALLBACK_APPLIES ? py_result : call_leave(run, reason);
}

static PyObject *fallback_call(struct engine_tool *tool, struct engine_call *call, struct engine_chain *chain) {
  struct fallback_run run = {.tool = tool, .call = call, .chain = chain};
  run.row = fallback_row_find(tool->state, call->op);
  if (!run.row || fallback_torch_load() < 0) {
    return NULL;
  }
  enum fallback_reason reason = reason_find(&run);
  PyObject *py_result = reason == FALLBACK_APPLIES ? call_run(&run) : call_leave(&run, reason);
  fallback_transfer_reset(&run.transfer);
  return py_result;
}

// Log and console

static int fallback_after(struct engine_tool *tool, struct engine_call *call) {
  static uint32_t key_down, key_up, key_cpu_ns;
  if (!key_down &&
      (dit_record_intern("down", 4, &key_down, NULL) != DIT_OK || dit_record_intern("up", 2, &key_up, NULL) != DIT_OK ||
       dit_record_intern("cpu_ns", 6, &key_cpu_ns, NULL) != DIT_OK)) {
    return 0;
  }
  bool ran = last.id == call->id && last.reason == FALLBACK_APPLIES;
  struct dit_record_builder *builder = ran ? engine_log_begin(tool, call, ENGINE_RECORD_CALL) : NULL;
  if (builder) {
    dit_record_field_i64(builder, engine_key_host_ns, call->end_ns - call->begin_ns);
    dit_record_field_i64(builder, key_down, last.down);
    dit_record_field_i64(builder, key_up, last.up);
    dit_record_field_i64(builder, key_cpu_ns, last.cpu_ns);
    engine_log_leaves(builder, &call->in);
    engine_log_leaves(builder, &call->out);
    engine_log_commit(builder);
  }
  if (!tool->py_console) {
    last_clear();
  }
  return 0;
}

// Nothing for calls that ran on the device.
static PyObject *fallback_extra(struct engine_tool *tool, struct engine_call *call) {
  (void)tool;
  if (last.id != call->id || !last.py_args) {
    last_clear();
    return NULL;
  }
  PyObject *py_extra =
      Py_BuildValue("{s:O,s:O,s:O,s:O}", "args", last.py_args, "kwargs", last.py_kwargs ? last.py_kwargs : Py_None,
                    "result", last.py_result ? last.py_result : Py_None, "cast", last.cast ? Py_True : Py_False);
  last_clear();
  return py_extra;
}

// The tool

static int fallback_configure(struct engine_tool *tool, PyObject *options) {
  (void)options;
  tool->state = PyMem_Calloc(1, sizeof(struct fallback_state));
  if (!tool->state) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

static int fallback_start(struct engine_tool *tool) {
  fallback_rows_reset(tool->state);
  return 0;
}

static void fallback_destroy(struct engine_tool *tool) {
  if (tool->state) {
    fallback_rows_reset(tool->state);
    PyMem_Free(tool->state);
    tool->state = NULL;
  }
}

const struct engine_tool_vtable engine_tool_fallback = {
    .name = "fallback",
    .hook = "OpFallbackHook",
    .needs = ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE,
    .order = 20,
    .configure = fallback_configure,
    .start = fallback_start,
    .call = fallback_call,
    .after = fallback_after,
    .destroy = fallback_destroy,
    .describe = fallback_describe,
    .extra = fallback_extra,
};
