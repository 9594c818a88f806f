// OpAutoCompare: every operator of the device once more on the CPU, and what differs.
//
// before: twins of the tensors (compare/case.c). after: the CPU's run (compare/run.c), the device's results and inputs
// against it (compare/judge.c), rows and findings (compare/report.c). A call whose gradients are to be compared is kept
// with the graph of the CPU's run until its backward ends. The program is never changed: what cannot be compared is
// counted with its reason, and only `stop` raises.
#include <stdio.h>
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"
#include "engine/log.h"
#include "tools/compare/state.h"

static const char *const skip_names[COMPARE_SKIPS] = {"metadata", "uninitialised", "collective", "max_bytes",
                                                      "share",    "random",        "unable"};

// What is not compared

static int64_t call_get_bytes(const struct engine_call *call) {
  int64_t bytes = 0;
  for (int i = 0; i < call->in.tensor_count; i++) {
    bytes += call->in.tensor[i].numel * (int64_t)dit_dtype_get_size(call->in.tensor[i].dtype);
  }
  return bytes;
}

static bool share_is_spent(const struct compare_state *state) {
  if (state->share <= 0 || state->share >= 100) {
    return false;
  }
  int64_t passed = dit_record_get_time() - state->begin_ns;
  return state->spent_ns / 100.0 > state->share / 10000.0 * (double)passed;
}

// A reason, or COMPARE_SKIPS: none.
static enum compare_skip call_find_skip(const struct compare_state *state, const struct compare_op *info,
                                        const struct engine_call *call) {
  if (info->is_metadata) {
    return COMPARE_SKIP_METADATA;
  }
  if (call->op->flags & ENGINE_OP_UNINITIALISED) {
    return COMPARE_SKIP_UNINITIALISED;
  }
  if ((call->op->flags & ENGINE_OP_COLLECTIVE) && !(call->flags & ENGINE_CALL_REFERENCE)) {
    return COMPARE_SKIP_COLLECTIVE;
  }
  if (state->max_bytes > 0 && call_get_bytes(call) > state->max_bytes) {
    return COMPARE_SKIP_BYTES;
  }
  return share_is_spent(state) ? COMPARE_SKIP_SHARE : COMPARE_SKIPS;
}

// Cannot be compared: counted, and said once per operator. Never leaves an exception of the tool's own making; 0, or -1
// when the pending one is the program's.
int compare_note_unable(struct compare_state *state, struct compare_op *info, const char *reason) {
  state->skipped[COMPARE_SKIP_UNABLE]++;
  if (info->unable++ == 0) {
    snprintf(info->reason, sizeof info->reason, "%s", reason);
  }
  if (info->told) {
    return 0;
  }
  info->told = true;
  char text[500];
  snprintf(text, sizeof text, "OpAutoCompare: %.150s cannot be compared: %.300s", info->op->name, reason);
  engine_log_note(text);
  PyObject *py_done =
      state->py_unable ? PyObject_CallFunction(state->py_unable, "Os", info->op->py_name, reason) : NULL;
  Py_XDECREF(py_done);
  py_error_drop();
  return 0;
}

int compare_note_error(struct compare_state *state, struct compare_op *info) {
  if (compare_error_is_foreign()) {
    return -1;
  }
  char reason[256];
  compare_error_take(reason, sizeof reason);
  return compare_note_unable(state, info, reason);
}

void compare_wrong_note(struct compare_wrong *wrong, const struct compare_judgement *judgement, enum compare_what what,
                        int index, const struct engine_tensor *tensor) {
  if (!wrong->judgement && judgement->verdict == COMPARE_WRONG) {
    *wrong = (struct compare_wrong){.judgement = judgement, .tensor = tensor, .what = what, .index = index};
  }
}

void compare_note_direction(struct compare_state *state, struct compare_op *info, uint64_t id, bool backward,
                            bool is_wrong, bool is_close) {
  state->compared[backward]++;
  info->compared[backward]++;
  state->close[backward] += is_close;
  if (is_wrong) {
    state->wrong[backward]++;
    if (info->wrong[backward]++ == 0) {
      info->first_wrong[backward] = id;
    }
  }
}

bool compare_case_has_bad_inputs(const struct compare_case *c) {
  bool bad = false;
  for (int i = 0; i < c->twin_count && !bad; i++) {
    struct engine_tensor tensor;
    struct dit_tensor_view view;
    bool has_nan = false, has_inf = false;
    engine_tensor_read(c->twins[i], &tensor);
    enum dit_dtype_class class = dit_dtype_get_class(tensor.dtype);
    if ((class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX) &&
        engine_tensor_get_view(&tensor, &view) && dit_tensor_get_nonfinite(&view, &has_nan, &has_inf, NULL) == DIT_OK) {
      bad = has_nan || has_inf;
    }
    engine_tensor_reset(&tensor);
  }
  return bad;
}

// Cases that wait to be kept

// Between `after` and `keep` of a call; the engine may not ask, then the next call of the thread finds it here.
static void waiting_push(struct compare_state *state, struct compare_case *c) {
  c->thread = PyThread_get_thread_ident();
  c->next = state->waiting;
  state->waiting = c;
}

static struct compare_case *waiting_take(struct compare_state *state, unsigned long thread, bool all) {
  for (struct compare_case **at = &state->waiting; *at; at = &(*at)->next) {
    if (all || (*at)->thread == thread) {
      struct compare_case *c = *at;
      *at = c->next;
      c->next = NULL;
      return c;
    }
  }
  return NULL;
}

static void waiting_drop(struct compare_state *state, bool all) {
  struct compare_case *c;
  while ((c = waiting_take(state, PyThread_get_thread_ident(), all))) {
    compare_case_destroy(c);
  }
}

// Before

static int compare_before(struct engine_tool *tool, struct engine_call *call) {
  struct compare_state *state = tool->state;
  call->data[tool->slot] = NULL;
  if (state->waiting) {
    waiting_drop(state, false);
  }
  struct compare_op *info = compare_op_find(state, call->op);
  if (!info) {
    return 0;
  }
  enum compare_skip skip = call_find_skip(state, info, call);
  if (skip != COMPARE_SKIPS) {
    state->skipped[skip]++;
    return 0;
  }
  int64_t begin = dit_record_get_time();
  struct compare_case *c = compare_case_create(tool, info, call);
  int status = c ? 0 : -1;
  if (c && info->may_draw) {
    status = compare_random_save(c, call);
  }
  if (status < 0) {
    compare_case_destroy(c);
    c = NULL;
    status = compare_note_error(state, info);
  }
  if (c) {
    compare_guard_begin(c, call);
  }
  engine_modules_note(&state->modules, call->module);
  call->data[tool->slot] = c;
  state->spent_ns += dit_record_get_time() - begin;
  return status;
}

static int compare_after(struct engine_tool *tool, struct engine_call *call) {
  struct compare_state *state = tool->state;
  struct compare_case *c = call->data[tool->slot];
  call->data[tool->slot] = NULL;
  if (!c) {
    return 0;
  }
  struct compare_op *info = compare_op_find(state, call->op);
  if (call->flags & ENGINE_CALL_FAILED || !info) {
    compare_case_destroy(c);
    return 0;
  }
  int64_t begin = dit_record_get_time();
  bool kept = false;
  int status = compare_call_run(tool, call, info, c, &kept);
  if (kept && status == 0) {
    waiting_push(state, c);
  } else {
    compare_case_destroy(c);
  }
  state->spent_ns += dit_record_get_time() - begin;
  return status;
}

// Backward

static void *compare_keep(struct engine_tool *tool, struct engine_call *call) {
  struct compare_state *state = tool->state;
  struct compare_case *c = waiting_take(state, PyThread_get_thread_ident(), false);
  if (c && c->id != call->id) {
    compare_case_destroy(c);
    c = NULL;
  }
  if (c) {
    compare_backward_note(c, call);
  }
  state->kept += c != NULL;
  return c;
}

static void compare_release(struct engine_tool *tool, void *data) {
  (void)tool;
  compare_case_destroy(data);
}

static int compare_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  struct compare_state *state = tool->state;
  struct compare_case *c = backward->data;
  struct compare_op *info = compare_op_find(state, backward->op);
  if (!c || c->done || !info) {
    return 0;
  }
  int64_t begin = dit_record_get_time();
  int status = compare_gradient_run(tool, info, c, backward);
  if (!compare_graph_is_kept()) {  // the nodes may live on with the program's loss; what is held for them need not
    compare_case_empty(c);
  }
  state->spent_ns += dit_record_get_time() - begin;
  return status;
}

// The full console

void compare_extra_put(struct compare_state *state, int64_t key, PyObject *py_extra) {
  PyObject *py_key = PyLong_FromLongLong(key);
  if (!state->py_extras) {
    state->py_extras = PyDict_New();
  }
  if (!py_key || !py_extra || !state->py_extras || PyDict_SetItem(state->py_extras, py_key, py_extra) < 0) {
    py_error_drop();
  }
  Py_XDECREF(py_key);
  Py_XDECREF(py_extra);
}

static PyObject *extra_take(struct compare_state *state, int64_t key) {
  PyObject *py_key = PyLong_FromLongLong(key);
  PyObject *found = py_key && state->py_extras ? PyDict_GetItem(state->py_extras, py_key) : NULL;  // borrowed
  PyObject *py_extra = Py_XNewRef(found);
  if (found && PyDict_DelItem(state->py_extras, py_key) < 0) {
    py_error_drop();
  }
  Py_XDECREF(py_key);
  return py_extra;
}

PyObject *compare_casts_describe(const struct compare_case *c) {
  PyObject *py_casts = PyDict_New();
  for (int i = 0; py_casts && i < c->twin_count; i++) {
    int from = c->dtypes[i], to = compare_dtype_get(c, from);
    if (from >= 0 && from != to) {
      char key[64];
      snprintf(key, sizeof key, "torch.%s", dit_dtype_get_name(from));
      if (py_dict_take(py_casts, key, PyUnicode_FromFormat("torch.%s", dit_dtype_get_name(to))) < 0) {
        Py_CLEAR(py_casts);
      }
    }
  }
  return py_casts;
}

static PyObject *compare_extra(struct engine_tool *tool, struct engine_call *call) {
  return extra_take(tool->state, (int64_t)call->id);
}

static PyObject *compare_extra_backward(struct engine_tool *tool, struct engine_backward *backward) {
  return extra_take(tool->state, -(int64_t)backward->id);
}

// Life

static void counts_clear(struct compare_state *state) {
  memset(state->compared, 0, sizeof state->compared);
  memset(state->wrong, 0, sizeof state->wrong);
  memset(state->close, 0, sizeof state->close);
  memset(state->skipped, 0, sizeof state->skipped);
  state->rows_written = state->runs = state->kept = state->near_count = 0;
  state->spoiled_count = 0;
  state->saved_calls = state->saved_bytes = state->capped = state->failed = 0;
  state->spent_ns = 0;
  for (size_t i = 0; i < sizeof state->ops / sizeof *state->ops; i++) {
    for (struct compare_op *info = state->ops[i]; info; info = info->next) {
      memset(info->compared, 0, sizeof info->compared);
      memset(info->wrong, 0, sizeof info->wrong);
      memset(info->first_wrong, 0, sizeof info->first_wrong);
      info->unable = info->suspects = 0;
    }
  }
}

static int compare_start(struct engine_tool *tool) {
  struct compare_state *state = tool->state;
  compare_report_reset(state);
  counts_clear(state);
  state->begin_ns = dit_record_get_time();
  return 0;
}

static int compare_stop(struct engine_tool *tool) {
  struct compare_state *state = tool->state;
  waiting_drop(state, true);
  compare_report_flush(tool);
  return 0;
}

static int compare_configure(struct engine_tool *tool, PyObject *options) {
  struct compare_state *state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    (void)PyErr_NoMemory();
    return -1;
  }
  tool->state = state;
  return compare_options_read(state, options);
}

static void compare_destroy(struct engine_tool *tool) {
  struct compare_state *state = tool->state;
  if (!state) {
    return;
  }
  waiting_drop(state, true);
  compare_report_reset(state);
  compare_ops_reset(state);
  engine_modules_reset(&state->modules);
  PyMem_Free(state->rows);
  PyMem_Free(state->csv);
  Py_XDECREF(state->py_extras);
  compare_options_reset(state);
  PyMem_Free(state);
  tool->state = NULL;
}

// Answers

static PyObject *counts_describe(const struct compare_state *state, int direction) {
  return Py_BuildValue("{s:K,s:K,s:K}", "compared", (unsigned long long)state->compared[direction], "close",
                       (unsigned long long)state->close[direction], "wrong",
                       (unsigned long long)state->wrong[direction]);
}

static PyObject *skips_describe(const struct compare_state *state) {
  PyObject *py_dict = PyDict_New();
  for (int i = 0; py_dict && i < COMPARE_SKIPS; i++) {
    if (py_dict_take(py_dict, skip_names[i], PyLong_FromUnsignedLongLong(state->skipped[i])) < 0) {
      Py_CLEAR(py_dict);
    }
  }
  return py_dict;
}

static PyObject *unable_describe(const struct compare_state *state) {
  PyObject *py_dict = PyDict_New();
  for (size_t i = 0; py_dict && i < sizeof state->ops / sizeof *state->ops; i++) {
    for (const struct compare_op *info = state->ops[i]; py_dict && info; info = info->next) {
      if (info->unable && py_dict_take(py_dict, info->op->name,
                                       Py_BuildValue("(Ks)", (unsigned long long)info->unable, info->reason)) < 0) {
        Py_CLEAR(py_dict);
      }
    }
  }
  return py_dict;
}

static PyObject *suspects_describe(const struct compare_state *state) {
  PyObject *py_dict = PyDict_New();
  for (size_t i = 0; py_dict && i < sizeof state->ops / sizeof *state->ops; i++) {
    for (const struct compare_op *info = state->ops[i]; py_dict && info; info = info->next) {
      if (info->suspects && py_dict_take(py_dict, info->op->name, PyLong_FromUnsignedLongLong(info->suspects)) < 0) {
        Py_CLEAR(py_dict);
      }
    }
  }
  return py_dict;
}

static PyObject *compare_describe(struct engine_tool *tool) {
  struct compare_state *state = tool->state;
  return Py_BuildValue(
      "{s:N,s:K,s:L,s:L,s:L,s:L,s:N,s:N,s:N,s:N,s:N,s:L,s:K,s:K,s:K,s:z,s:d,s:d}", "suspects", suspects_describe(state),
      "on_device", (unsigned long long)state->near_count, "saved", (long long)state->saved_calls, "saved_bytes",
      (long long)state->saved_bytes, "capped", (long long)state->capped, "failed", (long long)state->failed, "findings",
      compare_findings_describe(state), "forward", counts_describe(state, 0), "backward", counts_describe(state, 1),
      "skipped", skips_describe(state), "unable", unable_describe(state), "dropped", (long long)state->dropped, "rows",
      (unsigned long long)state->rows_written, "runs", (unsigned long long)state->runs, "kept",
      (unsigned long long)state->kept, "csv", state->rows_written ? state->csv : NULL, "spent",
      (double)state->spent_ns * 1e-9, "passed", (double)(dit_record_get_time() - state->begin_ns) * 1e-9);
}

const struct engine_tool_vtable engine_tool_compare = {
    .name = "compare",
    .hook = "OpAutoCompareHook",
    .needs = ENGINE_NEED_BACKWARD | ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE | ENGINE_NEED_VERSION,
    .order = 30,
    .configure = compare_configure,
    .start = compare_start,
    .before = compare_before,
    .after = compare_after,
    .keep = compare_keep,
    .release = compare_release,
    .backward_end = compare_backward_end,
    .stop = compare_stop,
    .destroy = compare_destroy,
    .describe = compare_describe,
    .extra = compare_extra,
    .extra_backward = compare_extra_backward,
};
