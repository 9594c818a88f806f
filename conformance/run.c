/// Running a case and judging it: the code, every written byte, the results, and that a second run gives the same bits.
///
/// Runs alternate between two patterns for memory that the library must not read: all bits set (NaN, -1) and 0x7B (a
/// huge number), so an element that was never written cannot pass for a result in both.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "dit/alloc.h"
#include "far.h"

const unsigned char run_patterns[2] = {0xFF, 0x7B};

static bool is_judged(const struct pack_case *item, const struct pack_tensor *tensor) {
  return tensor->role != PACK_IN && tensor->check != PACK_UNTOUCHED && !item->expect_error && tensor->argument >= 0;
}

static const char *get_label(const struct pack_case *item, const struct pack_tensor *tensor, char *label, size_t size) {
  pack_get_parameter(item, tensor->argument, label, size);
  if (tensor->item >= 0 && item->arguments[tensor->argument].count > 1) {
    const size_t length = strlen(label);
    snprintf(label + length, size - length, "[%d]", tensor->item);
  }
  return label;
}

// Bytes that must not change

static const struct pack_tensor *find_tensor(const struct pack_case *item, int storage, bool written) {
  for (int i = 0; i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    if (tensor->storage == (uint32_t)storage && tensor->argument >= 0 && (tensor->role != PACK_IN) == written) {
      return tensor;
    }
  }
  return NULL;
}

static bool fail_byte(const struct call *call, size_t at, struct outcome *outcome) {
  const struct pack_case *item = call->item;
  char label[96] = "a tensor";
  int storage = 0;
  while (storage + 1 < item->storage_count && at + MACHINE_GUARD / 2 >= call->places[storage + 1]) {
    storage++;
  }
  if (item->storage_count == 0) {
    return outcome_fail(outcome, "guard", "wrote memory that belongs to no tensor");
  }
  const struct pack_tensor *output = find_tensor(item, storage, true), *input = find_tensor(item, storage, false);
  if (output || input) {
    get_label(item, output ? output : input, label, sizeof label);
  }
  const long long byte = (long long)at - (long long)call->places[storage];
  const long long size = (long long)item->storages[storage].size;
  if (byte < 0 || byte >= size) {
    return outcome_fail(outcome, "guard", "wrote outside '%s', at byte %+lld of its storage of %lld bytes", label, byte,
                        size);
  }
  if (item->expect_error) {
    return outcome_fail(outcome, "written", "refused its arguments, but wrote '%s' at byte +%lld", label, byte);
  }
  if (!output) {
    return outcome_fail(outcome, "input", "modified input '%s' at byte +%lld of its storage", label, byte);
  }
  if (output->check == PACK_UNTOUCHED) {
    return outcome_fail(outcome, "written", "wrote '%s' at byte +%lld, which must stay as it is", label, byte);
  }
  return outcome_fail(outcome, "gap",
                      "wrote outside the output '%s' at byte +%lld of its storage, between its elements", label, byte);
}

/// Put back what the call was allowed to write; whatever differs then is a mistake.
static bool check_bytes(const struct call *call, struct machine *machine, unsigned char *rows,
                        struct outcome *outcome) {
  const struct pack_case *item = call->item;
  for (int i = 0; i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    if (tensor->storage != PACK_NONE && is_judged(item, tensor)) {
      const size_t place = call->places[tensor->storage];
      call_gather(tensor, machine->before + place, rows);
      call_scatter(tensor, rows, machine->after + place);
    }
  }
  if (memcmp(machine->before, machine->after, call->size) == 0) {
    return true;
  }
  size_t at = 0;
  while (machine->before[at] == machine->after[at]) {
    at++;
  }
  return fail_byte(call, at, outcome);
}

// Results

static bool print_shape(int ndim, const int64_t *sizes, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (int d = 0; d < ndim && at < size; d++) {
    at += (size_t)snprintf(text + at, size - at, d ? ", %lld" : "%lld", (long long)sizes[d]);
  }
  if (at < size) {
    snprintf(text + at, size - at, ")");
  }
  return true;
}

/// Elements of a result that the library made: a scratch tensor of the context with the right dtype and shape.
static bool take_required(struct call *call, struct machine *machine, const struct diopiContext *context,
                          const struct pack_tensor *tensor, const char *label, unsigned char *rows,
                          struct outcome *outcome) {
  diopiTensorHandle_t handle = call->values[tensor->argument + 1].tensors[tensor->item < 0 ? 0 : tensor->item];
  char is[256], should[256];
  if (!handle) {
    return outcome_fail(outcome, "unwritten", "'%s' was not made: its handle is NULL", label);
  }
  bool known = dit_diopi_context_owns(context, handle);
  for (int i = 0; i < call->item->tensor_count && !known; i++) {
    known = handle == &call->handles[i];
  }
  if (!known) {
    return outcome_fail(outcome, "unwritten", "'%s' is no tensor that diopiRequireTensor made", label);
  }
  const struct dit_tensor_view *view = &handle->view;
  if (view->dtype != tensor->dtype) {
    return outcome_fail(outcome, "dtype", "'%s' has dtype %s, expected %s", label, dit_dtype_get_name(view->dtype),
                        dit_dtype_get_name(tensor->dtype));
  }
  if (view->ndim != tensor->ndim ||
      (view->ndim && memcmp(view->sizes, tensor->sizes, sizeof(int64_t) * (size_t)view->ndim) != 0)) {
    print_shape(view->ndim, view->sizes, is, sizeof is);
    print_shape(tensor->ndim, tensor->sizes, should, sizeof should);
    return outcome_fail(outcome, "shape", "'%s' has shape %s, expected %s", label, is, should);
  }
  int64_t low, high;
  dit_tensor_get_span(view, &low, &high);
  unsigned char *bytes = dit_malloc((size_t)(high - low) + 1);
  struct dit_error err = {.message = ""};
  if (!bytes || (view->flags & DIT_TENSOR_ON_DEVICE
                     ? machine_read(machine, bytes, view->data, (size_t)(high - low), &err) != DIT_OK
                     : (memcpy(bytes, view->data, (size_t)(high - low)), false))) {
    dit_free(bytes);
    return outcome_fail(outcome, "device", "'%s' cannot be read: %s", label, err.message);
  }
  struct pack_tensor found = *tensor;
  found.offset = 0;
  found.strides = view->strides;
  call_gather(&found, bytes, rows);
  dit_free(bytes);
  return true;
}

static bool judge_result(struct call *call, struct machine *machine, const struct pack_tensor *tensor,
                         const char *label, const unsigned char *rows, double scale, struct outcome *outcome) {
  const struct pack_case *item = call->item;
  const struct pack_tensor *source = NULL;
  unsigned char *data = NULL;
  if (tensor->check == PACK_SELECTION || tensor->check == PACK_KEPT) {
    const struct pack_argument *argument = &item->arguments[tensor->source];
    if (strchr("ot", argument->kind) && argument->form == PACK_GIVEN && argument->words[0] != PACK_NONE) {
      source = &item->tensors[argument->words[0]];
      data = dit_malloc((size_t)source->numel * dit_dtype_get_size(source->dtype) + 1);
    }
    if (!data) {
      return outcome_fail(outcome, "case", "'%s' points into an argument that is no tensor", label);
    }
    const unsigned char *memory = tensor->check == PACK_KEPT ? machine->after : machine->before;
    call_gather(source, memory + call->places[source->storage], data);
  }
  const bool ok = judge_tensor(tensor, rows, label, source, data, scale, outcome);
  dit_free(data);
  return ok;
}

static bool judge_results(struct call *call, struct machine *machine, const struct diopiContext *context,
                          struct results *results, double scale, struct outcome *outcome) {
  const struct pack_case *item = call->item;
  for (int i = 0; i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    char label[96];
    if (!is_judged(item, tensor) || (tensor->storage == PACK_NONE && tensor->check == PACK_ANYTHING)) {
      continue;
    }
    get_label(item, tensor, label, sizeof label);
    unsigned char *rows = results->bytes[0] + results->at[i];
    if (tensor->storage == PACK_NONE) {
      if (!take_required(call, machine, context, tensor, label, rows, outcome)) {
        return false;
      }
    } else {
      call_gather(tensor, machine->after + call->places[tensor->storage], rows);
    }
    if (!judge_result(call, machine, tensor, label, rows, scale, outcome)) {
      return false;
    }
  }
  return true;
}

/// Numbers behind pointers, such as the bool of diopiEqual.
static bool judge_numbers(struct call *call, double scale, struct outcome *outcome) {
  for (int i = 0; i < call->item->argument_count; i++) {
    const struct pack_argument *argument = &call->item->arguments[i];
    char label[96];
    pack_get_parameter(call->item, i, label, sizeof label);
    for (int64_t k = 0; argument->form == PACK_RESULT && k < argument->count; k++) {
      const unsigned char *numbers = call->values[i + 1].pointer;
      uint64_t got = numbers[k];
      if (argument->kind != 'B') {
        memcpy(&got, numbers + 8 * k, 8);
      }
      if (!judge_value(argument->kind, got, argument->words[k], scale * argument->tolerance[k], label, outcome)) {
        return false;
      }
    }
  }
  return true;
}

/// Whoever draws numbers sets the generator forward, else the next call draws the same ones. A gradient draws those of
/// its forward call once more.
static bool check_generator(const struct call *call, struct outcome *outcome) {
  const struct pack_case *item = call->item;
  const bool again = strstr(item->name, "Backward") != NULL;
  bool draws = false;
  for (int i = 0; !again && i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    draws = draws || (is_judged(item, tensor) && tensor->numel > 1 &&
                      (tensor->check == PACK_PERMUTATION || (tensor->check == PACK_MOMENTS && tensor->bounds[2] > 0)));
  }
  for (int i = 0; draws && i < item->argument_count; i++) {
    const struct pack_argument *argument = &item->arguments[i];
    if (argument->kind == 'g' && argument->form == PACK_GIVEN &&
        call->values[i + 1].generator->seed == argument->words[0] &&
        call->values[i + 1].generator->offset == argument->words[1]) {
      return outcome_fail(outcome, "generator", "drew random numbers and left its generator at offset %llu",
                          (unsigned long long)argument->words[1]);
    }
  }
  return true;
}

static bool check_repeat(const struct call *call, const struct results *results, struct outcome *outcome) {
  for (int i = 0; i < call->item->tensor_count; i++) {
    const struct pack_tensor *tensor = &call->item->tensors[i];
    const size_t width = dit_dtype_get_size(tensor->dtype), size = (size_t)tensor->numel * width;
    const unsigned char *now = results->bytes[0] + results->at[i], *first = results->bytes[1] + results->at[i];
    if (!is_judged(call->item, tensor) || tensor->check == PACK_ANYTHING || memcmp(now, first, size) == 0) {
      continue;
    }
    size_t at = 0;
    while (now[at] == first[at]) {
      at++;
    }
    char label[96];
    return outcome_fail(outcome, "determinism", "the same call gave other bits: element %zu of '%s' differs",
                        at / width, get_label(call->item, tensor, label, sizeof label));
  }
  return true;
}

// Runs

/// Does the library itself say that the function takes the dtype of this case? Only asked where all floating tensors of
/// the call have one: the query knows the first input alone.
static bool claims_dtype(const struct dit_diopi_library *library, const struct pack_case *item) {
  diopiExtSupport_t support = {.struct_size = sizeof support};
  int dtype = -1;
  for (int i = 0; i < item->tensor_count; i++) {
    const int own = item->tensors[i].dtype;
    const bool index = own == DIT_DTYPE_BOOL || own == DIT_DTYPE_I64 || own == DIT_DTYPE_I32;
    if (dtype >= 0 && own != dtype && !index) {
      return false;
    }
    dtype = dtype < 0 && !index ? own : dtype;
  }
  return dtype >= 0 && library->ext_get_support && library->ext_get_support(item->name, &support) == diopiSuccess &&
         support.dtypes >> dit_diopi_get_dtype(dtype) & 1;
}

static bool judge_code(const struct dit_diopi_library *library, const struct pack_case *item, struct outcome *outcome) {
  const diopiError_t code = (diopiError_t)outcome->code;
  const char *name = dit_diopi_get_error_name(code);
  if (code == diopiNoImplement) {
    outcome->verdict = VERDICT_MISSING;
    snprintf(outcome->reason, sizeof outcome->reason, "the library does not have %s", item->name);
    return false;
  }
  if (item->expect_error) {
    if (code == diopiSuccess) {
      return outcome_fail(outcome, "accepted", "accepted arguments that are not valid");
    }
    return outcome->text[0] ||
           outcome_fail(outcome, "text", "returned %s (%d) without an error text", name, outcome->code);
  }
  if (code == diopiDtypeNotSupported && claims_dtype(library, item)) {
    return outcome_fail(outcome, "code", "returned %s (%d), but says that it takes this dtype", name, outcome->code);
  }
  if (dit_diopi_is_refusal(code)) {
    outcome->verdict = VERDICT_UNSUPPORTED;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", name);
    return false;
  }
  return code == diopiSuccess || outcome_fail(outcome, "code", "returned %s (%d): %s", name, outcome->code,
                                              outcome->text[0] ? outcome->text : "(no error text)");
}

static double get_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/// A tensor on the host is judged in its own memory.
static void take_host_storages(const struct call *call, struct machine *machine) {
  for (int i = 0; i < call->item->storage_count; i++) {
    if (call->item->storages[i].on_host) {
      const size_t begin = call->places[i] - MACHINE_GUARD / 2;
      const size_t size = (size_t)call->item->storages[i].size + MACHINE_GUARD;
      memcpy(machine->after + begin, machine_get_address(machine, true, begin), size);
    }
  }
}

/// Close the guard zones while the library runs.
static void close_guards(const struct call *call, const struct machine *machine) {
  for (int host = 0; host < 2; host++) {
    size_t end = 0;
    for (int i = 0; i < call->item->storage_count; i++) {
      machine_close(machine_get_address(machine, host, end), call->places[i] - end);
      end = call->places[i] + (size_t)call->item->storages[i].size;
    }
    machine_close(machine_get_address(machine, host, end), call->size - end);
  }
}

static void open_guards(const struct call *call, const struct machine *machine) {
  machine_open(machine_get_address(machine, false, 0), call->size);
  machine_open(machine_get_address(machine, true, 0), call->size);
}

static enum dit_status invoke(struct call *call, struct machine *machine, const struct dit_diopi_library *library,
                              bool side, struct outcome *outcome, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(machine_set_stream(machine, side, err));
  close_guards(call, machine);
  const double start = get_seconds();
  outcome->code = (int)dit_diopi_invoke(&library->functions, call->item->function, call->values);
  enum dit_status status = machine_synchronize(machine, side, err);
  outcome->seconds = get_seconds() - start;
  open_guards(call, machine);
  outcome->text[0] = 0;
  if (outcome->code != diopiSuccess && outcome->code != diopiNoImplement) {
    snprintf(outcome->text, sizeof outcome->text, "%s", dit_diopi_library_get_error(library));
  }
  DIT_RETURN_IF_NOT_OK(status);
  DIT_RETURN_IF_NOT_OK(machine_set_stream(machine, false, err));
  DIT_RETURN_IF_NOT_OK(machine_copy_out(machine, call->size, err));
  take_host_storages(call, machine);
  return DIT_OK;
}

enum dit_status run_prepared(struct call *call, struct machine *machine, const struct dit_diopi_library *library,
                             const struct run_options *options, struct diopiContext *context, bool side,
                             struct results *results, struct outcome *outcome, struct dit_error *err) {
  far_move(call, machine->before, results->spare_tensor, true);
  DIT_RETURN_IF_NOT_OK(invoke(call, machine, library, side, outcome, err));
  far_move(call, machine->after, results->spare_tensor, false);
  if (judge_code(library, call->item, outcome) && !call->item->expect_error) {
    (void)(judge_results(call, machine, context, results, options->tolerance, outcome) &&
           judge_numbers(call, options->tolerance, outcome) && check_generator(call, outcome));
  }
  check_bytes(call, machine, results->spare, outcome);
  return DIT_OK;
}

static enum dit_status run_once(struct call *call, struct machine *machine, const struct dit_diopi_library *library,
                                const struct run_options *options, int run, bool side, struct results *results,
                                struct outcome *outcome, struct dit_error *err) {
  const unsigned char pattern = run_patterns[run % 2];
  struct diopiContext context;
  struct scratch scratch;
  DIT_RETURN_IF_NOT_OK(call_fill(call, machine, pattern, err));
  dit_diopi_context_init(&context, 0, side ? machine->side_raw : NULL);
  scratch_attach(&scratch, machine, &context, pattern);
  call_make_values(call, &context, pattern);
  enum dit_status status = run_prepared(call, machine, library, options, &context, side, results, outcome, err);
  char reason[128];
  if (status == DIT_OK && outcome->verdict == VERDICT_PASS && run > 0 && call->item->deterministic &&
      !call->item->expect_error) {
    check_repeat(call, results, outcome);
  }
  if (status == DIT_OK && !scratch_is_intact(&scratch, reason, sizeof reason)) {
    outcome_fail(outcome, "guard", "%s", reason);
  }
  if (side && outcome->verdict == VERDICT_FAIL) {
    outcome_prefix(outcome, "on another stream than the default: ");
  }
  dit_diopi_context_reset(&context);
  scratch_reset(&scratch);
  return status;
}

bool results_init(struct results *results, const struct pack_case *item) {
  memset(results, 0, sizeof *results);
  results->at = dit_calloc((size_t)item->tensor_count + 1, sizeof *results->at);
  size_t largest = 0;
  for (int i = 0; results->at && i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    const size_t bytes = (size_t)tensor->numel * dit_dtype_get_size(tensor->dtype);
    largest = bytes > largest ? bytes : largest;
    results->at[i] = results->size;
    if (is_judged(item, tensor)) {
      results->size += ((size_t)tensor->numel * dit_dtype_get_size(tensor->dtype) + 15) / 16 * 16;
    }
  }
  results->bytes[0] = dit_malloc(results->size + 1);
  results->bytes[1] = dit_malloc(results->size + 1);
  results->spare = dit_malloc(results->size + 1);
  results->spare_tensor = dit_malloc(largest + 1);
  return results->at && results->bytes[0] && results->bytes[1] && results->spare && results->spare_tensor;
}

void results_reset(struct results *results) {
  dit_free(results->at);
  dit_free(results->bytes[0]);
  dit_free(results->bytes[1]);
  dit_free(results->spare);
  dit_free(results->spare_tensor);
}

enum dit_status run_case(struct machine *machine, const struct dit_diopi_library *library, const struct pack_case *item,
                         const struct run_options *options, struct outcome *outcome, struct dit_error *err) {
  struct call call;
  struct results results;
  *outcome = (struct outcome){.kind = ""};
  if (!dit_diopi_library_get(library, item->function)) {
    outcome->code = diopiNoImplement;
    judge_code(library, item, outcome);
    return DIT_OK;
  }
  if (pack_get_tag(item, "threads") && !options->one_thread) {
    return run_threads(machine, library, item, options, outcome, err);
  }
  if (pack_get_tag(item, "far") && machine->has_device) {
    outcome->verdict = VERDICT_SKIPPED;
    snprintf(outcome->reason, sizeof outcome->reason, "tensors of this span need memory of the host: no --vendor");
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(call_init(&call, item, machine, err));
  enum dit_status status = results_init(&results, item) ? DIT_OK : DIT_ERR_NOMEM;
  if (status == DIT_OK && pack_get_tag(item, "far")) {
    status = far_open(&call, err);
  }
  const int runs = options->repeat + (options->side_stream && machine->has_device);
  double seconds = 0;
  for (int run = 0; status == DIT_OK && run < runs && outcome->verdict == VERDICT_PASS; run++) {
    status = run_once(&call, machine, library, options, run, run >= options->repeat, &results, outcome, err);
    seconds = run == 0 || outcome->seconds < seconds ? outcome->seconds : seconds;
    if (run == 0 && results.size) {
      memcpy(results.bytes[1], results.bytes[0], results.size);
    }
    if (run == 0 && options->get_acted && options->get_acted() == 0) {
      break;
    }
  }
  outcome->seconds = seconds;
  if (status == DIT_OK && outcome->verdict == VERDICT_PASS) {
    status = judge_inference(&call, library, outcome, err);
  }
  results_reset(&results);
  far_close(&call);
  call_reset(&call);
  return status;
}
