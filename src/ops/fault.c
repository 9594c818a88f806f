/// The fault hook: rules, matching, and what happens before and after a call. The damage itself is in fault_damage.c.
///
/// Rules live in one fixed table behind a mutex; `active` is all that a program without faults ever reads. A token is
/// (generation << 48 | bits of the rules that apply), so one made before a reconfiguration is recognised and ignored.
/// Depends on src/core.
#include "dit/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dit/operator_name.h"

#define MAX_RULES 48
#define TOKEN_RULES ((UINT64_C(1) << MAX_RULES) - 1)

static const char *const kind_names[DIT_FAULT_KINDS] = {"value", "precision", "nan",  "stride",
                                                        "input", "unwritten", "slow", "error"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dit_fault_rule rules[MAX_RULES];
static int rule_count;
static uint64_t generation;
static _Atomic bool active;
static _Atomic uint64_t injected;
static uint64_t calls;  // since the last configure
static char warning[1024];

// What becomes of one name of a rule; the warning of one that means nothing is added to `text`.
static void name_resolve(const char *name, int number, char *pattern, size_t pattern_size, char *text, size_t size) {
  char near[256];
  enum dit_operator_meaning meaning = dit_operator_name_resolve(name, pattern, pattern_size);
  size_t used = strlen(text);
  if (meaning == DIT_OPERATOR_MEANS_OTHERS) {
    (void)snprintf(text + used, size - used,
                   "%sfault rule %d: '%s' never comes to the device itself: it is made of other operators, or needs no "
                   "kernel",
                   used ? "; " : "", number, name);
  } else if (meaning == DIT_OPERATOR_MEANS_NOTHING) {
    dit_operator_name_list_nearest(name, near, sizeof near);
    (void)snprintf(text + used, size - used, "%sfault rule %d: '%s' matches no operator; the nearest are %s",
                   used ? "; " : "", number, name, near);
  }
}

// Names that people write become those of the device.
static void rule_resolve(struct dit_fault_rule *rule, int number, char *text, size_t size) {
  char names[sizeof rule->pattern], pattern[sizeof rule->pattern], *rest = names;
  size_t used = 0;
  memcpy(names, rule->pattern, sizeof names);
  while (rest) {
    char *name = rest, *bar = strchr(rest, '|');
    rest = bar ? bar + 1 : NULL;
    if (bar) {
      *bar = '\0';
    }
    name_resolve(name, number, pattern, sizeof pattern, text, size);
    size_t length = strlen(pattern);
    if (used + length + 2 > sizeof rule->pattern) {
      break;
    }
    used += (size_t)snprintf(rule->pattern + used, sizeof rule->pattern - used, "%s%s", used ? "|" : "", pattern);
  }
}

enum dit_status dit_fault_configure(const char *text, struct dit_error *err) {
  struct dit_fault_rule parsed[MAX_RULES];
  int count;
  DIT_RETURN_IF_NOT_OK(dit_fault_parse(text, kind_names, DIT_FAULT_KINDS, parsed, MAX_RULES, &count, err));
  char text_warning[sizeof warning] = "";
  for (int i = 0; i < count; i++) {
    rule_resolve(&parsed[i], i + 1, text_warning, sizeof text_warning);
  }
  pthread_mutex_lock(&mutex);
  memcpy(warning, text_warning, sizeof warning);
  memcpy(rules, parsed, sizeof(parsed[0]) * (size_t)count);
  rule_count = count;
  calls = 0;
  generation = (generation + 1) & 0xFFFF;
  atomic_store_explicit(&injected, 0, memory_order_relaxed);
  atomic_store_explicit(&active, count > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
  return DIT_OK;
}

void dit_fault_get_warning(char *buffer, size_t size) {
  pthread_mutex_lock(&mutex);
  (void)snprintf(buffer, size, "%s", warning);
  pthread_mutex_unlock(&mutex);
}

bool dit_fault_is_active(void) {
  return atomic_load_explicit(&active, memory_order_relaxed);
}
uint64_t dit_fault_get_count(void) {
  return atomic_load_explicit(&injected, memory_order_relaxed);
}

void dit_fault_list_idle(char *buffer, size_t size) {
  size_t used = 0;
  *buffer = '\0';
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < rule_count && calls > 0 && used < size; i++) {
    const unsigned long long matched = rules[i].matched, all = calls;
    if (rules[i].acted > 0) {
      continue;
    }
    const char *before = used ? "; " : "";
    const int length =
        matched
            ? snprintf(buffer + used, size - used, "%srule %d did not act on any of the %llu calls that it matched",
                       before, i + 1, matched)
            : snprintf(buffer + used, size - used, "%srule %d matched none of %llu operator calls", before, i + 1, all);
    used += (size_t)length;
  }
  pthread_mutex_unlock(&mutex);
}

void dit_fault_sleep(double ms) {
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
  calls++;
  for (int i = 0; i < rule_count; i++) {
    if (!dit_fault_applies(&rules[i], i, op, inputs, input_count)) {
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
    dit_fault_sleep(ms);
  }
  if (failed >= 0) {
    return dit_error_set(err, DIT_ERR_DEVICE, "injected fault: %.*s failed (rule %d 'error:%s', matching call %llu)",
                         (int)strcspn(op, "|"), op, failed + 1, pattern, (unsigned long long)call);
  }
  return DIT_OK;
}

static bool apply_rule(const struct dit_fault_rule *rule, const struct dit_tensor_view *inputs, int input_count,
                       const struct dit_tensor_view *outputs, int output_count) {
  bool changed = false;
  if (rule->kind == DIT_FAULT_INPUT) {
    return input_count > 0 && dit_damage_value(&inputs[0], rule->index, rule->scale);
  }
  for (int i = 0; i < output_count; i++) {
    switch (rule->kind) {
      case DIT_FAULT_VALUE:
        changed |= i == 0 && dit_damage_value(&outputs[i], rule->index, rule->scale);
        break;
      case DIT_FAULT_PRECISION:
        changed |= dit_damage_precision(&outputs[i], rule->bits);
        break;
      case DIT_FAULT_NAN:
        changed |= i == 0 && dit_damage_nan(&outputs[i], rule->index);
        break;
      case DIT_FAULT_STRIDE:
        changed |= i == 0 && dit_damage_stride(&outputs[i], input_count > 0 ? &inputs[0] : NULL);
        break;
      case DIT_FAULT_UNWRITTEN:
        changed |= dit_damage_unwritten(&outputs[i]);
        break;
      default:
        break;
    }
  }
  return changed;
}

void dit_fault_after(uint64_t token, const struct dit_tensor_view *inputs, int input_count,
                     const struct dit_tensor_view *outputs, int output_count) {
  struct dit_fault_rule apply[MAX_RULES];
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
