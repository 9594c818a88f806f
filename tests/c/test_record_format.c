/// The record format: checksum, numbers, random round trips, every truncation, every damaged byte, a mutated corpus.

#include "record/crc32c.c"  // internal: not exported by libdit
#include "record_test.h"

static void test_crc(void) {
  CHECK(dit_crc32c(0, "123456789", 9) == 0xE3069283u && dit_crc32c_table(0, "123456789", 9) == 0xE3069283u);
  unsigned char data[600];
  uint64_t state = 5;
  for (size_t i = 0; i < sizeof(data); i++) {
    data[i] = (unsigned char)draw(&state);
  }
  for (size_t size = 0; size < 300; size++) {
    size_t from = draw(&state) % 300;
    uint32_t seed = (uint32_t)draw(&state), whole = dit_crc32c(seed, data + from, size);
    CHECK(whole == dit_crc32c_table(seed, data + from, size));
    CHECK(whole == dit_crc32c(dit_crc32c(seed, data + from, size / 3), data + from + size / 3, size - size / 3));
  }
}

static void test_numbers(void) {
  uint64_t state = 6;
  for (int i = 0; i < 20000; i++) {
    int64_t value = draw_number(&state), back = 0;
    unsigned char buffer[DIT_VARINT_MAX];
    unsigned char *end = dit_put_varint(buffer, dit_zigzag(value));
    struct dit_cursor cursor = {buffer, end}, cut = {buffer, end - 1};
    CHECK(dit_take_signed(&cursor, &back) && back == value && cursor.at == end);
    CHECK(!dit_take_signed(&cut, &back));
  }
  unsigned char wide[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02};
  struct dit_cursor cursor = {wide, wide + sizeof(wide)};
  uint64_t value = 0;
  CHECK(!dit_take_varint(&cursor, &value));
}

static bool round_trip(uint64_t seed, uint64_t count, int most_fields) {
  char path[PATH_MAX];
  const char *paths[] = {path};
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  write_random(seed, count, most_fields, 0, path);
  CHECK_OK(dit_record_reader_open(paths, 1, &reader, &err));
  const struct dit_record *record = NULL;
  bool ok = true;
  uint64_t expected = 0;
  do {
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
    ok = !record || (record->sequence == ++expected && is_random(record, seed, most_fields));
  } while (ok && record);
  struct dit_record_read_counts counts;
  dit_record_reader_get_counts(reader, &counts);
  dit_record_reader_close(reader);
  unlink(path);
  return ok && expected == count &&
         counts.damages + counts.malformed + counts.unresolved + counts.missing + counts.truncated_bytes +
                 counts.unknown ==
             0;
}

/// A failing case is made smaller before it is shown.
static void test_round_trip(void) {
  for (uint64_t seed = 1; seed <= 12; seed++) {
    uint64_t count = seed == 12 ? 30000 : seed * 40;
    int fields = seed == 12 ? 4 : (int)seed * 2;
    if (round_trip(seed, count, fields)) {
      continue;
    }
    while (count > 1 && !round_trip(seed, count / 2, fields)) {
      count /= 2;
    }
    while (fields > 0 && !round_trip(seed, count, fields - 1)) {
      fields--;
    }
    fprintf(stderr, "round trip fails: seed %llu, %llu records, at most %d fields\n", (unsigned long long)seed,
            (unsigned long long)count, fields);
    CHECK(!"round trip");
  }
}

enum { SMALL_SEED = 77, SMALL_COUNT = 12, SMALL_FIELDS = 4 };

static unsigned char *make_small(size_t *size) {
  char path[PATH_MAX];
  write_random(SMALL_SEED, SMALL_COUNT, SMALL_FIELDS, 0, path);
  unsigned char *data = load_file(path, size);
  unlink(path);
  return data;
}

static void test_truncation(void) {
  size_t size = 0;
  unsigned char *data = make_small(&size);
  uint64_t last = 0;
  for (size_t cut = 0; cut <= size; cut++) {
    unsigned char *exact = malloc(cut + 1);  // so that a read beyond the cut is seen
    memcpy(exact, data, cut);
    unsigned char *tight = realloc(exact, cut ? cut : 1);
    struct dit_error err = {0};
    struct dit_record_reader *reader = NULL;
    CHECK_OK(dit_record_reader_open_memory(tight, cut, &reader, &err));
    uint64_t count = read_random(reader, SMALL_SEED, SMALL_FIELDS);
    struct dit_record_read_counts counts;
    dit_record_reader_get_counts(reader, &counts);
    CHECK(count >= last && counts.damages == 0 && counts.missing == 0 && counts.unresolved == 0);
    CHECK(counts.truncated_bytes <= cut && (cut < size || (count == SMALL_COUNT && counts.truncated_bytes == 0)));
    last = count;
    dit_record_reader_close(reader);
    free(tight);
  }
  free(data);
}

/// At most the record of the damaged byte is gone, or, for a definition, the records that use it.
static void test_corruption(void) {
  size_t size = 0;
  unsigned char *data = make_small(&size);
  static const unsigned char changes[] = {0x01, 0x80, 0xFF, 0x5A};
  uint64_t lost = 0;
  for (size_t at = 0; at < size; at++) {
    for (size_t change = 0; change < sizeof(changes); change++) {
      data[at] ^= changes[change];
      struct dit_error err = {0};
      struct dit_record_reader *reader = NULL;
      CHECK_OK(dit_record_reader_open_memory(data, size, &reader, &err));
      uint64_t count = read_random(reader, SMALL_SEED, SMALL_FIELDS);
      struct dit_record_read_counts counts;
      dit_record_reader_get_counts(reader, &counts);
      CHECK(counts.damages + counts.truncated_files == 1);
      CHECK(counts.damaged_bytes + counts.truncated_bytes > 0);
      CHECK(count + counts.unresolved + 1 >= SMALL_COUNT);
      lost += SMALL_COUNT - count;
      dit_record_reader_close(reader);
      data[at] ^= changes[change];
    }
  }
  CHECK(lost > 0);
  free(data);
}

/// Reads whatever there is, through every view; nothing is known about the content.
static bool swallow(void *context, const void *data, size_t size) {
  (void)data;
  *(size_t *)context += size;
  return true;
}

static void devour(const unsigned char *data, size_t size) {
  struct dit_record_reader *reader = NULL;
  size_t total = 0;
  struct dit_record_sink sink = {swallow, &total};
  if (dit_record_reader_open_memory(data, size, &reader, NULL) != DIT_OK) {
    return;
  }
  struct dit_error err = {0};
  CHECK_OK(dit_record_export_jsonl(reader, &sink, &err));
  CHECK_OK(dit_record_export_csv(reader, &sink, &err));
  CHECK_OK(dit_record_reader_rewind(reader, &err));
  CHECK_OK(dit_record_export_trace(reader, &sink, &err));
  CHECK_OK(dit_record_reader_rewind(reader, &err));
  CHECK_OK(dit_record_export_text(reader, &sink, &err));
  CHECK_OK(dit_record_export_legacy_csv(reader, 1, &sink, &err));
  CHECK_OK(dit_record_export_legacy_csv(reader, 0, &sink, &err));
  dit_record_reader_close(reader);
}

/// Makes the checksums right again, so that the mutation reaches the decoders.
static void fix_checksums(unsigned char *data, size_t size) {
  if (size < DIT_HEADER_FIXED + 4) {
    return;
  }
  size_t length = dit_get_u32(data + DIT_HEADER_LENGTH);
  if (length < DIT_HEADER_FIXED + 4 || length > size) {
    return;
  }
  dit_put_u32(data + length - 4, dit_crc32c(0, data, length - 4));
  uint32_t salt = dit_get_u32(data + DIT_HEADER_SALT);
  for (size_t at = length; at + DIT_FRAME_MIN <= size;) {
    size_t frame = dit_get_u32(data + at + DIT_FRAME_LENGTH);
    if (frame < DIT_FRAME_MIN || frame > size - at) {
      return;
    }
    uint32_t seed = dit_get_u16(data + at + DIT_FRAME_TYPE) == DIT_RECORD_TYPE_SYNC ? 0 : salt;
    dit_put_u32(data + at + frame - 4, dit_crc32c(seed, data + at, frame - 4));
    at += frame;
  }
}

static void mutate(const unsigned char *data, size_t size, uint64_t *state) {
  size_t length = size;
  unsigned char *copy = malloc(size * 2 + 64);
  memcpy(copy, data, size);
  for (uint64_t edits = 1 + draw(state) % 6; edits > 0 && length > 0; edits--) {
    size_t at = draw(state) % length;
    uint64_t kind = draw(state) % 8;
    if (kind < 5) {
      copy[at] = (unsigned char)(kind < 3 ? draw(state) : copy[at] ^ 1u << draw(state) % 8);
    } else if (kind == 5) {
      length = at;
    } else if (length < size * 2) {
      size_t some = draw(state) % 32;
      some = some > length - at ? length - at : some;
      memmove(copy + at + some, copy + at, length - at);
      length += some;
    }
  }
  if (draw(state) % 4) {
    fix_checksums(copy, length);
  }
  devour(copy, length);
  free(copy);
}

static void test_corpus(void) {
  const char *folder = DIT_TEST_FOLDER "/corpus/record";
  DIR *dir = opendir(folder);
  CHECK(dir);
  uint64_t state = 2024;
  printf("seed %llu\n", (unsigned long long)state);
  int files = 0;
  struct dirent *entry = NULL;
  while ((entry = readdir(dir))) {
    if (entry->d_name[0] == '.') {
      continue;
    }
    char path[PATH_MAX + 300];
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    unsigned char *data = load_file(path, &size);
    devour(data, size);
    for (int i = 0; i < 1500; i++) {
      mutate(data, size, &state);
    }
    free(data);
    files++;
  }
  closedir(dir);
  CHECK(files >= 6);
}

int main(void) {
  make_folder();
  RUN(test_crc);
  RUN(test_numbers);
  RUN(test_round_trip);
  RUN(test_truncation);
  RUN(test_corruption);
  RUN(test_corpus);
  remove_folder();
  return 0;
}
