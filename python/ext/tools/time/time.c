// OpTimeMeasure: host and device time of every operator, forward and backward, without stopping the device.
//
// A call gets two events on its current stream and an entry in a queue; entries are read out when their events have
// passed: at step(), when the queue is longer than `pending`, and at stop(). Then the record is committed and the table
// updated. Work that runs in the caller (CPU, the embedded device's default stream) needs no events: its host time is
// its device time. With `sync` the stream is synchronised before and after every operator, as the original did.
// The tool is the innermost one, so other tools' work is outside of what it measures.
#include "engine/log.h"
#include "tools/option.h"
#include "tools/time/entry.h"

#define DEFAULT_PENDING 4096
#define DEFAULT_ROWS 20000

// Forward

static int time_before(struct engine_tool *tool, struct engine_call *call) {
  struct time_state *state = tool->state;
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct time_entry *entry = time_entry_take(state);
  call->data[tool->slot] = entry;
  if (!entry) {
    return 0;  // without memory the call goes unmeasured
  }
  // Before the operator: it may resize its arguments.
  entry->row = time_table_find(&state->table, call->op, &call->in);
  if (!entry->row) {
    time_entry_give(state, entry, false);
    call->data[tool->slot] = NULL;
    return 0;
  }
  if (site.place == ENGINE_PLACE_CPU || site.place == ENGINE_PLACE_NONE) {
    if (state->last.place != ENGINE_PLACE_NONE) {
      site = state->last;
      tools_site_refresh(&site);
      entry->remembered = true;
    }
  } else {
    state->last = site;
    state->last.py_tensor = NULL;
  }
  time_record_begin(state, entry, call);
  time_entry_arm(state, entry, &site);
  time_entry_begin(state, entry, &site);
  return 0;
}

// The device was guessed: right when a result is there.
static void entry_check(struct time_entry *entry, const struct engine_call *call) {
  struct tools_site in, out;
  tools_site_find(&call->in, &in);
  tools_site_find(&call->out, &out);
  if (out.place == entry->place && out.device == entry->device) {
    return;
  }
  time_entry_drop_events(entry);
  entry->inline_clock = tools_site_is_inline(&out) || (out.place == ENGINE_PLACE_NONE && in.place == ENGINE_PLACE_CPU);
}

static int time_after(struct engine_tool *tool, struct engine_call *call) {
  struct time_state *state = tool->state;
  struct time_entry *entry = call->data[tool->slot];
  if (!entry) {
    return 0;
  }
  call->data[tool->slot] = NULL;
  if (call->flags & ENGINE_CALL_FAILED) {
    time_entry_give(state, entry, false);
    return 0;
  }
  if (entry->source || state->sync) {
    struct tools_site site = {.place = entry->place, .device = entry->device};
    tools_site_refresh(&site);
    time_entry_end(state, entry, &site);
    call->end_ns = state->sync ? dit_record_get_time() : call->end_ns;
  }
  if (entry->remembered || entry->place == ENGINE_PLACE_NONE) {
    entry_check(entry, call);
  }
  entry->host_begin = call->begin_ns;
  entry->host_ns = call->end_ns - call->begin_ns;
  time_record_forward(state, entry, call);
  call->data[tool->slot] = entry->row;  // for time_keep
  time_entry_close(state, entry);
  return 0;
}

// Backward

static void *time_keep(struct engine_tool *tool, struct engine_call *call) {
  const struct time_state *state = tool->state;
  struct time_kept *kept = state->backward && call->data[tool->slot] ? PyMem_Calloc(1, sizeof *kept) : NULL;
  if (kept) {
    kept->row = call->data[tool->slot];
  }
  return kept;
}

static void time_release(struct engine_tool *tool, void *data) {
  struct time_kept *kept = data;
  while (kept->open) {
    struct time_entry *entry = kept->open;
    kept->open = entry->next;
    time_entry_give(tool->state, entry, false);
  }
  PyMem_Free(kept);
}

static int time_backward_begin(struct engine_tool *tool, struct engine_backward *backward) {
  struct time_state *state = tool->state;
  struct time_kept *kept = backward->data;
  struct tools_site site;
  struct time_entry *entry = kept ? time_entry_take(state) : NULL;
  if (!entry) {
    return 0;
  }
  entry->row = kept->row;
  entry->round = backward->round;
  entry->direction = TIME_BACKWARD;
  entry->next = kept->open;
  kept->open = entry;
  tools_site_find_among(backward->grad_outputs, backward->grad_output_count, &site);
  if (site.place == ENGINE_PLACE_NONE) {
    site = state->last;
    tools_site_refresh(&site);
  }
  time_entry_arm(state, entry, &site);
  time_entry_begin(state, entry, &site);
  entry->host_begin = dit_record_get_time();
  return 0;
}

static struct time_entry *open_take(struct time_kept *kept, int32_t round) {
  for (struct time_entry **link = &kept->open; *link; link = &(*link)->next) {
    if ((*link)->round == round) {
      struct time_entry *entry = *link;
      *link = entry->next;
      return entry;
    }
  }
  return NULL;
}

static int time_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  int64_t now = dit_record_get_time();
  struct time_state *state = tool->state;
  struct time_entry *entry = backward->data ? open_take(backward->data, backward->round) : NULL;
  if (!entry) {
    return 0;
  }
  if (!backward->complete) {  // it ended somewhere else: no span to speak of
    state->incomplete++;
    time_entry_give(state, entry, false);
    return 0;
  }
  if (entry->source || state->sync) {
    struct tools_site site = {.place = entry->place, .device = entry->device};
    tools_site_refresh(&site);
    time_entry_end(state, entry, &site);
  }
  now = state->sync ? dit_record_get_time() : now;
  entry->host_ns = now - entry->host_begin;
  backward->begin_ns = entry->host_begin;
  backward->end_ns = now;
  time_record_backward(state, entry, backward);
  time_entry_close(state, entry);
  return 0;
}

// Life

static void wall_mark(struct time_state *state) {
  int64_t now = dit_record_get_time();
  if (state->seen) {  // an interval in which nothing was watched does not count
    state->wall_ns += now - state->mark_ns;
    state->steps++;
  }
  state->seen = false;
  state->mark_ns = now;
}

static int time_start(struct engine_tool *tool) {
  struct time_state *state = tool->state;
  time_queue_drain(state, TIME_DRAIN_ALL);
  time_table_clear(&state->table);
  state->wall_ns = state->steps = state->incomplete = state->unmeasured = state->failed_events = 0;
  state->seen = false;
  state->running = true;
  state->step = engine_step_get();
  state->mark_ns = dit_record_get_time();
  return 0;
}

// The engine flushes with the number of the step that goes on: then everything is waited for, and no step ends.
static int time_step(struct engine_tool *tool, int64_t step) {
  struct time_state *state = tool->state;
  if (step == state->step) {
    time_queue_drain(state, TIME_DRAIN_ALL);
    return 0;
  }
  state->step = step;
  wall_mark(state);
  time_queue_drain(state, TIME_DRAIN_PASSED);
  return 0;
}

static int time_stop(struct engine_tool *tool) {
  struct time_state *state = tool->state;
  time_queue_drain(state, TIME_DRAIN_ALL);
  if (state->running) {
    wall_mark(state);
  }
  state->running = false;
  return 0;
}

static int time_configure(struct engine_tool *tool, PyObject *options) {
  struct time_state *state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
    return -1;
  }
  tool->state = state;
  state->last = (struct tools_site){.place = ENGINE_PLACE_NONE, .device = -1};
  int64_t rows = DEFAULT_ROWS;
  state->pending_max = DEFAULT_PENDING;
  state->leaves = state->backward = state->log = true;
  if (option_read_number(options, "OpTimeMeasure", "pending", 2, &state->pending_max) < 0 ||
      option_read_number(options, "OpTimeMeasure", "rows", 1, &rows) < 0 ||
      option_read_flag(options, "sync", &state->sync) < 0 ||
      option_read_flag(options, "torch_events", &state->use_torch) < 0 ||
      option_read_flag(options, "leaves", &state->leaves) < 0 ||
      option_read_flag(options, "backward", &state->backward) < 0 ||
      option_read_flag(options, "log", &state->log) < 0) {
    return -1;
  }
  state->table.row_max = (size_t)rows;
  return 0;
}

static void time_destroy(struct engine_tool *tool) {
  struct time_state *state = tool->state;
  if (!state) {
    return;
  }
  time_queue_drain(state, TIME_DRAIN_ALL);
  while (state->idle) {
    struct time_entry *entry = state->idle;
    state->idle = entry->next;
    dit_record_builder_reset(&entry->builder);
    PyMem_Free(entry);
  }
  tools_sources_reset(&state->sources);
  time_table_reset(&state->table);
  PyMem_Free(state);
  tool->state = NULL;
}

// Answers

static PyObject *sketch_describe(const struct time_sketch *sketch) {
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "count", (long long)sketch->count, "total_ns",
                       (long long)sketch->sum, "min_ns", (long long)sketch->min, "median_ns",
                       (long long)time_sketch_get_quantile(sketch, 0.5), "p90_ns",
                       (long long)time_sketch_get_quantile(sketch, 0.9), "p99_ns",
                       (long long)time_sketch_get_quantile(sketch, 0.99), "max_ns", (long long)sketch->max);
}

static int rows_add(PyObject *py_rows, const struct time_row *row, enum time_direction direction, int64_t wall_ns) {
  const struct time_sketch *host = &row->time[direction].host, *device = &row->time[direction].device;
  if (!host->count) {
    return 0;
  }
  // Where some times on the device are unknown, the share is of what is known.
  double total = (double)(device->count ? device->sum : host->sum);
  PyObject *py_row =
      Py_BuildValue("{s:O,s:s,s:s,s:L,s:d,s:N,s:N}", "name", row->op->py_name, "signature", row->signature, "kind",
                    direction == TIME_FORWARD ? "forward" : "backward", "count", (long long)host->count, "share",
                    wall_ns > 0 ? total / (double)wall_ns : 0.0, "host", sketch_describe(host), "device",
                    device->count ? sketch_describe(device) : Py_NewRef(Py_None));
  int status = py_row ? PyList_Append(py_rows, py_row) : -1;
  Py_XDECREF(py_row);
  return status;
}

static PyObject *time_describe(struct engine_tool *tool) {
  struct time_state *state = tool->state;
  int64_t wall_ns = state->wall_ns;
  if (state->running && state->seen) {
    wall_ns += dit_record_get_time() - state->mark_ns;
  }
  PyObject *py_rows = PyList_New(0);
  for (struct time_row *row = time_table_next(&state->table, NULL); py_rows && row;
       row = time_table_next(&state->table, row)) {
    if (rows_add(py_rows, row, TIME_FORWARD, wall_ns) < 0 || rows_add(py_rows, row, TIME_BACKWARD, wall_ns) < 0) {
      Py_CLEAR(py_rows);
    }
  }
  if (!py_rows) {
    return NULL;
  }
  return Py_BuildValue(
      "{s:N,s:L,s:L,s:L,s:L,s:L,s:L,s:n,s:O}", "rows", py_rows, "wall_ns", (long long)wall_ns, "steps",
      (long long)state->steps, "pending", (long long)state->pending, "incomplete", (long long)state->incomplete,
      "unmeasured", (long long)state->unmeasured, "failed_events", (long long)state->failed_events, "events",
      (Py_ssize_t)tools_sources_get_created(&state->sources), "sync", state->sync ? Py_True : Py_False);
}

static PyObject *time_extra(struct engine_tool *tool, struct engine_call *call) {
  (void)tool;
  return Py_BuildValue("{s:d}", "elasped_ms", (double)(call->end_ns - call->begin_ns) / 1e6);
}

static PyObject *time_extra_backward(struct engine_tool *tool, struct engine_backward *backward) {
  (void)tool;
  return Py_BuildValue("{s:d}", "elasped_ms", (double)(backward->end_ns - backward->begin_ns) / 1e6);
}

const struct engine_tool_vtable engine_tool_time = {
    .name = "time",
    .hook = "OpTimeMeasureHook",
    .needs = ENGINE_NEED_BACKWARD | ENGINE_NEED_SHAPES_ONLY,
    .order = 1000,
    .configure = time_configure,
    .start = time_start,
    .before = time_before,
    .after = time_after,
    .keep = time_keep,
    .release = time_release,
    .backward_begin = time_backward_begin,
    .backward_end = time_backward_end,
    .step = time_step,
    .stop = time_stop,
    .destroy = time_destroy,
    .describe = time_describe,
    .extra = time_extra,
    .extra_backward = time_extra_backward,
};
