/// Values of the TOML reader: strings, integers, floats, booleans and arrays of them.
///
/// Invariant: a scalar token is taken whole (up to a blank, comma, bracket, comment or line end) and must then match
/// one grammar completely. Numbers do not depend on the locale. Depends on toml_parser and alloc.
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "core/toml_parser.h"
#include "dit/alloc.h"

void dit_toml_value_reset(struct dit_toml_value *value) {
  if (value->type == DIT_TOML_STRING) {
    dit_free(value->v.string);
  } else if (value->type == DIT_TOML_ARRAY) {
    for (size_t i = 0; i < value->v.array.count; i++) {
      dit_toml_value_reset(&value->v.array.items[i]);
    }
    dit_free(value->v.array.items);
  }
  *value = (struct dit_toml_value){0};
}

static bool is_digit_of(char c, int base) {
  if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) {
    return true;
  }
  return c >= '0' && c <= '9' && c - '0' < base;
}

/// Digits with single underscores between them; copies the digits to `*out` and returns the end, NULL when there is no
/// digit or an underscore is misplaced.
static const char *take_digits(const char *p, int base, char **out) {
  bool after_digit = false;
  for (;; p++) {
    if (is_digit_of(*p, base)) {
      *(*out)++ = *p;
      after_digit = true;
    } else if (*p == '_' && after_digit) {
      after_digit = false;
    } else {
      return after_digit ? p : NULL;
    }
  }
}

static int get_prefix_base(const char *p) {
  if (p[0] != '0') {
    return 10;
  }
  return p[1] == 'x' ? 16 : p[1] == 'o' ? 8 : p[1] == 'b' ? 2 : 10;
}

/// 1: an integer; 0: not one; -1: too large. `plain` has room for the token.
static int parse_integer(const char *token, char *plain, int64_t *integer) {
  const char *p = token;
  char *out = plain;
  if (*p == '+' || *p == '-') {
    *out++ = *p++;
  }
  int base = get_prefix_base(p);
  if (base != 10) {
    if (p != token) {
      return 0;  // 0x... takes no sign
    }
    p += 2;
  } else if (p[0] == '0' && p[1] != '\0') {
    return 0;  // no leading zeros
  }
  p = take_digits(p, base, &out);
  if (!p || *p != '\0') {
    return 0;
  }
  *out = '\0';
  errno = 0;
  long long value = strtoll(plain, NULL, base);
  if (errno == ERANGE) {
    return -1;
  }
  *integer = value;
  return 1;
}

static double parse_plain(const char *plain) {
  locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!locale) {
    return strtod(plain, NULL);
  }
  double value = strtod_l(plain, NULL, locale);
  freelocale(locale);
  return value;
}

/// digits [. digits] [e [sign] digits] with at least one of the optional parts, or [sign] inf / nan.
static bool parse_float(const char *token, char *plain, double *real) {
  const char *p = token;
  char *out = plain;
  if (*p == '+' || *p == '-') {
    *out++ = *p++;
  }
  if (strcmp(p, "inf") == 0 || strcmp(p, "nan") == 0) {
    double value = *p == 'i' ? (double)__builtin_inf() : (double)__builtin_nan("");
    *real = *token == '-' ? -value : value;
    return true;
  }
  if (p[0] == '0' && p[1] != '.' && p[1] != 'e' && p[1] != 'E') {
    return false;
  }
  p = take_digits(p, 10, &out);
  bool has_part = false;
  if (p && *p == '.') {
    *out++ = '.';
    p = take_digits(p + 1, 10, &out);
    has_part = true;
  }
  if (p && (*p == 'e' || *p == 'E')) {
    *out++ = *p++;
    if (*p == '+' || *p == '-') {
      *out++ = *p++;
    }
    p = take_digits(p, 10, &out);
    has_part = true;
  }
  if (!p || *p != '\0' || !has_part) {
    return false;
  }
  *out = '\0';
  *real = parse_plain(plain);
  return true;
}

/// "2024-01-31", "07:32": four digits and a dash, or two digits and a colon.
static bool looks_like_time(const char *token) {
  size_t digits = strspn(token, "0123456789");
  return (digits == 4 && token[4] == '-') || (digits == 2 && token[2] == ':');
}

static bool ends_token(int c) {
  return c < 0 || c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ']' || c == '}' || c == '#';
}

static enum dit_status read_bare_value(struct dit_toml_parser *parser, struct dit_toml_value *value) {
  int line = parser->line, column = parser->column;
  struct dit_toml_text *token = &parser->scratch;
  const char *start = parser->cursor;
  while (!ends_token(dit_toml_peek(parser))) {
    DIT_RETURN_IF_NOT_OK(dit_toml_take_character(parser));
  }
  size_t length = (size_t)(parser->cursor - start);
  if (length == 0) {
    return dit_toml_fail_at(parser, line, column, "expected a value: string, number, true, false or array");
  }
  // The token and, behind its NUL, room for the same text without underscores.
  dit_toml_text_clear(token);
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, token, start, length));
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, token, "\0", 1));
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, token, start, length));
  char *plain = token->data + length + 1;
  int is_integer = parse_integer(token->data, plain, &value->v.integer);
  if (is_integer < 0) {
    return dit_toml_fail_at(parser, line, column, "integer %.100s does not fit into 64 bits", token->data);
  }
  if (is_integer > 0) {
    value->type = DIT_TOML_INTEGER;
  } else if (parse_float(token->data, plain, &value->v.real)) {
    value->type = DIT_TOML_FLOAT;
  } else if (strcmp(token->data, "true") == 0 || strcmp(token->data, "false") == 0) {
    value->type = DIT_TOML_BOOL;
    value->v.boolean = token->data[0] == 't';
  } else if (looks_like_time(token->data)) {
    return dit_toml_fail_at(parser, line, column, "dates and times are not supported; write a string");
  } else {
    return dit_toml_fail_at(parser, line, column,
                            "'%.100s' is not a value; strings need quotes, booleans are true and false", token->data);
  }
  return DIT_OK;
}

static enum dit_status read_scalar(struct dit_toml_parser *parser, struct dit_toml_value *value) {
  int c = dit_toml_peek(parser);
  if (c == '{') {
    return dit_toml_fail(parser, "inline tables ({...}) are not supported; use a [table]");
  }
  if (c != '"' && c != '\'') {
    return read_bare_value(parser, value);
  }
  dit_toml_text_clear(&parser->scratch);
  DIT_RETURN_IF_NOT_OK(dit_toml_read_string(parser, &parser->scratch));
  char *copy = dit_strdup(parser->scratch.data);
  if (!copy) {
    return dit_toml_fail_memory(parser);
  }
  value->type = DIT_TOML_STRING;
  value->v.string = copy;
  return DIT_OK;
}

/// Room for one more item.
static enum dit_status grow_array(struct dit_toml_parser *parser, struct dit_toml_value *array, size_t *capacity) {
  if (array->v.array.count == DIT_TOML_MAX_ITEMS) {
    return dit_toml_fail(parser, "an array has more than %d items", DIT_TOML_MAX_ITEMS);
  }
  if (array->v.array.count < *capacity) {
    return DIT_OK;
  }
  size_t wanted = *capacity ? *capacity * 2 : 8;
  struct dit_toml_value *grown = dit_realloc(array->v.array.items, wanted * sizeof(*grown));
  if (!grown) {
    return dit_toml_fail_memory(parser);
  }
  array->v.array.items = grown;
  *capacity = wanted;
  return DIT_OK;
}

/// "[a, b, c,]" over any number of lines; the cursor is on "[".
static enum dit_status read_array(struct dit_toml_parser *parser, struct dit_toml_value *array) {
  size_t capacity = 0;
  array->type = DIT_TOML_ARRAY;
  dit_toml_advance(parser);
  for (;;) {
    DIT_RETURN_IF_NOT_OK(dit_toml_skip_lines(parser));
    if (dit_toml_peek(parser) == ']') {
      break;
    }
    if (dit_toml_peek(parser) == '[') {
      return dit_toml_fail(parser, "nested arrays are not supported");
    }
    DIT_RETURN_IF_NOT_OK(grow_array(parser, array, &capacity));
    struct dit_toml_value item = {0};
    DIT_RETURN_IF_NOT_OK(read_scalar(parser, &item));
    array->v.array.items[array->v.array.count++] = item;
    DIT_RETURN_IF_NOT_OK(dit_toml_skip_lines(parser));
    if (dit_toml_peek(parser) == ',') {
      dit_toml_advance(parser);
    } else if (dit_toml_peek(parser) != ']') {
      return dit_toml_fail(parser, "expected ',' or ']' in an array");
    }
  }
  dit_toml_advance(parser);
  return DIT_OK;
}

enum dit_status dit_toml_read_value(struct dit_toml_parser *parser, struct dit_toml_value *value) {
  *value = (struct dit_toml_value){0};
  return dit_toml_peek(parser) == '[' ? read_array(parser, value) : read_scalar(parser, value);
}
