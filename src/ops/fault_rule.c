/// The text form of faults: parsing of rules, and which calls they act on. Depends on src/core.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/fault.h"
#include "dit/operator_name.h"
#include "dit/random.h"

#define LARGE_ELEMENTS 1000000

static const char valid_keys[] = "call, dtype, when, probability, seed, scale, index, bits, ms";
static const char *const when_names[DIT_WHEN_COUNT] = {"always", "contiguous", "strided", "expanded",
                                                       "empty",  "scalar",     "large"};

/// The words for kinds.
struct kinds {
  const char *const *names;
  int count;
};

// Parsing

static char *trim(char *text) {
  while (isspace((unsigned char)*text)) {
    text++;
  }
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) {
    *--end = '\0';
  }
  return text;
}

static bool parse_double(const char *text, double low, double high, double *out) {
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  if (end == text || *end || errno || !(value >= low && value <= high)) {
    return false;
  }
  *out = value;
  return true;
}

static bool parse_unsigned(const char *text, uint64_t low, uint64_t high, uint64_t *out) {
  char *end;
  errno = 0;
  if (!isdigit((unsigned char)*text)) {
    return false;
  }
  unsigned long long value = strtoull(text, &end, 10);
  if (*end || errno || value < low || value > high) {
    return false;
  }
  *out = value;
  return true;
}

/// "3", "2-5" or "4+".
static bool parse_calls(const char *text, struct dit_fault_rule *rule) {
  char part[64];
  const char *dash = strchr(text, '-');
  size_t length = strlen(text);
  if (length == 0 || length >= sizeof(part)) {
    return false;
  }
  memcpy(part, text, length + 1);
  if (dash) {
    part[dash - text] = '\0';
    return parse_unsigned(part, 1, UINT64_MAX, &rule->first_call) &&
           parse_unsigned(dash + 1, rule->first_call, UINT64_MAX, &rule->last_call);
  }
  if (part[length - 1] == '+') {
    part[length - 1] = '\0';
    rule->last_call = UINT64_MAX;
    return parse_unsigned(part, 1, UINT64_MAX, &rule->first_call);
  }
  if (!parse_unsigned(part, 1, UINT64_MAX, &rule->first_call)) {
    return false;
  }
  rule->last_call = rule->first_call;
  return true;
}

static enum dit_status bad_value(struct dit_error *err, int number, const char *key, const char *value,
                                 const char *valid) {
  return dit_error_set(err, DIT_ERR_INVALID, "fault rule %d: %s='%s' is not valid; give %s", number, key, value, valid);
}

static enum dit_status parse_key(struct dit_fault_rule *rule, int number, const char *key, const char *value,
                                 struct dit_error *err) {
  uint64_t whole = 0;
  if (strcmp(key, "call") == 0) {
    return parse_calls(value, rule) ? DIT_OK : bad_value(err, number, key, value, "n, a-b or n+, counted from 1");
  }
  if (strcmp(key, "dtype") == 0) {
    rule->dtype = dit_dtype_find(value);
    return rule->dtype >= 0 ? DIT_OK : bad_value(err, number, key, value, "a torch dtype such as float32");
  }
  if (strcmp(key, "when") == 0) {
    for (int i = 0; i < DIT_WHEN_COUNT; i++) {
      if (strcmp(value, when_names[i]) == 0) {
        rule->when = (enum dit_fault_when)i;
        return DIT_OK;
      }
    }
    return bad_value(err, number, key, value, "always, contiguous, strided, expanded, empty, scalar or large");
  }
  if (strcmp(key, "probability") == 0) {
    return parse_double(value, 0, 1, &rule->probability) ? DIT_OK
                                                         : bad_value(err, number, key, value, "a number from 0 to 1");
  }
  if (strcmp(key, "seed") == 0) {
    return parse_unsigned(value, 0, UINT64_MAX, &rule->seed) ? DIT_OK
                                                             : bad_value(err, number, key, value, "an integer from 0");
  }
  if (strcmp(key, "scale") == 0) {
    return parse_double(value, -1e300, 1e300, &rule->scale) ? DIT_OK
                                                            : bad_value(err, number, key, value, "a finite number");
  }
  if (strcmp(key, "index") == 0) {
    bool ok = parse_unsigned(value, 0, INT64_MAX, &whole);
    rule->index = (int64_t)whole;
    return ok ? DIT_OK : bad_value(err, number, key, value, "an element number from 0");
  }
  if (strcmp(key, "bits") == 0) {
    bool ok = parse_unsigned(value, 0, 52, &whole);
    rule->bits = (int)whole;
    return ok ? DIT_OK : bad_value(err, number, key, value, "mantissa bits from 0 to 52");
  }
  if (strcmp(key, "ms") == 0) {
    return parse_double(value, 0, 3.6e6, &rule->ms) ? DIT_OK
                                                    : bad_value(err, number, key, value, "milliseconds from 0");
  }
  return dit_error_set(err, DIT_ERR_INVALID, "fault rule %d: unknown key '%s'; valid: %s", number, key, valid_keys);
}

static enum dit_status parse_keys(struct dit_fault_rule *rule, int number, char *text, struct dit_error *err) {
  for (char *save, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
    char *equals = strchr(item, '=');
    if (!equals) {
      return dit_error_set(err, DIT_ERR_INVALID, "fault rule %d: '%s' is not key=value; valid keys: %s", number,
                           trim(item), valid_keys);
    }
    *equals = '\0';
    DIT_RETURN_IF_NOT_OK(parse_key(rule, number, trim(item), trim(equals + 1), err));
  }
  return DIT_OK;
}

static const char *list_kinds(const struct kinds *kinds, char *text, size_t size) {
  size_t length = 0;
  text[0] = '\0';
  for (int i = 0; i < kinds->count && length < size; i++) {
    length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", kinds->names[i]);
  }
  return text;
}

static enum dit_status parse_rule(struct dit_fault_rule *rule, const struct kinds *kinds, int number, char *text,
                                  struct dit_error *err) {
  char valid_kinds[256];
  char *colon = strchr(text, ':');
  if (!colon || colon == text) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "fault rule %d: '%s' is not 'kind:operator[,key=value ...]'; valid kinds: %s", number, text,
                         list_kinds(kinds, valid_kinds, sizeof valid_kinds));
  }
  *colon = '\0';
  char *kind = trim(text), *comma = strchr(colon + 1, ',');
  if (comma) {
    *comma = '\0';
  }
  char *pattern = trim(colon + 1);
  *rule = (struct dit_fault_rule){.kind = kinds->count,
                                  .dtype = -1,
                                  .first_call = 1,
                                  .last_call = UINT64_MAX,
                                  .probability = 1,
                                  .scale = 0.01,
                                  .bits = 7,
                                  .ms = 10};
  for (int i = 0; i < kinds->count; i++) {
    if (strcmp(kind, kinds->names[i]) == 0) {
      rule->kind = i;
    }
  }
  if (rule->kind == kinds->count) {
    return dit_error_set(err, DIT_ERR_INVALID, "fault rule %d: unknown kind '%s'; valid: %s", number, kind,
                         list_kinds(kinds, valid_kinds, sizeof valid_kinds));
  }
  if (!*pattern || strlen(pattern) >= sizeof(rule->pattern)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "fault rule %d: operator '%s' must be a shell pattern of 1 to %zu characters, e.g. mm or "
                         "aten::add.Tensor or *softmax*",
                         number, pattern, sizeof(rule->pattern) - 1);
  }
  memcpy(rule->pattern, pattern, strlen(pattern) + 1);
  return comma ? parse_keys(rule, number, comma + 1, err) : DIT_OK;
}

enum dit_status dit_fault_parse(const char *text, const char *const *kinds, int kind_count,
                                struct dit_fault_rule *rules, int capacity, int *count, struct dit_error *err) {
  const struct kinds words = {kinds, kind_count};
  char copy[8192];
  const size_t length = text ? strlen(text) : 0;
  *count = 0;
  if (length >= sizeof(copy)) {
    return dit_error_set(err, DIT_ERR_INVALID, "fault: the text has %zu characters; at most %zu are taken", length,
                         sizeof(copy) - 1);
  }
  memcpy(copy, text ? text : "", length + 1);
  for (char *save, *item = strtok_r(copy, ";", &save); item; item = strtok_r(NULL, ";", &save)) {
    item = trim(item);
    if (!*item) {
      continue;
    }
    if (*count == capacity) {
      return dit_error_set(err, DIT_ERR_INVALID, "fault: more than %d rules", capacity);
    }
    DIT_RETURN_IF_NOT_OK(parse_rule(&rules[*count], &words, *count + 1, item, err));
    (*count)++;
  }
  return DIT_OK;
}

// Matching

static bool is_expanded(const struct dit_tensor_view *view) {
  for (int dim = 0; dim < view->ndim; dim++) {
    if (view->sizes[dim] > 1 && view->strides[dim] == 0) {
      return true;
    }
  }
  return false;
}

static bool matches_tensor(enum dit_fault_when when, const struct dit_tensor_view *view) {
  switch (when) {
    case DIT_WHEN_CONTIGUOUS:
      return view->flags & DIT_TENSOR_CONTIGUOUS;
    case DIT_WHEN_STRIDED:
      return !(view->flags & DIT_TENSOR_CONTIGUOUS);
    case DIT_WHEN_EXPANDED:
      return is_expanded(view);
    case DIT_WHEN_EMPTY:
      return view->numel == 0;
    case DIT_WHEN_SCALAR:
      return view->ndim == 0;
    case DIT_WHEN_LARGE:
      return view->numel >= LARGE_ELEMENTS;
    default:
      return true;
  }
}

static bool matches_tensors(enum dit_fault_when when, const struct dit_tensor_view *views, int count) {
  for (int i = 0; i < count; i++) {
    if (matches_tensor(when, &views[i])) {
      return true;
    }
  }
  return when == DIT_WHEN_ALWAYS;
}

/// One of the names in `op`, which are separated by '|', is meant by the pattern.
static bool matches_operator(const char *pattern, const char *op) {
  char name[128];
  for (;;) {
    const size_t length = strcspn(op, "|");
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, op);
    if (dit_operator_name_matches(pattern, name)) {
      return true;
    }
    if (op[length] == '\0') {
      return false;
    }
    op += length + 1;
  }
}

bool dit_fault_applies(struct dit_fault_rule *rule, int number, const char *op, const struct dit_tensor_view *inputs,
                       int input_count) {
  const int dtype = input_count > 0 ? inputs[0].dtype : -1;
  if ((rule->dtype >= 0 && rule->dtype != dtype) || !matches_operator(rule->pattern, op) ||
      !matches_tensors(rule->when, inputs, input_count)) {
    return false;
  }
  rule->matched++;
  if (rule->matched < rule->first_call || rule->matched > rule->last_call) {
    return false;
  }
  uint32_t random[4] = {0};
  if (rule->probability < 1) {
    dit_philox_generate(rule->seed, (uint64_t)number, rule->matched, random);
  }
  const bool acts = (double)random[0] < rule->probability * 4294967296.0;
  rule->acted += acts;
  return acts;
}
