/// A growing run of bytes for the streams of a capture (pickle and JSON). It is reused from item to item, so that the
/// steady state allocates nothing; running out of memory or passing the limit is remembered, not reported at each
/// append.
#ifndef DIT_EXT_CAPTURE_TEXT_H
#define DIT_EXT_CAPTURE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CAPTURE_TEXT_MAX ((size_t)256 << 20)  ///< no description of a call is larger; a runaway object is

struct capture_text {
  char *data;
  size_t size, capacity;
  bool failed;  ///< what was appended is not all there
};

static inline bool capture_text_grow(struct capture_text *text, size_t more) {
  size_t capacity = text->capacity ? text->capacity : 4096;
  while (capacity < text->size + more && capacity <= CAPTURE_TEXT_MAX) {
    capacity *= 2;
  }
  char *data = capacity <= CAPTURE_TEXT_MAX ? realloc(text->data, capacity) : NULL;
  if (!data) {
    text->failed = true;
    return false;
  }
  text->data = data;
  text->capacity = capacity;
  return true;
}

/// Room for `size` bytes at the end, or NULL. What was written there counts after capture_text_advance.
static inline char *capture_text_reserve(struct capture_text *text, size_t size) {
  if (text->capacity - text->size < size && (size > CAPTURE_TEXT_MAX || !capture_text_grow(text, size))) {
    text->failed = true;
    return NULL;
  }
  return text->data + text->size;
}

static inline void capture_text_advance(struct capture_text *text, const char *end) {
  text->size = (size_t)(end - text->data);
}

static inline void capture_text_add(struct capture_text *text, const void *bytes, size_t size) {
  char *at = capture_text_reserve(text, size);
  if (at && size) {
    memcpy(at, bytes, size);
    text->size += size;
  }
}

static inline void capture_text_add_byte(struct capture_text *text, char byte) {
  char *at = capture_text_reserve(text, 1);
  if (at) {
    *at = byte;
    text->size++;
  }
}

/// A string literal.
#define CAPTURE_TEXT_LITERAL(text, literal) capture_text_add((text), literal, sizeof(literal) - 1)

/// Decimal digits into `at` (20 characters at most with the sign); returns the end.
static inline char *capture_text_format_integer(char *at, int64_t value) {
  char digits[20];
  int count = 0;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    digits[count++] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest);
  if (value < 0) {
    *at++ = '-';
  }
  while (count) {
    *at++ = digits[--count];
  }
  return at;
}

static inline void capture_text_clear(struct capture_text *text) {
  text->size = 0;
  text->failed = false;
}

static inline void capture_text_reset(struct capture_text *text) {
  free(text->data);
  *text = (struct capture_text){0};
}

#endif
