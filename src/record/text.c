/// How values look in the views.
///
/// Invariant: what is appended as JSON is valid JSON and valid UTF-8, whatever bytes the record holds. Depends on
/// core's alloc, dtype, error and utf8.
#include "record/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "dit/alloc.h"
#include "dit/dtype.h"

/// Records with more fields name them by position: looking for repeated keys would take the square of their number.
enum { MOST_NAMED_FIELDS = 4096 };

static const struct dit_record_text own_columns[] = {{"type", 4}, {"seq", 3}, {"time", 4}, {"rank", 4},
                                                     {"pid", 3},  {"tid", 3}, {"flags", 5}};

void dit_text_reset(struct dit_text *text) {
  dit_free(text->data);
  *text = (struct dit_text){0};
}

void dit_text_append(struct dit_text *text, const char *data, size_t size) {
  if (text->failed || size == 0) {
    return;
  }
  if (text->size + size > text->capacity) {
    size_t capacity = text->capacity ? text->capacity : 1024;
    while (capacity < text->size + size) {
      capacity *= 2;
    }
    char *grown = dit_realloc(text->data, capacity);
    if (!grown) {
      text->failed = true;
      return;
    }
    text->data = grown;
    text->capacity = capacity;
  }
  memcpy(text->data + text->size, data, size);
  text->size += size;
}

void dit_text_append_format(struct dit_text *text, const char *format, ...) {
  char buffer[128];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(buffer, sizeof(buffer), format, args);
  va_end(args);
  if (length > 0) {
    dit_text_append(text, buffer, (size_t)length < sizeof(buffer) ? (size_t)length : sizeof(buffer) - 1);
  }
}

void dit_text_append_unsigned(struct dit_text *text, uint64_t value) {
  char buffer[20];
  size_t at = sizeof(buffer);
  do {
    buffer[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  dit_text_append(text, buffer + at, sizeof(buffer) - at);
}

void dit_text_append_signed(struct dit_text *text, int64_t value) {
  if (value < 0) {
    dit_text_append(text, "-", 1);
  }
  dit_text_append_unsigned(text, value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value);
}

/// Bytes from `data` on that every view shows as they are: printable ASCII without quotes and backslash.
static size_t count_plain(const char *data, size_t size) {
  size_t count = 0;
  while (count < size && data[count] >= 0x20 && data[count] < 0x7F && data[count] != '"' && data[count] != '\\') {
    count++;
  }
  return count;
}

void dit_text_append_utf8(struct dit_text *text, const char *data, size_t size) {
  for (size_t at = 0; at < size;) {
    size_t plain = count_plain(data + at, size - at);
    dit_text_append(text, data + at, plain);
    at += plain;
    if (at < size) {
      int length = dit_utf8_get_length(data + at, size - at);
      dit_text_append(text, length ? data + at : "\xEF\xBF\xBD", length ? (size_t)length : 3);
      at += length ? (size_t)length : 1;
    }
  }
}

/// One character that is not plain.
static size_t append_json_special(struct dit_text *text, const char *data, size_t size) {
  static const char names[] = "btn.fr";  // 8 to 13
  unsigned char c = (unsigned char)data[0];
  int length = dit_utf8_get_length(data, size);
  if (c == '"' || c == '\\') {
    dit_text_append_format(text, "\\%c", c);
  } else if (c >= 8 && c <= 13 && c != 11) {
    dit_text_append_format(text, "\\%c", names[c - 8]);
  } else if (c < 0x20 || c == 0x7F) {
    dit_text_append_format(text, "\\u%04x", c);
  } else {
    dit_text_append(text, length ? data : "\xEF\xBF\xBD", length ? (size_t)length : 3);
  }
  return length ? (size_t)length : 1;
}

void dit_text_append_json(struct dit_text *text, const char *data, size_t size) {
  dit_text_append(text, "\"", 1);
  for (size_t at = 0; at < size;) {
    size_t plain = count_plain(data + at, size - at);
    dit_text_append(text, data + at, plain);
    at += plain;
    if (at < size) {
      at += append_json_special(text, data + at, size - at);
    }
  }
  dit_text_append(text, "\"", 1);
}

void dit_text_append_double(struct dit_text *text, double value) {
  if (isnan(value) || isinf(value)) {
    dit_text_append_format(text, "%s", isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    return;
  }
  char buffer[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(buffer, sizeof(buffer), "%.*g", digits, value);
    if (strtod(buffer, NULL) == value) {
      break;
    }
  }
  bool whole = true;
  for (char *p = buffer; *p; p++) {
    bool plain = (*p >= '0' && *p <= '9') || *p == '-';
    if (!plain && *p != '+' && *p != 'e') {
      *p = '.';  // the locale's decimal sign
    }
    whole = whole && plain;
  }
  dit_text_append_format(text, whole ? "%s.0" : "%s", buffer);
}

static void append_numbers(struct dit_text *text, const int64_t *values, size_t count) {
  dit_text_append(text, "[", 1);
  for (size_t i = 0; i < count; i++) {
    dit_text_append(text, ",", i > 0);
    dit_text_append_signed(text, values[i]);
  }
  dit_text_append(text, "]", 1);
}

static void append_tensor(struct dit_text *text, const struct dit_record_field *field) {
  const struct dit_record_tensor *tensor = &field->v.tensor;
  dit_text_append_literal(text, "{\"dtype\":");
  if (dit_dtype_is_valid(tensor->dtype)) {
    const char *name = dit_dtype_get_name(tensor->dtype);
    dit_text_append_json(text, name, strlen(name));
  } else {
    dit_text_append_signed(text, tensor->dtype);
  }
  dit_text_append_literal(text, ",\"shape\":");
  append_numbers(text, tensor->sizes, (size_t)tensor->ndim);
  dit_text_append_literal(text, ",\"stride\":");
  if (tensor->strides) {
    append_numbers(text, tensor->strides, (size_t)tensor->ndim);
  } else {
    dit_text_append_literal(text, "null");
  }
  dit_text_append_literal(text, ",\"device\":");
  dit_text_append_json(text, field->device_name.data, field->device_name.size);
  dit_text_append_literal(text, ",\"device_index\":");
  dit_text_append_signed(text, tensor->device_index);
  dit_text_append_literal(text, ",\"storage\":");
  dit_text_append_unsigned(text, tensor->storage_id);
  dit_text_append_literal(text, ",\"offset\":");
  dit_text_append_signed(text, tensor->storage_offset);
  dit_text_append_literal(text, ",\"version\":");
  dit_text_append_signed(text, tensor->version);
  dit_text_append_literal(text, tensor->requires_grad ? ",\"requires_grad\":true}" : ",\"requires_grad\":false}");
}

static void append_hex(struct dit_text *text, const char *data, size_t size) {
  static const char digits[] = "0123456789abcdef";
  dit_text_append(text, "\"", 1);
  for (size_t i = 0; i < size; i++) {
    unsigned char byte = (unsigned char)data[i];
    dit_text_append(text, (char[]){digits[byte >> 4], digits[byte & 15]}, 2);
  }
  dit_text_append(text, "\"", 1);
}

void dit_text_append_value(struct dit_text *text, const struct dit_record_field *field) {
  switch (field->type) {
    case DIT_RECORD_I64:
      dit_text_append_signed(text, field->v.i64);
      break;
    case DIT_RECORD_U64:
      dit_text_append_unsigned(text, field->v.u64);
      break;
    case DIT_RECORD_F64:
      if (isfinite(field->v.f64)) {
        dit_text_append_double(text, field->v.f64);
      } else {
        dit_text_append(text, "\"", 1);
        dit_text_append_double(text, field->v.f64);
        dit_text_append(text, "\"", 1);
      }
      break;
    case DIT_RECORD_BOOL:
      dit_text_append_literal(text, field->v.boolean ? "true" : "false");
      break;
    case DIT_RECORD_BYTES:
      append_hex(text, field->v.text.data, field->v.text.size);
      break;
    case DIT_RECORD_I64S:
      append_numbers(text, field->v.i64s.data, field->v.i64s.count);
      break;
    case DIT_RECORD_TENSOR:
      append_tensor(text, field);
      break;
    default:
      dit_text_append_json(text, field->v.text.data, field->v.text.size);
  }
}

static bool is_same(const struct dit_record_text *a, const char *data, size_t size) {
  return a->size == size && (a->data == data || memcmp(a->data, data, size) == 0);
}

void dit_text_append_column(struct dit_text *text, const struct dit_record *record, size_t index) {
  const struct dit_record_text *key = &record->fields[index].key;
  size_t before = 0;
  for (size_t i = 0; i < sizeof(own_columns) / sizeof(*own_columns); i++) {
    before += is_same(key, own_columns[i].data, own_columns[i].size);
  }
  if (record->field_count > MOST_NAMED_FIELDS) {
    before = index + 1;
  } else {
    for (size_t i = 0; i < index; i++) {
      before += is_same(key, record->fields[i].key.data, record->fields[i].key.size);
    }
  }
  dit_text_append_utf8(text, key->data, key->size);
  if (before > 0) {
    dit_text_append_format(text, "[%zu]", before);
  }
}

void dit_text_append_type(struct dit_text *line, const struct dit_record *record) {
  const char *name = dit_record_get_type_name(record);
  if (name) {
    dit_text_append_json(line, name, strlen(name));
  } else {
    dit_text_append_format(line, "\"%u\"", record->type);
  }
}

void dit_text_append_fields(struct dit_text *line, struct dit_text *scratch, const struct dit_record *record,
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

void dit_text_append_cell(struct dit_text *line, const char *data, size_t size) {
  bool plain = true;
  for (size_t i = 0; i < size && plain; i++) {
    plain = data[i] != ',' && data[i] != '"' && data[i] != '\n' && data[i] != '\r';
  }
  if (plain) {
    dit_text_append_utf8(line, data, size);
    return;
  }
  dit_text_append(line, "\"", 1);
  size_t from = 0;
  for (size_t i = 0; i < size; i++) {
    if (data[i] == '"') {
      dit_text_append_utf8(line, data + from, i + 1 - from);
      from = i;  // the quote again
    }
  }
  dit_text_append_utf8(line, data + from, size - from);
  dit_text_append(line, "\"", 1);
}

void dit_text_append_plain(struct dit_text *line, const char *data, size_t size) {
  for (size_t at = 0; at < size;) {
    unsigned char c = (unsigned char)data[at];
    int length = dit_utf8_get_length(data + at, size - at);
    bool control = length == 2 && c == 0xC2 && (unsigned char)data[at + 1] < 0xA0;
    if (c == '\n' || c == '\t' || c == '\r') {
      dit_text_append(line, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
    } else if (c < 0x20 || c == 0x7F || control) {
      dit_text_append_format(line, "\\x%02x", control ? (unsigned char)data[at + 1] : c);
    } else {
      dit_text_append(line, length ? data + at : "\xEF\xBF\xBD", length ? (size_t)length : 3);
    }
    at += length ? (size_t)length : 1;
  }
}

enum dit_status dit_text_flush(struct dit_text *text, const struct dit_record_sink *sink, struct dit_error *err) {
  if (text->failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a line of %zu bytes", text->size);
  }
  if (text->size > 0 && !sink->write(sink->context, text->data, text->size)) {
    return dit_error_set(err, DIT_ERR_IO, "the output of the export cannot be written");
  }
  text->size = 0;
  return DIT_OK;
}

bool dit_record_sink_write_file(void *context, const void *data, size_t size) {
  return fwrite(data, 1, size, context) == size;
}
