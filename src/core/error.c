/// Error messages in a fixed buffer.
///
/// Invariant: a message is always NUL-terminated, valid UTF-8 (bytes of foreign texts that are not become '?'), and cut
/// at a character border. Arguments may point into the very message that is being written, so text is formatted aside
/// first. Depends on libc only.
#include "dit/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/utf8.h"

static void replace_invalid(char *text, size_t length) {
  for (size_t i = 0; i < length;) {
    int bytes = dit_utf8_get_length(text + i, length - i);
    if (bytes == 0) {
      text[i] = '?';
      bytes = 1;
    }
    i += (size_t)bytes;
  }
}

/// Format into `buffer` (DIT_ERROR_MESSAGE_SIZE bytes) and cut at a character border. Returns the length.
static size_t format_message(char *buffer, const char *format, va_list args) {
  int length = vsnprintf(buffer, DIT_ERROR_MESSAGE_SIZE, format, args);
  if (length < 0) {
    buffer[0] = '\0';
    return 0;
  }
  size_t size = (size_t)length;
  if (length >= DIT_ERROR_MESSAGE_SIZE) {
    size = dit_utf8_cut(buffer, DIT_ERROR_MESSAGE_SIZE - 1);
    buffer[size] = '\0';
  }
  replace_invalid(buffer, size);
  return size;
}

enum dit_status dit_error_set(struct dit_error *err, enum dit_status status, const char *format, ...) {
  if (!err) {
    return status;
  }
  char text[DIT_ERROR_MESSAGE_SIZE];
  va_list args;
  va_start(args, format);
  size_t length = format_message(text, format, args);
  va_end(args);
  memcpy(err->message, text, length + 1);
  err->status = status;
  return status;
}

enum dit_status dit_error_prefix(struct dit_error *err, const char *format, ...) {
  if (!err) {
    return DIT_ERR_INTERNAL;
  }
  char text[DIT_ERROR_MESSAGE_SIZE];
  va_list args;
  va_start(args, format);
  size_t length = format_message(text, format, args);
  va_end(args);
  const char *separator = ": ";
  if (length == 0 || text[length - 1] == ' ') {
    separator = "";
  } else if (text[length - 1] == ':') {
    separator = " ";
  }
  size_t extra = strlen(separator);
  if (length + extra >= DIT_ERROR_MESSAGE_SIZE) {
    extra = 0;
  }
  memcpy(text + length, separator, extra);
  length += extra;
  size_t old = strnlen(err->message, DIT_ERROR_MESSAGE_SIZE - 1);
  if (length + old > DIT_ERROR_MESSAGE_SIZE - 1) {
    old = dit_utf8_cut(err->message, DIT_ERROR_MESSAGE_SIZE - 1 - length);
  }
  memmove(err->message + length, err->message, old);
  memcpy(err->message, text, length);
  err->message[length + old] = '\0';
  return err->status;
}
