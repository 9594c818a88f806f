/// The text view: one short line per record for people at a terminal.
///
///   12:00:00.001500 r0 step 4 #71 torch.add float32[2,3] float32[3] alpha=2 -> float32[2,3] 0.012 ms
///
/// Invariant: a record is one line without control characters, whatever bytes it holds. Depends on reader, text,
/// tool_record and core's dtype.
#include <string.h>
#include <time.h>

#include "dit/dtype.h"
#include "record/text.h"
#include "record/tool_record.h"

enum { MOST_TEXT = 60, MOST_FIELDS = 64 };

/// Local time of day with microseconds; the zone's rules are asked once per minute.
static void append_clock(struct dit_text *line, int64_t wall_ns) {
  static _Thread_local int64_t known_minute = INT64_MIN;
  static _Thread_local int hour, minute;
  int64_t second = wall_ns / 1000000000 - (wall_ns % 1000000000 < 0), rest = wall_ns - second * 1000000000;
  int64_t whole = second / 60 - (second % 60 < 0);
  if (whole != known_minute) {
    time_t moment = (time_t)second;
    struct tm local = {0};
    known_minute = localtime_r(&moment, &local) ? whole : INT64_MIN;
    hour = local.tm_hour;
    minute = local.tm_min;
  }
  dit_text_append_format(line, "%02d:%02d:%02d.%06d", hour, minute, (int)(second - whole * 60), (int)(rest / 1000));
}

/// Text of a leaf, cut where it is long.
static void append_short(struct dit_text *line, struct dit_record_text text, size_t most) {
  size_t before = line->size;
  dit_text_append_plain(line, text.data, text.size < most ? text.size : most);
  if (text.size > most && !line->failed) {
    while (line->size > before + most) {  // escapes are longer than what they stand for
      line->size--;
    }
    dit_text_append_literal(line, "...");
  }
}

static void append_tensor(struct dit_text *line, const struct dit_record_tensor *tensor) {
  if (dit_dtype_is_valid(tensor->dtype)) {
    dit_text_append_literal(line, dit_dtype_get_name(tensor->dtype));
  } else {
    dit_text_append_format(line, "dtype%d", (int)tensor->dtype);
  }
  dit_text_append_literal(line, "[");
  for (int i = 0; i < tensor->ndim; i++) {
    dit_text_append(line, ",", i > 0);
    dit_text_append_signed(line, tensor->sizes[i]);
  }
  dit_text_append_literal(line, "]");
}

static void append_leaf(struct dit_text *line, const struct dit_record_field *field) {
  if (field->type == DIT_RECORD_TENSOR) {
    append_tensor(line, &field->v.tensor);
  } else if (field->type == DIT_RECORD_STRING) {
    append_short(line, field->v.text, MOST_TEXT);
  } else if (field->type == DIT_RECORD_BYTES) {
    dit_text_append_format(line, "%zu bytes", field->v.text.size);
  } else if (field->type == DIT_RECORD_I64S && field->v.i64s.count > 8) {
    dit_text_append_format(line, "%zu numbers", field->v.i64s.count);
  } else {
    dit_text_append_value(line, field);
  }
}

/// The leaves below `prefix`, each after a blank; names of keyword arguments stay. True when there was one.
static bool append_leaves(struct dit_text *line, const struct dit_record *record, const char *prefix, bool named) {
  size_t count = 0;
  for (size_t i = 0; i < record->field_count; i++) {
    struct dit_record_text rest;
    if (!dit_tool_record_is_leaf(&record->fields[i], prefix, &rest)) {
      continue;
    }
    if (++count > MOST_FIELDS) {
      dit_text_append_literal(line, " ...");
      break;
    }
    dit_text_append_literal(line, " ");
    if (named) {
      append_short(line, rest, MOST_TEXT);
      dit_text_append_literal(line, "=");
    }
    append_leaf(line, &record->fields[i]);
  }
  return count > 0;
}

/// Milliseconds, with nanoseconds where there are few of them.
static void append_ms(struct dit_text *line, const struct dit_record *record, const char *key, const char *before) {
  int64_t ns = 0;
  if (dit_tool_record_get_number(dit_tool_record_find(record, key), &ns) && ns >= 0) {
    if (ns < 100000) {
      dit_text_append_format(line, "%s0.%06d ms", before, (int)ns);
    } else {
      dit_text_append_format(line, "%s%lld.%03d ms", before, (long long)(ns / 1000000), (int)(ns / 1000 % 1000));
    }
  }
}

static void append_field(struct dit_text *line, const struct dit_record *record, const char *key, const char *before) {
  const struct dit_record_field *field = dit_tool_record_find(record, key);
  if (field && !(field->type == DIT_RECORD_STRING && field->v.text.size == 0)) {
    dit_text_append_literal(line, before);
    if (field->type == DIT_RECORD_STRING) {
      append_short(line, field->v.text, 1024);
    } else {
      append_leaf(line, field);
    }
  }
}

/// Call, backward and time records: in -> out, then how long.
static void append_call(struct dit_text *line, const struct dit_record *record, bool backward) {
  dit_text_append_literal(line, backward ? " backward" : "");
  bool some = append_leaves(line, record, backward ? "grad_out" : "args", false);
  some |= !backward && append_leaves(line, record, "kwargs", true);
  size_t before = line->size;
  dit_text_append_literal(line, " ->");
  bool result = append_leaves(line, record, backward ? "grad_in" : "out", false);
  if (!result && !line->failed) {
    line->size = before;
  }
  if (!some && !result) {
    append_field(line, record, "signature", " ");
  }
  append_ms(line, record, "host_ns", " ");
  append_ms(line, record, "duration_ns", " ");
  append_ms(line, record, "device_ns", ", device ");
  int64_t round = 0;
  if (dit_tool_record_get_number(dit_tool_record_find(record, "round"), &round) && round > 0) {
    dit_text_append_format(line, ", round %lld", (long long)round);
  }
  append_field(line, record, "error", ", FAILED: ");
}

static void append_finding(struct dit_text *line, const struct dit_record *record) {
  append_field(line, record, "kind", " ");
  append_field(line, record, "nan", ": NaN ");
  append_field(line, record, "inf", ", Inf ");
  append_field(line, record, "verdict", ", ");
  append_field(line, record, "module", ", in ");
  append_field(line, record, "location", ", at ");
}

/// A record of somebody else: its type and its fields as they are.
static void append_other(struct dit_text *line, const struct dit_record *record) {
  const char *type = dit_record_get_type_name(record);
  dit_text_append_literal(line, " ");
  if (type) {
    dit_text_append_plain(line, type, strlen(type));
  } else {
    dit_text_append_format(line, "type %u", record->type);
  }
  for (size_t i = 0; i < record->field_count && i < MOST_FIELDS; i++) {
    dit_text_append_literal(line, " ");
    append_short(line, record->fields[i].key, MOST_TEXT);
    dit_text_append_literal(line, "=");
    append_leaf(line, &record->fields[i]);
  }
  dit_text_append_literal(line, record->field_count > MOST_FIELDS ? " ..." : "");
}

static void append_line(struct dit_text *line, const struct dit_record *record) {
  enum dit_tool_record type = dit_tool_record_get_type(record);
  if (!dit_tool_record_find(record, "name") && !dit_tool_record_find(record, "tool") &&
      !dit_tool_record_find(record, "text")) {
    type = DIT_TOOL_NONE;  // it has our type, but is not what we know
  }
  append_clock(line, record->wall_ns);
  dit_text_append_format(line, " r%d", (int)record->header->rank);
  if (type == DIT_TOOL_NONE) {
    append_other(line, record);
  } else {
    append_field(line, record, "step", " step ");
    append_field(line, record, "id", " #");
    append_field(line, record, "name", " ");
  }
  if (type == DIT_TOOL_CALL || type == DIT_TOOL_BACKWARD || type == DIT_TOOL_TIME) {
    append_call(
        line, record,
        type == DIT_TOOL_BACKWARD || dit_tool_record_text_is(dit_tool_record_get_text(record, "kind"), "backward"));
  } else if (type == DIT_TOOL_FINDING) {
    append_finding(line, record);
  } else if (type == DIT_TOOL_CAPTURE) {
    append_field(line, record, "what", " captured ");
    append_field(line, record, "path", " as ");
    append_field(line, record, "bytes", ", bytes ");
  } else if (type == DIT_TOOL_TOOL) {
    append_field(line, record, "tool", " ");
    append_field(line, record, "event", " ");
    append_field(line, record, "text", ": ");
  } else if (type == DIT_TOOL_NOTE) {
    append_field(line, record, "text", " note: ");
  }
  dit_text_append_literal(line, "\n");
}

enum dit_status dit_record_export_text(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                       struct dit_error *err) {
  struct dit_text line = {0};
  const struct dit_record *record = NULL;
  enum dit_status status = dit_record_reader_next(reader, &record, err);
  while (status == DIT_OK && record) {
    append_line(&line, record);
    status = dit_text_flush(&line, sink, err);
    if (status == DIT_OK) {
      status = dit_record_reader_next(reader, &record, err);
    }
  }
  dit_text_reset(&line);
  return status;
}
