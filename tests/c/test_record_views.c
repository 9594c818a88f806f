/// The views of the tools' records in bulk: the legacy CSV with little memory gives the rows it gives with much, texts
/// that wait on disk, full tables, filters, counts per file. Golden files of all views are in
/// tests/python/golden/export.
#include <errno.h>

#include "record_test.h"

enum { TIME_TYPE = 18, CALLS = 1500, MOST_ROWS = 60000 };

static uint32_t key_id, key_name, key_kind, key_step, key_duration, key_round, key_arg, key_grad, name_op, forward,
    backward;

struct rows {
  char *text;
  size_t size, capacity;
  char *lines[MOST_ROWS];
  size_t count;
};

static bool collect(void *context, const void *data, size_t size) {
  struct rows *rows = context;
  if (rows->size + size + 1 > rows->capacity) {
    rows->capacity = (rows->size + size + 1) * 2;
    rows->text = realloc(rows->text, rows->capacity);
    CHECK(rows->text);
  }
  memcpy(rows->text + rows->size, data, size);
  rows->size += size;
  rows->text[rows->size] = '\0';
  return true;
}

static int order(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/// The lines in alphabetical order.
static void sort_rows(struct rows *rows) {
  rows->count = 0;
  for (char *line = strtok(rows->text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
    CHECK(rows->count < MOST_ROWS);
    rows->lines[rows->count++] = line;
  }
  qsort(rows->lines, rows->count, sizeof(char *), order);
}

static struct dit_record_writer *create(void) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  CHECK_OK(dit_record_writer_create(test_folder, NULL, &writer, &err));
  return writer;
}

static void put_time(struct dit_record_writer *writer, uint64_t id, bool is_backward, int64_t duration, int64_t round) {
  static const int64_t sizes[] = {4, 5};
  struct dit_record_tensor tensor = {.dtype = 6, .device_index = -1, .ndim = 2, .sizes = sizes, .storage_id = id};
  struct dit_record_builder *builder = dit_record_builder_get_local();
  dit_record_begin(builder, TIME_TYPE, 0, 0);
  dit_record_field_u64(builder, key_id, id);
  dit_record_field_interned(builder, key_name, name_op);
  dit_record_field_interned(builder, key_kind, is_backward ? backward : forward);
  dit_record_field_i64(builder, key_step, (int64_t)id / 100);
  dit_record_field_i64(builder, key_duration, duration);
  dit_record_field_i64(builder, key_round, round);
  dit_record_field_tensor(builder, is_backward ? key_grad : key_arg, &tensor);
  CHECK(dit_record_commit(builder, writer, NULL));
}

static void finish(struct dit_record_writer *writer, char *path) {
  struct dit_error err = {0};
  dit_record_writer_get_path(writer, path, PATH_MAX);
  CHECK_OK(dit_record_writer_destroy(writer, FLUSH_MS, &err));
}

static struct dit_record_reader *open_one(const char *path) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open(&path, 1, &reader, &err));
  return reader;
}

static void export_rows(const char *path, size_t memory, struct rows *rows) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = open_one(path);
  struct dit_record_sink sink = {collect, rows};
  rows->size = 0;
  CHECK_OK(dit_record_export_legacy_csv(reader, memory, &sink, &err));
  dit_record_reader_close(reader);
  sort_rows(rows);
}

/// Calls in order, then their backwards in a random one: some have none, some have two rounds, some have no call.
static void write_calls(uint64_t seed, char *path, size_t *expected) {
  struct dit_record_writer *writer = create();
  static uint64_t ids[CALLS];
  uint64_t state = seed;
  *expected = 0;
  for (uint64_t i = 0; i < CALLS; i++) {
    ids[i] = i;
    if (i % 10 != 3) {
      put_time(writer, i, false, (int64_t)i * 1000, 0);
      ++*expected;
    }
  }
  for (size_t i = CALLS - 1; i > 0; i--) {
    size_t other = draw(&state) % (i + 1);
    uint64_t swapped = ids[i];
    ids[i] = ids[other];
    ids[other] = swapped;
  }
  for (size_t i = 0; i < CALLS; i++) {
    if (ids[i] % 7 == 2) {
      continue;
    }
    put_time(writer, ids[i], true, (int64_t)ids[i] * 1000 + 1, 0);
    *expected += ids[i] % 10 == 3;
    if (ids[i] % 5 == 1) {
      put_time(writer, ids[i], true, (int64_t)ids[i] * 1000 + 2, 1);
      ++*expected;
    }
  }
  finish(writer, path);
}

/// Little memory means more rounds, not other rows.
static void test_rounds(void) {
  static struct rows large, small;
  char path[PATH_MAX];
  size_t expected = 0;
  write_calls(99, path, &expected);
  export_rows(path, 0, &large);
  CHECK(large.count == expected + 1);
  char row[256];
  snprintf(row, sizeof(row), "torch.op,1001,1.00100000,1.00100100,ms,");
  bool found = false;
  for (size_t i = 0; i < large.count; i++) {
    found |= strncmp(large.lines[i], row, strlen(row)) == 0;
  }
  CHECK(found);
  for (size_t memory = 1000; memory < 40000; memory = memory * 5 + 777) {
    export_rows(path, memory, &small);
    CHECK(small.count == large.count);
    for (size_t i = 0; i < large.count; i++) {
      if (strcmp(small.lines[i], large.lines[i]) != 0) {
        fprintf(stderr, "memory %zu: '%s' for '%s'\n", memory, small.lines[i], large.lines[i]);
        exit(1);
      }
    }
  }
  unlink(path);
  free(large.text);
  free(small.text);
}

/// More text than stays in memory: it comes back from a temporary file; without a place for one, an error that says so.
static void test_spool(void) {
  static struct rows rows;
  char path[PATH_MAX], kept[PATH_MAX];
  struct dit_record_writer *writer = create();
  enum { MANY = 25000 };
  for (uint64_t i = 0; i < MANY; i++) {
    put_time(writer, i, true, (int64_t)i, 0);
  }
  for (uint64_t i = MANY; i-- > 0;) {
    put_time(writer, i, false, (int64_t)i, 0);
  }
  finish(writer, path);
  export_rows(path, 0, &rows);
  CHECK(rows.count == MANY + 1);
  for (size_t i = 0; i + 1 < rows.count; i++) {
    unsigned long long id = 0, data = 0;
    double before = 0, after = 0;
    if (strncmp(rows.lines[i], "name,", 5) != 0) {
      CHECK(sscanf(rows.lines[i], "torch.op,%llu,%lf,%lf,ms,", &id, &before, &after) == 3 && before == after);
      const char *last = strrchr(rows.lines[i], ':');  // the data_ptr of the gradient
      CHECK(last && sscanf(last, ": %llu", &data) == 1 && data == id);
    }
  }
  const char *old = getenv("TMPDIR");
  snprintf(kept, sizeof(kept), "%s", old ? old : "");
  setenv("TMPDIR", "/nowhere/at/all", 1);
  struct dit_error err = {0};
  struct dit_record_reader *reader = open_one(path);
  struct dit_record_sink sink = {collect, &rows};
  CHECK(dit_record_export_legacy_csv(reader, 0, &sink, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "'/nowhere/at/all'");
  CHECK_CONTAINS(err.message, "set TMPDIR");
  dit_record_reader_close(reader);
  if (old) {
    setenv("TMPDIR", kept, 1);
  } else {
    unsetenv("TMPDIR");
  }
  unlink(path);
  free(rows.text);
}

/// A table full of one key cannot be made smaller: the rest are rows of their own, and nothing is lost or slow.
static void test_one_key(void) {
  static struct rows rows;
  char path[PATH_MAX];
  struct dit_record_writer *writer = create();
  put_time(writer, 5, false, 1, 0);
  for (int64_t i = 0; i < 3000; i++) {
    put_time(writer, i % 50 == 0 ? 4 : 5, true, i, i);
  }
  finish(writer, path);
  export_rows(path, 1000, &rows);
  CHECK(rows.count == 1 + 3000);  // header; the call has one backward in its row
  unlink(path);
  free(rows.text);
}

static bool accept_even(void *context, const struct dit_record *record) {
  ++*(size_t *)context;
  return record->sequence % 2 == 0;
}

static void test_filter(void) {
  char path[PATH_MAX];
  struct dit_error err = {0};
  struct dit_record_writer *writer = create();
  for (uint64_t i = 1; i <= 101; i++) {
    put_time(writer, i, false, 1, 0);
  }
  finish(writer, path);
  const char *paths[] = {path, path};
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open(paths, 2, &reader, &err));
  size_t asked = 0, got = 0;
  CHECK(!dit_record_reader_is_ready(reader));
  dit_record_reader_set_filter(reader, accept_even, &asked);
  for (int round = 0; round < 2; round++) {
    const struct dit_record *record = NULL;
    for (;;) {
      CHECK_OK(dit_record_reader_next(reader, &record, &err));
      if (!record) {
        break;
      }
      CHECK(record->sequence % 2 == 0 && dit_record_reader_is_ready(reader));
      got++;
    }
    CHECK_OK(dit_record_reader_rewind(reader, &err));
  }
  CHECK(asked == 404 && got == 200 && dit_record_reader_get_file_count(reader) == 2);
  const struct dit_record *record = NULL;
  struct dit_record_read_counts counts;
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  dit_record_reader_get_file_counts(reader, 1, &counts);
  CHECK(counts.records >= 1 && counts.records <= 3);
  dit_record_reader_get_file_counts(reader, 2, &counts);
  CHECK(counts.records == 0);
  dit_record_reader_close(reader);
  unlink(path);
}

int main(void) {
  make_folder();
  key_id = intern("id");
  key_name = intern("name");
  key_kind = intern("kind");
  key_step = intern("step");
  key_duration = intern("duration_ns");
  key_round = intern("round");
  key_arg = intern("args.0");
  key_grad = intern("grad_out.0");
  name_op = intern("torch.op");
  forward = intern("forward");
  backward = intern("backward");
  RUN(test_rounds);
  RUN(test_spool);
  RUN(test_one_key);
  RUN(test_filter);
  remove_folder();
  return 0;
}
