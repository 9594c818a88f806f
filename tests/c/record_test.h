/// Helpers of the record tests: a folder that goes away, random records that can be made again from their number, and
/// their comparison with what a reader delivers.
#ifndef DIT_TESTS_RECORD_TEST_H
#define DIT_TESTS_RECORD_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/record.h"

enum { TEST_TYPE = 17, TEST_STRINGS = 24, FLUSH_MS = 30000 };

static char test_folder[PATH_MAX];

static inline void remove_folder(void) {
  DIR *dir = opendir(test_folder);
  struct dirent *entry = NULL;
  while (dir && (entry = readdir(dir))) {
    char path[PATH_MAX + 300];
    snprintf(path, sizeof(path), "%s/%s", test_folder, entry->d_name);
    unlink(path);
  }
  if (dir) {
    closedir(dir);
  }
  rmdir(test_folder);
}

static inline void make_folder(void) {
  const char *base = getenv("TMPDIR");
  snprintf(test_folder, sizeof(test_folder), "%s/dit-record-XXXXXX", base ? base : "/tmp");
  CHECK(mkdtemp(test_folder));
}

static inline uint64_t draw(uint64_t *state) {
  *state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t z = *state;
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

static inline uint32_t intern(const char *text) {
  struct dit_error err = {0};
  uint32_t id = 0;
  CHECK_OK(dit_record_intern(text, strlen(text), &id, &err));
  return id;
}

/// The i-th of a few strings, with its number.
static inline const char *get_string(size_t i, uint32_t *id) {
  static char texts[TEST_STRINGS][32];
  static uint32_t ids[TEST_STRINGS];
  if (ids[i] == 0) {
    snprintf(texts[i], sizeof(texts[i]), i % 2 ? "string-%zu" : "schl\xC3\xBCssel \"%zu\"", i);
    ids[i] = intern(texts[i]);
  }
  *id = ids[i];
  return texts[i];
}

/// Any number, small ones and the extremes more often.
static inline int64_t draw_number(uint64_t *state) {
  static const int64_t special[] = {0, 1, -1, INT64_MAX, INT64_MIN, 127, 128, -64, -65};
  uint64_t kind = draw(state) % 4;
  return kind == 0 ? special[draw(state) % 9] : kind == 1 ? (int64_t)(draw(state) % 1000) : (int64_t)draw(state);
}

/// One random field. With a builder it is added; with a field it is compared, and the answer is whether it is equal.
static inline bool visit_field(uint64_t *state, struct dit_record_builder *builder,
                               const struct dit_record_field *field) {
  uint32_t key = 0, other = 0;
  const char *name = get_string(draw(state) % TEST_STRINGS, &key);
  const char *text = get_string(draw(state) % TEST_STRINGS, &other);
  int64_t number = draw_number(state), numbers[2 * DIT_RECORD_MAX_DIMS];
  unsigned char bytes[300];
  size_t size = draw(state) % 4 == 0 ? draw(state) % sizeof(bytes) : draw(state) % 8, count = draw(state) % 65;
  double real = 0;
  uint64_t bits = draw(state);
  memcpy(&real, &bits, sizeof(real));
  for (size_t i = 0; i < sizeof(bytes); i++) {
    bytes[i] = (unsigned char)draw(state);
  }
  for (size_t i = 0; i < 2 * DIT_RECORD_MAX_DIMS; i++) {
    numbers[i] = draw_number(state);
  }
  struct dit_record_tensor tensor = {.dtype = (int)(draw(state) % 46),
                                     .device = draw(state) % 4 ? other : 0,
                                     .device_index = (int)(draw(state) % 9) - 1,
                                     .ndim = (int)(count < 60 ? count % 5 : count),
                                     .sizes = numbers,
                                     .storage_id = draw(state),
                                     .storage_offset = draw_number(state),
                                     .version = draw_number(state),
                                     .requires_grad = draw(state) % 2};
  tensor.strides = draw(state) % 5 ? numbers + DIT_RECORD_MAX_DIMS : NULL;
  int kind = (int)(draw(state) % 9) + 1;
  bool same = field && field->key.size == strlen(name) && memcmp(field->key.data, name, field->key.size) == 0 &&
              (int)field->type == (kind == DIT_RECORD_INTERNED ? DIT_RECORD_STRING : kind);
  if (field && !same) {
    return false;
  }
  switch (kind) {
    case DIT_RECORD_I64:
      return field ? field->v.i64 == number : (dit_record_field_i64(builder, key, number), true);
    case DIT_RECORD_U64:
      return field ? field->v.u64 == bits : (dit_record_field_u64(builder, key, bits), true);
    case DIT_RECORD_F64:
      return field ? memcmp(&field->v.f64, &real, 8) == 0 : (dit_record_field_f64(builder, key, real), true);
    case DIT_RECORD_BOOL:
      return field ? field->v.boolean == (number & 1) : (dit_record_field_bool(builder, key, number & 1), true);
    case DIT_RECORD_INTERNED:
      return field ? field->v.text.size == strlen(text) && memcmp(field->v.text.data, text, strlen(text)) == 0
                   : (dit_record_field_interned(builder, key, other), true);
    case DIT_RECORD_STRING:
    case DIT_RECORD_BYTES:
      if (field) {
        return field->v.text.size == size && memcmp(field->v.text.data, bytes, size) == 0;
      }
      (kind == DIT_RECORD_BYTES ? dit_record_field_bytes(builder, key, bytes, size)
                                : dit_record_field_string(builder, key, (const char *)bytes, size));
      return true;
    case DIT_RECORD_I64S:
      return field ? field->v.i64s.count == count && memcmp(field->v.i64s.data, numbers, count * 8) == 0
                   : (dit_record_field_i64s(builder, key, numbers, count), true);
    default:
      break;
  }
  if (builder) {
    dit_record_field_tensor(builder, key, &tensor);
    return true;
  }
  const struct dit_record_tensor *got = &field->v.tensor;
  size_t ndim = (size_t)tensor.ndim, device = tensor.device ? strlen(text) : 0;
  return got->dtype == tensor.dtype && got->device_index == tensor.device_index && got->ndim == tensor.ndim &&
         memcmp(got->sizes, tensor.sizes, ndim * 8) == 0 && !got->strides == !tensor.strides &&
         (!got->strides || memcmp(got->strides, tensor.strides, ndim * 8) == 0) &&
         got->storage_id == tensor.storage_id && got->storage_offset == tensor.storage_offset &&
         got->version == tensor.version && got->requires_grad == tensor.requires_grad &&
         field->device_name.size == device &&
         memcmp(field->device_name.data ? field->device_name.data : "", text, device) == 0;
}

static inline void build_random(struct dit_record_builder *builder, uint64_t seed, uint64_t number, int most_fields) {
  uint64_t state = seed * 1000003 + number;
  int count = (int)(draw(&state) % (uint64_t)(most_fields + 1));
  uint16_t type = (uint16_t)(DIT_RECORD_TYPE_USER + draw(&state) % 3), flags = (uint16_t)draw(&state);
  dit_record_begin(builder, type, flags, 1 + (int64_t)(draw(&state) >> 2));
  for (int i = 0; i < count; i++) {
    visit_field(&state, builder, NULL);
  }
}

/// Is this what build_random made for the record's sequence number?
static inline bool is_random(const struct dit_record *record, uint64_t seed, int most_fields) {
  uint64_t state = seed * 1000003 + record->sequence;
  size_t count = (size_t)(draw(&state) % (uint64_t)(most_fields + 1));
  if (record->type != DIT_RECORD_TYPE_USER + draw(&state) % 3 || record->flags != (uint16_t)draw(&state) ||
      record->time_ns != 1 + (int64_t)(draw(&state) >> 2) || record->field_count != count) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    if (!visit_field(&state, NULL, &record->fields[i])) {
      return false;
    }
  }
  return true;
}

/// Writes records 1 to `count` of a seed into a new file of the test folder.
static inline void write_random(uint64_t seed, uint64_t count, int most_fields, uint64_t rotate, char *path) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  struct dit_record_pair pairs[] = {{"type.17", "seventeen"}, {"empty", ""}};
  struct dit_record_options options = {
      .rank = 3, .world_size = 8, .metadata = pairs, .metadata_count = 2, .rotate_bytes = rotate};
  CHECK_OK(dit_record_writer_create(test_folder, &options, &writer, &err));
  struct dit_record_builder builder;
  dit_record_builder_init(&builder, NULL, 0);
  for (uint64_t i = 1; i <= count; i++) {
    uint64_t sequence = 0;
    build_random(&builder, seed, i, most_fields);
    CHECK(dit_record_commit(&builder, writer, &sequence) && sequence == i);
  }
  dit_record_builder_reset(&builder);
  dit_record_writer_get_path(writer, path, PATH_MAX);
  CHECK_OK(dit_record_writer_destroy(writer, FLUSH_MS, &err));
}

static inline unsigned char *load_file(const char *path, size_t *size) {
  FILE *stream = fopen(path, "rb");
  CHECK(stream && fseek(stream, 0, SEEK_END) == 0);
  *size = (size_t)ftell(stream);
  rewind(stream);
  unsigned char *data = malloc(*size + 1);
  CHECK(data && fread(data, 1, *size, stream) == *size);
  fclose(stream);
  return data;
}

/// All of one file; the number of records, which must all be records of the seed in rising order.
static inline uint64_t read_random(struct dit_record_reader *reader, uint64_t seed, int most_fields) {
  struct dit_error err = {0};
  const struct dit_record *record = NULL;
  uint64_t count = 0, last = 0;
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  while (record) {
    CHECK(record->sequence > last && is_random(record, seed, most_fields));
    last = record->sequence;
    count++;
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
  }
  return count;
}

#endif
