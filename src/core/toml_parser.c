/// Cursor, errors, white space, keys and strings of the TOML reader.
///
/// Invariant: cursor <= end always; only dit_toml_advance moves the cursor; a text keeps its NUL. Depends on alloc,
/// error, utf8.
#include "core/toml_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/utf8.h"
#include "dit/alloc.h"

void dit_toml_parser_init(struct dit_toml_parser *parser, const char *text, size_t size, const char *name,
                          struct dit_error *err) {
  *parser =
      (struct dit_toml_parser){.cursor = text, .end = text + size, .name = name, .line = 1, .column = 1, .err = err};
  if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    parser->cursor += 3;  // byte order mark
  }
}

void dit_toml_parser_reset(struct dit_toml_parser *parser) {
  dit_free(parser->key.data);
  dit_free(parser->path.data);
  dit_free(parser->scratch.data);
}

static enum dit_status fail(struct dit_toml_parser *parser, int line, int column, const char *format, va_list args) {
  char text[512];
  vsnprintf(text, sizeof(text), format, args);
  return dit_error_set(parser->err, DIT_ERR_CORRUPT, "%.300s:%d:%d: %s", parser->name, line, column, text);
}

enum dit_status dit_toml_fail(struct dit_toml_parser *parser, const char *format, ...) {
  va_list args;
  va_start(args, format);
  enum dit_status status = fail(parser, parser->line, parser->column, format, args);
  va_end(args);
  return status;
}

enum dit_status dit_toml_fail_at(struct dit_toml_parser *parser, int line, int column, const char *format, ...) {
  va_list args;
  va_start(args, format);
  enum dit_status status = fail(parser, line, column, format, args);
  va_end(args);
  return status;
}

enum dit_status dit_toml_fail_memory(struct dit_toml_parser *parser) {
  return dit_error_set(parser->err, DIT_ERR_NOMEM, "no memory to parse '%.300s'", parser->name);
}

int dit_toml_peek(const struct dit_toml_parser *parser) {
  return parser->cursor < parser->end ? (unsigned char)*parser->cursor : -1;
}

void dit_toml_advance(struct dit_toml_parser *parser) {
  if (parser->cursor == parser->end) {
    return;
  }
  unsigned char c = (unsigned char)*parser->cursor++;
  if (c == '\n') {
    parser->line++;
    parser->column = 1;
  } else if (parser->cursor == parser->end || ((unsigned char)*parser->cursor & 0xC0) != 0x80) {
    parser->column++;  // the last byte of a character
  }
}

void dit_toml_skip_blanks(struct dit_toml_parser *parser) {
  while (dit_toml_peek(parser) == ' ' || dit_toml_peek(parser) == '\t') {
    dit_toml_advance(parser);
  }
}

enum dit_status dit_toml_take_character(struct dit_toml_parser *parser) {
  int c = dit_toml_peek(parser);
  if ((c < 0x20 && c != '\t') || c == 0x7F) {
    return dit_toml_fail(parser, "control character 0x%02X is not allowed here", (unsigned)c);
  }
  int length = dit_utf8_get_length(parser->cursor, (size_t)(parser->end - parser->cursor));
  if (length == 0) {
    return dit_toml_fail(parser, "byte 0x%02X is not valid UTF-8", (unsigned)c);
  }
  for (int i = 0; i < length; i++) {
    dit_toml_advance(parser);
  }
  return DIT_OK;
}

/// Over a comment, if there is one, up to its line break.
static enum dit_status skip_comment(struct dit_toml_parser *parser) {
  if (dit_toml_peek(parser) != '#') {
    return DIT_OK;
  }
  for (;;) {
    int c = dit_toml_peek(parser);
    bool carriage = c == '\r' && parser->end - parser->cursor > 1 && parser->cursor[1] == '\n';
    if (c < 0 || c == '\n' || carriage) {
      return DIT_OK;
    }
    DIT_RETURN_IF_NOT_OK(dit_toml_take_character(parser));
  }
}

/// Over "\n" or "\r\n"; false when there is none.
static bool take_line_break(struct dit_toml_parser *parser) {
  int c = dit_toml_peek(parser);
  if (c == '\r' && parser->end - parser->cursor > 1 && parser->cursor[1] == '\n') {
    dit_toml_advance(parser);
    c = '\n';
  }
  if (c != '\n') {
    return false;
  }
  dit_toml_advance(parser);
  return true;
}

enum dit_status dit_toml_skip_lines(struct dit_toml_parser *parser) {
  do {
    dit_toml_skip_blanks(parser);
    DIT_RETURN_IF_NOT_OK(skip_comment(parser));
  } while (take_line_break(parser));
  return DIT_OK;
}

enum dit_status dit_toml_read_line_end(struct dit_toml_parser *parser) {
  dit_toml_skip_blanks(parser);
  DIT_RETURN_IF_NOT_OK(skip_comment(parser));
  if (dit_toml_peek(parser) < 0 || take_line_break(parser)) {
    return DIT_OK;
  }
  return dit_toml_fail(parser, "expected the end of the line");
}

void dit_toml_text_clear(struct dit_toml_text *text) {
  text->length = 0;
  if (text->data) {
    text->data[0] = '\0';
  }
}

enum dit_status dit_toml_text_append(struct dit_toml_parser *parser, struct dit_toml_text *text, const char *data,
                                     size_t length) {
  if (text->length + length >= text->capacity) {
    size_t capacity = (text->length + length + 1) * 2;
    char *grown = dit_realloc(text->data, capacity);
    if (!grown) {
      return dit_toml_fail_memory(parser);
    }
    text->data = grown;
    text->capacity = capacity;
  }
  if (length > 0) {
    memcpy(text->data + text->length, data, length);
  }
  text->length += length;
  text->data[text->length] = '\0';
  return DIT_OK;
}

static int get_hex(int c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// `digits` hexadecimal digits as one character in UTF-8.
static enum dit_status read_unicode(struct dit_toml_parser *parser, struct dit_toml_text *text, int digits) {
  uint32_t code = 0;
  for (int i = 0; i < digits; i++) {
    int digit = get_hex(dit_toml_peek(parser));
    if (digit < 0) {
      return dit_toml_fail(parser, "expected %d hexadecimal digits after \\%c", digits, digits == 4 ? 'u' : 'U');
    }
    code = code << 4 | (uint32_t)digit;
    dit_toml_advance(parser);
  }
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return dit_toml_fail(parser, "U+%04X is not a character that a text may hold", (unsigned)code);
  }
  char bytes[4];
  size_t length = 0;
  if (code < 0x80) {
    bytes[length++] = (char)code;
  } else {
    int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xC0, 0xE0, 0xF0};
    bytes[length++] = (char)(heads[tail] | (code >> (6 * tail)));
    while (tail-- > 0) {
      bytes[length++] = (char)(0x80 | ((code >> (6 * tail)) & 0x3F));
    }
  }
  return dit_toml_text_append(parser, text, bytes, length);
}

/// The cursor is behind a backslash.
static enum dit_status read_escape(struct dit_toml_parser *parser, struct dit_toml_text *text) {
  static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
  int c = dit_toml_peek(parser);
  if (c == 'u' || c == 'U') {
    dit_toml_advance(parser);
    return read_unicode(parser, text, c == 'u' ? 4 : 8);
  }
  const char *found = c > 0 ? strchr(from, c) : NULL;
  if (!found) {
    return dit_toml_fail(parser, "unknown escape; valid ones are \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX");
  }
  dit_toml_advance(parser);
  return dit_toml_text_append(parser, text, &to[found - from], 1);
}

enum dit_status dit_toml_read_string(struct dit_toml_parser *parser, struct dit_toml_text *text) {
  int quote = dit_toml_peek(parser);
  if (parser->end - parser->cursor >= 3 && parser->cursor[1] == quote && parser->cursor[2] == quote) {
    return dit_toml_fail(parser, "multi-line strings are not supported; write the string on one line");
  }
  int line = parser->line, column = parser->column;
  dit_toml_advance(parser);
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, text, "", 0));
  for (;;) {
    int c = dit_toml_peek(parser);
    if (c < 0 || c == '\n' || c == '\r') {
      return dit_toml_fail_at(parser, line, column, "the string that begins here does not end on its line");
    }
    if (c == quote) {
      dit_toml_advance(parser);
      return DIT_OK;
    }
    if (c == '\\' && quote == '"') {
      dit_toml_advance(parser);
      DIT_RETURN_IF_NOT_OK(read_escape(parser, text));
      continue;
    }
    const char *start = parser->cursor;
    DIT_RETURN_IF_NOT_OK(dit_toml_take_character(parser));
    DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, text, start, (size_t)(parser->cursor - start)));
  }
}

static bool is_bare(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// A quoted key part in canonical form: bare when it could be written bare, else in double quotes with \" and
/// \\ escaped.
static enum dit_status append_quoted_part(struct dit_toml_parser *parser) {
  struct dit_toml_text *raw = &parser->scratch;
  dit_toml_text_clear(raw);
  DIT_RETURN_IF_NOT_OK(dit_toml_read_string(parser, raw));
  bool bare = raw->length > 0;
  for (size_t i = 0; i < raw->length; i++) {
    bare = bare && is_bare((unsigned char)raw->data[i]);
  }
  if (bare) {
    return dit_toml_text_append(parser, &parser->key, raw->data, raw->length);
  }
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &parser->key, "\"", 1));
  for (size_t i = 0; i < raw->length; i++) {
    if (raw->data[i] == '"' || raw->data[i] == '\\') {
      DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &parser->key, "\\", 1));
    }
    DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &parser->key, raw->data + i, 1));
  }
  return dit_toml_text_append(parser, &parser->key, "\"", 1);
}

static enum dit_status read_part(struct dit_toml_parser *parser) {
  int c = dit_toml_peek(parser);
  if (c == '"' || c == '\'') {
    return append_quoted_part(parser);
  }
  const char *start = parser->cursor;
  while (is_bare(dit_toml_peek(parser))) {
    dit_toml_advance(parser);
  }
  if (parser->cursor == start) {
    return dit_toml_fail(parser, "expected a key: letters, digits, '_', '-', or a quoted string");
  }
  return dit_toml_text_append(parser, &parser->key, start, (size_t)(parser->cursor - start));
}

enum dit_status dit_toml_read_key(struct dit_toml_parser *parser, struct dit_toml_key *key) {
  dit_toml_skip_blanks(parser);
  dit_toml_text_clear(&parser->key);
  *key = (struct dit_toml_key){.line = parser->line, .column = parser->column};
  for (;;) {
    if (key->count == DIT_TOML_MAX_PARTS) {
      return dit_toml_fail(parser, "a key has more than %d parts", DIT_TOML_MAX_PARTS);
    }
    DIT_RETURN_IF_NOT_OK(read_part(parser));
    key->ends[key->count++] = parser->key.length;
    dit_toml_skip_blanks(parser);
    if (dit_toml_peek(parser) != '.') {
      return DIT_OK;
    }
    dit_toml_advance(parser);
    dit_toml_skip_blanks(parser);
    DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &parser->key, ".", 1));
  }
}
