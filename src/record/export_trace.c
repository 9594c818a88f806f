/// The Chrome / Perfetto trace.
///
/// Every process is a group of tracks: one per thread, one per thread for its backward pass (which runs in the same
/// thread on a CPU and would cut through the forward's spans), one per device. A log knows how long the device worked,
/// not when: a span on a device's track begins when the call did, or where the span before it ended.
///
/// Invariant: lines go to the sink whole, one call each; memory is one record, its line and a fixed table of tracks.
/// Depends on reader, text, tool_record and core's alloc.
#include "dit/alloc.h"
#include "record/text.h"
#include "record/tool_record.h"

enum {
  PID_SPAN = 10000000,  ///< above Linux's largest pid: ranks of different machines may share one
  TRACK_SPAN = PID_SPAN,
  TRACKS = 8192,
  PROBES = 64,
};

enum track_kind { TRACK_THREAD, TRACK_BACKWARD, TRACK_DEVICE };

/// A track that has a name or an end to remember. Those beyond the table's size have neither.
struct track {
  int64_t pid, tid;
  int64_t end;  ///< monotonic, of the last span
  bool used;
};

struct trace {
  int64_t base;
  struct dit_text line, scratch;
  struct track tracks[TRACKS];
};

struct event {
  int64_t begin, duration;  ///< monotonic, ns
  int64_t pid, tid;
};

/// Nanoseconds as microseconds with three decimals.
static void append_micros(struct dit_text *line, const char *name, int64_t ns) {
  uint64_t size = ns < 0 ? (uint64_t)0 - (uint64_t)ns : (uint64_t)ns;
  dit_text_append_format(line, ",\"%s\":%s%llu.%03u", name, ns < 0 ? "-" : "", (unsigned long long)(size / 1000),
                         (unsigned)(size % 1000));
}

static struct track *find_track(struct trace *trace, int64_t pid, int64_t tid) {
  uint64_t hash = ((uint64_t)pid * 31 + (uint64_t)tid) * UINT64_C(0x9E3779B97F4A7C15);
  for (uint64_t i = 0; i < PROBES; i++) {
    struct track *track = &trace->tracks[((hash >> 32) + i) % TRACKS];
    if (!track->used || (track->pid == pid && track->tid == tid)) {
      return track;
    }
  }
  return NULL;
}

/// The first device among the tensors, which is where the time was spent.
static const struct dit_record_field *find_device(const struct dit_record *record) {
  for (size_t i = 0; i < record->field_count; i++) {
    const struct dit_record_field *field = &record->fields[i];
    if (field->type == DIT_RECORD_TENSOR && field->v.tensor.device_index >= 0) {
      return field;
    }
  }
  return NULL;
}

/// Names the track when it is met first, and gives it the order thread, backward, device.
static struct track *open_track(struct trace *trace, const struct dit_record *record, const struct event *event,
                                enum track_kind kind) {
  struct track *track = find_track(trace, event->pid, event->tid);
  if (!track || track->used) {
    return track;
  }
  *track = (struct track){.pid = event->pid, .tid = event->tid, .end = INT64_MIN, .used = true};
  dit_text_append_format(&trace->line, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%lld,\"tid\":%lld,",
                         (long long)event->pid, (long long)event->tid);
  trace->scratch.size = 0;
  if (kind == TRACK_BACKWARD) {
    dit_text_append_format(&trace->scratch, "backward, thread %u", record->thread);
  } else {
    const struct dit_record_field *device = find_device(record);
    dit_text_append_format(&trace->scratch, "device");
    if (device) {
      dit_text_append(&trace->scratch, " ", 1);
      dit_text_append_utf8(&trace->scratch, device->device_name.data, device->device_name.size);
      dit_text_append_format(&trace->scratch, ":%d", (int)device->v.tensor.device_index);
    }
  }
  dit_text_append_format(&trace->line, "\"args\":{\"name\":");
  dit_text_append_json(&trace->line, trace->scratch.data, trace->scratch.size);
  dit_text_append_format(&trace->line,
                         "}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%lld,\"tid\":%lld,\"args\":{",
                         (long long)event->pid, (long long)event->tid);
  dit_text_append_format(&trace->line, "\"sort_index\":%lld}}", (long long)event->tid);
  return track;
}

static void append_event(struct trace *trace, const struct dit_record *record, const struct event *event,
                         bool with_fields) {
  struct dit_text *line = &trace->line;
  const struct dit_record_header *header = record->header;
  uint64_t wall = (uint64_t)event->begin - (uint64_t)header->monotonic_ns + (uint64_t)header->wall_ns;
  const struct dit_record_field *name = dit_tool_record_find(record, "name");
  dit_text_append_format(line, ",\n{\"name\":");
  if (name && name->type == DIT_RECORD_STRING) {
    dit_text_append_json(line, name->v.text.data, name->v.text.size);
  } else {
    dit_text_append_type(line, record);
  }
  dit_text_append_format(line, ",\"cat\":");
  dit_text_append_type(line, record);
  dit_text_append_format(line, ",\"ph\":\"X\"");
  append_micros(line, "ts", (int64_t)(wall - (uint64_t)trace->base));
  append_micros(line, "dur", event->duration < 0 ? 0 : event->duration);
  dit_text_append_format(line, ",\"pid\":%lld,\"tid\":%lld,\"args\":{", (long long)event->pid, (long long)event->tid);
  if (with_fields) {
    dit_text_append_fields(line, &trace->scratch, record, false);
  } else {
    int64_t id = 0;
    if (dit_tool_record_get_number(dit_tool_record_find(record, "id"), &id)) {
      dit_text_append_format(line, "\"id\":%lld", (long long)id);
    }
  }
  dit_text_append(line, "}}", 2);
}

/// The device's own span.
static void append_device_event(struct trace *trace, const struct dit_record *record, struct event event) {
  const struct dit_record_field *device = find_device(record);
  int64_t index = device ? device->v.tensor.device_index : 0;
  if (!dit_tool_record_get_number(dit_tool_record_find(record, "device_ns"), &event.duration) || event.duration < 0) {
    return;
  }
  event.tid = 2 * (int64_t)TRACK_SPAN + index;
  struct track *track = open_track(trace, record, &event, TRACK_DEVICE);
  if (track) {
    event.begin = event.begin < track->end ? track->end : event.begin;
    track->end = event.begin > INT64_MAX - event.duration ? INT64_MAX : event.begin + event.duration;
  }
  append_event(trace, record, &event, false);
}

/// Where and how long: "duration_ns" from "begin_ns" or the record's time on; a call's "host_ns" from the record's
/// time.
static bool get_event(const struct dit_record *record, struct event *event) {
  event->begin = record->time_ns;
  event->pid = (int64_t)record->header->rank * PID_SPAN + record->header->pid;
  event->tid = record->thread;
  if (dit_tool_record_get_number(dit_tool_record_find(record, "duration_ns"), &event->duration)) {
    (void)dit_tool_record_get_number(dit_tool_record_find(record, "begin_ns"), &event->begin);
    return true;
  }
  enum dit_tool_record type = dit_tool_record_get_type(record);
  return (type == DIT_TOOL_CALL || type == DIT_TOOL_BACKWARD) &&
         dit_tool_record_get_number(dit_tool_record_find(record, "host_ns"), &event->duration);
}

/// Adds the events of a record, if it has any.
static void append_record(struct trace *trace, const struct dit_record *record) {
  struct event event;
  if (!get_event(record, &event)) {
    return;
  }
  bool backward = dit_tool_record_get_type(record) == DIT_TOOL_BACKWARD ||
                  dit_tool_record_text_is(dit_tool_record_get_text(record, "kind"), "backward");
  struct event host = event;
  if (backward) {
    host.tid += TRACK_SPAN;
    (void)open_track(trace, record, &host, TRACK_BACKWARD);
  }
  append_event(trace, record, &host, true);
  append_device_event(trace, record, event);
}

/// The opening and one name per file; the earliest file is moment 0.
static void append_opening(struct trace *trace, const struct dit_record_reader *reader) {
  struct dit_text *line = &trace->line;
  int64_t base = INT64_MAX;
  dit_text_append_format(line, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  dit_text_append_format(line, "{\"name\":\"ditorch\",\"ph\":\"M\",\"args\":{}}");
  for (size_t i = 0; i < dit_record_reader_get_file_count(reader); i++) {
    const struct dit_record_header *header = dit_record_reader_get_header(reader, i);
    if (!header) {
      continue;
    }
    base = header->wall_ns < base ? header->wall_ns : base;
    dit_text_append_format(line, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%lld,",
                           (long long)header->rank * PID_SPAN + header->pid);
    dit_text_append_format(line, "\"args\":{\"name\":\"rank %d, pid %u\"}}", (int)header->rank, header->pid);
  }
  trace->base = base == INT64_MAX ? 0 : base;
}

enum dit_status dit_record_export_trace(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                        struct dit_error *err) {
  struct trace *trace = dit_calloc(1, sizeof(*trace));
  if (!trace) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a trace's table of tracks (%zu bytes)", sizeof(*trace));
  }
  const struct dit_record *record = NULL;
  append_opening(trace, reader);
  enum dit_status status = dit_text_flush(&trace->line, sink, err);
  if (status == DIT_OK) {
    status = dit_record_reader_next(reader, &record, err);
  }
  while (status == DIT_OK && record) {
    append_record(trace, record);
    status = dit_text_flush(&trace->line, sink, err);
    if (status == DIT_OK) {
      status = dit_record_reader_next(reader, &record, err);
    }
  }
  if (status == DIT_OK) {
    dit_text_append(&trace->line, "\n]}\n", 4);
    status = dit_text_flush(&trace->line, sink, err);
  }
  dit_text_reset(&trace->line);
  dit_text_reset(&trace->scratch);
  dit_free(trace);
  return status;
}
