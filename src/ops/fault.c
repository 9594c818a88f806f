/// The fault hook: rules, matching, and what happens before and after a call. The damage itself is in fault_damage.c.
///
/// Rules live in one fixed table behind a mutex; `active` is all that a program without faults ever reads. A token is
/// (generation << 48 | bits of the rules that apply), so one made before a reconfiguration is recognised and ignored.
/// Depends on src/core.
#include "fault.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/random.h"

#define MAX_RULES 48
#define TOKEN_RULES ((UINT64_C(1) << MAX_RULES) - 1)

static const char *const kind_names[DIT_FAULT_KINDS] = {"value", "precision", "nan",  "stride",
                                                        "input", "unwritten", "slow", "error"};
static const char valid_kinds[] = "value, precision, nan, stride, input, unwritten, slow, error";
static const char valid_keys[] = "call, dtype, probability, seed, scale, index, bits, ms";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fault_rule rules[MAX_RULES];
static int rule_count;
static uint64_t generation;
static _Atomic bool active;
static _Atomic uint64_t injected;

// ---- parsing

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
static bool parse_calls(const char *text, struct fault_rule *rule) {
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

static enum dit_status parse_key(struct fault_rule *rule, int number, const char *key, const char *value,
                                 struct dit_error *err) {
  uint64_t whole = 0;
  if (strcmp(key, "call") == 0) {
    return parse_calls(value, rule) ? DIT_OK : bad_value(err, number, key, value, "n, a-b or n+, counted from 1");
  }
  if (strcmp(key, "dtype") == 0) {
    rule->dtype = dit_dtype_find(value);
    return rule->dtype >= 0 ? DIT_OK : bad_value(err, number, key, value, "a torch dtype such as float32");
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

static enum dit_status parse_keys(struct fault_rule *rule, int number, char *text, struct dit_error *err) {
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

static enum dit_status parse_rule(struct fault_rule *rule, int number, char *text, struct dit_error *err) {
  char *colon = strchr(text, ':');
  if (!colon || colon == text) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "fault rule %d: '%s' is not 'kind:operator[,key=value ...]'; valid kinds: %s", number, text,
                         valid_kinds);
  }
  *colon = '\0';
  char *kind = trim(text), *comma = strchr(colon + 1, ',');
  if (comma) {
    *comma = '\0';
  }
  char *pattern = trim(colon + 1);
  *rule = (struct fault_rule){.kind = DIT_FAULT_KINDS,
                              .dtype = -1,
                              .first_call = 1,
                              .last_call = UINT64_MAX,
                              .probability = 1,
                              .scale = 0.01,
                              .bits = 7,
                              .ms = 10};
  for (int i = 0; i < DIT_FAULT_KINDS; i++) {
    if (strcmp(kind, kind_names[i]) == 0) {
      rule->kind = (enum dit_fault_kind)i;
    }
  }
  if (rule->kind == DIT_FAULT_KINDS) {
    return dit_error_set(err, DIT_ERR_INVALID, "fault rule %d: unknown kind '%s'; valid: %s", number, kind,
                         valid_kinds);
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

static enum dit_status parse_rules(char *text, struct fault_rule *out, int *count, struct dit_error *err) {
  for (char *save, *item = strtok_r(text, ";", &save); item; item = strtok_r(NULL, ";", &save)) {
    item = trim(item);
    if (!*item) {
      continue;
    }
    if (*count == MAX_RULES) {
      return dit_error_set(err, DIT_ERR_INVALID, "fault: more than %d rules", MAX_RULES);
    }
    DIT_RETURN_IF_NOT_OK(parse_rule(&out[*count], *count + 1, item, err));
    (*count)++;
  }
  return DIT_OK;
}

enum dit_status dit_fault_configure(const char *text, struct dit_error *err) {
  char copy[8192];
  struct fault_rule parsed[MAX_RULES];
  int count = 0;
  size_t length = text ? strlen(text) : 0;
  if (length >= sizeof(copy)) {
    return dit_error_set(err, DIT_ERR_INVALID, "fault: the text has %zu characters; at most %zu are taken", length,
                         sizeof(copy) - 1);
  }
  memcpy(copy, text ? text : "", length + 1);
  DIT_RETURN_IF_NOT_OK(parse_rules(copy, parsed, &count, err));
  pthread_mutex_lock(&mutex);
  memcpy(rules, parsed, sizeof(parsed[0]) * (size_t)count);
  rule_count = count;
  generation = (generation + 1) & 0xFFFF;
  atomic_store_explicit(&injected, 0, memory_order_relaxed);
  atomic_store_explicit(&active, count > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
  return DIT_OK;
}

bool dit_fault_is_active(void) {
  return atomic_load_explicit(&active, memory_order_relaxed);
}
uint64_t dit_fault_get_count(void) {
  return atomic_load_explicit(&injected, memory_order_relaxed);
}

// ---- matching

/// "aten::add.Tensor" matches the pattern as it is, without "aten::", without the overload, or without both.
static bool matches_name(const char *pattern, const char *op) {
  char base[256];
  const char *plain = strstr(op, "::");
  plain = plain ? plain + 2 : op;
  if (fnmatch(pattern, op, 0) == 0 || fnmatch(pattern, plain, 0) == 0) {
    return true;
  }
  const char *dot = strrchr(op, '.');
  if (!dot || (size_t)(dot - op) >= sizeof(base)) {
    return false;
  }
  memcpy(base, op, (size_t)(dot - op));
  base[dot - op] = '\0';
  return fnmatch(pattern, base, 0) == 0 || (plain < dot && fnmatch(pattern, base + (plain - op), 0) == 0);
}

/// Counts the call and decides; the random decision depends on (seed, rule, matching call) alone.
static bool rule_applies(struct fault_rule *rule, int number, const char *op, const struct dit_tensor_view *inputs,
                         int input_count) {
  int dtype = input_count > 0 ? inputs[0].dtype : -1;
  if ((rule->dtype >= 0 && rule->dtype != dtype) || !matches_name(rule->pattern, op)) {
    return false;
  }
  rule->matched++;
  if (rule->matched < rule->first_call || rule->matched > rule->last_call) {
    return false;
  }
  if (rule->probability >= 1) {
    return true;
  }
  uint32_t random[4];
  dit_philox_generate(rule->seed, (uint64_t)number, rule->matched, random);
  return (double)random[0] < rule->probability * 4294967296.0;
}

static void sleep_ms(double ms) {
  struct timespec left = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (double)(time_t)(ms / 1e3)) * 1e6)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

enum dit_status dit_fault_before(const char *op, const struct dit_tensor_view *inputs, int input_count, uint64_t *token,
                                 struct dit_error *err) {
  double ms = 0;
  int failed = -1;
  uint64_t bits = 0, call = 0;
  char pattern[sizeof(rules[0].pattern)] = "";
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < rule_count; i++) {
    if (!rule_applies(&rules[i], i, op, inputs, input_count)) {
      continue;
    }
    if (rules[i].kind == DIT_FAULT_SLOW) {
      ms += rules[i].ms;
      atomic_fetch_add_explicit(&injected, 1, memory_order_relaxed);
    } else if (rules[i].kind == DIT_FAULT_ERROR && failed < 0) {
      failed = i;
      call = rules[i].matched;
      memcpy(pattern, rules[i].pattern, sizeof(pattern));
      atomic_fetch_add_explicit(&injected, 1, memory_order_relaxed);
    } else {
      bits |= UINT64_C(1) << i;
    }
  }
  *token = bits && failed < 0 ? bits | generation << MAX_RULES : 0;
  pthread_mutex_unlock(&mutex);
  if (ms > 0) {
    sleep_ms(ms);
  }
  if (failed >= 0) {
    return dit_error_set(err, DIT_ERR_DEVICE, "injected fault: %s failed (rule %d 'error:%s', matching call %llu)", op,
                         failed + 1, pattern, (unsigned long long)call);
  }
  return DIT_OK;
}

static bool apply_rule(const struct fault_rule *rule, const struct dit_tensor_view *inputs, int input_count,
                       const struct dit_tensor_view *outputs, int output_count) {
  bool changed = false;
  if (rule->kind == DIT_FAULT_INPUT) {
    return input_count > 0 && fault_damage_value(&inputs[0], rule->index, rule->scale);
  }
  for (int i = 0; i < output_count; i++) {
    switch (rule->kind) {
      case DIT_FAULT_VALUE:
        changed |= i == 0 && fault_damage_value(&outputs[i], rule->index, rule->scale);
        break;
      case DIT_FAULT_PRECISION:
        changed |= fault_damage_precision(&outputs[i], rule->bits);
        break;
      case DIT_FAULT_NAN:
        changed |= i == 0 && fault_damage_nan(&outputs[i], rule->index);
        break;
      case DIT_FAULT_STRIDE:
        changed |= i == 0 && fault_damage_stride(&outputs[i], input_count > 0 ? &inputs[0] : NULL);
        break;
      case DIT_FAULT_UNWRITTEN:
        changed |= fault_damage_unwritten(&outputs[i]);
        break;
      default:
        break;
    }
  }
  return changed;
}

void dit_fault_after(uint64_t token, const struct dit_tensor_view *inputs, int input_count,
                     const struct dit_tensor_view *outputs, int output_count) {
  struct fault_rule apply[MAX_RULES];
  int count = 0;
  pthread_mutex_lock(&mutex);
  if (token >> MAX_RULES == generation) {
    for (int i = 0; i < rule_count; i++) {
      if (token & TOKEN_RULES & UINT64_C(1) << i) {
        apply[count++] = rules[i];
      }
    }
  }
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < count; i++) {
    if (apply_rule(&apply[i], inputs, input_count, outputs, output_count)) {
      atomic_fetch_add_explicit(&injected, 1, memory_order_relaxed);
    }
  }
}
