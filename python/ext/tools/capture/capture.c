// OpCapture: the inputs of a call before it runs, its result, and the gradients of its backward, as files that
// torch.load reads or packed into a container.
//
// A call's key is "<id>/<local time>", fixed before the operator runs; everything of the call lies in
//   [rank<R>/]op_capture_results/<operator>/<pid>/<key>/{input,output,grad_outputs,grad_inputs,error}.pth
// below the results folder. `rank<R>/` is there only when the job has several ranks, which may share the folder and
// have equal process ids. What cannot be saved never fails the program: it is counted, and said once per kind.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dit/log.h"
#include "engine/log.h"
#include "tools/call_settings.h"
#include "tools/capture/item.h"
#include "tools/capture/memory.h"
#include "tools/capture/reuse.h"
#include "tools/capture/state.h"

#define FLUSH_MS (10 * 60 * 1000)  // a stop() waits for the disk, but not for ever
#define KEPT_BYTES (64u << 20)     // of snapshot memory, from one start to the next

static int capture_configure(struct engine_tool *tool, PyObject *options) {
  tool->state = capture_state_create(options);
  return tool->state ? 0 : -1;
}

static void capture_destroy(struct engine_tool *tool) {
  capture_state_destroy(tool->state);
  tool->state = NULL;
}

static int capture_start(struct engine_tool *tool) {
  struct capture_state *state = tool->state;
  state->step = engine_step_get();
  if (state->store && state->pid == getpid()) {
    return 0;
  }
  struct capture_store *store = capture_store_open(state->root, &state->store_options);
  if (!store) {
    return -1;
  }
  capture_store_close(state->store);
  state->store = store;
  dit_store_get_counts(store->store, &state->before);
  state->pid = getpid();
  return 0;
}

// Saying things

static void say_once(bool *said, const char *text) {
  if (!*said) {
    *said = true;
    dit_log_write(DIT_LOG_WARNING, "%s", text);
    engine_log_note(text);
  }
}

static void say_cap(struct capture_state *state, bool calls) {
  char text[400];
  struct capture_usage usage;
  capture_usage_get(&usage);
  if (calls) {
    snprintf(text, sizeof text,
             "OpCapture: cap_calls of %lld calls is reached (%lld bytes saved): further calls are not saved; the "
             "program goes on; set cap_calls (OP_CAPTURE_CAP_CALLS; 0: no cap) to save more",
             (long long)state->cap_calls, (long long)usage.bytes);
  } else {
    snprintf(text, sizeof text,
             "OpCapture: cap_bytes of %lld bytes is reached (after %lld calls): nothing more is saved; the program "
             "goes on; set cap_bytes (OP_CAPTURE_CAP_BYTES; 0: no cap) to save more",
             (long long)state->cap_bytes, (long long)usage.calls);
  }
  say_once(calls ? &state->said_calls : &state->said_bytes, text);
}

// An item could not be built: one short line, the first time; the exception is consumed.
static void say_failure(struct capture_state *state, const char *name, const char *what) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyObject *py_text = value ? PyObject_Str(value) : NULL;
  const char *reason = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  char text[600];
  snprintf(text, sizeof text, "OpCapture: the %.40s of %.200s can not be saved because %.300s", what, name,
           reason ? reason : "of an unknown error");
  py_error_drop();
  Py_XDECREF(py_text);
  Py_XDECREF(kind);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  state->failed++;
  say_once(&state->said_failure, text);
}

// Saving

// One item: what of which call.
struct job {
  struct engine_tool *tool;
  const struct engine_call *call;          // or
  const struct engine_backward *backward;  // of which
  const char *what;
  time_t second;
  bool now;
};

static void record_write(const struct job *job, const char *path, int64_t bytes, bool kept) {
  struct dit_record_builder *builder = job->call
                                           ? engine_log_begin(job->tool, job->call, ENGINE_RECORD_CAPTURE)
                                           : engine_log_begin_backward(job->tool, job->backward, ENGINE_RECORD_CAPTURE);
  if (!builder) {
    return;
  }
  dit_record_field_string(builder, engine_key_what, job->what, strlen(job->what));
  dit_record_field_string(builder, engine_key_path, path, strlen(path));
  dit_record_field_i64(builder, engine_key_bytes, bytes);
  if (!kept) {
    static const char text[] = "not kept";
    dit_record_field_string(builder, engine_key_error, text, sizeof text - 1);
  }
  engine_log_commit(builder);
}

static bool item_put(const struct job *job, struct capture_item *item, const char *path) {
  struct capture_state *state = job->tool->state;
  struct dit_store_item view;
  struct dit_error err = {0};
  bool kept = false;
  capture_item_show(item, path, &view);
  int64_t bytes = capture_item_get_size(item);
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_store_put(state->store->store, &view, job->now, &kept, &err);
  Py_END_ALLOW_THREADS;
  capture_item_move(item);
  if (status != DIT_OK) {
    PyErr_SetString(PyExc_ValueError, err.message);
    return false;
  }
  if (kept) {
    state->items++;
    state->bytes += (uint64_t)bytes;
    capture_usage_add_bytes(bytes);
  } else {
    state->refused++;
  }
  record_write(job, path, bytes, kept);
  return kept;
}

// True when the item is with the store. Never leaves an exception.
static bool item_save(const struct job *job, const struct engine_op *op, uint64_t id, struct capture_item *item,
                      struct capture_source *source) {
  struct capture_state *state = job->tool->state;
  if (!capture_usage_has_bytes(state->cap_bytes)) {
    state->capped++;
    say_cap(state, false);
    return false;
  }
  if (!dit_store_is_open(state->store->store)) {
    state->refused++;
    return false;
  }
  char identifier[CAPTURE_KEY_BYTES], path[CAPTURE_PATH_BYTES];
  source->identifier = identifier;
  source->identifier_size = capture_key_print(identifier, id, job->second, job->what);
  source->name = op->name;
  source->plain = state->plain;
  capture_path_print(state, op, identifier, source->identifier_size, path);
  bool kept = capture_item_build(item, source) == 0 && item_put(job, item, path);
  if (PyErr_Occurred()) {
    say_failure(state, op->name, job->what);
  }
  return kept;
}

static bool call_save(const struct job *job, struct capture_source *source) {
  struct capture_item *item = capture_item_take();
  bool kept = item && item_save(job, job->call->op, job->call->id, item, source);
  if (!item) {
    say_failure(job->tool->state, job->call->op->name, job->what);
  }
  capture_item_give(item);
  return kept;
}

// Forward

// call->data: the second, and what is on its way. Nothing is allocated per call.
enum { SAVED_INPUT = 1, SAVED_OUTPUT = 2, SAVED_ERROR = 4, TAKEN = 8, SAVED_BITS = 4 };

static void *mark_make(time_t second, unsigned saved) {
  return (void *)((uintptr_t)second << SAVED_BITS | saved);
}

static time_t mark_get_second(const void *mark) {
  return (time_t)((uintptr_t)mark >> SAVED_BITS);
}

static unsigned mark_get_saved(const void *mark) {
  return (unsigned)((uintptr_t)mark & ((1u << SAVED_BITS) - 1));
}

static int capture_before(struct engine_tool *tool, struct engine_call *call) {
  struct capture_state *state = tool->state;
  call->data[tool->slot] = NULL;
  if (!capture_usage_take_call(state->cap_calls)) {
    state->capped++;
    atomic_fetch_add_explicit(&tool->counts[ENGINE_SKIP_CAP], 1, memory_order_relaxed);
    say_cap(state, true);
    return 0;
  }
  state->calls++;
  const struct job job = {.tool = tool, .call = call, .what = "input", .second = time(NULL), .now = state->write_ahead};
  struct capture_source source = {
      .args = ((PyTupleObject *)call->args)->ob_item,
      .count = PyTuple_GET_SIZE(call->args),
      .kwargs = call->kwargs,
      .state = call_settings_get(call),
      .tensors = call->in.tensor,
      .tensor_count = call->in.tensor_count,
      .whole = call->op->flags & ENGINE_OP_BEYOND,
  };
  unsigned saved = call_save(&job, &source) ? TAKEN | SAVED_INPUT : TAKEN;
  Py_XDECREF(source.state);
  call->data[tool->slot] = mark_make(job.second, saved);
  return 0;
}

// The exception of a failed operator: ("RuntimeError", "text").
static bool error_save(struct job *job, PyObject *error) {
  struct capture_state *state = job->tool->state;
  state->errors++;
  job->what = "error";
  PyObject *py_name = PyUnicode_FromString(Py_TYPE(error)->tp_name);
  PyObject *py_text = py_name ? PyObject_Str(error) : NULL;
  py_error_drop();
  PyObject *const words[] = {py_name, py_text};
  struct capture_source source = {.args = words, .count = 2};
  bool kept = call_save(job, &source);
  Py_XDECREF(py_name);
  Py_XDECREF(py_text);
  return kept;
}

static int capture_after(struct engine_tool *tool, struct engine_call *call) {
  struct capture_state *state = tool->state;
  void *mark = call->data[tool->slot];
  if (!mark) {
    return 0;
  }
  unsigned saved = mark_get_saved(mark);
  struct job job = {.tool = tool, .call = call, .what = "output", .second = mark_get_second(mark)};
  if (call->flags & ENGINE_CALL_FAILED) {
    saved |= call->error && error_save(&job, call->error) ? SAVED_ERROR : 0;
  } else if (state->outputs) {
    struct capture_source source = {
        .args = &call->result,
        .count = 1,
        .tensors = call->out.tensor,
        .tensor_count = call->out.tensor_count,
    };
    saved |= call_save(&job, &source) ? SAVED_OUTPUT : 0;
  }
  call->data[tool->slot] = mark_make(job.second, saved);
  return 0;
}

// Backward

struct kept {
  time_t second;
  int32_t round;         // of `saved`
  bool outputs, inputs;  // saved in that round
};

static void *capture_keep(struct engine_tool *tool, struct engine_call *call) {
  struct capture_state *state = tool->state;
  void *mark = call->data[tool->slot];
  struct kept *kept = mark && state->gradients ? malloc(sizeof *kept) : NULL;
  if (kept) {
    *kept = (struct kept){.second = mark_get_second(mark), .round = -1};
  }
  return kept;
}

static void capture_release(struct engine_tool *tool, void *data) {
  (void)tool;
  free(data);
}

// "grad_inputs", and "grad_inputs_1" when the graph is walked again.
static void what_print(char what[40], const char *name, int32_t round) {
  if (round > 0) {
    snprintf(what, 40, "%s_%d", name, (int)round);
  } else {
    snprintf(what, 40, "%s", name);
  }
}

static bool gradients_save(struct engine_tool *tool, const struct engine_backward *backward, const char *name,
                           PyObject *const *gradients, int count, bool now) {
  const struct kept *kept = backward->data;
  char what[40];
  what_print(what, name, backward->round);
  const struct job job = {.tool = tool, .backward = backward, .what = what, .second = kept->second, .now = now};
  struct capture_item *item = capture_item_take();
  bool done = false;
  if (item && capture_item_read(item, gradients, count) == 0) {
    struct capture_source source = {
        .args = gradients, .count = count, .tensors = item->tensors, .tensor_count = item->tensor_count};
    done = item_save(&job, backward->op, backward->id, item, &source);
  } else {
    say_failure(tool->state, backward->op->name, what);
  }
  capture_item_give(item);
  return done;
}

// In write-ahead mode what enters the backward is on disk before it runs, as far as it is known then.
static int capture_backward_begin(struct engine_tool *tool, struct engine_backward *backward) {
  const struct capture_state *state = tool->state;
  if (state->write_ahead && backward->data) {
    (void)gradients_save(tool, backward, "grad_outputs", backward->grad_outputs, backward->grad_output_count, true);
  }
  return 0;
}

static int capture_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  struct kept *kept = backward->data;
  if (!kept) {
    return 0;
  }
  bool inputs = gradients_save(tool, backward, "grad_inputs", backward->grad_inputs, backward->grad_input_count, false);
  bool outputs =
      gradients_save(tool, backward, "grad_outputs", backward->grad_outputs, backward->grad_output_count, false);
  kept->round = backward->round;
  kept->inputs = inputs;
  kept->outputs = outputs;
  return 0;
}

// The end

static uint64_t losses_count(const struct capture_state *state, const struct dit_store_counts *counts) {
  return counts->dropped + counts->lost - state->before.dropped - state->before.lost;
}

static void losses_note(struct capture_state *state, const struct dit_store_counts *counts) {
  uint64_t missing = losses_count(state, counts);
  if (missing) {
    char text[500];
    snprintf(text, sizeof text, "OpCapture: %llu items were not kept%s%.300s", (unsigned long long)missing,
             counts->problem[0] ? ": " : "", counts->problem);
    say_once(&state->said_loss, text);
  }
}

static int capture_flush(struct capture_state *state) {
  if (!state->store || state->pid != getpid()) {
    return 0;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_store_flush(state->store->store, FLUSH_MS, &err);
  Py_END_ALLOW_THREADS;
  (void)status;  // what was lost is in the counts
  struct dit_store_counts counts;
  dit_store_get_counts(state->store->store, &counts);
  losses_note(state, &counts);
  return 0;
}

// A new step waits for nothing; asked again for the same one, it is a flush.
static int capture_step(struct engine_tool *tool, int64_t step) {
  struct capture_state *state = tool->state;
  bool flush = tool->slot < 0 || state->step == step;
  state->step = step;
  return flush ? capture_flush(state) : 0;
}

static int capture_stop(struct engine_tool *tool) {
  int status = capture_flush(tool->state);
  capture_reuse_clear();
  capture_memory_trim(KEPT_BYTES);
  return status;
}

static PyObject *capture_describe(struct engine_tool *tool) {
  struct capture_state *state = tool->state;
  struct dit_store_counts counts = state->before;
  if (state->store && state->pid == getpid()) {
    dit_store_get_counts(state->store->store, &counts);
  }
  uint64_t lost = losses_count(state, &counts);
  bool packed = state->store_options.layout == DIT_STORE_PACKED;
  return Py_BuildValue("{s:s,s:s,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:O,s:s}", "root", state->root, "layout",
                       packed ? "packed" : "files", "calls", (unsigned long long)state->calls, "items",
                       (unsigned long long)state->items, "bytes", (unsigned long long)state->bytes, "errors",
                       (unsigned long long)state->errors, "failed", (unsigned long long)state->failed, "capped",
                       (unsigned long long)state->capped, "refused", (unsigned long long)state->refused, "written",
                       (unsigned long long)(counts.written - state->before.written), "lost", (unsigned long long)lost,
                       "shared", (unsigned long long)(counts.shared - state->before.shared), "failing",
                       counts.failing ? Py_True : Py_False, "problem", lost ? counts.problem : "");
}

// The full console

static int saved_add(PyObject *list, const struct capture_state *state, const struct engine_op *op, uint64_t id,
                     time_t second, const char *what) {
  char identifier[CAPTURE_KEY_BYTES], path[CAPTURE_PATH_BYTES];
  size_t size = capture_key_print(identifier, id, second, what);
  capture_path_print(state, op, identifier, size, path);
  PyObject *py_path = PyUnicode_FromFormat("%s/%s", state->shown, path);
  int done = py_path ? PyList_Append(list, py_path) : -1;
  Py_XDECREF(py_path);
  return done;
}

static PyObject *extra_make(uint64_t id, time_t second, PyObject *saved) {
  char key[CAPTURE_KEY_BYTES];
  (void)capture_key_print(key, id, second, NULL);
  return Py_BuildValue("{s:s,s:N}", "key", key, "saved", saved);
}

static PyObject *capture_extra(struct engine_tool *tool, struct engine_call *call) {
  const struct capture_state *state = tool->state;
  void *mark = call->data[tool->slot];
  if (!mark) {
    return NULL;
  }
  static const struct {
    unsigned bit;
    const char *what;
  } kinds[] = {{SAVED_INPUT, "input"}, {SAVED_OUTPUT, "output"}, {SAVED_ERROR, "error"}};
  time_t second = mark_get_second(mark);
  PyObject *py_saved = PyList_New(0);
  for (size_t i = 0; py_saved && i < sizeof kinds / sizeof *kinds; i++) {
    if ((mark_get_saved(mark) & kinds[i].bit) &&
        saved_add(py_saved, state, call->op, call->id, second, kinds[i].what) < 0) {
      Py_CLEAR(py_saved);
    }
  }
  return py_saved ? extra_make(call->id, second, py_saved) : NULL;
}

static PyObject *capture_extra_backward(struct engine_tool *tool, struct engine_backward *backward) {
  const struct kept *kept = backward->data;
  if (!kept) {
    return NULL;
  }
  PyObject *py_saved = PyList_New(0);
  bool this_round = kept->round == backward->round;
  const struct {
    bool saved;
    const char *what;
  } kinds[] = {{kept->inputs, "grad_inputs"}, {kept->outputs, "grad_outputs"}};
  for (int i = 0; py_saved && this_round && i < 2; i++) {
    char what[40];
    what_print(what, kinds[i].what, backward->round);
    if (kinds[i].saved && saved_add(py_saved, tool->state, backward->op, backward->id, kept->second, what) < 0) {
      Py_CLEAR(py_saved);
    }
  }
  return py_saved ? extra_make(backward->id, kept->second, py_saved) : NULL;
}

const struct engine_tool_vtable engine_tool_capture = {
    .name = "capture",
    .hook = "OpCaptureHook",
    .needs = ENGINE_NEED_BACKWARD,
    .order = 10,
    .configure = capture_configure,
    .start = capture_start,
    .before = capture_before,
    .after = capture_after,
    .keep = capture_keep,
    .release = capture_release,
    .backward_begin = capture_backward_begin,
    .backward_end = capture_backward_end,
    .step = capture_step,
    .stop = capture_stop,
    .destroy = capture_destroy,
    .describe = capture_describe,
    .extra = capture_extra,
    .extra_backward = capture_extra_backward,
};
