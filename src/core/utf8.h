/// UTF-8 borders and validation for texts that are cut or read from files. Depends on libc only.
#ifndef DIT_CORE_UTF8_H
#define DIT_CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/// Bytes of the well-formed character at `text` (no surrogates, no overlong forms); 0 when the bytes are not UTF-8.
static inline int dit_utf8_get_length(const char *text, size_t available) {
  const unsigned char *p = (const unsigned char *)text;
  if (available == 0) {
    return 0;
  }
  if (p[0] < 0x80) {
    return 1;
  }
  int length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4 || available < (size_t)length) {
    return 0;
  }
  for (int i = 1; i < length; i++) {
    if ((p[i] & 0xC0) != 0x80) {
      return 0;
    }
  }
  if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
      (p[0] == 0xF4 && p[1] > 0x8F)) {
    return 0;
  }
  return length;
}

/// The longest prefix of `text` of at most `length` bytes that does not end inside a character. `text` has at least
/// `length` bytes; bytes that are not UTF-8 at all stay as they are.
static inline size_t dit_utf8_cut(const char *text, size_t length) {
  size_t start = length;
  for (int back = 0; back < 4 && start > 0; back++) {
    start--;
    unsigned char c = (unsigned char)text[start];
    if ((c & 0xC0) == 0x80) {
      continue;
    }
    size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return start + need <= length ? length : start;
  }
  return length;
}

#endif
