/// Rules, the library behind, and the way of one call (see faulty.h).
#include "faulty.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../queries.h"
#include "dit/alloc.h"
#include "dit/gate.h"
#include "dit/memory.h"
#include "dit/runtime.h"
#include "mistake.h"

#define MAX_RULES 32

#define KINDS (FAULTY_MISTAKES + MISTAKE_COUNT)

static const char *const kind_names[KINDS] = {
    "value",   "precision", "nan",    "stride", "offset", "unwritten", "input",
    "outside", "dtype",     "random", "slow",   "crash",  "error",
#define MISTAKE(name, alter, damage, is_kept, get_source, change) #name,
#include "mistakes.inc"
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dit_fault_rule rules[MAX_RULES];
static int rule_count;
static atomic_int active;
static _Atomic uint64_t injected, changed;  ///< rules that acted; calls whose results they changed
static struct dit_diopi_library *behind;
static unsigned char *probed;  ///< of dit_faulty_probe
static char problem[1100];     ///< why there is no library behind, or which rule is wrong
LIBRARY_QUERIES("faulty")

enum dit_status dit_faulty_configure(const char *text, struct dit_error *err) {
  struct dit_fault_rule parsed[MAX_RULES];
  int count;
  DIT_RETURN_IF_NOT_OK(dit_fault_parse(text, kind_names, KINDS, parsed, MAX_RULES, &count, err));
  pthread_mutex_lock(&mutex);
  memcpy(rules, parsed, sizeof(parsed[0]) * (size_t)count);
  rule_count = count;
  pthread_mutex_unlock(&mutex);
  atomic_store(&injected, 0);
  atomic_store(&changed, 0);
  atomic_store(&active, count);
  return DIT_OK;
}

int dit_faulty_find_kind(const char *name) {
  for (int i = 0; i < KINDS; i++) {
    if (strcmp(kind_names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

int dit_faulty_count_kinds(void) {
  return KINDS;
}

void dit_faulty_probe(unsigned char *table) {
  probed = table;
}

uint64_t dit_faulty_get_count(void) {
  return atomic_load(&injected);
}

uint64_t dit_faulty_get_changed(void) {
  return atomic_load(&changed);
}

static void start(void) {
  struct dit_error err = {.message = ""};
  const char *name = getenv("DITORCH_FAULTY_LIB"), *text = getenv("DITORCH_FAULTY");
  if (name && (strcmp(name, "faulty") == 0 || strstr(name, "libdiopi_faulty"))) {
    snprintf(problem, sizeof problem, "DITORCH_FAULTY_LIB=%s would wrap itself; name the library to break", name);
    return;
  }
  if (dit_diopi_library_open(name && name[0] ? name : "host", &behind, &err) != DIT_OK ||
      dit_diopi_library_check_memory(behind, &err) != DIT_OK) {
    snprintf(problem, sizeof problem, "DITORCH_FAULTY_LIB: %s", err.message);
    dit_diopi_library_close(behind);
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

diopiError_t faulty_forward(int function, const union dit_diopi_value *values) {
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
  int given = tensors->input_count, count = 0;
  for (int i = 0; i < tensors->output_count; i++) {
    if (tensors->outputs[i].ndim || tensors->outputs[i].numel) {  // else it keeps the place of a result to come
      views[given++] = tensors->outputs[i];
    }
  }
  const char *name = dit_diopi_get_functions(NULL)[function].name;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < rule_count; i++) {
    if (dit_fault_applies(&rules[i], i, name, views, given)) {
      out[count++] = rules[i];
    }
  }
  pthread_mutex_unlock(&mutex);
  return count;
}

void faulty_wait(diopiContextHandle_t context) {
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

static struct mistake_call make_mistake(const struct dit_fault_rule *rule, int function,
                                        const struct faulty_tensors *tensors, struct faulty_state *state) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  return (struct mistake_call){
      &mistakes[rule->kind - FAULTY_MISTAKES], function, info->name, info->kinds, info->names, tensors, state};
}

static bool alter(const struct dit_fault_rule *rule, int function, const struct faulty_tensors *tensors,
                  struct faulty_state *state) {
  if (rule->kind < FAULTY_MISTAKES) {
    return faulty_alter(rule, function, tensors, state);
  }
  struct mistake_call call = make_mistake(rule, function, tensors, state);
  return call.mistake->alter && call.mistake->alter(&call);
}

static bool damage(const struct dit_fault_rule *rule, int function, const struct faulty_tensors *tensors,
                   struct faulty_state *state) {
  if (rule->kind < FAULTY_MISTAKES) {
    return faulty_damage(rule, rule->matched, tensors, state);
  }
  struct mistake_call call = make_mistake(rule, function, tensors, state);
  return call.mistake->damage && call.mistake->damage(&call);
}

/// What the right call gives, in clones of the outputs, or in `answer` (diopiEqual); false where that cannot be told.
static bool call_soundly(int function, const union dit_diopi_value *values, char **clones, bool *answer) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  union dit_diopi_value own[FAULTY_PARAMETERS];
  struct diopiTensor handles[FAULTY_PARAMETERS];
  int64_t strides[FAULTY_PARAMETERS][DIT_MAX_DIMS];
  struct diopiGenerator generators[FAULTY_PARAMETERS];
  const bool answers = function == DIT_DIOPI_diopiEqual;
  if (strpbrk(kinds, answers ? "ODGp" : "OBDGp")) {
    return false;
  }
  memcpy(own, values, sizeof(values[0]) * strlen(kinds));
  if (answers) {
    own[1].pointer = answer;
  }
  for (int i = 0, at = 0; kinds[i]; i++) {
    if (kinds[i] == 'g' && values[i].generator) {
      generators[i] = *values[i].generator;
      own[i].generator = &generators[i];
    }
    if (kinds[i] != 'o' || !values[i].tensor) {
      continue;
    }
    const struct dit_tensor_view *view = &values[i].tensor->view;
    clones[at] = dit_malloc((size_t)view->numel * dit_dtype_get_size(view->dtype) + 64);
    if (!clones[at]) {
      return false;
    }
    dit_tensor_gather(view, clones[at]);
    dit_shape_set_contiguous(view->ndim, view->sizes, strides[i]);
    handles[i] = *values[i].tensor;
    handles[i].view.data = view->numel ? clones[at] : NULL;
    handles[i].view.strides = strides[i];
    handles[i].view.flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
    own[i].tensor = &handles[i];
    at++;
  }
  return dit_diopi_invoke(&behind->functions, function, own) == diopiSuccess;
}

/// Other elements? One NaN is as good as another.
static bool are_other(int dtype, int64_t count, const char *a, const char *b) {
  const int part = dtype == DIT_DTYPE_C64 ? DIT_DTYPE_F32 : dtype == DIT_DTYPE_C128 ? DIT_DTYPE_F64 : dtype;
  const size_t width = dit_dtype_get_size(part);
  count *= part == dtype ? 1 : 2;
  if (memcmp(a, b, (size_t)count * width) == 0) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    double left, right;
    if (memcmp(a + (size_t)i * width, b + (size_t)i * width, width) != 0 &&
        !(mistake_load(part, a, i, &left) && mistake_load(part, b, i, &right) && isnan(left) && isnan(right))) {
      return true;
    }
  }
  return false;
}

/// Are the results other than the clones?
static bool differs(const struct faulty_tensors *tensors, char **clones) {
  bool found = false;
  for (int i = 0; i < tensors->output_count && !found; i++) {
    const struct dit_tensor_view *view = &tensors->outputs[i];
    const size_t size = (size_t)view->numel * dit_dtype_get_size(view->dtype);
    char *now = size ? dit_malloc(size) : NULL;
    if (now) {
      dit_tensor_gather(view, now);
      found = are_other(view->dtype, view->numel, now, clones[i]);
    }
    dit_free(now);
  }
  return found;
}

/// What becomes of a call that the library behind refused.
static diopiError_t refuse(diopiError_t code, const struct dit_fault_rule *applied, int count,
                           const struct faulty_tensors *tensors) {
  for (int i = 0; i < count; i++) {
    const int mistake = applied[i].kind - FAULTY_MISTAKES;
    if (mistake == MISTAKE_error_without_text) {
      last_error[0] = 0;
    } else if (mistake == MISTAKE_error_after_writing) {
      for (int t = 0; t < tensors->output_count; t++) {
        dit_damage_unwritten(&tensors->outputs[t]);
      }
    }
    if (mistake >= MISTAKE_error_swallowed) {
      atomic_fetch_add(&injected, 1);
      atomic_fetch_add(&changed, 1);
      code = mistake == MISTAKE_error_swallowed ? diopiSuccess : code;
    }
  }
  return code;
}

static diopiError_t call_broken(int function, const union dit_diopi_value *values, const struct dit_fault_rule *applied,
                                int count, struct faulty_tensors *tensors) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  struct faulty_state state;
  char *clones[FAULTY_PARAMETERS] = {NULL};
  memset(&state, 0, sizeof state);
  memcpy(state.values, values, sizeof(values[0]) * strlen(kinds));
  uint64_t acted = 0, later = 0;
  bool answer = false;
  faulty_wait(values[0].context);
  dit_memory_access_begin();
  for (int i = 0; i < count; i++) {
    acted |= alter(&applied[i], function, tensors, &state) ? UINT64_C(1) << i : 0;
  }
  dit_memory_access_end();
  const bool told = acted && applied[0].kind >= FAULTY_MISTAKES &&
                    applied[0].kind != FAULTY_MISTAKES + MISTAKE_inplace_cleared &&
                    call_soundly(function, values, clones, &answer);
  diopiError_t code = faulty_forward(function, state.values);
  bool differ = acted != 0;
  if (code == diopiSuccess) {
    faulty_wait(values[0].context);
    faulty_collect(function, values, true, tensors);
    dit_memory_access_begin();
    for (int i = 0; i < count; i++) {
      later |= damage(&applied[i], function, tensors, &state) ? UINT64_C(1) << i : 0;
    }
    const bool wrong = function == DIT_DIOPI_diopiEqual && told && *(const bool *)values[1].pointer != answer;
    differ = (acted && (!told || wrong || differs(tensors, clones))) || later;
    dit_memory_access_end();
  } else {
    code = refuse(code, applied, count, tensors);
  }
  faulty_release(&state);
  for (int i = 0; i < FAULTY_PARAMETERS; i++) {
    dit_free(clones[i]);
  }
  atomic_fetch_add(&injected, (uint64_t)__builtin_popcountll(acted | later));
  atomic_fetch_add(&changed, differ);
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
  if (probed) {
    return faulty_probe_call(function, values, probed);
  }
  if (atomic_load_explicit(&active, memory_order_relaxed) == 0) {
    return faulty_forward(function, values);
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
  return count ? call_broken(function, values, applied, count, &tensors) : faulty_forward(function, values);
}
