// Measurements on their way to the table; see time/entry.h.
#include "tools/time/entry.h"

#include <string.h>

#include "engine/log.h"

// Entries

struct time_entry *time_entry_take(struct time_state *state) {
  struct time_entry *entry = state->idle;
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
  *entry = (struct time_entry){.builder = builder};
  return entry;
}

void time_entry_give(struct time_state *state, struct time_entry *entry, bool spoiled) {
  if (entry->source) {
    tools_event_give(entry->source, entry->begin, spoiled);
    tools_event_give(entry->source, entry->end, spoiled);
  }
  entry->source = NULL;
  entry->next = state->idle;
  state->idle = entry;
}

// Both events, or none: then the entry has no source and its device time is unknown.
void time_entry_arm(struct time_state *state, struct time_entry *entry, const struct tools_site *site) {
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

void time_entry_drop_events(struct time_entry *entry) {
  if (entry->source) {
    tools_event_give(entry->source, entry->begin, false);
    tools_event_give(entry->source, entry->end, false);
    entry->source = NULL;
  }
}

static void entry_disarm(struct time_state *state, struct time_entry *entry) {
  tools_event_give(entry->source, entry->begin, true);
  tools_event_give(entry->source, entry->end, true);
  entry->source = NULL;
  state->failed_events++;
}

// Start the device's clock.
void time_entry_begin(struct time_state *state, struct time_entry *entry, const struct tools_site *site) {
  if (entry->source) {
    if (!tools_event_record(entry->source, entry->begin, site->stream) ||
        (state->sync && !tools_event_wait(entry->source, entry->begin))) {
      entry_disarm(state, entry);
    }
  } else if (state->sync) {
    tools_site_settle(site);
  }
}

// Stop the device's clock. With `sync`, wait for it: then the host's clock has the time.
void time_entry_end(struct time_state *state, struct time_entry *entry, const struct tools_site *site) {
  if (entry->source) {
    if (!tools_event_record(entry->source, entry->end, site->stream) ||
        (state->sync && !tools_event_wait(entry->source, entry->end))) {
      entry_disarm(state, entry);
    } else if (state->sync) {
      time_entry_drop_events(entry);
      entry->inline_clock = true;
    }
  } else if (state->sync) {
    tools_site_settle(site);
  }
}

static void entry_commit(struct time_entry *entry, struct dit_record_builder *builder, int64_t device_ns) {
  dit_record_field_i64(builder, engine_key_device_ns, device_ns);
  engine_log_commit(builder);
  entry->has_record = false;
}

// Into the table and the log.
static void entry_finish(struct time_state *state, struct time_entry *entry, int64_t device_ns) {
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

// The queue

static void queue_unpop(struct time_state *state, struct time_entry *entry) {
  entry->next = state->head;
  state->head = entry;
  state->tail = state->tail ? state->tail : entry;
  state->pending++;
}

// True when the oldest entry was read out. Asking may let other threads in, so the entry leaves the queue first.
static bool queue_pop(struct time_state *state, bool wait) {
  struct time_entry *entry = state->head;
  int64_t device_ns = -1;
  state->head = entry->next;
  state->tail = state->head ? state->tail : NULL;
  state->pending--;
  enum tools_passed passed = tools_event_get_elapsed(entry->source, entry->begin, entry->end, &device_ns);
  if (passed == TOOLS_NOT_YET && !wait) {
    queue_unpop(state, entry);
    return false;
  }
  if (passed == TOOLS_NOT_YET) {
    passed = tools_event_wait(entry->source, entry->end)
                 ? tools_event_get_elapsed(entry->source, entry->begin, entry->end, &device_ns)
                 : TOOLS_FAILED;
  }
  bool failed = passed != TOOLS_PASSED;
  state->failed_events += failed;
  entry_finish(state, entry, failed ? -1 : device_ns);
  time_entry_give(state, entry, failed);
  return true;
}

void time_queue_drain(struct time_state *state, enum time_drain drain) {
  int64_t wanted = drain == TIME_DRAIN_HALF ? state->pending_max / 2 : 0;
  while (state->head && (drain != TIME_DRAIN_HALF || state->pending > wanted)) {
    bool wait = drain == TIME_DRAIN_ALL || (drain == TIME_DRAIN_HALF && state->pending >= state->pending_max);
    if (!queue_pop(state, wait)) {
      return;
    }
  }
}

static void queue_push(struct time_state *state, struct time_entry *entry) {
  entry->next = NULL;
  if (state->tail) {
    state->tail->next = entry;
  } else {
    state->head = entry;
  }
  state->tail = entry;
  if (++state->pending >= state->pending_max) {
    time_queue_drain(state, TIME_DRAIN_HALF);
  }
}

// Records

static void record_add_times(struct dit_record_builder *builder, const struct time_entry *entry) {
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

static void record_add(struct dit_record_builder *builder, const struct engine_op *op, uint64_t id, int64_t step,
                       uint32_t module, unsigned flags, const struct time_entry *entry) {
  dit_record_field_u64(builder, engine_key_id, id);
  dit_record_field_interned(builder, engine_key_name, op->key);
  dit_record_field_i64(builder, engine_key_step, step);
  if (module) {
    dit_record_field_interned(builder, engine_key_module, module);
  }
  record_add_times(builder, entry);
  if (flags & ENGINE_CALL_RECOMPUTE) {
    dit_record_field_bool(builder, engine_key_recompute, true);
  }
}

void time_record_begin(const struct time_state *state, struct time_entry *entry, const struct engine_call *call) {
  if (!state->log || !engine_log_get()) {
    return;
  }
  dit_record_begin(&entry->builder, ENGINE_RECORD_TIME, 0, 0);
  if (call && state->leaves) {
    engine_log_leaves(&entry->builder, &call->in);
  }
  entry->has_record = true;
}

void time_record_forward(const struct time_state *state, struct time_entry *entry, const struct engine_call *call) {
  if (entry->has_record) {
    record_add(&entry->builder, call->op, call->id, call->step, call->module, call->flags, entry);
    if (state->leaves) {
      engine_log_leaves(&entry->builder, &call->out);
    }
  }
}

void time_record_backward(const struct time_state *state, struct time_entry *entry,
                          const struct engine_backward *backward) {
  time_record_begin(state, entry, NULL);
  if (entry->has_record) {
    record_add(&entry->builder, backward->op, backward->id, backward->step, backward->module, backward->flags, entry);
    dit_record_field_i64(&entry->builder, engine_key_round, backward->round);
    if (state->leaves) {
      engine_log_gradients(&entry->builder, backward);
    }
  }
}

// Measured; what is still on its way to the device's end waits in the queue.
void time_entry_close(struct time_state *state, struct time_entry *entry) {
  state->seen = true;
  if (!entry->source) {
    entry_finish(state, entry, entry->inline_clock ? entry->host_ns : -1);
    time_entry_give(state, entry, false);
    return;
  }
  queue_push(state, entry);
}
