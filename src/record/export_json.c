/// The JSON views: one object per line, and the Chrome / Perfetto trace.
///
/// Invariant: lines go to the sink whole, one call each; memory is one record and its line. Depends on reader and text.
#include <string.h>

#include "record/text.h"

enum { PID_SPAN = 10000000 };  ///< above Linux's largest pid: ranks of different machines may share one

static void append_type(struct dit_text *line, const struct dit_record *record) {
  const char *name = dit_record_get_type_name(record);
  if (name) {
    dit_text_append_json(line, name, strlen(name));
  } else {
    dit_text_append_format(line, "\"%u\"", record->type);
  }
}

static void append_fields(struct dit_text *line, struct dit_text *scratch, const struct dit_record *record,
                          bool comma) {
  for (size_t i = 0; i < record->field_count; i++) {
    scratch->size = 0;
    dit_text_append_column(scratch, record, i);
    if (comma || i > 0) {
      dit_text_append(line, ",", 1);
    }
    dit_text_append_json(line, scratch->data, scratch->size);
    dit_text_append(line, ":", 1);
    dit_text_append_value(line, &record->fields[i]);
  }
  line->failed |= scratch->failed;
}

static void append_line(struct dit_text *line, struct dit_text *scratch, const struct dit_record *record) {
  dit_text_append_format(line, "{\"type\":");
  append_type(line, record);
  dit_text_append_format(line, ",\"seq\":%llu,\"time\":%lld,\"rank\":%d,\"pid\":%u,\"tid\":%u",
                         (unsigned long long)record->sequence, (long long)record->wall_ns, (int)record->header->rank,
                         record->header->pid, record->thread);
  if (record->flags) {
    dit_text_append_format(line, ",\"flags\":%u", record->flags);
  }
  append_fields(line, scratch, record, true);
  dit_text_append(line, "}\n", 2);
}

enum dit_status dit_record_export_jsonl(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                        struct dit_error *err) {
  struct dit_text line = {0}, scratch = {0};
  const struct dit_record *record = NULL;
  enum dit_status status = dit_record_reader_next(reader, &record, err);
  while (status == DIT_OK && record) {
    append_line(&line, &scratch, record);
    status = dit_text_flush(&line, sink, err);
    if (status == DIT_OK) {
      status = dit_record_reader_next(reader, &record, err);
    }
  }
  dit_text_reset(&line);
  dit_text_reset(&scratch);
  return status;
}

static const struct dit_record_field *find_field(const struct dit_record *record, const char *key) {
  size_t size = strlen(key);
  for (size_t i = 0; i < record->field_count; i++) {
    const struct dit_record_text *name = &record->fields[i].key;
    if (name->size == size && memcmp(name->data, key, size) == 0) {
      return &record->fields[i];
    }
  }
  return NULL;
}

/// A field's number, within the range in which nanoseconds make sense; false for other types.
static bool get_number(const struct dit_record_field *field, int64_t *number) {
  if (field && field->type == DIT_RECORD_I64) {
    *number = field->v.i64;
  } else if (field && field->type == DIT_RECORD_U64) {
    *number = field->v.u64 > INT64_MAX ? INT64_MAX : (int64_t)field->v.u64;
  } else if (field && field->type == DIT_RECORD_F64 && field->v.f64 > -9e18 && field->v.f64 < 9e18) {
    *number = (int64_t)field->v.f64;
  } else {
    return false;
  }
  return true;
}

/// Nanoseconds as microseconds with three decimals.
static void append_micros(struct dit_text *line, const char *name, int64_t ns) {
  uint64_t size = ns < 0 ? (uint64_t)0 - (uint64_t)ns : (uint64_t)ns;
  dit_text_append_format(line, ",\"%s\":%s%llu.%03u", name, ns < 0 ? "-" : "", (unsigned long long)(size / 1000),
                         (unsigned)(size % 1000));
}

/// Adds an event; false when the record is not one.
static bool append_event(struct dit_text *line, struct dit_text *scratch, const struct dit_record *record,
                         int64_t base) {
  int64_t duration = 0, begin = record->time_ns;
  if (!get_number(find_field(record, "duration_ns"), &duration)) {
    return false;
  }
  (void)get_number(find_field(record, "begin_ns"), &begin);
  uint64_t wall = (uint64_t)begin - (uint64_t)record->header->monotonic_ns + (uint64_t)record->header->wall_ns;
  const struct dit_record_field *name = find_field(record, "name");
  dit_text_append_format(line, "{\"name\":");
  if (name && name->type == DIT_RECORD_STRING) {
    dit_text_append_json(line, name->v.text.data, name->v.text.size);
  } else {
    append_type(line, record);
  }
  dit_text_append_format(line, ",\"cat\":");
  append_type(line, record);
  dit_text_append_format(line, ",\"ph\":\"X\"");
  append_micros(line, "ts", (int64_t)(wall - (uint64_t)base));
  append_micros(line, "dur", duration < 0 ? 0 : duration);
  dit_text_append_format(line, ",\"pid\":%lld,\"tid\":%u,\"args\":{",
                         (long long)record->header->rank * PID_SPAN + record->header->pid, record->thread);
  append_fields(line, scratch, record, false);
  dit_text_append(line, "}}", 2);
  return true;
}

/// The opening and one name per file; the earliest file is moment 0.
static int64_t append_opening(struct dit_text *line, const struct dit_record_reader *reader) {
  int64_t base = INT64_MAX;
  dit_text_append_format(line, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  dit_text_append_format(line, "{\"name\":\"ditorch\",\"ph\":\"M\",\"args\":{}}");
  const struct dit_record_header *header = NULL;
  for (size_t i = 0; (header = dit_record_reader_get_header(reader, i)); i++) {
    base = header->wall_ns < base ? header->wall_ns : base;
    dit_text_append_format(line, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%lld,",
                           (long long)header->rank * PID_SPAN + header->pid);
    dit_text_append_format(line, "\"args\":{\"name\":\"rank %d, pid %u\"}}", (int)header->rank, header->pid);
  }
  return base == INT64_MAX ? 0 : base;
}

enum dit_status dit_record_export_trace(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                        struct dit_error *err) {
  struct dit_text line = {0}, scratch = {0};
  int64_t base = append_opening(&line, reader);
  const struct dit_record *record = NULL;
  enum dit_status status = dit_text_flush(&line, sink, err);
  if (status == DIT_OK) {
    status = dit_record_reader_next(reader, &record, err);
  }
  while (status == DIT_OK && record) {
    dit_text_append(&line, ",\n", 2);
    if (!append_event(&line, &scratch, record, base)) {
      line.size = 0;
    }
    status = dit_text_flush(&line, sink, err);
    if (status == DIT_OK) {
      status = dit_record_reader_next(reader, &record, err);
    }
  }
  if (status == DIT_OK) {
    dit_text_append(&line, "\n]}\n", 4);
    status = dit_text_flush(&line, sink, err);
  }
  dit_text_reset(&line);
  dit_text_reset(&scratch);
  return status;
}
