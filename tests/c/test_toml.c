/// The TOML reader: values, errors with their place, limits, allocation failures, truncation and seeded mutation of a
/// small corpus.
#include <dirent.h>
#include <locale.h>
#include <math.h>

#include "check.h"
#include "dit/alloc.h"

// Internal to libdit and not exported: compiled into the test.
#include "core/toml.c"
#include "core/toml_parser.c"
#include "core/toml_value.c"

static const struct dit_toml_value *find(const struct dit_toml_document *document, const char *path) {
  for (size_t i = 0; i < document->count; i++) {
    if (strcmp(document->entries[i].path, path) == 0) {
      return &document->entries[i].value;
    }
  }
  fprintf(stderr, "no key %s\n", path);
  exit(1);
}

static void get_corpus_path(char *path, size_t size, const char *name) {
  snprintf(path, size, "%s/corpus/toml/%s", DIT_TEST_FOLDER, name);
}

static void check_integer(const struct dit_toml_document *document, const char *path, int64_t expected) {
  const struct dit_toml_value *value = find(document, path);
  CHECK(value->type == DIT_TOML_INTEGER && value->v.integer == expected);
}

static void check_string(const struct dit_toml_document *document, const char *path, const char *expected) {
  const struct dit_toml_value *value = find(document, path);
  CHECK(value->type == DIT_TOML_STRING && strcmp(value->v.string, expected) == 0);
}

static void check_float(const struct dit_toml_document *document, const char *path, double expected) {
  const struct dit_toml_value *value = find(document, path);
  CHECK(value->type == DIT_TOML_FLOAT && value->v.real == expected);
}

static void test_full(void) {
  struct dit_error err = {0};
  struct dit_toml_document document;
  char path[4200];
  get_corpus_path(path, sizeof(path), "full.toml");
  CHECK_OK(dit_toml_read(path, &document, &err));
  CHECK(document.count == 27);
  check_string(&document, "title", "ditorch");
  check_string(&document, "\"literal key\"", "no \\escapes here");
  check_string(&document, "\"quoted.key\"", "a\tb\n\"c\" \\ \xC3\xA9 \xF0\x9F\x98\x80");
  check_integer(&document, "a.b.c", 1);
  check_integer(&document, "a.b.d", 2);
  check_integer(&document, "numbers.zero", 0);
  check_integer(&document, "numbers.negative", -17);
  check_integer(&document, "numbers.plus", 1000);
  check_integer(&document, "numbers.hex", 0xdeadbeef);
  check_integer(&document, "numbers.octal", 0755);
  check_integer(&document, "numbers.binary", 10);
  check_integer(&document, "numbers.largest", INT64_MAX);
  check_integer(&document, "numbers.smallest", INT64_MIN);
  check_float(&document, "numbers.pi", 3.141592);
  check_float(&document, "numbers.exp", 1000);
  check_float(&document, "numbers.both", -0.0025);
  check_float(&document, "numbers.infinite", -(double)INFINITY);
  CHECK(isnan(find(&document, "numbers.not")->v.real));
  CHECK(find(&document, "flags.yes")->type == DIT_TOML_BOOL && find(&document, "flags.yes")->v.boolean);
  CHECK(find(&document, "flags.no")->type == DIT_TOML_BOOL && !find(&document, "flags.no")->v.boolean);
  const struct dit_toml_value *list = find(&document, "lists.mixed");
  CHECK(list->type == DIT_TOML_ARRAY && list->v.array.count == 4);
  CHECK(list->v.array.items[0].v.integer == 1 && strcmp(list->v.array.items[1].v.string, "two") == 0);
  CHECK(list->v.array.items[2].v.real == 3.0 && list->v.array.items[3].v.boolean);
  CHECK(find(&document, "lists.empty")->v.array.count == 0 && find(&document, "lists.lines")->v.array.count == 3);
  check_integer(&document, "deep.er.table.x", 1);
  check_integer(&document, "deep.y", 2);
  CHECK(document.entries[0].line == 2 && document.entries[0].column == 1);
  dit_toml_reset(&document);
  CHECK(document.count == 0 && !document.entries);
  dit_toml_reset(&document);
}

static void test_windows(void) {
  struct dit_error err = {0};
  struct dit_toml_document document;
  char path[4200];
  get_corpus_path(path, sizeof(path), "windows.toml");
  CHECK_OK(dit_toml_read(path, &document, &err));
  CHECK(document.count == 2 && document.entries[1].line == 5 && find(&document, "ditorch.ledger")->v.boolean);
  dit_toml_reset(&document);
  get_corpus_path(path, sizeof(path), "empty.toml");
  CHECK_OK(dit_toml_read(path, &document, &err));
  CHECK(document.count == 0);
  get_corpus_path(path, sizeof(path), "absent.toml");
  CHECK(dit_toml_read(path, &document, &err) == DIT_ERR_IO);
}

static void check_refused(const char *text, const char *part) {
  struct dit_error err = {0};
  struct dit_toml_document document;
  enum dit_status status = dit_toml_parse(text, strlen(text), "f", &document, &err);
  if (status != DIT_ERR_CORRUPT) {
    fprintf(stderr, "accepted: %s\n", text);
  }
  CHECK(status == DIT_ERR_CORRUPT && document.count == 0 && !document.entries);
  CHECK_CONTAINS(err.message, part);
}

static void test_unsupported(void) {
  check_refused("a = {b = 1}", "f:1:5: inline tables");
  check_refused("\n[[a]]", "f:2:2: arrays of tables");
  check_refused("a = 2024-01-31", "f:1:5: dates and times");
  check_refused("a = 1979-05-27T07:32:00Z", "dates and times");
  check_refused("a = 07:32:00", "dates and times");
  check_refused("a = \"\"\"x\"\"\"", "f:1:5: multi-line strings");
  check_refused("a = '''x'''", "multi-line strings");
  check_refused("a = [1, [2]]", "f:1:9: nested arrays");
}

static void test_broken(void) {
  static const char *const cases[][2] = {
      {"a", "f:1:2: expected '='"},
      {"a =", "f:1:4: expected a value"},
      {"= 1", "f:1:1: expected a key"},
      {"a = 1 b = 2", "f:1:7: expected the end of the line"},
      {"a = 1\na = 2", "f:2:1: 'a' is already defined"},
      {"a.b = 1\na = 2", "'a' is already defined"},
      {"a = 1\na.b = 2", "already has a value"},
      {"a = 1\n[a]", "f:2:2: 'a' is already defined"},
      {"a = 1\n[a.b]", "already has a value"},
      {"[a]\n[a]", "f:2:2: 'a' is already defined"},
      {"[a]\nb.c = 1\n[a.b]", "'a.b' is already defined"},
      {"[a.b]\n[a]\nb.c = 1", "cannot be extended"},
      {"[a", "expected ']'"},
      {"[]", "expected a key"},
      {"[a.]", "expected a key"},
      {"[a]x", "expected the end of the line"},
      {"a = \"x", "f:1:5: the string that begins here does not end"},
      {"a = \"x\ny\"", "f:1:5: the string that begins here"},
      {"a = \"\\q\"", "f:1:7: unknown escape"},
      {"a = \"\\u12\"", "expected 4 hexadecimal digits"},
      {"a = \"\\ud800\"", "U+D800 is not a character"},
      {"a = \"\\u0000\"", "U+0000 is not a character"},
      {"a = \"\\U00110000\"", "is not a character"},
      {"a = \"\xC3\xA9\xFF\"", "f:1:7: byte 0xFF is not valid UTF-8"},
      {"a = \"\x01\"", "control character 0x01"},
      {"# \x7F", "control character 0x7F"},
      {"a = 1\rb = 2", "expected the end of the line"},
      {"a = \xFF", "not valid UTF-8"},
      {"a = 01", "'01' is not a value"},
      {"a = 1__0", "is not a value"},
      {"a = _1", "is not a value"},
      {"a = 1_", "is not a value"},
      {"a = 0x", "is not a value"},
      {"a = -0x1", "is not a value"},
      {"a = 0b2", "is not a value"},
      {"a = 1.", "is not a value"},
      {"a = .5", "is not a value"},
      {"a = 1e", "is not a value"},
      {"a = 1.e5", "is not a value"},
      {"a = 00.5", "is not a value"},
      {"a = True", "booleans are true and false"},
      {"a = host", "strings need quotes"},
      {"a = 9223372036854775808", "does not fit into 64 bits"},
      {"a = 0xFFFFFFFFFFFFFFFFF", "does not fit"},
      {"a = [1 2]", "f:1:8: expected ',' or ']'"},
      {"a = [1,,2]", "expected a value"},
      {"a = [1", "expected ',' or ']'"},
      {"a = [", "expected a value"},
      {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q = 1", "more than 16 parts"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    check_refused(cases[i][0], cases[i][1]);
  }
  struct dit_toml_document document;
  CHECK(dit_toml_parse("a = 1\0", 6, "f", &document, NULL) == DIT_ERR_CORRUPT);
  CHECK(dit_toml_parse("a = \"\0\"", 7, "f", &document, NULL) == DIT_ERR_CORRUPT);
}

static void test_limits(void) {
  struct dit_error err = {0};
  struct dit_toml_document document;
  size_t size = DIT_TOML_MAX_BYTES + 1;
  char *text = dit_malloc(size + 1);
  CHECK(text);
  memset(text, '\n', size);
  CHECK_OK(dit_toml_parse(text, size - 1, "f", &document, &err));
  CHECK(dit_toml_parse(text, size, "f", &document, &err) == DIT_ERR_CORRUPT);
  CHECK_CONTAINS(err.message, "bytes");
  size_t used = 0;
  for (int i = 0; i <= DIT_TOML_MAX_KEYS; i++) {
    used += (size_t)snprintf(text + used, size - used, "k%d=1\n", i);
  }
  CHECK(dit_toml_parse(text, used, "f", &document, &err) == DIT_ERR_CORRUPT);
  CHECK_CONTAINS(err.message, "f:4097:");
  CHECK_CONTAINS(err.message, "more than 4096 keys");
  used = (size_t)snprintf(text, size, "a=[");
  for (int i = 0; i <= DIT_TOML_MAX_ITEMS; i++) {
    used += (size_t)snprintf(text + used, size - used, "1,");
  }
  text[used++] = ']';
  CHECK(dit_toml_parse(text, used, "f", &document, &err) == DIT_ERR_CORRUPT);
  CHECK_CONTAINS(err.message, "more than 65536 items");
  dit_free(text);
}

struct file {
  char *text;
  size_t size;
};

enum { MOST_FILES = 32 };

static struct file files[MOST_FILES];
static int file_count;

static void load_corpus(void) {
  char folder[4200], path[4600];
  get_corpus_path(folder, sizeof(folder), "");
  DIR *dir = opendir(folder);
  CHECK(dir);
  for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
    if (entry->d_name[0] == '.' || file_count == MOST_FILES) {
      continue;
    }
    snprintf(path, sizeof(path), "%s%s", folder, entry->d_name);
    FILE *file = fopen(path, "rb");
    CHECK(file);
    struct file *loaded = &files[file_count++];
    loaded->text = malloc(65536);
    CHECK(loaded->text);
    loaded->size = fread(loaded->text, 1, 65536, file);
    fclose(file);
  }
  closedir(dir);
  CHECK(file_count >= 5);
}

/// Parse a copy of exactly `size` bytes, so that AddressSanitizer sees one byte too many; nothing may stay behind.
static enum dit_status parse_exactly(const char *text, size_t size) {
  struct dit_error err = {0};
  struct dit_toml_document document;
  int64_t live = dit_alloc_get_live();
  char *copy = malloc(size ? size : 1);
  CHECK(copy);
  memcpy(copy, text, size);
  enum dit_status status = dit_toml_parse(copy, size, "f", &document, &err);
  CHECK(status == DIT_OK || (status == DIT_ERR_CORRUPT && strncmp(err.message, "f:", 2) == 0 && document.count == 0));
  dit_toml_reset(&document);
  free(copy);
  CHECK(dit_alloc_get_live() == live);
  return status;
}

static void test_truncated(void) {
  for (int i = 0; i < file_count; i++) {
    for (size_t size = 0; size <= files[i].size; size++) {
      parse_exactly(files[i].text, size);
    }
  }
}

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16) % below;
}

/// One change: a byte replaced, a piece removed, a token inserted, or a piece of another file inserted.
static size_t mutate(char *text, size_t size, size_t room) {
  static const char *const tokens[] = {
      "\"", "'",  "[",   "]", "[[",  "=",    ".",    ",",        "\n",   "#",      "{",           "}", "\\u00e9",
      "\\", "0x", "1e9", "_", "inf", "true", "\xC3", "\xF0\x9F", "\r\n", "\"\"\"", "[ditorch]\n", "-"};
  size_t at = size ? draw((uint32_t)size) : 0;
  const char *piece = NULL;
  size_t length = 0;
  switch (draw(4)) {
    case 0:
      if (size) {
        text[at] = (char)draw(256);
      }
      return size;
    case 1:
      length = draw(20) < size - at ? draw(20) : size - at;
      length = length < size - at ? length : size - at;
      memmove(text + at, text + at + length, size - at - length);
      return size - length;
    case 2:
      piece = tokens[draw(sizeof(tokens) / sizeof(tokens[0]))];
      length = strlen(piece);
      break;
    default: {
      const struct file *other = &files[draw((uint32_t)file_count)];
      size_t start = other->size ? draw((uint32_t)other->size) : 0;
      piece = other->text + start;
      length = other->size - start < 40 ? other->size - start : draw(40);
    }
  }
  if (size + length > room) {
    return size;
  }
  memmove(text + at + length, text + at, size - at);
  memcpy(text + at, piece, length);
  return size + length;
}

static void test_mutated(void) {
  enum { ROUNDS = 30000, ROOM = 8192 };
  static char text[ROOM];
  state = 424242;
  printf("seed %llu\n", (unsigned long long)state);
  int accepted = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const struct file *file = &files[draw((uint32_t)file_count)];
    size_t size = file->size;
    memcpy(text, file->text, size);
    for (uint32_t changes = 1 + draw(4); changes > 0; changes--) {
      size = mutate(text, size, ROOM);
    }
    accepted += parse_exactly(text, size) == DIT_OK;
  }
  CHECK(accepted > ROUNDS / 100 && accepted < ROUNDS - ROUNDS / 100);
}

static void test_no_memory(void) {
  for (int i = 0; i < file_count; i++) {
    enum dit_status status = DIT_ERR_NOMEM;
    for (int64_t after = 0; status == DIT_ERR_NOMEM; after++) {
      struct dit_toml_document document;
      int64_t live = dit_alloc_get_live();
      dit_alloc_set_failure(after);
      status = dit_toml_parse(files[i].text, files[i].size, "f", &document, NULL);
      dit_alloc_set_failure(-1);
      CHECK(status == DIT_OK || document.count == 0);
      dit_toml_reset(&document);
      CHECK(dit_alloc_get_live() == live);
    }
  }
}

int main(void) {
  RUN(test_full);
  RUN(test_windows);
  RUN(test_unsupported);
  RUN(test_broken);
  RUN(test_limits);
  load_corpus();
  RUN(test_truncated);
  RUN(test_mutated);
  RUN(test_no_memory);
  for (int i = 0; i < file_count; i++) {
    free(files[i].text);
  }
  return 0;
}
