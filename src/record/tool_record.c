/// What the views know of the tools' records.
///
/// Invariant: nothing here trusts a file: fields may be absent, repeated or of another type. Depends on reader only.
#include "record/tool_record.h"

#include <string.h>

static const char *const type_names[] = {"call", "backward", "time", "finding", "capture", "tool", "note"};

enum dit_tool_record dit_tool_record_get_type(const struct dit_record *record) {
  const char *name = dit_record_get_type_name(record);
  if (!name) {
    return record->type >= DIT_TOOL_CALL && record->type < DIT_TOOL_NONE ? (enum dit_tool_record)record->type
                                                                         : DIT_TOOL_NONE;
  }
  for (size_t i = 0; i < sizeof(type_names) / sizeof(*type_names); i++) {
    if (strcmp(name, type_names[i]) == 0) {
      return (enum dit_tool_record)(DIT_TOOL_CALL + (int)i);
    }
  }
  return DIT_TOOL_NONE;
}

const struct dit_record_field *dit_tool_record_find(const struct dit_record *record, const char *key) {
  size_t size = strlen(key);
  for (size_t i = 0; i < record->field_count; i++) {
    const struct dit_record_text *name = &record->fields[i].key;
    if (name->size == size && memcmp(name->data, key, size) == 0) {
      return &record->fields[i];
    }
  }
  return NULL;
}

bool dit_tool_record_get_number(const struct dit_record_field *field, int64_t *number) {
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

struct dit_record_text dit_tool_record_get_text(const struct dit_record *record, const char *key) {
  const struct dit_record_field *field = dit_tool_record_find(record, key);
  return field && field->type == DIT_RECORD_STRING ? field->v.text : (struct dit_record_text){"", 0};
}

bool dit_tool_record_text_is(struct dit_record_text text, const char *other) {
  return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

bool dit_tool_record_is_leaf(const struct dit_record_field *field, const char *prefix, struct dit_record_text *rest) {
  const struct dit_record_text *key = &field->key;
  size_t size = strlen(prefix);
  if (key->size < size || memcmp(key->data, prefix, size) != 0 || (key->size > size && key->data[size] != '.')) {
    return false;
  }
  if (rest) {
    size_t skipped = key->size > size ? size + 1 : size;
    *rest = (struct dit_record_text){key->data + skipped, key->size - skipped};
  }
  return true;
}

static uint64_t hash(uint64_t seed, const void *data, size_t size) {
  const unsigned char *p = data;
  for (size_t i = 0; i < size; i++) {
    seed = (seed ^ p[i]) * UINT64_C(0x100000001B3);
  }
  return seed;
}

uint64_t dit_tool_record_get_process(const struct dit_record_header *header) {
  uint64_t value = hash(UINT64_C(0xCBF29CE484222325), &header->rank, sizeof(header->rank));
  value = hash(value, &header->pid, sizeof(header->pid));
  for (size_t i = 0; i < header->metadata_count; i++) {
    if (strcmp(header->metadata[i].key, "process") == 0) {
      value = hash(value, header->metadata[i].value, strlen(header->metadata[i].value));
    }
  }
  return value;
}
