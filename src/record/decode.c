/// From the bytes of a header, a definition or a payload to what the reader delivers.
///
/// Invariant: every length is checked against the bytes that are there before it is used; memory asked for is bounded
/// by the size of the input times a small number. Depends on core's alloc.
#include <limits.h>
#include <string.h>

#include "dit/alloc.h"
#include "record/crc32c.h"
#include "record/source.h"

void dit_string_table_clear(struct dit_string_table *table) {
  table->generation++;
  table->text_size = 0;
}

static bool reserve_slot(struct dit_string_table *table, size_t id) {
  if (id < table->slot_count) {
    return true;
  }
  size_t count = id * 2 + 64;
  struct dit_string_slot *grown = dit_realloc(table->slots, count * sizeof(*grown));
  if (!grown) {
    return false;
  }
  memset(grown + table->slot_count, 0, (count - table->slot_count) * sizeof(*grown));
  table->slots = grown;
  table->slot_count = count;
  return true;
}

static bool reserve_text(struct dit_string_table *table, size_t size) {
  if (table->text_size + size <= table->text_capacity) {
    return true;
  }
  size_t capacity = table->text_capacity ? table->text_capacity * 2 : 4096;
  while (capacity < table->text_size + size) {
    capacity *= 2;
  }
  char *grown = dit_realloc(table->text, capacity);
  if (!grown) {
    return false;
  }
  table->text = grown;
  table->text_capacity = capacity;
  return true;
}

enum dit_decode dit_string_table_define(struct dit_string_table *table, const unsigned char *payload, size_t size) {
  struct dit_cursor cursor = {payload, payload + size};
  uint64_t id = 0;
  if (!dit_take_varint(&cursor, &id) || id == 0 || id > DIT_RECORD_MAX_STRINGS) {
    return DIT_DECODE_MALFORMED;
  }
  size_t length = (size_t)(cursor.end - cursor.at);
  if (length > DIT_RECORD_MAX_STRING || table->text_size + length > DIT_RECORD_MAX_INTERNED) {
    return DIT_DECODE_MALFORMED;
  }
  if (!reserve_slot(table, (size_t)id) || !reserve_text(table, length + 1)) {
    return DIT_DECODE_NOMEM;
  }
  if (length > 0) {
    memcpy(table->text + table->text_size, cursor.at, length);
  }
  table->slots[id] = (struct dit_string_slot){table->generation, (uint32_t)length, table->text_size};
  table->text_size += length;
  return DIT_DECODE_OK;
}

static bool resolve(const struct dit_string_table *table, uint64_t id, struct dit_record_text *text) {
  if (id >= table->slot_count || table->slots[id].generation != table->generation) {
    return false;
  }
  *text = (struct dit_record_text){table->text + table->slots[id].offset, table->slots[id].size};
  return true;
}

/// Whether the tag of a known type has the wire that the type demands.
static bool has_right_wire(const struct dit_raw_field *field) {
  switch (field->type) {
    case DIT_RECORD_I64:
    case DIT_RECORD_U64:
    case DIT_RECORD_BOOL:
    case DIT_RECORD_INTERNED:
      return field->wire == DIT_WIRE_VARINT;
    case DIT_RECORD_F64:
      return field->wire == DIT_WIRE_FIXED8;
    case DIT_RECORD_STRING:
    case DIT_RECORD_BYTES:
    case DIT_RECORD_I64S:
    case DIT_RECORD_TENSOR:
      return field->wire == DIT_WIRE_SIZED;
    default:
      return true;
  }
}

static bool is_known(const struct dit_raw_field *field) {
  return field->type >= DIT_RECORD_I64 && field->type <= DIT_RECORD_TENSOR;
}

/// First pass: is every field sound, how many fields and numbers are there at most?
static bool measure(struct dit_cursor cursor, size_t *fields, size_t *numbers) {
  struct dit_raw_field field;
  while (cursor.at < cursor.end) {
    if (!dit_take_field(&cursor, &field) || !has_right_wire(&field)) {
      return false;
    }
    *fields += 1;
    if (field.type == DIT_RECORD_I64S || field.type == DIT_RECORD_TENSOR) {
      *numbers += (size_t)(field.body.end - field.body.at);
    }
  }
  return true;
}

static bool reserve_record(struct dit_record_source *source, size_t fields, size_t numbers) {
  if (fields > source->field_capacity) {
    struct dit_record_field *grown = dit_realloc(source->fields, fields * 2 * sizeof(*grown));
    if (!grown) {
      return false;
    }
    source->fields = grown;
    source->field_capacity = fields * 2;
  }
  if (numbers > source->number_capacity) {
    int64_t *grown = dit_realloc(source->numbers, numbers * sizeof(*grown));
    if (!grown) {
      return false;
    }
    source->numbers = grown;
    source->number_capacity = numbers;
  }
  return true;
}

static bool take_numbers(struct dit_cursor *cursor, size_t count, int64_t **next) {
  for (size_t i = 0; i < count; i++) {
    if (!dit_take_signed(cursor, (*next)++)) {
      return false;
    }
  }
  return true;
}

static bool take_int32(struct dit_cursor *cursor, int32_t *value) {
  int64_t wide = 0;
  if (!dit_take_signed(cursor, &wide) || wide < INT32_MIN || wide > INT32_MAX) {
    return false;
  }
  *value = (int32_t)wide;
  return true;
}

/// Bytes behind the last member known here are a newer writer's and are passed over.
static enum dit_decode decode_tensor(const struct dit_string_table *strings, struct dit_cursor body, int64_t **next,
                                     struct dit_record_field *out) {
  struct dit_record_tensor *tensor = &out->v.tensor;
  *tensor = (struct dit_record_tensor){0};
  uint64_t flags = 0, device = 0, ndim = 0;
  if (!dit_take_varint(&body, &flags) || !take_int32(&body, &tensor->dtype) || !dit_take_varint(&body, &device) ||
      !take_int32(&body, &tensor->device_index) || !dit_take_varint(&body, &ndim) || ndim > DIT_RECORD_MAX_DIMS) {
    return DIT_DECODE_MALFORMED;
  }
  tensor->ndim = (int32_t)ndim;
  tensor->requires_grad = flags & DIT_TENSOR_BODY_GRAD;
  tensor->sizes = *next;
  if (!take_numbers(&body, ndim, next)) {
    return DIT_DECODE_MALFORMED;
  }
  if (flags & DIT_TENSOR_BODY_STRIDES) {
    tensor->strides = *next;
    if (!take_numbers(&body, ndim, next)) {
      return DIT_DECODE_MALFORMED;
    }
  }
  if (!dit_take_varint(&body, &tensor->storage_id) || !dit_take_signed(&body, &tensor->storage_offset) ||
      !dit_take_signed(&body, &tensor->version)) {
    return DIT_DECODE_MALFORMED;
  }
  if (device != 0 && !resolve(strings, device, &out->device_name)) {
    return DIT_DECODE_UNRESOLVED;
  }
  return DIT_DECODE_OK;
}

static enum dit_decode decode_field(const struct dit_string_table *strings, const struct dit_raw_field *raw,
                                    int64_t **next, struct dit_record_field *out) {
  *out = (struct dit_record_field){.type = (enum dit_record_field_type)raw->type};
  if (!resolve(strings, raw->key, &out->key)) {
    return DIT_DECODE_UNRESOLVED;
  }
  struct dit_cursor body = raw->body;
  uint64_t bits = 0;
  switch (raw->type) {
    case DIT_RECORD_I64:
      out->v.i64 = dit_unzigzag(raw->number);
      return DIT_DECODE_OK;
    case DIT_RECORD_U64:
      out->v.u64 = raw->number;
      return DIT_DECODE_OK;
    case DIT_RECORD_BOOL:
      out->v.boolean = raw->number != 0;
      return raw->number > 1 ? DIT_DECODE_MALFORMED : DIT_DECODE_OK;
    case DIT_RECORD_F64:
      bits = dit_get_u64(body.at);
      memcpy(&out->v.f64, &bits, sizeof(bits));
      return DIT_DECODE_OK;
    case DIT_RECORD_INTERNED:
      out->type = DIT_RECORD_STRING;
      return resolve(strings, raw->number, &out->v.text) ? DIT_DECODE_OK : DIT_DECODE_UNRESOLVED;
    case DIT_RECORD_I64S:
      out->v.i64s.data = *next;
      while (body.at < body.end) {
        if (!take_numbers(&body, 1, next)) {
          return DIT_DECODE_MALFORMED;
        }
      }
      out->v.i64s.count = (size_t)(*next - out->v.i64s.data);
      return DIT_DECODE_OK;
    case DIT_RECORD_TENSOR:
      return decode_tensor(strings, body, next, out);
    default:
      out->v.text = (struct dit_record_text){(const char *)body.at, (size_t)(body.end - body.at)};
      return DIT_DECODE_OK;
  }
}

enum dit_decode dit_record_decode(struct dit_record_source *source, const unsigned char *payload, size_t size) {
  struct dit_cursor cursor = {payload, payload + size};
  size_t fields = 0, numbers = 0;
  if (!measure(cursor, &fields, &numbers)) {
    return DIT_DECODE_MALFORMED;
  }
  if (!reserve_record(source, fields, numbers)) {
    return DIT_DECODE_NOMEM;
  }
  int64_t *next = source->numbers;
  size_t count = 0;
  struct dit_raw_field raw;
  while (cursor.at < cursor.end && dit_take_field(&cursor, &raw)) {
    if (!is_known(&raw)) {
      continue;
    }
    enum dit_decode outcome = decode_field(&source->strings, &raw, &next, &source->fields[count++]);
    if (outcome != DIT_DECODE_OK) {
      return outcome;
    }
  }
  source->record.fields = source->fields;
  source->record.field_count = count;
  return DIT_DECODE_OK;
}

/// The metadata; false for lengths that do not fit. Texts are copied and end with NUL.
static bool take_pairs(struct dit_cursor cursor, size_t count, struct dit_record_pair *pairs, char *text) {
  for (size_t i = 0; i < count * 2; i += 2) {
    if (cursor.end - cursor.at < 8) {
      return false;
    }
    size_t key = dit_get_u32(cursor.at), value = dit_get_u32(cursor.at + 4);
    cursor.at += 8;
    if (key + value > (size_t)(cursor.end - cursor.at)) {
      return false;
    }
    pairs[i / 2] = (struct dit_record_pair){text, text + key + 1};
    memcpy(text, cursor.at, key);
    text[key] = '\0';
    memcpy(text + key + 1, cursor.at + key, value);
    text[key + 1 + value] = '\0';
    text += key + value + 2;
    cursor.at += key + value;
  }
  return true;
}

static bool is_sound_header(const unsigned char *data, size_t size) {
  if (size < DIT_HEADER_FIXED + DIT_FRAME_CRC_SIZE || memcmp(data, DIT_RECORD_MAGIC, DIT_RECORD_MAGIC_SIZE) != 0) {
    return false;
  }
  size_t length = dit_get_u32(data + DIT_HEADER_LENGTH);
  if (length < DIT_HEADER_FIXED + DIT_FRAME_CRC_SIZE || length > size || length > DIT_RECORD_MAX_HEADER) {
    return false;
  }
  size_t body = length - DIT_FRAME_CRC_SIZE;
  return dit_get_u32(data + body) == dit_crc32c(0, data, body);
}

bool dit_record_source_take_header(struct dit_record_source *source, const unsigned char *data, size_t size,
                                   bool *newer, bool *nomem) {
  if (!is_sound_header(data, size)) {
    return false;
  }
  if (dit_get_u16(data + DIT_HEADER_MAJOR) != DIT_RECORD_MAJOR) {
    *newer = true;
    return false;
  }
  size_t length = dit_get_u32(data + DIT_HEADER_LENGTH), count = dit_get_u32(data + DIT_HEADER_PAIRS);
  struct dit_cursor cursor = {data + DIT_HEADER_FIXED, data + length - DIT_FRAME_CRC_SIZE};
  if (count > (size_t)(cursor.end - cursor.at) / 8) {
    return false;
  }
  struct dit_record_pair *pairs = dit_malloc(count * sizeof(*pairs));
  char *text = dit_malloc(length + 2 * count);
  if (!pairs || !text || !take_pairs(cursor, count, pairs, text)) {
    *nomem = !pairs || !text;
    dit_free(pairs);
    dit_free(text);
    return false;
  }
  dit_free(source->pairs);
  dit_free(source->pair_text);
  source->pairs = pairs;
  source->pair_text = text;
  source->header = (struct dit_record_header){
      .major = dit_get_u16(data + DIT_HEADER_MAJOR),
      .minor = dit_get_u16(data + DIT_HEADER_MINOR),
      .wall_ns = (int64_t)dit_get_u64(data + DIT_HEADER_WALL),
      .monotonic_ns = (int64_t)dit_get_u64(data + DIT_HEADER_MONOTONIC),
      .pid = dit_get_u32(data + DIT_HEADER_PID),
      .rank = (int32_t)dit_get_u32(data + DIT_HEADER_RANK),
      .world_size = (int32_t)dit_get_u32(data + DIT_HEADER_WORLD),
      .file_index = dit_get_u32(data + DIT_HEADER_INDEX),
      .salt = dit_get_u32(data + DIT_HEADER_SALT),
      .metadata_count = count,
      .metadata = pairs,
  };
  source->has_header = true;
  return true;
}
