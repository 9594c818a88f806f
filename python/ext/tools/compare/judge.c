// Is this result right: the legacy columns, and the verdict of the judge (dit/verdict.h, docs/verdict.md).
//
// The judge is C without Python; here are the values it reads and the further runs it asks for (judge_runs.c). It works
// without the GIL and takes it back for each run.
#include "tools/compare/judge.h"

#include <math.h>
#include <string.h>

#include "dit/random.h"
#include "py_call.h"
#include "tools/compare/state.h"

// Yardsticks

// One memory for all tools of the process, made when it is first needed.
static struct dit_verdict_memory *memory_get(void) {
  static struct dit_verdict_memory *memory;
  if (!memory && dit_verdict_memory_create(&memory, NULL) != DIT_OK) {
    return NULL;  // then every suspicious result is judged anew
  }
  return memory;
}

void judge_forget(void) {
  dit_verdict_memory_clear(memory_get());
}

static uint64_t yardstick_get_key(const struct compare_case *c, enum compare_what what, int index,
                                  const struct dit_tensor_view *view) {
  uint64_t key = dit_random_mix(c->signature, c->op->key);
  key = dit_random_mix(key, (uint64_t)what << 40 | (uint64_t)(uint32_t)index << 8 | (uint64_t)view->dtype);
  for (int dim = 0; dim < view->ndim; dim++) {
    key = dit_random_mix(key, (uint64_t)view->sizes[dim]);
  }
  return key | 1;
}

bool judge_seen_get(struct compare_case *c, enum compare_what what, int index, const struct dit_tensor_view *view,
                    double *relative, double *residual) {
  return dit_verdict_memory_get(memory_get(), yardstick_get_key(c, what, index, view), relative, residual);
}

void judge_seen_put(const struct compare_case *c, enum compare_what what, int index, const struct dit_tensor_view *view,
                    double relative, double residual) {
  dit_verdict_memory_put(memory_get(), yardstick_get_key(c, what, index, view), relative, residual);
}

// What the judge asks for

struct judge_source {
  struct judge_runs *runs;
  PyThreadState *thread;  ///< of the GIL while the judge works without it
  struct judge_reading reading;
};

static void case_set_moves(struct compare_case *c, const struct dit_verdict_request *request) {
  bool jitters = request->kind == DIT_RUN_JITTER || request->kind == DIT_RUN_JITTER_WIDE;
  c->jitter = jitters ? request->size : 0;
  c->narrow = jitters && request->narrow;
  c->shake = request->kind == DIT_RUN_SHAKEN ? request->size : 0;
  c->shake_seed = request->seed;
}

static enum dit_status value_open(struct judge_source *source, const struct dit_verdict_request *request, int index,
                                  struct dit_tensor_view *view, struct dit_error *err) {
  static const enum compare_precision precisions[] = {
      [DIT_RUN_WIDE] = COMPARE_WIDE,     [DIT_RUN_NATIVE] = COMPARE_NATIVE,           [DIT_RUN_SHAKEN] = COMPARE_SHAKEN,
      [DIT_RUN_JITTER] = COMPARE_JITTER, [DIT_RUN_JITTER_WIDE] = COMPARE_JITTER_WIDE, [DIT_RUN_OTHER] = COMPARE_OTHER};
  if (request->kind == DIT_RUN_OTHER && !compare_run_has_other(source->runs->c)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the CPU has no other way");
  }
  judge_tensor_close(&source->reading.runs[request->kind]);
  case_set_moves(source->runs->c, request);
  struct judge_values *values = judge_runs_get(source->runs, precisions[request->kind]);
  case_set_moves(source->runs->c, &(struct dit_verdict_request){.kind = DIT_RUN_WIDE});
  if (!values && PyErr_Occurred()) {
    return dit_error_set(err, DIT_ERR_INTERNAL, "an exception of Python is pending");
  }
  return judge_reading_open(&source->reading, request->kind,
                            values && index < values->count ? values->value[index] : NULL,
                            judge_runs_get_reason(source->runs, precisions[request->kind]), view, err);
}

static enum dit_status source_run(void *context, const struct dit_verdict_request *request, int index,
                                  struct dit_tensor_view *value, struct dit_error *err) {
  struct judge_source *source = context;
  PyEval_RestoreThread(source->thread);
  enum dit_status status = value_open(source, request, index, value, err);
  source->thread = PyEval_SaveThread();
  return status;
}

static enum dit_status source_arguments(void *context, struct dit_verdict_arguments *arguments, struct dit_error *err) {
  struct judge_source *source = context;
  PyEval_RestoreThread(source->thread);
  const struct compare_case *c = source->runs->c;
  enum dit_status status = judge_reading_open_arguments(&source->reading, c->op->name, c->py_args, c->py_kwargs,
                                                        c->twins, c->twin_count, arguments, err);
  source->thread = PyEval_SaveThread();
  return status;
}

// One pair of tensors

static void out_set(struct compare_judgement *out, enum compare_verdict verdict, const char *reason) {
  out->auto_verdict = verdict;
  (void)snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void out_fill(struct compare_judgement *out, const struct dit_verdict_result *result) {
  static const enum compare_verdict verdicts[] = {[DIT_VERDICT_RIGHT] = COMPARE_RIGHT,
                                                  [DIT_VERDICT_WRONG] = COMPARE_WRONG,
                                                  [DIT_VERDICT_UNKNOWN] = COMPARE_UNKNOWN};
  out_set(out, verdicts[result->verdict], result->reason);
  out->error = result->error;
  out->allowed = result->allowed;
  out->cpu_error = result->cpu_error;
  out->wrong = result->wrong;
  out->index = result->index;
  out->value = result->value;
  out->reference = result->reference;
}

static bool shapes_agree(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0);
}

// The columns follow the better reference where the verdict did; the note about dtypes stays that of the first run.
static int columns_improve(const struct judge_source *source, const struct judge_tensor *device,
                           const struct judge_tensor *first, struct compare_judgement *out) {
  const struct judge_tensor *wide = &source->reading.runs[DIT_RUN_WIDE];
  bool better = wide->py_tensor && wide->view.dtype != first->view.dtype && shapes_agree(&wide->view, &device->view);
  struct dit_compare_result compared;
  struct compare_judgement columns = *out;
  if (!better) {
    return 0;
  }
  if (judge_legacy_tensor(source->runs->c, device, wide, &columns, &compared) < 0) {
    return -1;
  }
  out->close = columns.close;
  out->cosine = columns.cosine;
  out->max_abs_diff = columns.max_abs_diff;
  out->max_relative_diff = columns.max_relative_diff;
  return 0;
}

// Was the first run in the dtypes of the program?
static bool first_is_native(const struct compare_case *c, const struct compare_op *info) {
  for (int i = 0; i < c->twin_count && !info->is_exact; i++) {
    if (compare_dtype_get(c, c->dtypes[i]) != c->dtypes[i]) {
      return false;
    }
  }
  return !c->has_autocast;
}

static uint64_t dtype_get_key(const struct compare_case *c, int index, const struct dit_tensor_view *view) {
  return dit_random_mix(yardstick_get_key(c, COMPARE_OUTPUT, index, view), c->autocast + 1U) | 1;
}

static bool dtype_is_known(const struct compare_case *c, int index, const struct dit_tensor_view *view) {
  double known[2];
  return (c->has_autocast && !compare_run_has_other(c)) ||
         dit_verdict_memory_get(memory_get(), dtype_get_key(c, index, view), &known[0], &known[1]);
}

bool judge_dtype_is_known(struct compare_case *c, int index, PyObject *device, PyObject *first) {
  const struct compare_op *info = compare_op_find(c->tool->state, c->op);
  struct engine_tensor a, b;
  struct dit_tensor_view view;
  if (!info || !device || !first || !engine_is_tensor(device) || !engine_is_tensor(first)) {
    return true;
  }
  engine_tensor_read(device, &a);
  engine_tensor_read(first, &b);
  bool known = first_is_native(c, info) ? a.dtype == b.dtype
                                        : engine_tensor_get_view(&a, &view) && dtype_is_known(c, index, &view);
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return known;
}

// Of the value in the program's own dtypes: what the first run says, or a further one; -1: not known, maybe with an
// exception.
static int dtype_find(struct judge_runs *runs, const struct compare_op *info, int index,
                      const struct judge_tensor *first) {
  if (first_is_native(runs->c, info)) {
    return first->view.dtype;
  }
  struct judge_values *values = judge_runs_get(runs, COMPARE_NATIVE);
  PyObject *value = values && index < values->count ? values->value[index] : NULL;
  struct judge_tensor native = {0};
  if (!value || !engine_is_tensor(value) || judge_tensor_open(&native, value) < 0) {
    return -1;
  }
  int dtype = native.view.dtype;
  judge_tensor_close(&native);
  return dtype;
}

// Is a result of another dtype than the CPU's? Asked once per kind of call; not where the CPU can only be asked under
// its own autocast, whose lists differ. 0, or -1 with an exception.
static int dtype_judge(struct judge_runs *runs, int index, const struct judge_tensor *device,
                       const struct judge_tensor *first, struct compare_judgement *out, bool *wrong) {
  struct compare_case *c = runs->c;
  const struct compare_op *info = compare_op_find(c->tool->state, c->op);
  *wrong = false;
  if (!info || runs->what != COMPARE_OUTPUT || dtype_is_known(c, index, &device->view)) {
    return 0;
  }
  int dtype = dtype_find(runs, info, index, first);
  if (dtype < 0) {
    return PyErr_Occurred() ? -1 : 0;
  }
  *wrong = dtype != device->view.dtype;
  if (!*wrong) {
    dit_verdict_memory_put(memory_get(), dtype_get_key(c, index, &device->view), 0, 0);
    return 0;
  }
  out_set(out, COMPARE_WRONG, "");
  (void)snprintf(out->reason, sizeof out->reason, "the result is of dtype %s, the CPU's of %s",
                 dit_dtype_get_name(device->view.dtype), dit_dtype_get_name(dtype));
  out->wrong = out->numel;
  return 0;
}

static int tensors_judge(struct judge_runs *runs, int index, const struct judge_tensor *device,
                         const struct judge_tensor *reference, struct compare_judgement *out) {
  struct compare_case *c = runs->c;
  struct dit_compare_result compared;
  bool same_shape = shapes_agree(&device->view, &reference->view);
  out->numel = device->view.numel;
  out->dtype = device->view.dtype;
  if (!same_shape) {
    out->close = false;
    out->cosine = -1;
    out->max_abs_diff = out->max_relative_diff = NAN;
    (void)snprintf(out->info, sizeof out->info, "Inconsistent shape");
  } else if (judge_legacy_tensor(c, device, reference, out, &compared) < 0) {
    return -1;
  }
  bool is_wrong = false;
  if (same_shape && dtype_judge(runs, index, device, reference, out, &is_wrong) < 0) {
    return -1;
  }
  if (is_wrong || (same_shape && compared.unequal == 0)) {
    out->auto_verdict = is_wrong ? COMPARE_WRONG : COMPARE_RIGHT;
    return 0;
  }
  struct judge_source source = {.runs = runs};
  const struct dit_verdict_source asked = {&source, source_run, source_arguments};
  const struct dit_verdict_case judged = {
      .op = dit_operator_find(c->op->name),
      .traits = dit_operator_get_traits(c->op->name),
      .what = (enum dit_verdict_what)runs->what,
      .index = index,
      .is_careful = device->info.place == ENGINE_PLACE_HOST,
      .between = c->has_autocast ? compare_roundoff_get(c->autocast) : 0,
      .seed = c->id,
      .memory = memory_get(),
      .key = yardstick_get_key(c, runs->what, index, &device->view),
  };
  struct dit_verdict_result result;
  struct dit_error err = {0};
  source.thread = PyEval_SaveThread();
  enum dit_status status = dit_verdict_judge(&judged, &asked, &device->view, &reference->view, &result, &err);
  PyEval_RestoreThread(source.thread);
  int done = status == DIT_OK ? 0 : -1;
  if (done < 0 && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_NotImplementedError, err.message);
  }
  if (done == 0) {
    out_fill(out, &result);
    done = result.has_wide && same_shape ? columns_improve(&source, device, reference, out) : 0;
  }
  judge_reading_reset(&source.reading);
  return done;
}

int judge_excuse(struct compare_judgement *out) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_RuntimeError) &&
      !PyErr_ExceptionMatches(PyExc_ValueError)) {
    return -1;  // NotImplementedError is a RuntimeError
  }
  char text[121], reason[160];
  py_error_take(text, sizeof text, NULL);
  (void)snprintf(reason, sizeof reason, "not comparable: %s", text);
  reason[strcspn(reason, "\n")] = 0;
  out_set(out, COMPARE_UNKNOWN, reason);
  if (!out->info[0]) {
    memcpy(out->info, reason, sizeof out->info);
  }
  out->close = false;
  out->cosine = -1;
  out->max_abs_diff = out->max_relative_diff = NAN;
  return 0;
}

static void out_init(struct compare_judgement *out) {
  *out = (struct compare_judgement){.close = true, .cosine = 1, .index = -1, .cpu_error = NAN, .dtype = -1};
}

// A gradient that one side does not have.
static void missing_judge(PyObject *device, PyObject *reference, struct compare_judgement *out) {
  bool none = !device && !reference;
  out_set(out, none ? COMPARE_RIGHT : COMPARE_UNKNOWN,
          none      ? ""
          : !device ? "the device made no gradient for this tensor"
                    : "the CPU made no gradient for this tensor");
}

static int value_judge(struct judge_runs *runs, int index, PyObject *device, PyObject *reference,
                       struct compare_judgement *out) {
  if (runs->what == COMPARE_GRAD) {
    device = device == Py_None ? NULL : device;
    reference = reference == Py_None ? NULL : reference;
  }
  if (!device || !reference) {
    missing_judge(device, reference, out);
    return 0;
  }
  const struct dit_operator *op = dit_operator_find(runs->c->op->name);
  if (op && runs->what == COMPARE_OUTPUT && index < 32 && (op->private_results >> index & 1) &&
      (device == Py_None) != (reference == Py_None)) {
    out_set(out, COMPARE_UNKNOWN, "a result that only its own backward reads is returned by one of the two only");
    return 0;
  }
  if (!engine_is_tensor(device) || !engine_is_tensor(reference)) {
    int status = judge_legacy_value(device, reference, out);
    if (status == 0 && !out->close && judge_value_is_opaque(device, reference)) {
      (void)snprintf(out->reason, sizeof out->reason, "values of type %.80s cannot be compared",
                     Py_TYPE(device)->tp_name);
      out->auto_verdict = COMPARE_UNKNOWN;
      return 0;
    }
    out->auto_verdict = out->close ? COMPARE_RIGHT : COMPARE_WRONG;
    if (status == 0 && !out->close) {
      (void)snprintf(out->reason, sizeof out->reason, "%s", out->info);
    }
    return status;
  }
  struct judge_tensor a = {0}, b = {0};
  int status = judge_tensor_open(&a, device);
  status = status < 0 ? status : judge_tensor_open(&b, reference);
  status = status < 0 ? status : tensors_judge(runs, index, &a, &b, out);
  judge_tensor_close(&a);
  judge_tensor_close(&b);
  return status < 0 ? judge_excuse(out) : 0;
}

// The tolerances decide where the user set them, the rule elsewhere.
static void verdict_choose(struct compare_case *c, struct compare_judgement *out) {
  bool unknown = out->auto_verdict == COMPARE_UNKNOWN && isnan(out->max_abs_diff);
  out->verdict = out->auto_verdict;
  if (!compare_tolerance_decides(c, out->dtype) || unknown) {
    return;
  }
  out->verdict = out->close ? COMPARE_RIGHT : COMPARE_WRONG;
  if (!out->close && out->auto_verdict != COMPARE_WRONG && !out->info[0]) {
    (void)snprintf(out->reason, sizeof out->reason, "beyond the tolerance: atol %g, rtol %g", out->atol, out->rtol);
  }
}

int compare_judge(struct compare_case *c, enum compare_what what, PyObject *const *device, PyObject *const *reference,
                  int count, struct compare_judgement *judgements) {
  if (what == COMPARE_GRAD && compare_random_has_kept(c)) {
    return compare_random_judge(c, what, device, reference, count, judgements);
  }
  struct judge_runs runs = {.c = c, .what = what};
  int status = 0;
  for (int i = 0; i < count && status == 0; i++) {
    out_init(&judgements[i]);
    status = value_judge(&runs, i, device[i], reference[i], &judgements[i]);
    verdict_choose(c, &judgements[i]);
  }
  judge_runs_reset(&runs);
  return status;
}
