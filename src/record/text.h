/// Text of the views: a growing line and how values are written in it. Internal to record.
#ifndef DIT_RECORD_TEXT_H
#define DIT_RECORD_TEXT_H

#include <string.h>

#include "dit/record.h"

/// Start with zeros; end with dit_text_reset. After a failed allocation `failed` stays set and appends do nothing.
struct dit_text {
  char *data;
  size_t size, capacity;
  bool failed;
};

void dit_text_reset(struct dit_text *text);
void dit_text_append(struct dit_text *text, const char *data, size_t size);
static inline void dit_text_append_literal(struct dit_text *text, const char *literal) {
  dit_text_append(text, literal, strlen(literal));
}
void dit_text_append_unsigned(struct dit_text *text, uint64_t value);
void dit_text_append_signed(struct dit_text *text, int64_t value);
void dit_text_append_format(struct dit_text *text, const char *format, ...) DIT_PRINTF(2, 3);
/// UTF-8 as it is, anything else as U+FFFD.
void dit_text_append_utf8(struct dit_text *text, const char *data, size_t size);
/// A JSON string with its quotes.
void dit_text_append_json(struct dit_text *text, const char *data, size_t size);
/// The shortest of 15 to 17 digits that reads back the same, whatever the locale; NaN, Infinity, -Infinity by name.
void dit_text_append_double(struct dit_text *text, double value);
/// A field's value as JSON.
void dit_text_append_value(struct dit_text *text, const struct dit_record_field *field);

/// The column of field `index` in its record: its key, with "[n]" when the record has it before or it is one of ours.
void dit_text_append_column(struct dit_text *text, const struct dit_record *record, size_t index);

/// The name of the record's type, or its number, as a JSON string.
void dit_text_append_type(struct dit_text *text, const struct dit_record *record);
/// All fields as members of a JSON object; `comma`: there are members before. `scratch` is working memory.
void dit_text_append_fields(struct dit_text *text, struct dit_text *scratch, const struct dit_record *record,
                            bool comma);
/// A CSV cell, in quotes where it must be.
void dit_text_append_cell(struct dit_text *text, const char *data, size_t size);
/// For a terminal: control characters as escapes.
void dit_text_append_plain(struct dit_text *text, const char *data, size_t size);

/// The line to the sink, then empty. DIT_ERR_NOMEM after a failed append, DIT_ERR_IO when the sink stops.
DIT_NODISCARD enum dit_status dit_text_flush(struct dit_text *text, const struct dit_record_sink *sink,
                                             struct dit_error *err);

#endif
