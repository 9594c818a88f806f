/// Rules, the library behind, and the way of one call (see faulty.h).
#include "faulty.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/gate.h"
#include "dit/memory.h"
#include "dit/runtime.h"

#define MAX_RULES 32

static const char *const kind_names[FAULTY_KINDS] = {"value",     "precision", "nan",     "stride", "offset",
                                                     "unwritten", "input",     "outside", "dtype",  "random",
                                                     "slow",      "crash",     "error"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dit_fault_rule rules[MAX_RULES];
static int rule_count;
static atomic_int active;
static _Atomic uint64_t injected;
static struct dit_diopi_library *behind;
static char problem[1100];  ///< why there is no library behind, or which rule is wrong
static _Thread_local char last_error[1200];
static _Thread_local diopiExtFailure_t last_failure;

enum dit_status dit_faulty_configure(const char *text, struct dit_error *err) {
  struct dit_fault_rule parsed[MAX_RULES];
  int count;
  DIT_RETURN_IF_NOT_OK(dit_fault_parse(text, kind_names, FAULTY_KINDS, parsed, MAX_RULES, &count, err));
  pthread_mutex_lock(&mutex);
  memcpy(rules, parsed, sizeof(parsed[0]) * (size_t)count);
  rule_count = count;
  pthread_mutex_unlock(&mutex);
  atomic_store(&injected, 0);
  atomic_store(&active, count);
  return DIT_OK;
}

uint64_t dit_faulty_get_count(void) {
  return atomic_load(&injected);
}

static void start(void) {
  struct dit_error err = {.message = ""};
  const char *name = getenv("DITORCH_FAULTY_LIB"), *text = getenv("DITORCH_FAULTY");
  if (name && (strcmp(name, "faulty") == 0 || strstr(name, "libdiopi_faulty"))) {
    snprintf(problem, sizeof problem, "DITORCH_FAULTY_LIB=%s would wrap itself; name the library to break", name);
    return;
  }
  if (dit_diopi_library_open(name && name[0] ? name : "host", &behind, &err) != DIT_OK) {
    snprintf(problem, sizeof problem, "DITORCH_FAULTY_LIB: %s", err.message);
    behind = NULL;
  } else if (text && dit_faulty_configure(text, &err) != DIT_OK) {
    snprintf(problem, sizeof problem, "DITORCH_FAULTY: %s", err.message);
  }
}

/// When this library is unloaded.
__attribute__((destructor)) static void stop(void) {
  dit_diopi_library_close(behind);
  behind = NULL;
}

const char *diopiGetVendorName(void) {
  return "faulty";
}

const char *diopiGetImplVersion(void) {
  return DIT_VERSION_TEXT;
}

uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

const char *diopiExtGetLastErrorString(void) {
  return last_error;
}

diopiExtFailure_t diopiExtGetLastFailure(void) {
  return last_failure;
}

const char *diopiGetLastErrorString(void) {
  return last_error;
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  pthread_once(&once, start);
  if (!behind) {
    return diopiErrorOccurred;  // every call says why
  }
  return behind->ext_get_support ? behind->ext_get_support(function, support) : diopiNoImplement;
}

diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                  diopiExtOutput_t *outputs, int64_t *count) {
  pthread_once(&once, start);
  if (!behind || !behind->ext_infer_outputs) {
    return diopiNoImplement;
  }
  diopiError_t code = behind->ext_infer_outputs(function, arguments, length, outputs, count);
  if (code != diopiSuccess) {
    snprintf(last_error, sizeof last_error, "%s", dit_diopi_library_get_error(behind));
  }
  return code;
}

// One call

static diopiError_t forward(int function, const union dit_diopi_value *values) {
  diopiError_t code = dit_diopi_invoke(&behind->functions, function, values);
  if (code != diopiSuccess) {
    snprintf(last_error, sizeof last_error, "%s", dit_diopi_library_get_error(behind));
    last_failure = dit_diopi_library_get_failure(behind);
  }
  return code;
}

static int match(int function, const struct faulty_tensors *tensors, struct dit_fault_rule *out) {
  struct dit_tensor_view views[2 * FAULTY_TENSORS];
  memcpy(views, tensors->inputs, sizeof(views[0]) * (size_t)tensors->input_count);
  memcpy(views + tensors->input_count, tensors->outputs, sizeof(views[0]) * (size_t)tensors->output_count);
  const char *name = dit_diopi_get_functions(NULL)[function].name;
  int count = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < rule_count; i++) {
    if (dit_fault_applies(&rules[i], i, name, views, tensors->input_count + tensors->output_count)) {
      out[count++] = rules[i];
    }
  }
  pthread_mutex_unlock(&mutex);
  return count;
}

static void wait_for_stream(diopiContextHandle_t context) {
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (vtable && context && context->stream) {
    (void)!vtable->stream_synchronize(context->device, context->stream, NULL);
  }
}

/// Rules that need no wrapped call. True when the call ends here.
static bool act_before(const struct dit_fault_rule *rule, int function) {
  switch (rule->kind) {
    case FAULTY_SLOW:
      dit_fault_sleep(rule->ms);
      atomic_fetch_add(&injected, 1);
      return false;
    case FAULTY_CRASH:
      raise(SIGSEGV);
      return false;
    case FAULTY_ERROR:
      atomic_fetch_add(&injected, 1);
      last_failure = diopiExtFailureOther;
      snprintf(last_error, sizeof last_error, "injected fault: %s failed",
               dit_diopi_get_functions(NULL)[function].name);
      return true;
    default:
      return false;
  }
}

static diopiError_t call_broken(int function, const union dit_diopi_value *values, const struct dit_fault_rule *applied,
                                int count, struct faulty_tensors *tensors) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  struct faulty_state state;
  memset(&state, 0, sizeof state);
  memcpy(state.values, values, sizeof(values[0]) * strlen(kinds));
  uint64_t acted = 0;
  wait_for_stream(values[0].context);
  dit_memory_access_begin();
  for (int i = 0; i < count; i++) {
    acted |= faulty_alter(&applied[i], function, tensors, &state) ? UINT64_C(1) << i : 0;
  }
  dit_memory_access_end();
  diopiError_t code = forward(function, state.values);
  if (code == diopiSuccess) {
    wait_for_stream(values[0].context);
    faulty_collect(function, values, true, tensors);
    dit_memory_access_begin();
    for (int i = 0; i < count; i++) {
      acted |= faulty_damage(&applied[i], applied[i].matched, tensors, &state) ? UINT64_C(1) << i : 0;
    }
    dit_memory_access_end();
  }
  faulty_release(&state);
  atomic_fetch_add(&injected, (uint64_t)__builtin_popcountll(acted));
  return code;
}

diopiError_t faulty_call(int function, const union dit_diopi_value *values) {
  pthread_once(&once, start);
  if (!behind || problem[0]) {
    last_failure = diopiExtFailureOther;
    snprintf(last_error, sizeof last_error, "%s", problem);
    return diopiErrorOccurred;
  }
  if (!dit_diopi_library_get(behind, function)) {
    return diopiNoImplement;
  }
  if (atomic_load_explicit(&active, memory_order_relaxed) == 0) {
    return forward(function, values);
  }
  struct faulty_tensors tensors;
  struct dit_fault_rule applied[MAX_RULES];
  faulty_collect(function, values, false, &tensors);
  const int count = match(function, &tensors, applied);
  for (int i = 0; i < count; i++) {
    if (act_before(&applied[i], function)) {
      return diopiErrorOccurred;
    }
  }
  return count ? call_broken(function, values, applied, count, &tensors) : forward(function, values);
}
