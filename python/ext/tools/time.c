// OpTimeMeasure: host and device time of every operator, forward and backward, without stopping the device.
//
// A call gets two events on its current stream and an entry in a queue; entries are read out when their events have
// passed: at step(), when the queue is longer than `pending`, and at stop(). Then the record is committed and the table
// updated. Work that runs in the caller (CPU, the embedded device's default stream) needs no events: its host time is
// its device time. With `sync` the stream is synchronised before and after every operator, as the original did.
//
// Invariant: an entry is in the queue, on the free list, open in one kept window, or in the hands of one call; entries
// in the queue hold two recorded events. The tool is the innermost one, so other tools' work is outside of what it
// measures.
#include <string.h>

#include "engine/log.h"
#include "tools/device.h"
#include "tools/time_table.h"

#define DEFAULT_PENDING 4096
#define DEFAULT_ROWS 20000

/// One measurement on its way.
struct entry {
  struct entry *next;
  struct time_row *row;
  struct tools_source *source;  // NULL: inline, or no device time to be had
  void *begin, *end;            // events
  int64_t host_begin, host_ns;
  int32_t round;      // of an open backward
  int16_t device;     // site of the events
  uint8_t place;      // likewise, enum engine_place
  uint8_t direction;  // enum time_direction
  bool inline_clock;  // the host clock is the device's
  bool remembered;    // the device was guessed from earlier calls
  bool has_record;    // `builder` holds a record without device_ns
  struct dit_record_builder builder;
};

/// What a call's window keeps for its backward.
struct kept {
  struct time_row *row;
  struct entry *open;  // rounds that have begun
};

struct state {
  struct time_table table;
  struct tools_sources sources;
  struct entry *head, *tail, *idle;
  int64_t pending, pending_max;
  struct tools_site last;  // the device seen last, for calls that have no tensor on it yet
  bool sync, use_torch, leaves, backward, log;
  // share of the wall time
  int64_t mark_ns, wall_ns, steps;
  bool running, seen;
  // what could not be measured
  int64_t incomplete, unmeasured, failed_events;
};

// ---- entries

static struct entry *entry_take(struct state *state) {
  struct entry *entry = state->idle;
  if (entry) {
    state->idle = entry->next;
  } else {
    entry = PyMem_Calloc(1, sizeof *entry);
    if (!entry) {
      return NULL;
    }
    dit_record_builder_init(&entry->builder, NULL, 0);
  }
  struct dit_record_builder builder = entry->builder;
  *entry = (struct entry){.builder = builder};
  return entry;
}

static void entry_give(struct state *state, struct entry *entry, bool spoiled) {
  if (entry->source) {
    tools_event_give(entry->source, entry->begin, spoiled);
    tools_event_give(entry->source, entry->end, spoiled);
  }
  entry->source = NULL;
  entry->next = state->idle;
  state->idle = entry;
}

// Both events, or none: then the entry has no source and its device time is unknown.
static void entry_arm(struct state *state, struct entry *entry, const struct tools_site *site) {
  entry->inline_clock = tools_site_is_inline(site) && !state->use_torch;
  entry->place = site->place;
  entry->device = site->device;
  struct tools_source *source = tools_source_get(&state->sources, site, state->use_torch);
  if (!source) {
    return;
  }
  entry->source = source;
  entry->begin = tools_event_take(source);
  entry->end = entry->begin ? tools_event_take(source) : NULL;
  if (!entry->end) {
    tools_event_give(source, entry->begin, false);
    entry->begin = NULL;
    entry->source = NULL;
  }
}

static void entry_drop_events(struct entry *entry) {
  if (entry->source) {
    tools_event_give(entry->source, entry->begin, false);
    tools_event_give(entry->source, entry->end, false);
    entry->source = NULL;
  }
}

static void entry_disarm(struct state *state, struct entry *entry) {
  tools_event_give(entry->source, entry->begin, true);
  tools_event_give(entry->source, entry->end, true);
  entry->source = NULL;
  state->failed_events++;
}

// Start the clocks; the host's last.
static void entry_begin(struct state *state, struct entry *entry, const struct tools_site *site) {
  if (entry->source) {
    if (!tools_event_record(entry->source, entry->begin, site->stream) ||
        (state->sync && !tools_event_wait(entry->source, entry->begin))) {
      entry_disarm(state, entry);
    }
  } else if (state->sync) {
    tools_site_settle(site);
  }
  entry->host_begin = dit_record_get_time();
}

// Stop the device's clock. With `sync`, wait for it: then the host's clock has the time.
static void entry_end(struct state *state, struct entry *entry, const struct tools_site *site) {
  if (entry->source) {
    if (!tools_event_record(entry->source, entry->end, site->stream) ||
        (state->sync && !tools_event_wait(entry->source, entry->end))) {
      entry_disarm(state, entry);
    } else if (state->sync) {
      entry_drop_events(entry);
      entry->inline_clock = true;
    }
  } else if (state->sync) {
    tools_site_settle(site);
  }
}

static void entry_commit(struct entry *entry, struct dit_record_builder *builder, int64_t device_ns) {
  dit_record_field_i64(builder, engine_key_device_ns, device_ns);
  engine_log_commit(builder);
  entry->has_record = false;
}

// Into the table and the log.
static void entry_finish(struct state *state, struct entry *entry, int64_t device_ns) {
  time_sketch_add(&entry->row->time[entry->direction].host, entry->host_ns);
  if (device_ns >= 0) {
    time_sketch_add(&entry->row->time[entry->direction].device, device_ns);
  } else {
    state->unmeasured++;
  }
  if (entry->has_record) {
    entry_commit(entry, &entry->builder, device_ns);
  }
}

// ---- the queue

enum drain { DRAIN_PASSED, DRAIN_HALF, DRAIN_ALL };

// True when the oldest entry was read out. The queue may change while the GIL is down, so the entry leaves it first.
static bool queue_pop(struct state *state, bool wait) {
  struct entry *entry = state->head;
  int64_t device_ns = -1;
  enum tools_passed passed = tools_event_get_elapsed(entry->source, entry->begin, entry->end, &device_ns);
  if (passed == TOOLS_NOT_YET && !wait) {
    return false;
  }
  state->head = entry->next;
  state->tail = state->head ? state->tail : NULL;
  state->pending--;
  if (passed == TOOLS_NOT_YET) {
    passed = tools_event_wait(entry->source, entry->end)
                 ? tools_event_get_elapsed(entry->source, entry->begin, entry->end, &device_ns)
                 : TOOLS_FAILED;
  }
  bool failed = passed != TOOLS_PASSED;
  state->failed_events += failed;
  entry_finish(state, entry, failed ? -1 : device_ns);
  entry_give(state, entry, failed);
  return true;
}

static void queue_drain(struct state *state, enum drain drain) {
  int64_t wanted = drain == DRAIN_HALF ? state->pending_max / 2 : 0;
  while (state->head && (drain != DRAIN_HALF || state->pending > wanted)) {
    bool wait = drain == DRAIN_ALL || (drain == DRAIN_HALF && state->pending >= state->pending_max);
    if (!queue_pop(state, wait)) {
      return;
    }
  }
}

static void queue_push(struct state *state, struct entry *entry) {
  entry->next = NULL;
  if (state->tail) {
    state->tail->next = entry;
  } else {
    state->head = entry;
  }
  state->tail = entry;
  if (++state->pending >= state->pending_max) {
    queue_drain(state, DRAIN_HALF);
  }
}

// ---- records

static void record_add_times(struct dit_record_builder *builder, const struct entry *entry) {
  static uint32_t kinds[TIME_DIRECTIONS];
  if (!kinds[TIME_FORWARD]) {
    (void)!dit_record_intern("forward", 7, &kinds[TIME_FORWARD], NULL);
    (void)!dit_record_intern("backward", 8, &kinds[TIME_BACKWARD], NULL);
  }
  const struct time_row *row = entry->row;
  dit_record_field_interned(builder, engine_key_kind, kinds[entry->direction]);
  dit_record_field_i64(builder, engine_key_begin_ns, entry->host_begin);
  dit_record_field_i64(builder, engine_key_duration_ns, entry->host_ns);
  if (row->signature_key) {
    dit_record_field_interned(builder, engine_key_signature, row->signature_key);
  } else {
    dit_record_field_string(builder, engine_key_signature, row->signature, strlen(row->signature));
  }
}

static void record_begin(struct dit_record_builder *builder, const struct engine_op *op, uint64_t id, int64_t step,
                         unsigned flags, const struct entry *entry) {
  dit_record_begin(builder, ENGINE_RECORD_TIME, 0, entry->host_begin);
  dit_record_field_u64(builder, engine_key_id, id);
  dit_record_field_interned(builder, engine_key_name, op->key);
  dit_record_field_i64(builder, engine_key_step, step);
  record_add_times(builder, entry);
  if (flags & ENGINE_CALL_RECOMPUTE) {
    dit_record_field_bool(builder, engine_key_recompute, true);
  }
}

static void record_forward(struct state *state, struct entry *entry, const struct engine_call *call) {
  if (!state->log || !engine_log_get()) {
    return;
  }
  record_begin(&entry->builder, call->op, call->id, call->step, call->flags, entry);
  if (state->leaves) {
    engine_log_leaves(&entry->builder, &call->in);
    engine_log_leaves(&entry->builder, &call->out);
  }
  entry->has_record = true;
}

static void record_backward(struct state *state, struct entry *entry, const struct engine_backward *backward) {
  if (!state->log || !engine_log_get()) {
    return;
  }
  record_begin(&entry->builder, backward->op, backward->id, backward->step, backward->flags, entry);
  dit_record_field_i64(&entry->builder, engine_key_round, backward->round);
  if (state->leaves) {
    engine_log_gradients(&entry->builder, backward);
  }
  entry->has_record = true;
}

// Measured; what is still on its way to the device's end waits in the queue.
static void entry_close(struct state *state, struct entry *entry) {
  state->seen = true;
  if (!entry->source) {
    entry_finish(state, entry, entry->inline_clock ? entry->host_ns : -1);
    entry_give(state, entry, false);
    return;
  }
  queue_push(state, entry);
}

// ---- forward

static int time_before(struct engine_tool *tool, struct engine_call *call) {
  struct state *state = tool->state;
  struct tools_site site;
  tools_site_find(&call->in, &site);
  struct entry *entry = entry_take(state);
  call->data[tool->slot] = entry;
  if (!entry) {
    return 0;  // without memory the call goes unmeasured
  }
  // Before the operator: it may resize its arguments.
  entry->row = time_table_find(&state->table, call->op, &call->in);
  if (!entry->row) {
    entry_give(state, entry, false);
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
  entry_arm(state, entry, &site);
  entry_begin(state, entry, &site);
  return 0;
}

// The device was guessed: right when a result is there.
static void entry_check(struct entry *entry, const struct engine_call *call) {
  struct tools_site in, out;
  tools_site_find(&call->in, &in);
  tools_site_find(&call->out, &out);
  if (out.place == entry->place && out.device == entry->device) {
    return;
  }
  entry_drop_events(entry);
  entry->inline_clock = tools_site_is_inline(&out) || (out.place == ENGINE_PLACE_NONE && in.place == ENGINE_PLACE_CPU);
}

static int time_after(struct engine_tool *tool, struct engine_call *call) {
  struct state *state = tool->state;
  struct entry *entry = call->data[tool->slot];
  if (!entry) {
    return 0;
  }
  call->data[tool->slot] = NULL;
  if (call->flags & ENGINE_CALL_FAILED) {
    entry_give(state, entry, false);
    return 0;
  }
  if (entry->source || state->sync) {
    struct tools_site site = {.place = entry->place, .device = entry->device};
    tools_site_refresh(&site);
    entry_end(state, entry, &site);
    call->end_ns = state->sync ? dit_record_get_time() : call->end_ns;
  }
  if (entry->remembered || entry->place == ENGINE_PLACE_NONE) {
    entry_check(entry, call);
  }
  entry->host_begin = call->begin_ns;
  entry->host_ns = call->end_ns - call->begin_ns;
  record_forward(state, entry, call);
  call->data[tool->slot] = entry->row;  // for time_keep
  entry_close(state, entry);
  return 0;
}

// ---- backward

static void *time_keep(struct engine_tool *tool, struct engine_call *call) {
  const struct state *state = tool->state;
  struct kept *kept = state->backward && call->data[tool->slot] ? PyMem_Calloc(1, sizeof *kept) : NULL;
  if (kept) {
    kept->row = call->data[tool->slot];
  }
  return kept;
}

static void time_release(struct engine_tool *tool, void *data) {
  struct kept *kept = data;
  while (kept->open) {
    struct entry *entry = kept->open;
    kept->open = entry->next;
    entry_give(tool->state, entry, false);
  }
  PyMem_Free(kept);
}

static int time_backward_begin(struct engine_tool *tool, struct engine_backward *backward) {
  struct state *state = tool->state;
  struct kept *kept = backward->data;
  struct tools_site site;
  struct entry *entry = kept ? entry_take(state) : NULL;
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
  entry_arm(state, entry, &site);
  entry_begin(state, entry, &site);
  return 0;
}

static struct entry *open_take(struct kept *kept, int32_t round) {
  for (struct entry **link = &kept->open; *link; link = &(*link)->next) {
    if ((*link)->round == round) {
      struct entry *entry = *link;
      *link = entry->next;
      return entry;
    }
  }
  return NULL;
}

static int time_backward_end(struct engine_tool *tool, struct engine_backward *backward) {
  int64_t now = dit_record_get_time();
  struct state *state = tool->state;
  struct entry *entry = backward->data ? open_take(backward->data, backward->round) : NULL;
  if (!entry) {
    return 0;
  }
  if (!backward->complete) {  // it ended somewhere else: no span to speak of
    state->incomplete++;
    entry_give(state, entry, false);
    return 0;
  }
  if (entry->source || state->sync) {
    struct tools_site site = {.place = entry->place, .device = entry->device};
    tools_site_refresh(&site);
    entry_end(state, entry, &site);
  }
  now = state->sync ? dit_record_get_time() : now;
  entry->host_ns = now - entry->host_begin;
  backward->begin_ns = entry->host_begin;
  backward->end_ns = now;
  record_backward(state, entry, backward);
  entry_close(state, entry);
  return 0;
}

// ---- life

static void wall_mark(struct state *state) {
  int64_t now = dit_record_get_time();
  if (state->seen) {  // an interval in which nothing was watched does not count
    state->wall_ns += now - state->mark_ns;
    state->steps++;
  }
  state->seen = false;
  state->mark_ns = now;
}

static int time_start(struct engine_tool *tool) {
  struct state *state = tool->state;
  queue_drain(state, DRAIN_ALL);
  time_table_clear(&state->table);
  state->wall_ns = state->steps = state->incomplete = state->unmeasured = state->failed_events = 0;
  state->seen = false;
  state->running = true;
  state->mark_ns = dit_record_get_time();
  return 0;
}

static int time_step(struct engine_tool *tool, int64_t step) {
  (void)step;
  wall_mark(tool->state);
  queue_drain(tool->state, DRAIN_PASSED);
  return 0;
}

static int time_stop(struct engine_tool *tool) {
  struct state *state = tool->state;
  queue_drain(state, DRAIN_ALL);
  if (state->running) {
    wall_mark(state);
  }
  state->running = false;
  return 0;
}

static int64_t option_int(PyObject *options, const char *name, int64_t fallback, int64_t least) {
  PyObject *value = options ? PyDict_GetItemString(options, name) : NULL;
  if (!value || value == Py_None) {
    return fallback;
  }
  long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (number < least) {
    PyErr_Format(PyExc_ValueError, "OpTimeMeasure: %s is %lld; it must be at least %lld", name, number,
                 (long long)least);
    return -1;
  }
  return number;
}

static int option_flag(PyObject *options, const char *name, bool fallback) {
  PyObject *value = options ? PyDict_GetItemString(options, name) : NULL;
  return value && value != Py_None ? PyObject_IsTrue(value) : fallback;
}

static int time_configure(struct engine_tool *tool, PyObject *options) {
  struct state *state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
    return -1;
  }
  tool->state = state;
  state->last = (struct tools_site){.place = ENGINE_PLACE_NONE, .device = -1};
  int64_t pending = option_int(options, "pending", DEFAULT_PENDING, 2);
  int64_t rows = pending < 0 ? -1 : option_int(options, "rows", DEFAULT_ROWS, 1);
  int sync = rows < 0 ? -1 : option_flag(options, "sync", false);
  int use_torch = sync < 0 ? -1 : option_flag(options, "torch_events", false);
  int leaves = use_torch < 0 ? -1 : option_flag(options, "leaves", true);
  int backward = leaves < 0 ? -1 : option_flag(options, "backward", true);
  int log = backward < 0 ? -1 : option_flag(options, "log", true);
  if (log < 0) {
    return -1;
  }
  state->pending_max = pending;
  state->table.row_max = (size_t)rows;
  state->sync = sync;
  state->use_torch = use_torch;
  state->leaves = leaves;
  state->backward = backward;
  state->log = log;
  return 0;
}

static void time_destroy(struct engine_tool *tool) {
  struct state *state = tool->state;
  if (!state) {
    return;
  }
  queue_drain(state, DRAIN_ALL);
  while (state->idle) {
    struct entry *entry = state->idle;
    state->idle = entry->next;
    dit_record_builder_reset(&entry->builder);
    PyMem_Free(entry);
  }
  tools_sources_reset(&state->sources);
  time_table_reset(&state->table);
  PyMem_Free(state);
  tool->state = NULL;
}

// ---- answers

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
  struct state *state = tool->state;
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
    .needs = ENGINE_NEED_BACKWARD,
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
