/// The JSONL view: one object per line.
///
/// Invariant: lines go to the sink whole, one call each; memory is one record and its line. Depends on reader and text.
#include "record/text.h"

static void append_line(struct dit_text *line, struct dit_text *scratch, const struct dit_record *record) {
  dit_text_append_literal(line, "{\"type\":");
  dit_text_append_type(line, record);
  dit_text_append_literal(line, ",\"seq\":");
  dit_text_append_unsigned(line, record->sequence);
  dit_text_append_literal(line, ",\"time\":");
  dit_text_append_signed(line, record->wall_ns);
  dit_text_append_literal(line, ",\"rank\":");
  dit_text_append_signed(line, record->header->rank);
  dit_text_append_literal(line, ",\"pid\":");
  dit_text_append_unsigned(line, record->header->pid);
  dit_text_append_literal(line, ",\"tid\":");
  dit_text_append_unsigned(line, record->thread);
  if (record->flags) {
    dit_text_append_literal(line, ",\"flags\":");
    dit_text_append_unsigned(line, record->flags);
  }
  dit_text_append_fields(line, scratch, record, true);
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
