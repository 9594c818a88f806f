/// The reader and the views: merging by time, files joined end to end, large files, damage in the middle, newer minor
/// versions, foreign files, golden JSONL, CSV and trace, failing allocations and sinks.
#include "record/crc32c.c"  // internal: not exported by libdit
#include "record_test.h"

struct collected {
  char text[65536];
  size_t size, limit;
};

static bool collect(void *context, const void *data, size_t size) {
  struct collected *collected = context;
  if (collected->size + size > collected->limit) {
    return false;
  }
  memcpy(collected->text + collected->size, data, size);
  collected->size += size;
  collected->text[collected->size] = '\0';
  return true;
}

static struct dit_record_reader *open_one(const char *path) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open(&path, 1, &reader, &err));
  return reader;
}

/// A file made by hand: a header and frames whose bytes the test chooses.
struct image {
  unsigned char data[1 << 16];
  size_t size;
};

enum { IMAGE_SALT = 0x1234 };

static void begin_image(struct image *image, uint16_t major, int32_t rank, int64_t wall) {
  unsigned char *p = image->data;
  static const char pair[] = "type.17op";
  size_t length = DIT_HEADER_FIXED + 8 + 9 + 4 + 8;  // eight bytes of a later minor version
  memset(p, 0, length);
  memcpy(p, DIT_RECORD_MAGIC, 8);
  dit_put_u16(p + DIT_HEADER_MAJOR, major);
  dit_put_u16(p + DIT_HEADER_MINOR, 7);
  dit_put_u32(p + DIT_HEADER_LENGTH, (uint32_t)length);
  dit_put_u64(p + DIT_HEADER_WALL, (uint64_t)wall);
  dit_put_u64(p + DIT_HEADER_MONOTONIC, 1000);
  dit_put_u32(p + DIT_HEADER_PID, 42);
  dit_put_u32(p + DIT_HEADER_RANK, (uint32_t)rank);
  dit_put_u32(p + DIT_HEADER_SALT, IMAGE_SALT);
  dit_put_u32(p + DIT_HEADER_PAIRS, 1);
  dit_put_u32(p + DIT_HEADER_FIXED, 7);
  dit_put_u32(p + DIT_HEADER_FIXED + 4, 2);
  memcpy(p + DIT_HEADER_FIXED + 8, pair, 9);
  dit_put_u32(p + length - 4, dit_crc32c(0, p, length - 4));
  image->size = length;
}

static void add_frame(struct image *image, uint16_t type, uint64_t sequence, int64_t time, const void *payload,
                      size_t size) {
  unsigned char *p = image->data + image->size;
  memset(p, 0, DIT_FRAME_PAYLOAD);
  dit_put_u32(p, DIT_FRAME_MARKER_VALUE);
  dit_put_u32(p + DIT_FRAME_LENGTH, (uint32_t)(DIT_FRAME_MIN + size));
  dit_put_u16(p + DIT_FRAME_TYPE, type);
  dit_put_u16(p + DIT_FRAME_FLAGS, type == 18 ? 3 : 0);
  dit_put_u32(p + DIT_FRAME_THREAD, 9);
  dit_put_u64(p + DIT_FRAME_SEQUENCE, sequence);
  dit_put_u64(p + DIT_FRAME_TIME, (uint64_t)time);
  memcpy(p + DIT_FRAME_PAYLOAD, payload, size);
  size_t body = DIT_FRAME_PAYLOAD + size;
  dit_put_u32(p + body, dit_crc32c(IMAGE_SALT, p, body));
  image->size += body + 4;
}

/// Takes the frame a builder made.
static void add_built(struct image *image, struct dit_record_builder *builder, uint64_t sequence) {
  uint16_t type = dit_get_u16(builder->data + DIT_FRAME_TYPE);
  CHECK(!builder->failed);
  add_frame(image, type, sequence, (int64_t)dit_get_u64(builder->data + DIT_FRAME_TIME),
            builder->data + DIT_FRAME_PAYLOAD, builder->size - DIT_FRAME_PAYLOAD);
}

static uint32_t add_string(struct image *image, const char *text) {
  unsigned char payload[300];
  uint32_t id = intern(text);
  unsigned char *end = dit_put_varint(payload, id);
  memcpy(end, text, strlen(text));
  add_frame(image, 2, 0, 0, payload, (size_t)(end - payload) + strlen(text));
  return id;
}

static struct dit_record_reader *open_image(const struct image *image) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open_memory(image->data, image->size, &reader, &err));
  return reader;
}

static void make_golden(struct image *image) {
  begin_image(image, 1, 2, 5000000);
  uint32_t name = add_string(image, "name"), x = add_string(image, "x,\"y\""), seq = add_string(image, "seq");
  uint32_t duration = add_string(image, "duration_ns"), begin = add_string(image, "begin_ns");
  uint32_t cuda = add_string(image, "cuda");
  struct dit_record_builder builder;
  dit_record_builder_init(&builder, NULL, 0);
  dit_record_begin(&builder, 17, 0, 2500);
  dit_record_field_string(&builder, name, "a\"\\\n\x01\xC3\xA9\xFF", 8);
  dit_record_field_i64(&builder, x, -7);
  dit_record_field_i64(&builder, x, INT64_MIN);
  dit_record_field_u64(&builder, seq, UINT64_MAX);
  add_built(image, &builder, 1);
  dit_record_begin(&builder, 18, 3, 4000);
  dit_record_field_f64(&builder, x, 0.1);
  dit_record_field_f64(&builder, seq, NAN);
  dit_record_field_f64(&builder, duration, 1500);
  dit_record_field_i64(&builder, begin, 3001);
  dit_record_field_f64(&builder, name, -INFINITY);
  add_built(image, &builder, 2);
  int64_t sizes[] = {2, 3}, strides[] = {3, 1};
  struct dit_record_tensor tensor = {.dtype = 6,
                                     .device = cuda,
                                     .ndim = 2,
                                     .sizes = sizes,
                                     .strides = strides,
                                     .storage_id = 11,
                                     .storage_offset = 4,
                                     .version = 1,
                                     .requires_grad = true};
  dit_record_begin(&builder, 17, 0, 5000);
  dit_record_field_tensor(&builder, x, &tensor);
  dit_record_field_i64s(&builder, seq, sizes, 2);
  dit_record_field_bytes(&builder, name, "\x00\xAB", 2);
  dit_record_field_bool(&builder, begin, true);
  add_built(image, &builder, 3);
  dit_record_builder_reset(&builder);
}

static void test_golden(void) {
  static struct image image;
  static struct collected out = {.limit = sizeof(out.text) - 1};
  struct dit_record_sink sink = {collect, &out};
  struct dit_error err = {0};
  make_golden(&image);
  struct dit_record_reader *reader = open_image(&image);
  CHECK_OK(dit_record_export_jsonl(reader, &sink, &err));
  static const char *const jsonl =
      "{\"type\":\"op\",\"seq\":1,\"time\":5001500,\"rank\":2,\"pid\":42,\"tid\":9,"
      "\"name\":\"a\\\"\\\\\\n\\u0001\xC3\xA9\xEF\xBF\xBD\",\"x,\\\"y\\\"\":-7,"
      "\"x,\\\"y\\\"[1]\":-9223372036854775808,\"seq[1]\":18446744073709551615}\n"
      "{\"type\":\"18\",\"seq\":2,\"time\":5003000,\"rank\":2,\"pid\":42,\"tid\":9,\"flags\":3,\"x,\\\"y\\\"\":0.1,"
      "\"seq[1]\":\"NaN\",\"duration_ns\":1500.0,\"begin_ns\":3001,\"name\":\"-Infinity\"}\n"
      "{\"type\":\"op\",\"seq\":3,\"time\":5004000,\"rank\":2,\"pid\":42,\"tid\":9,\"x,\\\"y\\\"\":{\"dtype\":"
      "\"float32\",\"shape\":[2,3],\"stride\":[3,1],\"device\":\"cuda\",\"device_index\":0,\"storage\":11,"
      "\"offset\":4,\"version\":1,\"requires_grad\":true},\"seq[1]\":[2,3],\"name\":\"00ab\",\"begin_ns\":true}\n";
  if (strcmp(out.text, jsonl) != 0) {
    fprintf(stderr, "got\n%s\nexpected\n%s\n", out.text, jsonl);
  }
  CHECK(strcmp(out.text, jsonl) == 0);
  out.size = 0;
  CHECK_OK(dit_record_export_csv(reader, &sink, &err));
  static const char *const csv =
      "type,seq,time,rank,pid,tid,flags,name,\"x,\"\"y\"\"\",\"x,\"\"y\"\"[1]\",seq[1],duration_ns,begin_ns\r\n"
      "op,1,5001500,2,42,9,0,\"a\"\"\\\n\x01\xC3\xA9\xEF\xBF\xBD\",-7,-9223372036854775808,18446744073709551615,,\r\n"
      "18,2,5003000,2,42,9,3,-Infinity,0.1,,NaN,1500.0,3001\r\n"
      "op,3,5004000,2,42,9,0,00ab,\"{\"\"dtype\"\":\"\"float32\"\",\"\"shape\"\":[2,3],\"\"stride\"\":[3,1],"
      "\"\"device\"\":\"\"cuda\"\",\"\"device_index\"\":0,\"\"storage\"\":11,\"\"offset\"\":4,\"\"version\"\":1,"
      "\"\"requires_grad\"\":true}\",,\"[2,3]\",,true\r\n";
  if (strcmp(out.text, csv) != 0) {
    fprintf(stderr, "got\n%s\nexpected\n%s\n", out.text, csv);
  }
  CHECK(strcmp(out.text, csv) == 0);
  out.size = 0;
  CHECK_OK(dit_record_reader_rewind(reader, &err));
  CHECK_OK(dit_record_export_trace(reader, &sink, &err));
  static const char *const trace =
      "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"name\":\"ditorch\",\"ph\":\"M\",\"args\":{}},\n"
      "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":20000042,\"args\":{\"name\":\"rank 2, pid 42\"}},\n"
      "{\"name\":\"18\",\"cat\":\"18\",\"ph\":\"X\",\"ts\":2.001,\"dur\":1.500,\"pid\":20000042,\"tid\":9,"
      "\"args\":{\"x,\\\"y\\\"\":0.1,\"seq[1]\":\"NaN\",\"duration_ns\":1500.0,\"begin_ns\":3001,"
      "\"name\":\"-Infinity\"}}\n]}\n";
  if (strcmp(out.text, trace) != 0) {
    fprintf(stderr, "got\n%s\nexpected\n%s\n", out.text, trace);
  }
  CHECK(strcmp(out.text, trace) == 0);
  dit_record_reader_close(reader);
}

/// Unknown fields, unknown structural records and longer tensors of later minor versions are passed over.
static void test_growth(void) {
  static struct image image;
  begin_image(&image, 1, 0, 0);
  uint32_t k = add_string(&image, "k");
  CHECK(k < 128);
  unsigned char id = (unsigned char)k;
  add_frame(&image, 9, 0, 0, "whatever", 8);
  unsigned char fields[] = {DIT_TAG(30, DIT_WIRE_VARINT),
                            id,
                            5,
                            DIT_TAG(29, DIT_WIRE_SIZED),
                            id,
                            2,
                            1,
                            2,
                            DIT_TAG(28, DIT_WIRE_FIXED8),
                            id,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0,
                            DIT_TAG(DIT_RECORD_U64, DIT_WIRE_VARINT),
                            id,
                            6,
                            DIT_TAG(DIT_RECORD_TENSOR, DIT_WIRE_SIZED),
                            id,
                            11,
                            0,
                            12,
                            0,
                            1,
                            1,
                            8,
                            3,
                            0,
                            0,
                            99,
                            98};
  add_frame(&image, 17, 1, 5, fields, sizeof(fields));
  unsigned char broken[] = {DIT_TAG(DIT_RECORD_STRING, DIT_WIRE_SIZED), id, 100, 1};
  add_frame(&image, 17, 2, 5, broken, sizeof(broken));
  unsigned char missing[] = {DIT_TAG(DIT_RECORD_U64, DIT_WIRE_VARINT), 127, 1};
  add_frame(&image, 17, 5, 5, missing, sizeof(missing));
  struct dit_record_reader *reader = open_image(&image);
  struct dit_error err = {0};
  const struct dit_record *record = NULL;
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  CHECK(record && record->field_count == 2 && record->fields[0].v.u64 == 6 && record->thread == 9);
  const struct dit_record_tensor *tensor = &record->fields[1].v.tensor;
  CHECK(tensor->dtype == 6 && tensor->ndim == 1 && tensor->sizes[0] == 4 && tensor->storage_id == 3 &&
        !tensor->strides);
  CHECK(strcmp(dit_record_get_type_name(record), "op") == 0 && record->header->minor == 7);
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  struct dit_record_read_counts counts;
  dit_record_reader_get_counts(reader, &counts);
  CHECK(!record && counts.unknown == 1 && counts.malformed == 1 && counts.unresolved == 1 && counts.missing == 2);
  dit_record_reader_close(reader);
  begin_image(&image, 2, 0, 0);
  CHECK(dit_record_reader_open_memory(image.data, image.size, &reader, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "format 2");
}

static void test_foreign(void) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  CHECK(dit_record_reader_open_memory("PK\x03\x04 something", 14, &reader, &err) == DIT_ERR_CORRUPT);
  const char *absent = "/nowhere/at/all.dlog";
  CHECK(dit_record_reader_open(&absent, 1, &reader, &err) == DIT_ERR_IO && !reader);
  CHECK_CONTAINS(err.message, absent);
}

/// Three files of interleaved times: the union, in order.
static void test_merge(void) {
  static struct image images[3];
  char paths[3][PATH_MAX + 32];
  const char *list[3];
  struct dit_error err = {0};
  for (int i = 0; i < 3; i++) {
    begin_image(&images[i], 1, i, 1000 * (3 - i));  // other anchors: order by wall time, not by monotonic time
    uint32_t k = add_string(&images[i], "k");
    for (int j = 0; j < 50; j++) {
      unsigned char field[] = {DIT_TAG(DIT_RECORD_U64, DIT_WIRE_VARINT), (unsigned char)k, (unsigned char)j};
      add_frame(&images[i], 17, (uint64_t)j + 1, 1000 * i + j * 3 + i, field, 3);
    }
    snprintf(paths[i], sizeof(paths[i]), "%s/merge-%d", test_folder, i);
    list[i] = paths[i];
    FILE *stream = fopen(paths[i], "wb");
    CHECK(stream && fwrite(images[i].data, 1, images[i].size, stream) == images[i].size && fclose(stream) == 0);
  }
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open(list, 3, &reader, &err));
  for (int round = 0; round < 2; round++) {
    const struct dit_record *record = NULL;
    for (int i = 0; i < 150; i++) {
      CHECK_OK(dit_record_reader_next(reader, &record, &err));
      CHECK(record && record->wall_ns == 2000 + i && record->file == (size_t)i % 3);
      CHECK(record->header->rank == i % 3 && record->fields[0].v.u64 == (uint64_t)i / 3);
    }
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
    CHECK(!record);
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
    CHECK(!record);
    CHECK_OK(dit_record_reader_rewind(reader, &err));
  }
  CHECK(dit_record_reader_get_header(reader, 2)->rank == 2 && !dit_record_reader_get_header(reader, 3));
  dit_record_reader_close(reader);
}

/// Several MiB, so that windows slide and sync records come; then holes, and a file behind a file.
static void test_large(void) {
  enum { SEED = 5, COUNT = 30000, FIELDS = 8 };
  char path[PATH_MAX], joined[PATH_MAX + 16];
  size_t size = 0;
  write_random(SEED, COUNT, FIELDS, 0, path);
  unsigned char *data = load_file(path, &size);
  CHECK(size > 3 << 20);
  struct dit_record_reader *reader = open_one(path);
  CHECK(read_random(reader, SEED, FIELDS) == COUNT);
  dit_record_reader_close(reader);
  snprintf(joined, sizeof(joined), "%s/joined", test_folder);
  FILE *stream = fopen(joined, "wb");
  CHECK(stream && fwrite(data, 1, size, stream) == size && fwrite(data, 1, size, stream) == size);
  CHECK(fclose(stream) == 0);
  reader = open_one(joined);
  struct dit_error err = {0};
  const struct dit_record *record = NULL;
  for (int i = 0; i < 2 * COUNT; i++) {
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
    CHECK(record && record->sequence == (uint64_t)(i % COUNT) + 1 && is_random(record, SEED, FIELDS));
  }
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  CHECK(!record);
  dit_record_reader_close(reader);
  memset(data + size / 2, 0, 5000);
  memset(data, 0xAA, 40);  // in the header too
  stream = fopen(joined, "wb");
  CHECK(stream && fwrite(data, 1, size, stream) == size && fclose(stream) == 0);
  reader = open_one(joined);
  uint64_t count = read_random(reader, SEED, FIELDS);
  struct dit_record_read_counts counts;
  dit_record_reader_get_counts(reader, &counts);
  CHECK(count < COUNT && count + counts.missing + counts.unresolved == COUNT && count > COUNT - 200);
  CHECK(counts.damages == 2 && counts.damaged_bytes >= 5000 && counts.truncated_bytes == 0);
  dit_record_reader_close(reader);
  free(data);
}

/// A log inside a record of a log: when the outer record is damaged, the inner ones do not come out.
static void test_embedded(void) {
  char path[PATH_MAX];
  size_t inner_size = 0;
  write_random(6, 10, 3, 0, path);
  unsigned char *inner = load_file(path, &inner_size);
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  CHECK_OK(dit_record_writer_create(test_folder, NULL, &writer, &err));
  struct dit_record_builder *builder = dit_record_builder_get_local();
  dit_record_begin(builder, TEST_TYPE, 0, 0);
  dit_record_field_bytes(builder, intern("k"), inner, inner_size);
  CHECK(dit_record_commit(builder, writer, NULL));
  dit_record_writer_get_path(writer, path, sizeof(path));
  CHECK_OK(dit_record_writer_destroy(writer, FLUSH_MS, &err));
  size_t size = 0;
  unsigned char *data = load_file(path, &size);
  data[size - 1] ^= 1;
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open_memory(data, size, &reader, &err));
  const struct dit_record *record = NULL;
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  CHECK(!record);
  dit_record_reader_close(reader);
  free(inner);
  free(data);
}

static void test_failures(void) {
  static struct image image;
  static struct collected out;
  struct dit_record_sink sink = {collect, &out};
  struct dit_error err = {0};
  make_golden(&image);
  int64_t live = dit_alloc_get_live();
  int64_t failures = 0;
  for (int view = 0; view < 5; view++) {
    enum dit_status status = DIT_ERR_NOMEM;
    for (int64_t after = 0; status != DIT_OK; after++) {
      struct dit_record_reader *reader = NULL;
      out = (struct collected){.limit = sizeof(out.text) - 1};
      dit_alloc_set_failure(after);
      status = dit_record_reader_open_memory(image.data, image.size, &reader, &err);
      if (status == DIT_OK) {
        status = view == 0   ? dit_record_export_jsonl(reader, &sink, &err)
                 : view == 1 ? dit_record_export_csv(reader, &sink, &err)
                 : view == 2 ? dit_record_export_trace(reader, &sink, &err)
                 : view == 3 ? dit_record_export_text(reader, &sink, &err)
                             : dit_record_export_legacy_csv(reader, 0, &sink, &err);
      }
      dit_alloc_set_failure(-1);
      dit_record_reader_close(reader);
      CHECK((status == DIT_OK || status == DIT_ERR_NOMEM) && dit_alloc_get_live() == live);
      failures += status != DIT_OK;
    }
  }
  CHECK(failures > 20);
  struct dit_record_reader *reader = open_image(&image);
  FILE *full = fopen("/dev/full", "w");
  CHECK(full && setvbuf(full, NULL, _IONBF, 0) == 0);
  struct dit_record_sink file_sink = {dit_record_sink_write_file, full};
  CHECK(dit_record_export_jsonl(reader, &file_sink, &err) == DIT_ERR_IO);
  fclose(full);
  out = (struct collected){.limit = 300};
  CHECK(dit_record_export_csv(reader, &sink, &err) == DIT_ERR_IO);
  dit_record_reader_close(reader);
}

int main(void) {
  make_folder();
  RUN(test_golden);
  RUN(test_growth);
  RUN(test_foreign);
  RUN(test_merge);
  RUN(test_large);
  RUN(test_embedded);
  RUN(test_failures);
  remove_folder();
  return 0;
}
