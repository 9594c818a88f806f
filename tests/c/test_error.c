/// Error messages: formatting, truncation at character borders, prefixes, self-reference.
#include "check.h"
#include "core/utf8.h"
#include "dit/error.h"

static void check_utf8(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length;) {
    int bytes = dit_utf8_get_length(text + i, length - i);
    CHECK(bytes > 0);
    i += (size_t)bytes;
  }
}

static void test_set(void) {
  struct dit_error err = {0};
  CHECK(dit_error_set(&err, DIT_ERR_IO, "file %s has %d", "x", 3) == DIT_ERR_IO);
  CHECK(err.status == DIT_ERR_IO && strcmp(err.message, "file x has 3") == 0);
  CHECK(dit_error_set(NULL, DIT_ERR_NOMEM, "%s", "nobody reads this") == DIT_ERR_NOMEM);
  CHECK(dit_error_set(&err, DIT_ERR_INVALID, "again: %s", err.message) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message, "again: file x has 3") == 0);
}

/// A message of `ascii` letters and then many characters of several bytes, longer than the buffer.
static void fill_long(char *text, size_t size, int ascii, const char *character) {
  size_t used = 0, step = strlen(character);
  for (int i = 0; i < ascii; i++) {
    text[used++] = 'a';
  }
  while (used + step < size) {
    memcpy(text + used, character, step);
    used += step;
  }
  text[used] = '\0';
}

static void test_cut(void) {
  static const char *const characters[] = {"b", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
  char text[3000];
  for (int c = 0; c < 4; c++) {
    for (int ascii = 0; ascii < 5; ascii++) {
      struct dit_error err = {0};
      fill_long(text, sizeof(text), ascii, characters[c]);
      (void)dit_error_set(&err, DIT_ERR_INVALID, "%s", text);
      size_t length = strlen(err.message), step = strlen(characters[c]);
      check_utf8(err.message);
      CHECK(length <= DIT_ERROR_MESSAGE_SIZE - 1 && length > DIT_ERROR_MESSAGE_SIZE - 1 - step);
      CHECK(strncmp(err.message, text, length) == 0);
      CHECK(dit_error_prefix(&err, "prefix") == DIT_ERR_INVALID);
      check_utf8(err.message);
      CHECK(strncmp(err.message, "prefix: ", 8) == 0 && strlen(err.message) <= DIT_ERROR_MESSAGE_SIZE - 1);
    }
  }
}

static void test_foreign_bytes(void) {
  struct dit_error err = {0};
  (void)dit_error_set(&err, DIT_ERR_INVALID, "value %s.", "\xFF\xC3z\xED\xA0\x80");
  check_utf8(err.message);
  CHECK(strcmp(err.message, "value ??z???.") == 0);
}

static void test_prefix(void) {
  struct dit_error err = {0};
  (void)dit_error_set(&err, DIT_ERR_IO, "no such file");
  CHECK(dit_error_prefix(&err, "loading vendor '%s'", "x") == DIT_ERR_IO);
  CHECK(strcmp(err.message, "loading vendor 'x': no such file") == 0);
  (void)dit_error_prefix(&err, "a: ");
  CHECK(strcmp(err.message, "a: loading vendor 'x': no such file") == 0);
  (void)dit_error_prefix(&err, "b:");
  CHECK(strncmp(err.message, "b: a: load", 10) == 0);
  CHECK(dit_error_prefix(NULL, "x") == DIT_ERR_INTERNAL);
  char text[3000];
  fill_long(text, sizeof(text), 0, "p");
  (void)dit_error_prefix(&err, "%s", text);  // a prefix alone fills the buffer
  CHECK(strlen(err.message) == DIT_ERROR_MESSAGE_SIZE - 1 && err.message[0] == 'p');
  CHECK(err.status == DIT_ERR_IO);
}

int main(void) {
  RUN(test_set);
  RUN(test_cut);
  RUN(test_foreign_bytes);
  RUN(test_prefix);
  return 0;
}
