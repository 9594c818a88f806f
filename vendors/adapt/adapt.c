/// The library behind, queries, counts, and the way of one call (see adapt.h).
#include "adapt.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../queries.h"
#include "dit/alloc.h"
#include "dit/gate.h"

enum { RULES_LIMIT = 1 << 22 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct adapt_state *_Atomic current;
static char problem[1100];  ///< why there is no library behind
static _Atomic uint64_t counts[COUNT_KINDS];
static _Thread_local struct dit_conversions note;  ///< of dit_adapt_take
static _Thread_local bool noted;
LIBRARY_QUERIES("adapt")

diopiError_t adapt_fail(diopiError_t code, diopiExtFailure_t failure, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  last_failure = failure;
  return code;
}

void adapt_name_failure(int function) {
  const char *name = dit_diopi_get_functions(NULL)[function].name;
  if (!strstr(last_error, name)) {
    char text[sizeof last_error];
    snprintf(text, sizeof text, "%s: %.1100s", name, last_error);
    memcpy(last_error, text, sizeof text);
  }
}

void adapt_count(enum adapt_count what, uint64_t number) {
  atomic_fetch_add_explicit(&counts[what], number, memory_order_relaxed);
  if (number && what != COUNT_DIRECT && what != COUNT_CALLS) {
    note.converted += what == COUNT_CONVERTED ? number : 0;
    note.composed += what == COUNT_COMPOSED ? number : 0;
    note.layouts += what == COUNT_LAYOUTS ? number : 0;
    note.written += what == COUNT_WRITTEN ? number : 0;
    noted = true;
  }
}

void adapt_count_copy(int from_dtype, int to_dtype) {
  if (from_dtype != to_dtype) {
    dit_conversions_add_pair(&note, from_dtype, to_dtype, 1);
  }
  adapt_count(from_dtype != to_dtype ? COUNT_DTYPES : COUNT_LAYOUTS, 1);
}

bool dit_adapt_take(struct dit_conversions *out) {
  if (!noted) {
    return false;
  }
  *out = note;
  memset(&note, 0, sizeof note);
  noted = false;
  return true;
}

void dit_adapt_get_counts(struct dit_adapt_counts *out) {
  uint64_t *places[COUNT_KINDS] = {&out->calls,   &out->direct, &out->converted, &out->composed,
                                   &out->refused, &out->dtypes, &out->layouts,   &out->written};
  for (int i = 0; i < COUNT_KINDS; i++) {
    *places[i] = atomic_load_explicit(&counts[i], memory_order_relaxed);
  }
  out->calls += out->direct;  // a direct call counts once
}

void dit_adapt_reset_counts(void) {
  for (int i = 0; i < COUNT_KINDS; i++) {
    atomic_store(&counts[i], 0);
  }
}

// Opening

static void apply_support(struct adapt_state *state, int function) {
  static const int8_t wider[][3] = {{diopi_dtype_float16, diopi_dtype_float32, diopi_dtype_float64},
                                    {diopi_dtype_bfloat16, diopi_dtype_float32, diopi_dtype_float64},
                                    {diopi_dtype_float32, diopi_dtype_float64, -1},
                                    {diopi_dtype_int8, diopi_dtype_int32, diopi_dtype_int64},
                                    {diopi_dtype_uint8, diopi_dtype_int32, diopi_dtype_int64},
                                    {diopi_dtype_int16, diopi_dtype_int32, diopi_dtype_int64},
                                    {diopi_dtype_int32, diopi_dtype_int64, -1}};
  struct adapt_rule *rule = &state->functions[function].rule;
  diopiExtSupport_t support = {.struct_size = sizeof support};
  if (!state->library->ext_get_support ||
      state->library->ext_get_support(dit_diopi_get_functions(NULL)[function].name, &support) != diopiSuccess) {
    return;
  }
  if (rule->layouts == 0 && support.layouts && !(support.layouts & diopiExtStrided)) {
    rule->layouts = (uint8_t)(support.layouts & (ADAPT_CONTIGUOUS | ADAPT_CHANNELS_LAST));
  }
  for (size_t i = 0; i < sizeof wider / sizeof wider[0] && support.dtypes; i++) {
    for (int k = 1; k < 3 && !(support.dtypes >> wider[i][0] & 1) && rule->to[wider[i][0]] < 0; k++) {
      if (wider[i][k] >= 0 && support.dtypes >> wider[i][k] & 1) {
        rule->to[wider[i][0]] = wider[i][k];
      }
    }
  }
}

static bool is_plain(const struct adapt_rule *rule) {
  bool plain = rule->layouts == 0 && rule->tensor_count == 0;
  for (int i = 0; i < ADAPT_DTYPES; i++) {
    plain = plain && rule->to[i] < 0;
  }
  return plain;
}

static void state_destroy(struct adapt_state *state) {
  if (state) {
    dit_diopi_library_close(state->library);
    dit_free(state);
  }
}

static enum dit_status state_create(const char *name, const char *text, size_t size, struct adapt_state **out,
                                    struct dit_error *err) {
  if (strcmp(name, "adapt") == 0 || strstr(name, "libdiopi_adapt")) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%s' would wrap itself; name the library to adapt", name);
  }
  struct adapt_state *state = dit_calloc(1, sizeof *state);
  struct adapt_rule *rules = dit_calloc(DIT_DIOPI_COUNT, sizeof *rules);
  enum dit_status status = state && rules ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no memory for the adaptor");
  for (int i = 0; status == DIT_OK && i < DIT_DIOPI_COUNT; i++) {
    adapt_rule_init(&rules[i]);
  }
  if (status == DIT_OK && text) {
    status = adapt_rules_read(text, size, rules, err);
  }
  if (status == DIT_OK) {
    status = dit_diopi_library_open(name, &state->library, err);
  }
  if (status == DIT_OK) {
    status = dit_diopi_library_check_memory(state->library, err);
  }
  if (status != DIT_OK) {
    dit_diopi_library_close(state ? state->library : NULL);
    dit_free(rules);
    dit_free(state);
    return status;
  }
  for (int i = 0; i < DIT_DIOPI_COUNT; i++) {
    state->functions[i].rule = rules[i];
    state->functions[i].behind = dit_diopi_library_get(state->library, i) != NULL;
    if (state->functions[i].behind) {
      apply_support(state, i);
    }
    state->functions[i].plain = is_plain(&state->functions[i].rule);
  }
  dit_free(rules);
  adapt_compose_init(state);
  *out = state;
  return DIT_OK;
}

static enum dit_status read_file(const char *path, char **out, size_t *size, struct dit_error *err) {
  FILE *file = fopen(path, "rb");
  char *text = file ? dit_malloc(RULES_LIMIT + 1) : NULL;
  if (!text) {
    if (file) {
      fclose(file);
    }
    return dit_error_set(err, DIT_ERR_IO, "the rules file '%s' cannot be read", path);
  }
  *size = fread(text, 1, RULES_LIMIT + 1, file);
  fclose(file);
  if (*size > RULES_LIMIT) {
    dit_free(text);
    return dit_error_set(err, DIT_ERR_INVALID, "the rules file '%s' has more than %d bytes", path, RULES_LIMIT);
  }
  *out = text;
  return DIT_OK;
}

static void start(void) {
  struct dit_error err = {.message = ""};
  const char *name = getenv("DITORCH_ADAPT_LIB"), *path = getenv("DITORCH_ADAPT_RULES");
  struct adapt_state *state = NULL;
  char *text = NULL;
  size_t size = 0;
  enum dit_status status = path && path[0] ? read_file(path, &text, &size, &err) : DIT_OK;
  if (status == DIT_OK) {
    status = state_create(name && name[0] ? name : "host", text, size, &state, &err);
  }
  dit_free(text);
  if (status != DIT_OK) {
    snprintf(problem, sizeof problem, "adaptor (DITORCH_ADAPT_LIB, DITORCH_ADAPT_RULES): %s", err.message);
    fprintf(stderr, "ditorch: %s\n", problem);
  }
  atomic_store(&current, state);
}

/// When this library is unloaded.
__attribute__((destructor)) static void stop(void) {
  state_destroy(atomic_exchange(&current, NULL));
}

enum dit_status dit_adapt_configure(const char *library, const char *rules, struct dit_error *err) {
  struct adapt_state *state = NULL;
  pthread_once(&once, start);
  DIT_RETURN_IF_NOT_OK(state_create(library, rules, rules ? strlen(rules) : 0, &state, err));
  pthread_mutex_lock(&mutex);
  state_destroy(atomic_exchange(&current, state));
  pthread_mutex_unlock(&mutex);
  return DIT_OK;
}

struct adapt_state *adapt_get_state(void) {
  struct adapt_state *state = atomic_load_explicit(&current, memory_order_acquire);
  if (__builtin_expect(!state, 0)) {
    pthread_once(&once, start);
    state = atomic_load(&current);
    if (!state) {
      adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "%s", problem);
    }
  }
  return state;
}

// Queries

const char *dit_adapt_get_way(const char *function) {
  struct adapt_state *state = adapt_get_state();
  const int number = dit_diopi_find_function(function);
  if (!state || number < 0) {
    return NULL;
  }
  return state->functions[number].behind ? "direct" : state->functions[number].composed ? "composed" : "none";
}

/// The dtypes that are sure to be taken: of a library that tells, its own and what is converted to them; else float32,
/// of bitwise functions int64. What is only moved has any dtype. Others may be taken too; a call tells.
static uint32_t get_dtypes(const struct adapt_state *state, int number, uint32_t own) {
  const struct adapt_function *function = &state->functions[number];
  const bool bitwise = strncmp(dit_diopi_get_functions(NULL)[number].name, "diopiBitwise", 12) == 0;
  if (!function->behind && adapt_is_movement(number)) {
    return ((1U << ADAPT_DTYPES) - 1) & ~(1U << diopi_dtype_tfloat32);
  }
  own = own ? own : bitwise ? 1U << diopi_dtype_int64 : 1U << diopi_dtype_float32;
  for (int i = 0; i < ADAPT_DTYPES && function->behind; i++) {
    const int to = function->rule.to[i];
    own |= to >= 0 && own >> to & 1 ? 1U << i : 0;
  }
  return own;
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  struct adapt_state *state = adapt_get_state();
  const int number = dit_diopi_find_function(function);
  if (!state) {
    return diopiErrorOccurred;  // every call says why
  }
  if (number < 0 || !support || !dit_diopi_get_functions(NULL)[number].kinds[0] ||
      !(state->functions[number].behind || state->functions[number].composed)) {
    return diopiNoImplement;
  }
  diopiExtSupport_t own = {.struct_size = sizeof own};
  if (!state->functions[number].behind || !state->library->ext_get_support ||
      state->library->ext_get_support(function, &own) != diopiSuccess) {
    own = (diopiExtSupport_t){.flags = diopiExtInPlace};
  }
  own.dtypes = get_dtypes(state, number, own.dtypes);
  own.layouts = diopiExtContiguous | diopiExtChannelsLast | diopiExtStrided;
  own.struct_size = support->struct_size;
  memcpy(support, &own, support->struct_size < sizeof own ? support->struct_size : sizeof own);
  return diopiSuccess;
}

diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                  diopiExtOutput_t *outputs, int64_t *count) {
  struct adapt_state *state = adapt_get_state();
  if (!state || !state->library->ext_infer_outputs) {
    return diopiNoImplement;
  }
  diopiError_t code = state->library->ext_infer_outputs(function, arguments, length, outputs, count);
  return code == diopiSuccess || code == diopiNoImplement
             ? code
             : adapt_fail(code, diopiExtFailureArgument, "%s", dit_diopi_library_get_error(state->library));
}

// One call

diopiError_t adapt_call_behind(struct adapt_state *state, int function, const union dit_diopi_value *values) {
  diopiError_t code = dit_diopi_invoke(&state->library->functions, function, values);
  if (__builtin_expect(code != diopiSuccess, 0)) {
    adapt_fail(code, dit_diopi_library_get_failure(state->library), "%s", dit_diopi_library_get_error(state->library));
  }
  return code;
}

/// What the library refused, by its own code, where no other way is left.
static diopiError_t call_other_ways(struct adapt_state *state, int function, const union dit_diopi_value *values,
                                    bool converted, diopiError_t refusal) {
  struct adapt_function *own = &state->functions[function];
  if (own->behind && !converted) {
    const diopiError_t code = adapt_call_converted(state, function, values);
    if (!dit_diopi_is_refusal(code)) {
      return code;
    }
    refusal = code == diopiNoImplement ? refusal : code;
  }
  if (own->behind && converted && own->plain) {  // a lesson about other calls with the same hash led here
    const diopiError_t code = adapt_call_behind(state, function, values);
    if (!dit_diopi_is_refusal(code)) {
      return code;
    }
  }
  if (own->composed) {
    const diopiError_t code = adapt_compose(state, function, values);
    if (code != diopiNoImplement) {
      return code;
    }
  }
  return refusal;
}

diopiError_t adapt_call(int function, const union dit_diopi_value *values) {
  struct adapt_state *state = adapt_get_state();
  if (!state) {
    return diopiErrorOccurred;
  }
  const struct adapt_function *own = &state->functions[function];
  diopiError_t code = diopiNoImplement;
  bool converted = false;
  if (own->behind) {
    converted = adapt_needs_conversion(state, function, values);
    code = converted ? adapt_call_converted(state, function, values) : adapt_call_behind(state, function, values);
  }
  return dit_diopi_is_refusal(code) ? call_other_ways(state, function, values, converted, code) : code;
}

diopiError_t adapt_enter(int function, const union dit_diopi_value *values) {
  struct adapt_state *state = adapt_get_state();
  if (__builtin_expect(!state, 0)) {
    return diopiErrorOccurred;
  }
  const struct adapt_function *own = &state->functions[function];
  if (own->behind && !adapt_needs_conversion(state, function, values)) {
    const diopiError_t code = adapt_call_behind(state, function, values);
    if (!dit_diopi_is_refusal(code)) {
      adapt_count(COUNT_DIRECT, 1);
      return code;
    }
    adapt_count(COUNT_CALLS, 1);
    const diopiError_t other = call_other_ways(state, function, values, false, code);
    adapt_count(COUNT_REFUSED, dit_diopi_is_refusal(other));
    return other;
  }
  adapt_count(COUNT_CALLS, 1);
  const diopiError_t code = adapt_call(function, values);
  adapt_count(COUNT_REFUSED, dit_diopi_is_refusal(code));
  return code;
}
