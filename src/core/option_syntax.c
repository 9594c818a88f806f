/// Options that are texts with a syntax of their own, and options as values of a TOML file.
///
/// Invariant: a text is accepted whole or not at all, independent of the locale; blanks around items do not count. A
/// refusal names the item, the whole value and the form it should have. Depends on alloc, error and toml.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/option_parse.h"
#include "dit/alloc.h"

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Moves both ends inwards past blanks.
static void strip(const char **begin, const char **end) {
  while (*begin < *end && (**begin == ' ' || **begin == '\t')) {
    (*begin)++;
  }
  while (*end > *begin && ((*end)[-1] == ' ' || (*end)[-1] == '\t')) {
    (*end)--;
  }
}

/// Digits from `*p` on, at most 18 of them (so that they fit 64 bits); moves `*p` behind them.
static bool read_number(const char **p, const char *end, int64_t *value) {
  const char *start = *p;
  int64_t sum = 0;
  for (; *p < end && is_digit(**p); (*p)++) {
    if (*p - start >= 18) {
      return false;
    }
    sum = sum * 10 + (**p - '0');
  }
  *value = sum;
  return *p > start;
}

/// "7", "4-6" or "9-".
static bool check_range(const char *p, const char *end) {
  int64_t low = 0, high = INT64_MAX;
  if (!read_number(&p, end, &low)) {
    return false;
  }
  if (p == end) {
    return true;
  }
  if (*p++ != '-') {
    return false;
  }
  return p == end || (read_number(&p, end, &high) && p == end && low <= high);
}

/// "torch.float16": names joined by dots.
static bool check_dotted(const char *p, const char *end) {
  bool letter = false;
  for (; p < end; p++) {
    if (*p == '.' ? !letter : !is_word(*p)) {
      return false;
    }
    letter = *p != '.';
  }
  return letter;
}

static bool check_cast(const char *p, const char *end) {
  for (const char *arrow = p; arrow + 1 < end; arrow++) {
    if (arrow[0] == '-' && arrow[1] == '>') {
      const char *left_end = arrow, *right = arrow + 2;
      strip(&p, &left_end);
      strip(&right, &end);
      return check_dotted(p, left_end) && check_dotted(right, end);
    }
  }
  return false;
}

/// A number that is not negative: "1e-3", "0.01", "2".
static bool check_real(const char *p, const char *end) {
  const char *start = p;
  while (p < end && is_digit(*p)) {
    p++;
  }
  bool digits = p > start;
  if (p < end && *p == '.') {
    start = ++p;
    while (p < end && is_digit(*p)) {
      p++;
    }
    digits = digits || p > start;
  }
  if (digits && p < end && (*p == 'e' || *p == 'E')) {
    p++;
    p += p < end && (*p == '-' || *p == '+');
    start = p;
    while (p < end && is_digit(*p)) {
      p++;
    }
    digits = p > start && p - start <= 3;
  }
  return digits && p == end;
}

static const char *get_syntax_words(enum dit_option_type type) {
  switch (type) {
    case DIT_OPTION_RANGES:
      return "write numbers and ranges by commas, such as 4-6,9,20-";
    case DIT_OPTION_CASTS:
      return "write pairs of dtypes by commas, such as torch.float16->torch.float32";
    default:
      return "write the absolute and the relative tolerance, such as 1e-3,1e-3";
  }
}

enum dit_status dit_option_check_syntax(enum dit_option_type type, const char *origin, const char *text,
                                        struct dit_error *err) {
  bool (*check)(const char *, const char *) = type == DIT_OPTION_RANGES      ? check_range
                                              : type == DIT_OPTION_CASTS     ? check_cast
                                              : type == DIT_OPTION_TOLERANCE ? check_real
                                                                             : NULL;
  if (!check || text[strspn(text, " \t")] == '\0') {
    return DIT_OK;
  }
  int items = 0;
  for (const char *p = text;; p++, items++) {
    const char *begin = p, *end = p + strcspn(p, ",");
    p = end;
    strip(&begin, &end);
    if (!check(begin, end)) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s is '%.100s', of which '%.*s' is not valid; %s", origin, text,
                           (int)(end - begin > 60 ? 60 : end - begin), begin, get_syntax_words(type));
    }
    if (*p == '\0') {
      break;
    }
  }
  if (type == DIT_OPTION_TOLERANCE && items + 1 != 2) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s is '%.100s', which is not two numbers; %s", origin, text,
                         get_syntax_words(type));
  }
  return DIT_OK;
}

// Values of a TOML file

static bool is_list(enum dit_option_type type) {
  return type >= DIT_OPTION_NAMES && type <= DIT_OPTION_CASTS;
}

/// A scalar as text; NULL when its type does not fit the option. `buffer` is for numbers.
static const char *get_scalar_text(const struct dit_toml_value *value, enum dit_option_type type, char *buffer,
                                   size_t size) {
  switch (value->type) {
    case DIT_TOML_STRING:
      return value->v.string;
    case DIT_TOML_BOOL:
      return type == DIT_OPTION_BOOL ? (value->v.boolean ? "true" : "false") : NULL;
    case DIT_TOML_INTEGER:
      if (type != DIT_OPTION_BOOL && type != DIT_OPTION_INT && type != DIT_OPTION_SIZE && type != DIT_OPTION_RANGES) {
        return NULL;
      }
      snprintf(buffer, size, "%" PRId64, value->v.integer);
      return buffer;
    case DIT_TOML_FLOAT:
    case DIT_TOML_ARRAY:
      return NULL;
  }
  return NULL;
}

static const char *get_type_words(enum dit_option_type type) {
  switch (type) {
    case DIT_OPTION_BOOL:
      return "true or false";
    case DIT_OPTION_INT:
      return "a whole number";
    case DIT_OPTION_SIZE:
      return "a whole number of bytes or a string such as \"2GiB\"";
    case DIT_OPTION_CHOICE:
    case DIT_OPTION_STRING:
    case DIT_OPTION_TOLERANCE:
      return "a string";
    case DIT_OPTION_RANGES:
      return "a string such as \"4-6,9\", a number, or an array of these";
    case DIT_OPTION_NAMES:
    case DIT_OPTION_PATTERNS:
    case DIT_OPTION_CASTS:
      return "a string or an array of strings";
  }
  return "?";
}

static const char *get_toml_words(enum dit_toml_type type) {
  static const char *const words[] = {"a string", "an integer", "a float", "a boolean", "an array"};
  return words[type];
}

static enum dit_status refuse_type(enum dit_option_type type, const char *origin, const struct dit_toml_value *value,
                                   struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_INVALID, "%s is %s; it must be %s", origin, get_toml_words(value->type),
                       get_type_words(type));
}

/// The items of an array by commas.
static enum dit_status join_array(enum dit_option_type type, const char *origin, const struct dit_toml_value *value,
                                  char **text, struct dit_error *err) {
  char buffer[32];
  size_t size = 1, used = 0;
  for (size_t i = 0; i < value->v.array.count; i++) {
    const char *item = get_scalar_text(&value->v.array.items[i], type, buffer, sizeof(buffer));
    if (!item) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s has %s in its array; it must be %s", origin,
                           get_toml_words(value->v.array.items[i].type), get_type_words(type));
    }
    size += strlen(item) + 1;
  }
  char *joined = dit_malloc(size);
  if (!joined) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of %s", origin);
  }
  joined[0] = '\0';
  for (size_t i = 0; i < value->v.array.count; i++) {
    const char *item = get_scalar_text(&value->v.array.items[i], type, buffer, sizeof(buffer));
    used += (size_t)snprintf(joined + used, size - used, "%s%s", i ? "," : "", item);
  }
  *text = joined;
  return DIT_OK;
}

enum dit_status dit_option_read_toml(enum dit_option_type type, const char *origin, const struct dit_toml_value *value,
                                     char **text, struct dit_error *err) {
  if (value->type == DIT_TOML_ARRAY && is_list(type)) {
    return join_array(type, origin, value, text, err);
  }
  char buffer[32];
  const char *scalar = get_scalar_text(value, type, buffer, sizeof(buffer));
  if (!scalar) {
    return refuse_type(type, origin, value, err);
  }
  char *copy = dit_strdup(scalar);
  if (!copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of %s", origin);
  }
  *text = copy;
  return DIT_OK;
}
