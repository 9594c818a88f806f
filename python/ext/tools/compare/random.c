// Operators that draw random numbers: the same numbers where the device draws as the CPU does, else the right
// distribution, else unknown.
//
// Before the call the state of the device's generator is read (never changed). The CPU's run starts from the seed that
// the embedded device's own fallback would use for it (adapter: borrowCpuGenerator), and the CPU's generator gets its
// state back. Where most elements are equal, both drew the same numbers, and the ordinary verdict holds. Otherwise the
// sample is judged: dropout by what it did to its input, permutations by being one, independent draws by the distance
// of their distribution from the CPU's sample. The alarm probability is RANDOM_ALARM per test.
#include "dit/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/operator.h"
#include "py_call.h"
#include "tools/compare/judge.h"
#include "tools/compare/random_stats.h"
#include "tools/compare/state.h"
#include "torch_tensor.h"

#define RANDOM_SAMPLE 65536  ///< elements that a distribution is judged by
#define RANDOM_SAME 16       ///< elements from which equality of half of them is no accident

// c->py_random is a list: seed (int or None), CPU generator in the place of the call's own (or None), what dropout kept
// (bool tensor, or None).
enum { RANDOM_SEED, RANDOM_GENERATOR, RANDOM_KEPT, RANDOM_ITEMS };

// How it draws, from the operator table; NULL: in a way that is not judged when the numbers differ.
static const struct dit_operator *entry_find(const struct compare_case *c) {
  const struct dit_operator *row = dit_operator_find(c->op->name);
  return row && row->draw != DIT_OPERATOR_DRAW_NONE ? row : NULL;
}

// Generators

// The generator that the call will draw from; NULL (an exception is cleared): not known.
static PyObject *generator_find(const struct engine_call *call, PyObject *given) {
  if (given) {
    return Py_NewRef(given);
  }
  int tensor = engine_call_get_device(call);
  int index = tensor >= 0 ? call->in.tensor[tensor].device_index : -1;
  PyObject *py_cuda = PyObject_GetAttr(torch_names.py_torch, torch_names.py_text_cuda);
  PyObject *py_all = py_cuda ? PyObject_GetAttrString(py_cuda, "default_generators") : NULL;
  if (py_all && index < 0) {
    PyObject *py_index = PyObject_CallMethod(py_cuda, "current_device", NULL);
    index = py_index ? (int)PyLong_AsLong(py_index) : 0;
    Py_XDECREF(py_index);
  }
  PyObject *py_generator = py_all && !PyErr_Occurred() ? PySequence_GetItem(py_all, index) : NULL;
  Py_XDECREF(py_all);
  Py_XDECREF(py_cuda);
  py_error_drop();
  return py_generator;
}

// From the generator's state: seed and offset, as CUDA and the embedded device have them. None when it looks otherwise.
static PyObject *seed_make(PyObject *generator) {
  PyObject *py_state = generator ? PyObject_CallMethod(generator, "get_state", NULL) : NULL;
  PyObject *py_seed = NULL;
  struct judge_tensor state = {0};
  if (py_state && judge_tensor_open(&state, py_state) == 0) {
    uint64_t words[2];
    if (state.view.numel == (int64_t)sizeof words && state.view.dtype == DIT_DTYPE_U8) {
      memcpy(words, state.view.data, sizeof words);
      py_seed = PyLong_FromUnsignedLongLong(dit_random_mix(words[0], words[1] / 4));
    }
    judge_tensor_close(&state);
  }
  Py_XDECREF(py_state);
  py_error_drop();
  return py_seed ? py_seed : Py_NewRef(Py_None);
}

// A generator of the CPU in the place of the call's own.
static int generator_replace(struct compare_case *c, PyObject **py_own) {
  *py_own = torch_names_load(TORCH_RANDOM) == 0 ? PyObject_CallNoArgs(torch_names.py_generator_type) : NULL;
  PyObject *py_kwargs = *py_own ? PyDict_Copy(c->py_kwargs) : NULL;
  if (!py_kwargs || PyDict_SetItemString(py_kwargs, "generator", *py_own) < 0) {
    Py_XDECREF(py_kwargs);
    return -1;
  }
  Py_SETREF(c->py_kwargs, py_kwargs);
  return 0;
}

int compare_random_save(struct compare_case *c, const struct engine_call *call) {
  PyObject *given = c->py_kwargs ? PyDict_GetItemString(c->py_kwargs, "generator") : NULL;  // borrowed
  given = given == Py_None ? NULL : given;
  PyObject *py_generator = generator_find(call, given);
  PyObject *py_seed = seed_make(py_generator), *py_own = NULL;
  Py_XDECREF(py_generator);
  int status = py_seed ? 0 : -1;
  if (status == 0 && given) {
    status = generator_replace(c, &py_own);
  }
  if (status == 0) {
    c->py_random = Py_BuildValue("[OOO]", py_seed, py_own ? py_own : Py_None, Py_None);
    status = c->py_random ? 0 : -1;
  }
  Py_XDECREF(py_own);
  Py_XDECREF(py_seed);
  return status;
}

static PyObject *random_item(const struct compare_case *c, int item) {
  return PyList_GET_ITEM(c->py_random, item);
}

static int generator_seed(PyObject *generator, PyObject *seed) {
  PyObject *py_done = PyObject_CallMethod(generator, "manual_seed", "O", seed);
  Py_XDECREF(py_done);
  return py_done ? 0 : -1;
}

int compare_random_enter(const struct compare_case *c, PyObject **py_saved) {
  *py_saved = NULL;
  if (!c->py_random || random_item(c, RANDOM_SEED) == Py_None) {
    return 0;
  }
  PyObject *seed = random_item(c, RANDOM_SEED), *own = random_item(c, RANDOM_GENERATOR);
  if (own != Py_None) {
    return generator_seed(own, seed);
  }
  *py_saved = PyObject_CallNoArgs(torch_names.py_state_get);
  return *py_saved ? generator_seed(torch_names.py_generator, seed) : -1;
}

int compare_random_leave(const struct compare_case *c, PyObject *py_saved) {
  (void)c;
  if (!py_saved) {
    return 0;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  int status = py_call_none(torch_names.py_state_set, py_saved);
  Py_DECREF(py_saved);
  if (kind) {
    py_error_drop();
    PyErr_Restore(kind, value, traceback);
  }
  return status;
}

// Values as arrays

struct doubles {
  struct judge_tensor tensor;
  double *data;
  int64_t count;
};

static int64_t tensor_get_numel(PyObject *tensor) {
  struct engine_tensor info;
  engine_tensor_read(tensor, &info);
  int64_t numel = info.numel;
  engine_tensor_reset(&info);
  return numel;
}

// Values without history on the CPU; new reference or NULL.
static PyObject *tensor_fetch(PyObject *tensor) {
  return py_call_take(torch_names.py_cpu, PyObject_CallOneArg(torch_names.py_detach, tensor));
}

// Every `step`-th element as packed float64, never the tensor's own memory. New reference or NULL.
static PyObject *flat_make(PyObject *tensor, int64_t step) {
  const int64_t one = 1;
  PyObject *py_values = tensor_fetch(tensor);
  PyObject *py_flat = py_values ? PyObject_CallFunction(torch_names.py_reshape, "Oi", py_values, -1) : NULL;
  PyObject *py_step = py_flat ? PyLong_FromLongLong(step) : NULL;
  PyObject *py_slice = py_step ? PySlice_New(NULL, NULL, py_step) : NULL;
  PyObject *py_picked = py_slice ? PyObject_GetItem(py_flat, py_slice) : NULL, *py_made = NULL;
  if (py_picked) {
    int64_t count = tensor_get_numel(py_picked);
    py_made = torch_strided_make(&count, &one, 1, torch_names.py_dtypes[DIT_DTYPE_F64], torch_names.py_host);
    if (py_made && py_call_pair(torch_names.py_copy, py_made, py_picked) < 0) {
      Py_CLEAR(py_made);
    }
  }
  Py_XDECREF(py_picked);
  Py_XDECREF(py_slice);
  Py_XDECREF(py_step);
  Py_XDECREF(py_flat);
  Py_XDECREF(py_values);
  return py_made;
}

// tensor == 0 or tensor != 0 (Py_EQ, Py_NE) on the CPU; new reference or NULL.
static PyObject *zero_compare(PyObject *tensor, int operation) {
  PyObject *py_values = tensor_fetch(tensor), *py_zero = PyLong_FromLong(0);
  PyObject *py_answer = py_values && py_zero ? PyObject_RichCompare(py_values, py_zero, operation) : NULL;
  Py_XDECREF(py_zero);
  Py_XDECREF(py_values);
  return py_answer;
}

// A copy in packed float64; every `step`-th element of the flat tensor. 0 or -1.
static int doubles_open(struct doubles *out, PyObject *tensor, int64_t step) {
  *out = (struct doubles){0};
  PyObject *py_flat = flat_make(tensor, step);
  int status = py_flat ? judge_tensor_open(&out->tensor, py_flat) : -1;
  Py_XDECREF(py_flat);
  if (status == 0) {
    out->data = out->tensor.view.data;
    out->count = out->tensor.view.numel;
  }
  return status;
}

static void doubles_close(struct doubles *doubles) {
  judge_tensor_close(&doubles->tensor);
}

// Verdicts

static void out_say(struct compare_judgement *out, enum compare_verdict verdict, const char *reason) {
  out->auto_verdict = verdict;
  (void)snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void out_say_wrong(struct compare_judgement *out, const struct random_dropout *found, const double *y) {
  out->auto_verdict = COMPARE_WRONG;
  out->wrong = found->wrong;
  out->index = found->index;
  out->value = y[found->index];
  out->reference = found->want;
  out->error = fabs(y[found->index] - found->want);
  out->allowed = 0;
  (void)snprintf(out->reason, sizeof out->reason, "%g is neither dropped nor kept (%g); %lld of %lld elements",
                 y[found->index], found->want, (long long)found->wrong, (long long)out->numel);
}

static void share_judge(struct compare_judgement *out, const struct random_dropout *found, double p) {
  double share = found->drawn ? (double)found->dropped / (double)found->drawn : p;
  double bound = random_stats_get_share_bound(found->drawn);
  out->auto_verdict = fabs(share - p) <= bound ? COMPARE_RIGHT : COMPARE_WRONG;
  if (out->auto_verdict == COMPARE_WRONG) {
    out->error = fabs(share - p);
    out->allowed = bound;
    out->value = share;
    out->reference = p;
    (void)snprintf(out->reason, sizeof out->reason, "%.3g of %lld were dropped; the probability is %.3g", share,
                   (long long)found->drawn, p);
  }
}

// Dropout

// Argument number `place` or of this name; `value` stays when it is not there.
static void argument_read(const struct compare_case *c, int place, const char *name, double *value) {
  PyObject *found = c->py_kwargs ? PyDict_GetItemString(c->py_kwargs, name) : NULL;
  if (!found && PyTuple_GET_SIZE(c->py_args) > place) {
    found = PyTuple_GET_ITEM(c->py_args, place);
  }
  if (found && (PyFloat_Check(found) || PyLong_Check(found))) {
    *value = PyFloat_AsDouble(found);
  }
}

static int64_t channels_get_group(const struct compare_case *c, const struct dit_operator *entry) {
  struct engine_tensor info;
  engine_tensor_read(c->twins[0], &info);
  int64_t groups = info.ndim > 0 ? info.sizes[0] : 1;
  if (info.ndim >= entry->channels) {
    groups *= info.sizes[1];  // a batch of channels
  }
  int64_t group = groups > 0 ? info.numel / groups : 1;
  engine_tensor_reset(&info);
  return group > 0 ? group : 1;
}

static void dropout_check(const struct compare_case *c, const struct dit_operator *entry, const struct doubles *x,
                          const struct doubles *y, const struct dit_judge_type *type, double p,
                          struct compare_judgement *out) {
  int64_t group = entry->channels ? channels_get_group(c, entry) : 1;
  double roundoff = type->roundoff;
  struct random_dropout found;
  if (entry->draw == DIT_OPERATOR_DRAW_DROPOUT) {
    random_stats_check_dropout(x->data, y->data, x->count, group, p < 1 ? 1 / (1 - p) : 0, 4 * roundoff, type->floor,
                               &found);
  } else {
    double alpha = 1.7580993408473766, scale = p < 1 ? 1 / sqrt((alpha * alpha * p + 1) * (1 - p)) : 0;
    random_stats_check_replaced(x->data, y->data, x->count, group, scale, alpha * scale * p, -alpha * scale * (1 - p),
                                8 * roundoff, &found);
  }
  if (found.wrong > 0) {
    out_say_wrong(out, &found, y->data);
  } else if (p > 0 && p < 1) {
    share_judge(out, &found, p);
  } else {
    out->auto_verdict = COMPARE_RIGHT;
  }
}

// What was kept, for the gradients.
static int dropout_remember(struct compare_case *c, PyObject *device) {
  PyObject *py_kept = zero_compare(device, Py_NE);
  if (!py_kept) {
    return -1;
  }
  return PyList_SetItem(c->py_random, RANDOM_KEPT, py_kept);  // takes it
}

static int dropout_judge(struct compare_case *c, const struct dit_operator *entry, PyObject *device,
                         struct compare_judgement *out) {
  struct dit_judge_type type;
  struct engine_tensor info;
  double p = 0.5;
  engine_tensor_read(device, &info);
  int dtype = info.dtype;
  engine_tensor_reset(&info);
  if (c->twin_count == 0 || dit_judge_type_get(dtype, &type, NULL) != DIT_OK) {
    out_say(out, COMPARE_UNKNOWN, "the mask of a dropout is the device's own");
    return 0;
  }
  argument_read(c, 1, "p", &p);
  struct doubles x = {0}, y = {0};
  int status = doubles_open(&x, c->twins[0], 1);
  status = status < 0 ? status : doubles_open(&y, device, 1);
  if (status == 0 && x.count == y.count) {
    dropout_check(c, entry, &x, &y, &type, p, out);
    out->close = out->auto_verdict == COMPARE_RIGHT && entry->draw == DIT_OPERATOR_DRAW_DROPOUT;
    status = out->close ? dropout_remember(c, device) : 0;
  } else if (status == 0) {
    out_say(out, COMPARE_WRONG, "the result has another number of elements than the argument");
  }
  doubles_close(&x);
  doubles_close(&y);
  return status;
}

// Draws

static void support_find(const struct compare_case *c, const struct dit_operator *entry, double *low, double *high) {
  *low = entry->low;
  *high = entry->high;
  if (strcmp(entry->name, "uniform") == 0) {
    *low = 0;
    *high = 1;
    argument_read(c, 1, "from", low);
    argument_read(c, 2, "to", high);
    argument_read(c, 99, "a", low);  // torch.nn.init.uniform_
    argument_read(c, 99, "b", high);
  } else if (strcmp(entry->name, "randint") == 0) {
    bool two = PyTuple_GET_SIZE(c->py_args) > 1 && PyLong_Check(PyTuple_GET_ITEM(c->py_args, 1));
    *low = 0;
    argument_read(c, two ? 0 : 99, "low", low);
    argument_read(c, two ? 1 : 0, "high", high);
    *high -= 1;
  }
}

// The bounds themselves are rounded to the dtype of the draws: -0.182574 is -0.182617 in bfloat16, and may be drawn.
static void support_round(PyObject *device, double *low, double *high) {
  struct dit_judge_type type;
  struct engine_tensor info;
  engine_tensor_read(device, &info);
  if (dit_judge_type_get(info.dtype, &type, NULL) == DIT_OK) {
    *low -= isfinite(*low) ? type.roundoff * fabs(*low) : 0;
    *high += isfinite(*high) ? type.roundoff * fabs(*high) : 0;
  }
  engine_tensor_reset(&info);
}

static bool range_judge(struct compare_judgement *out, const struct doubles *device, double low, double high) {
  for (int64_t i = 0; i < device->count; i++) {
    double value = device->data[i];
    if (isnan(value) || value < low || value > high) {
      out->auto_verdict = COMPARE_WRONG;
      out->value = value;
      out->error = isnan(value) ? INFINITY : value < low ? low - value : value - high;
      out->reference = value < low ? low : high;
      (void)snprintf(out->reason, sizeof out->reason, "%g was drawn; the distribution goes from %g to %g", value, low,
                     high);
      return false;
    }
  }
  return true;
}

static int draws_judge(struct compare_case *c, const struct dit_operator *entry, PyObject *device, PyObject *reference,
                       struct compare_judgement *out) {
  int64_t numel = tensor_get_numel(device), step = 1 + (numel - 1) / RANDOM_SAMPLE;
  struct doubles a = {0}, b = {0};
  double low, high;
  support_find(c, entry, &low, &high);
  support_round(device, &low, &high);
  int status = doubles_open(&a, device, numel > 0 ? step : 1);
  status = status < 0 ? status : doubles_open(&b, reference, numel > 0 ? step : 1);
  if (status == 0 && range_judge(out, &a, low, high)) {
    double distance, bound = random_stats_get_distance_bound(a.count, b.count);
    Py_BEGIN_ALLOW_THREADS;
    distance = random_stats_get_distance(a.data, a.count, b.data, b.count);
    Py_END_ALLOW_THREADS;
    out->auto_verdict = distance <= bound ? COMPARE_RIGHT : COMPARE_WRONG;
    out->error = distance;
    out->allowed = bound;
    if (out->auto_verdict == COMPARE_WRONG) {
      (void)snprintf(out->reason, sizeof out->reason,
                     "the distribution of %lld numbers is %.3g away from the CPU's (at most %.3g by chance)",
                     (long long)a.count, distance, bound);
    }
  }
  doubles_close(&a);
  doubles_close(&b);
  return status;
}

static int permutation_judge(PyObject *device, struct compare_judgement *out) {
  struct doubles a = {0};
  int status = doubles_open(&a, device, 1);
  bool *seen = status == 0 ? PyMem_Calloc((size_t)a.count + 1, sizeof *seen) : NULL;
  out->auto_verdict = COMPARE_RIGHT;
  for (int64_t i = 0; seen && i < a.count; i++) {
    double value = a.data[i];
    bool fits = value >= 0 && value < (double)a.count && value == floor(value) && !seen[(int64_t)value];
    if (!fits) {
      out->value = value;
      out->index = i;
      out->wrong = 1;
      out_say(out, COMPARE_WRONG, "this is no permutation: a number is missing, double or out of range");
      break;
    }
    seen[(int64_t)value] = true;
  }
  if (status == 0 && !seen) {
    (void)PyErr_NoMemory();
    status = -1;
  }
  PyMem_Free(seen);
  doubles_close(&a);
  return status;
}

// One result

// Did both draw the same numbers? Half of them are enough where equal ones are no accident. 1 or 0.
static int numbers_are_same(const struct dit_operator *entry, const struct judge_tensor *a,
                            const struct judge_tensor *b) {
  static const struct dit_judge_rule equal = {.limit = INFINITY};
  struct dit_judge_result result;
  if (a->view.numel != b->view.numel || dit_judge_compare(&a->view, &b->view, &equal, &result, NULL) != DIT_OK) {
    return 0;
  }
  bool continuous = entry && entry->draw == DIT_OPERATOR_DRAW_CONTINUOUS;
  return result.wrong == 0 || (continuous && result.numel >= RANDOM_SAME && 2 * result.wrong <= result.numel);
}

// In the program's own dtypes; the legacy run of a narrow type draws other numbers.
static int same_as_native(struct judge_runs *runs, int index, const struct judge_tensor *device, PyObject **value) {
  struct judge_values *native = judge_runs_get(runs, COMPARE_NATIVE);
  *value = native && index < native->count ? native->value[index] : NULL;
  if (!*value || !engine_is_tensor(*value)) {
    return PyErr_Occurred() ? -1 : 0;
  }
  struct judge_tensor other = {0};
  if (judge_tensor_open(&other, *value) < 0) {
    return -1;
  }
  int same = numbers_are_same(entry_find(runs->c), device, &other);
  judge_tensor_close(&other);
  return same;
}

// A stream that is the CPU's: what differs is judged against the CPU's numbers in the program's dtype.
static int same_judge(const struct judge_tensor *device, PyObject *native, struct compare_judgement *out) {
  struct dit_judge_type type = {0, 0, INFINITY};
  struct judge_tensor other = {0};
  struct dit_judge_result result;
  if (judge_tensor_open(&other, native) < 0) {
    return -1;
  }
  (void)!dit_judge_type_get(device->view.dtype, &type, NULL);
  struct dit_judge_rule rule = {.relative = 4 * type.roundoff, .cap = INFINITY, .floor = type.floor, .limit = INFINITY};
  enum dit_status status = dit_judge_compare(&device->view, &other.view, &rule, &result, NULL);
  judge_tensor_close(&other);
  out->auto_verdict = status == DIT_OK && result.wrong > 0 ? COMPARE_WRONG : COMPARE_RIGHT;
  if (out->auto_verdict == COMPARE_WRONG) {
    out->wrong = result.wrong;
    out->index = result.index;
    out->error = result.error;
    out->allowed = result.allowed;
    out->value = result.value;
    out->reference = result.reference;
    (void)snprintf(out->reason, sizeof out->reason, "not what the CPU draws from the same state of the generator");
  }
  return 0;
}

static int sample_judge(struct compare_case *c, PyObject *device, PyObject *reference, struct compare_judgement *out) {
  const struct dit_operator *entry = entry_find(c);
  out->close = false;
  if (!entry) {
    out_say(out, COMPARE_UNKNOWN, "it draws random numbers in a way that cannot be repeated or judged");
    return 0;
  }
  switch (entry->draw) {
    case DIT_OPERATOR_DRAW_PERMUTATION:
      return permutation_judge(device, out);
    case DIT_OPERATOR_DRAW_CONTINUOUS:
    case DIT_OPERATOR_DRAW_DISCRETE:
      return draws_judge(c, entry, device, reference, out);
    default:
      return dropout_judge(c, entry, device, out);
  }
}

static int tensor_judge(struct judge_runs *runs, int index, PyObject *device, PyObject *reference,
                        struct compare_judgement *out) {
  struct judge_tensor a = {0}, b = {0};
  struct dit_compare_result compared;
  PyObject *native = NULL;
  int status = judge_tensor_open(&a, device);
  status = status < 0 ? status : judge_tensor_open(&b, reference);
  int same = 0;
  if (status == 0) {
    out->numel = a.view.numel;
    same = numbers_are_same(entry_find(runs->c), &a, &b);
    bool shaped = a.view.ndim == b.view.ndim && a.view.numel == b.view.numel;
    status = shaped ? judge_legacy_tensor(runs->c, &a, &b, out, &compared) : 0;
    if (!shaped) {
      out_say(out, COMPARE_WRONG, "the result has another shape than the CPU's");
    } else if (same) {
      status = status < 0 ? status : same_judge(&a, reference, out);
    } else if (status == 0 && (same = same_as_native(runs, index, &a, &native)) > 0) {
      out->close = false;  // the graph of the legacy run drew other numbers
      status = same_judge(&a, native, out);
      if (status == 0 && out->auto_verdict == COMPARE_RIGHT && entry_find(runs->c) &&
          entry_find(runs->c)->draw == DIT_OPERATOR_DRAW_DROPOUT && runs->what == COMPARE_OUTPUT && index == 0) {
        out->close = true;
        status = dropout_remember(runs->c, device);
      }
    } else if (status == 0) {
      status = same < 0 ? -1 : sample_judge(runs->c, device, reference, out);
    }
  }
  judge_tensor_close(&a);
  judge_tensor_close(&b);
  return status;
}

// Gradients

// Where the gradient of a dropout passed. Where x is 0 the result does not tell what was kept; there the device may
// have either. New reference or NULL.
static PyObject *dropout_find_passed(PyObject *device, PyObject *x, PyObject *kept) {
  PyObject *py_zero = zero_compare(x, Py_EQ), *py_nothing = py_zero ? zero_compare(device, Py_EQ) : NULL;
  PyObject *py_may = py_nothing ? PyNumber_Or(kept, py_zero) : NULL;
  PyObject *py_unknown = py_may ? PyNumber_And(py_zero, py_nothing) : NULL;
  PyObject *py_known = py_unknown ? PyNumber_Invert(py_unknown) : NULL;
  PyObject *py_passed = py_known ? PyNumber_And(py_may, py_known) : NULL;
  Py_XDECREF(py_known);
  Py_XDECREF(py_unknown);
  Py_XDECREF(py_may);
  Py_XDECREF(py_nothing);
  Py_XDECREF(py_zero);
  return py_passed;
}

static PyObject *dropout_make_gradient(PyObject *gradient, PyObject *passed, double scale) {
  PyObject *py_wide = py_call_take(torch_names.py_to_double, tensor_fetch(gradient));
  PyObject *py_scale = py_wide ? PyFloat_FromDouble(scale) : NULL;
  PyObject *py_through = py_scale ? PyNumber_Multiply(py_wide, py_scale) : NULL;
  PyObject *py_made = py_through ? PyObject_CallFunction(torch_names.py_where, "OOd", passed, py_through, 0.0) : NULL;
  Py_XDECREF(py_through);
  Py_XDECREF(py_scale);
  Py_XDECREF(py_wide);
  return py_made;
}

// Of a dropout: what the device kept lets the gradient through, scaled.
static int dropout_judge_gradient(struct compare_case *c, PyObject *device, struct compare_judgement *out) {
  double p = 0.5;
  argument_read(c, 1, "p", &p);
  PyObject *gradient = c->grad_output_count > 0 && c->grad_outputs[0] ? c->grad_outputs[0] : Py_None;
  PyObject *py_passed = dropout_find_passed(device, c->twins[0], random_item(c, RANDOM_KEPT));
  PyObject *py_reference = py_passed ? dropout_make_gradient(gradient, py_passed, p < 1 ? 1 / (1 - p) : 0.0) : NULL;
  Py_XDECREF(py_passed);
  struct judge_tensor a = {0};
  struct dit_compare_result compared;
  struct judge_tensor b = {0};
  int status = py_reference ? judge_tensor_open(&a, device) : -1;
  status = status < 0 ? status : judge_tensor_open(&b, py_reference);
  status = status < 0 ? status : judge_legacy_tensor(c, &a, &b, out, &compared);
  status = status < 0 ? status : same_judge(&a, py_reference, out);
  if (status == 0 && out->auto_verdict == COMPARE_WRONG) {
    (void)snprintf(out->reason, sizeof out->reason, "not the gradient of what was kept");
  }
  out->numel = a.view.numel;
  judge_tensor_close(&a);
  judge_tensor_close(&b);
  Py_XDECREF(py_reference);
  return status;
}

bool compare_random_has_kept(const struct compare_case *c) {
  return c->py_random && random_item(c, RANDOM_KEPT) != Py_None;
}

// The judge

static void out_init(struct compare_judgement *out) {
  *out = (struct compare_judgement){.close = true, .cosine = 1, .index = -1, .cpu_error = NAN};
}

int compare_random_judge(struct compare_case *c, enum compare_what what, PyObject *const *device,
                         PyObject *const *reference, int count, struct compare_judgement *judgements) {
  if (what == COMPARE_GRAD && !compare_random_has_kept(c)) {
    return compare_judge(c, what, device, reference, count, judgements);
  }
  struct judge_runs runs = {.c = c, .what = what};
  int status = 0;
  for (int i = 0; i < count && status == 0; i++) {
    struct compare_judgement *out = &judgements[i];
    out_init(out);
    bool tensors = device[i] && device[i] != Py_None && engine_is_tensor(device[i]);
    if (what == COMPARE_GRAD) {
      status = tensors && i == 0 ? dropout_judge_gradient(c, device[i], out) : 0;
    } else if (tensors && reference[i] && engine_is_tensor(reference[i])) {
      status = tensor_judge(&runs, i, device[i], reference[i], out);
    } else if (device[i] && reference[i]) {
      status = judge_legacy_value(device[i], reference[i], out);
      out->auto_verdict = out->close ? COMPARE_RIGHT : COMPARE_WRONG;
    }
    if (status < 0) {
      status = judge_excuse(out);
    }
    out->verdict = out->auto_verdict;  // the legacy verdict leaves random operators out
  }
  judge_runs_reset(&runs);
  return status;
}
