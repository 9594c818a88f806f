/// The lower half of the TOML reader: cursor, errors with a place, keys and values. Internal to the reader.
#ifndef DIT_CORE_TOML_PARSER_H
#define DIT_CORE_TOML_PARSER_H

#include "core/toml.h"

enum { DIT_TOML_MAX_PARTS = 16 };

/// A growing NUL-terminated text; data may be NULL while it is empty.
struct dit_toml_text {
  char *data;
  size_t length, capacity;
};

struct dit_toml_parser {
  const char *cursor, *end;
  const char *name;
  int line, column;  ///< of the cursor, from 1; columns count characters
  struct dit_error *err;
  struct dit_toml_text key;      ///< the key read last, in canonical form
  struct dit_toml_text path;     ///< scratch of the reader
  struct dit_toml_text scratch;  ///< strings and numbers
};

/// Where a key stood and how it divides: part i ends (exclusively) at parser->key.data[ends[i]].
struct dit_toml_key {
  int line, column, count;
  size_t ends[DIT_TOML_MAX_PARTS];
};

void dit_toml_parser_init(struct dit_toml_parser *parser, const char *text, size_t size, const char *name,
                          struct dit_error *err);
void dit_toml_parser_reset(struct dit_toml_parser *parser);

/// "name:line:column: text" at the cursor or at a given place; always DIT_ERR_CORRUPT.
enum dit_status dit_toml_fail(struct dit_toml_parser *parser, const char *format, ...) DIT_PRINTF(2, 3);
enum dit_status dit_toml_fail_at(struct dit_toml_parser *parser, int line, int column, const char *format, ...)
    DIT_PRINTF(4, 5);
enum dit_status dit_toml_fail_memory(struct dit_toml_parser *parser);

/// The byte at the cursor, -1 at the end.
int dit_toml_peek(const struct dit_toml_parser *parser);
/// One byte on; stays at the end.
void dit_toml_advance(struct dit_toml_parser *parser);
/// Over one character; refuses control characters and bytes that are not UTF-8. Not at the end.
DIT_NODISCARD enum dit_status dit_toml_take_character(struct dit_toml_parser *parser);
/// Over spaces and tabs.
void dit_toml_skip_blanks(struct dit_toml_parser *parser);
/// Over blank lines and comments, to the first byte of something or the end.
DIT_NODISCARD enum dit_status dit_toml_skip_lines(struct dit_toml_parser *parser);
/// Blanks, a comment, then a line break or the end; anything else is an error.
DIT_NODISCARD enum dit_status dit_toml_read_line_end(struct dit_toml_parser *parser);

void dit_toml_text_clear(struct dit_toml_text *text);
DIT_NODISCARD enum dit_status dit_toml_text_append(struct dit_toml_parser *parser, struct dit_toml_text *text,
                                                   const char *data, size_t length);

/// A bare, quoted or dotted key into parser->key; blanks around it are eaten.
DIT_NODISCARD enum dit_status dit_toml_read_key(struct dit_toml_parser *parser, struct dit_toml_key *key);
/// A quoted string on one line into `text`; the cursor is on its quote.
DIT_NODISCARD enum dit_status dit_toml_read_string(struct dit_toml_parser *parser, struct dit_toml_text *text);
/// Any value of the subset. On failure `value` is empty or owned by the caller as far as it was built.
DIT_NODISCARD enum dit_status dit_toml_read_value(struct dit_toml_parser *parser, struct dit_toml_value *value);
void dit_toml_value_reset(struct dit_toml_value *value);

#endif
