/// From the text of an option to its value, by the type in the schema.
///
/// Invariant: a text is accepted whole or not at all, independent of the locale; every refusal names the value and the
/// valid ones. Depends on alloc and error.
#include "core/option_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "dit/alloc.h"

enum { CANONICAL_SIZE = 32, FRACTION_DIGITS = 6 };

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool parse_bool(const char *text, int64_t *number) {
  static const char *const on[] = {"1", "true", "on", "yes"};
  static const char *const off[] = {"0", "false", "off", "no"};
  for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
    if (strcasecmp(text, on[i]) == 0 || strcasecmp(text, off[i]) == 0) {
      *number = strcasecmp(text, on[i]) == 0;
      return true;
    }
  }
  return false;
}

/// Digits from `*text` on; false when there is none or the value overflows. Moves `*text` behind them.
static bool parse_digits(const char **text, int64_t *value) {
  const char *p = *text;
  int64_t sum = 0;
  if (!is_digit(*p)) {
    return false;
  }
  for (; is_digit(*p); p++) {
    if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, *p - '0', &sum)) {
      return false;
    }
  }
  *text = p;
  *value = sum;
  return true;
}

static bool parse_integer(const char *text, int64_t *number) {
  bool negative = *text == '-';
  const char *p = text + (negative || *text == '+');
  int64_t value = 0;
  if (!parse_digits(&p, &value) || *p != '\0') {
    return false;
  }
  *number = negative ? -value : value;
  return true;
}

static bool find_choice(const char *choices, const char *text, int64_t *index, const char **start, size_t *length) {
  int64_t at = 0;
  for (const char *p = choices; *p; at++) {
    size_t n = strcspn(p, "|");
    if (strlen(text) == n && strncasecmp(p, text, n) == 0) {
      *index = at;
      *start = p;
      *length = n;
      return true;
    }
    p += n + (p[n] == '|');
  }
  return false;
}

/// Bytes of one unit; 0 for an unknown one.
static int64_t find_unit(const char *text) {
  static const struct {
    const char *name;
    int64_t bytes;
  } units[] = {
      {"", 1},
      {"B", 1},
      {"K", INT64_C(1) << 10},
      {"KiB", INT64_C(1) << 10},
      {"KB", 1000},
      {"M", INT64_C(1) << 20},
      {"MiB", INT64_C(1) << 20},
      {"MB", 1000000},
      {"G", INT64_C(1) << 30},
      {"GiB", INT64_C(1) << 30},
      {"GB", 1000000000},
      {"T", INT64_C(1) << 40},
      {"TiB", INT64_C(1) << 40},
      {"TB", INT64_C(1000000000000)},
  };
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
    if (strcasecmp(text, units[i].name) == 0) {
      return units[i].bytes;
    }
  }
  return 0;
}

enum dit_status dit_size_parse(const char *text, int64_t *bytes, struct dit_error *err) {
  const char *p = text;
  int64_t whole = 0, fraction = 0, scale = 1, total = 0;
  bool ok = parse_digits(&p, &whole);
  if (ok && *p == '.') {
    const char *start = ++p;
    ok = parse_digits(&p, &fraction) && p - start <= FRACTION_DIGITS;
    for (const char *q = start; ok && q < p; q++) {
      scale *= 10;
    }
  }
  while (ok && *p == ' ') {
    p++;
  }
  int64_t unit = ok ? find_unit(p) : 0;
  if (unit == 0 || (unit == 1 && fraction != 0)) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "'%.100s' is not a size in bytes; write a number with at most %d decimals and one of B, KiB, MiB, "
        "GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000) or K, M, G, T (powers of 1024), such as 2GiB",
        text, FRACTION_DIGITS);
  }
  if (__builtin_mul_overflow(whole, unit, &total) || __builtin_add_overflow(total, fraction * unit / scale, &total)) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%.100s' is more than %" PRId64 " bytes, the largest size", text,
                         INT64_MAX);
  }
  *bytes = total;
  return DIT_OK;
}

/// The shortest exact form: "2GiB", "1000".
static void format_size(int64_t bytes, char *buffer) {
  static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    unit++;
  }
  snprintf(buffer, CANONICAL_SIZE, "%" PRId64 "%s", bytes, names[unit]);
}

static enum dit_status check_range(const struct dit_option_info *info, const char *origin, const char *text,
                                   int64_t number, struct dit_error *err) {
  if (number >= info->min && number <= info->max) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_INVALID, "%s is '%.100s'; valid values are from %" PRId64 " to %" PRId64, origin,
                       text, info->min, info->max);
}

/// Fills `buffer` (CANONICAL_SIZE) for the types whose canonical form is short.
static enum dit_status parse_number(const struct dit_option_info *info, const char *origin, const char *text,
                                    int64_t *number, char *buffer, struct dit_error *err) {
  if (info->type == DIT_OPTION_BOOL) {
    if (!parse_bool(text, number)) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "%s is '%.100s'; valid values are 1, true, on, yes and 0, false, off, no", origin, text);
    }
    snprintf(buffer, CANONICAL_SIZE, "%d", (int)*number);
    return DIT_OK;
  }
  if (info->type == DIT_OPTION_INT) {
    if (!parse_integer(text, number)) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "%s is '%.100s', which is not a whole number; valid values are from %" PRId64 " to %" PRId64,
                           origin, text, info->min, info->max);
    }
    snprintf(buffer, CANONICAL_SIZE, "%" PRId64, *number);
    return check_range(info, origin, text, *number, err);
  }
  if (dit_size_parse(text, number, err) != DIT_OK) {
    (void)dit_error_prefix(err, "%s", origin);
    return DIT_ERR_INVALID;
  }
  format_size(*number, buffer);
  return check_range(info, origin, text, *number, err);
}

enum dit_status dit_option_parse(const struct dit_option_info *info, const char *origin, const char *text,
                                 int64_t *number, char **canonical, struct dit_error *err) {
  char buffer[CANONICAL_SIZE] = "";
  int64_t value = 0;
  const char *source = buffer;
  size_t length = 0;
  if (info->type >= DIT_OPTION_STRING) {
    DIT_RETURN_IF_NOT_OK(dit_option_check_syntax(info->type, origin, text, err));
    source = text;
    length = strlen(text);
  } else if (info->type == DIT_OPTION_CHOICE) {
    if (!find_choice(info->choices, text, &value, &source, &length)) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s is '%.100s'; valid values are %s", origin, text, info->choices);
    }
  } else {
    DIT_RETURN_IF_NOT_OK(parse_number(info, origin, text, &value, buffer, err));
    length = strlen(buffer);
  }
  char *copy = dit_malloc(length + 1);
  if (!copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of option '%s'", info->name);
  }
  memcpy(copy, source, length);
  copy[length] = '\0';
  *number = value;
  *canonical = copy;
  return DIT_OK;
}
