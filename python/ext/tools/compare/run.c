// The operator once more on the CPU, in a chosen precision, with or without autograd.
//
// Inputs are the twins themselves where nothing is written to them and no other dtype is wanted; else copies. What is
// switched on in the program and would act on this run is switched off around it: gradients (as asked), autocast of the
// CPU, hooks on saved tensors (activation checkpointing counts what it sees), dispatch modes; the CPU's generator gets
// its state back. Everything is restored whatever happens. A failing operator is a reason, not an exception.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dit/operator.h"
#include "dit/verdict.h"
#include "py_call.h"
#include "tools/compare/state.h"
#include "tools/remap.h"
#include "tools/twin.h"

// Errors as text

bool compare_error_is_foreign(void) {
  return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception);
}

void compare_error_take(char *text, size_t size) {
  char words[512];
  const char *name;
  py_error_take(words, sizeof words, &name);
  size_t line = strcspn(words, "\n");
  const char *sentence = strstr(words, ". ");  // torch explains at length
  if (sentence && (size_t)(sentence - words) < line) {
    line = (size_t)(sentence - words);
  }
  snprintf(text, size, "%s: %.*s", name, (int)(line < 400 ? line : 400), words);
}

// Surroundings

// What was switched, to be switched back.
struct surroundings {
  PyObject *py_no_dispatch;   // entered; or NULL
  PyObject *py_state;         // of the CPU's generator, to be given back
  PyObject *py_begin;         // the one with which the run begins; NULL: that one
  PyObject *py_drawn;         // what the random part saved
  PyObject *py_place;         // whose autocast is switched: "cpu"; "cuda" for runs on the device itself
  PyObject *py_old_autocast;  // bool; NULL: untouched
  PyObject *py_old_dtype, *py_old_cache;
  int grad;     // before; -1: untouched
  int tracing;  // before; -1: untouched
  bool random;  // compare_random_enter was called
  bool guests;  // the run is under the device's autocast instead of the CPU's
};

static int grad_set(bool on) {
  return py_call_none(torch_names.py_grad_set, on ? Py_True : Py_False);
}

// Modes of the program that see every operator; -1: not known.
static long dispatch_count(void) {
  long count = torch_names.py_dispatch_length ? py_call_long(torch_names.py_dispatch_length) : 0;
  py_error_drop();
  return count;
}

static bool case_writes(const struct compare_case *c) {
  for (int i = 0; i < c->twin_count; i++) {
    if (c->changed[i]) {
      return true;
    }
  }
  return false;
}

// The lists of autocast differ between the device and the CPU, so what the CPU makes of the program's dtypes is asked
// under the device's autocast (op_tools/device_autocast.py). Not for what is written in place, whose history would not
// come back, and not beside modes of the program, which would see it.
static bool case_takes_guests(const struct compare_case *c) {
  const struct compare_state *state = c->tool->state;
  return state->py_under_autocast && c->device && !c->refuses_guests && !case_writes(c) && dispatch_count() == 0;
}

// The embedded device adds up as the CPU does.
static bool case_has_other_way(const struct compare_case *c) {
  const struct compare_state *state = c->tool->state;
  return state->py_other_way && !c->is_embedded && !c->has_autocast &&
         dit_operator_has(c->op->name, DIT_OPERATOR_SCAN) && !case_writes(c);
}

bool compare_run_has_other(const struct compare_case *c) {
  return (c->has_autocast && case_takes_guests(c)) || case_has_other_way(c);
}

// In the dtypes of the program.
static bool is_native(enum compare_precision precision) {
  return precision == COMPARE_NATIVE || precision == COMPARE_JITTER || precision == COMPARE_OTHER;
}

// The native run of a call under autocast is under autocast too; all other runs are under none.
static int autocast_enter(struct surroundings *around, const struct compare_case *c, bool wanted) {
  if (!wanted && torch_names.py_autocast_is_any && py_call_bool(torch_names.py_autocast_is_any, NULL) == 0) {
    return 0;
  }
  int on = py_call_bool(torch_names.py_autocast_is_enabled, around->py_place);
  if (on < 0 || (!on && !wanted)) {
    return on < 0 ? -1 : 0;
  }
  around->py_old_dtype = PyObject_CallOneArg(torch_names.py_autocast_dtype_get, around->py_place);
  around->py_old_cache = around->py_old_dtype ? PyObject_CallNoArgs(torch_names.py_autocast_cache_is_enabled) : NULL;
  PyObject *dtype = wanted ? torch_dtype_get(c->autocast) : around->py_old_dtype;
  if (!around->py_old_cache || !dtype) {
    return -1;
  }
  around->py_old_autocast = PyBool_FromLong(on);
  // Its cache would keep twins alive until the outermost autocast of the program ends.
  if (py_call_none(torch_names.py_autocast_cache_set, Py_False) < 0 ||
      py_call_pair(torch_names.py_autocast_dtype_set, around->py_place, dtype) < 0) {
    return -1;
  }
  return py_call_pair(torch_names.py_autocast_set, around->py_place, wanted ? Py_True : Py_False);
}

static void autocast_leave(struct surroundings *around) {
  if (around->py_old_autocast &&
      (py_call_pair(torch_names.py_autocast_set, around->py_place, around->py_old_autocast) < 0 ||
       py_call_pair(torch_names.py_autocast_dtype_set, around->py_place, around->py_old_dtype) < 0 ||
       py_call_none(torch_names.py_autocast_cache_set, around->py_old_cache) < 0)) {
    py_error_drop();
  }
  Py_CLEAR(around->py_old_autocast);
  Py_CLEAR(around->py_old_dtype);
  Py_CLEAR(around->py_old_cache);
  Py_CLEAR(around->py_place);
}

PyObject *compare_dispatch_disable(void) {
  long count = torch_names.py_dispatch_length && torch_names.py_dispatch_disable
                   ? py_call_long(torch_names.py_dispatch_length)
                   : 0;
  return count > 0 ? py_context_enter(PyObject_CallNoArgs(torch_names.py_dispatch_disable)) : NULL;
}

// Level aten is itself inside one.
static int dispatch_enter(struct surroundings *around) {
  around->py_no_dispatch = compare_dispatch_disable();
  return PyErr_Occurred() ? -1 : 0;
}

static int surroundings_enter(struct surroundings *around, const struct compare_case *c, const struct compare_op *info,
                              enum compare_precision precision) {
  *around = (struct surroundings){.grad = -1, .tracing = -1};
  int length = c->is_on_site && c->device ? (int)strcspn(c->device, ":") : 0;
  around->py_place = length ? PyUnicode_FromStringAndSize(c->device, length) : Py_NewRef(torch_names.py_text_cpu);
  if (!around->py_place) {
    return -1;
  }
  around->grad = py_call_bool(torch_names.py_grad_is_enabled, NULL);
  if (around->grad < 0 || (around->grad && grad_set(false) < 0) || dispatch_enter(around) < 0) {
    return -1;
  }
  if (torch_names.py_hooks_set_tracing &&
      (around->tracing = py_call_bool(torch_names.py_hooks_set_tracing, Py_True)) < 0) {
    return -1;
  }
  bool own = (is_native(precision) && c->has_autocast && !c->narrow);
  around->guests = own && precision != COMPARE_OTHER && case_takes_guests(c);
  if (autocast_enter(around, c, own && !around->guests) < 0) {
    return -1;
  }
  if (info->may_draw && !(around->py_state = PyObject_CallNoArgs(torch_names.py_state_get))) {
    return -1;
  }
  if (!c->py_random) {
    return 0;
  }
  around->random = true;
  if (compare_random_enter(c, &around->py_drawn) < 0) {
    return -1;
  }
  around->py_begin = PyObject_CallNoArgs(torch_names.py_state_get);
  return around->py_begin ? 0 : -1;
}

// A pending exception stays.
static void surroundings_leave(struct surroundings *around, const struct compare_case *c) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  if (around->random && compare_random_leave(c, around->py_drawn) < 0) {
    py_error_drop();
  }
  if (around->py_state && py_call_none(torch_names.py_state_set, around->py_state) < 0) {
    py_error_drop();
  }
  Py_XDECREF(around->py_begin);
  Py_XDECREF(around->py_state);
  autocast_leave(around);
  if (around->tracing >= 0 &&
      py_call_bool(torch_names.py_hooks_set_tracing, around->tracing ? Py_True : Py_False) < 0) {
    py_error_drop();
  }
  py_context_leave(around->py_no_dispatch);
  if (around->grad >= 0 && grad_set(around->grad > 0) < 0) {
    py_error_drop();
  }
  PyErr_Restore(kind, value, traceback);
}

// Did the operator draw from the CPU's generator?
static bool state_has_moved(PyObject *before) {
  PyObject *py_now = PyObject_CallNoArgs(torch_names.py_state_get);
  struct engine_tensor a, b;
  struct dit_tensor_view first, second;
  bool moved = false;
  if (py_now) {
    engine_tensor_read(before, &a);
    engine_tensor_read(py_now, &b);
    if (engine_tensor_get_view(&a, &first) && engine_tensor_get_view(&b, &second)) {
      moved = first.numel != second.numel || memcmp(first.data, second.data, (size_t)first.numel) != 0;
    }
    engine_tensor_reset(&a);
    engine_tensor_reset(&b);
  }
  py_error_drop();
  Py_XDECREF(py_now);
  return moved;
}

// Inputs

// Operators that compute nothing run as they are; their gradients may be sums.
static int dtype_choose(const struct compare_case *c, const struct compare_op *info, enum compare_precision precision,
                        bool grad, int dtype) {
  bool own = is_native(precision);
  if ((info->is_exact && !c->is_on_site && (!grad || precision == COMPARE_LEGACY)) || own || dtype < 0) {
    return dtype;
  }
  if (precision == COMPARE_LEGACY) {
    return compare_dtype_get(c, dtype);
  }
  switch (dit_dtype_get_class(dtype)) {
    case DIT_DTYPE_CLASS_FLOAT:
      return c->is_single ? DIT_DTYPE_F32 : DIT_DTYPE_F64;
    case DIT_DTYPE_CLASS_COMPLEX:
      return DIT_DTYPE_C128;
    default:
      return dtype;
  }
}

double compare_roundoff_get(int dtype) {
  struct dit_judge_type type;
  return dit_judge_type_get(dtype, &type, NULL) == DIT_OK ? type.roundoff : 0;
}

static int dtype_narrow(const struct compare_case *c, int dtype) {
  enum dit_dtype_class class = dit_dtype_get_class(dtype);
  if (!c->narrow || (class != DIT_DTYPE_CLASS_FLOAT && class != DIT_DTYPE_CLASS_COMPLEX)) {
    return dtype;
  }
  return class == DIT_DTYPE_CLASS_FLOAT ? DIT_DTYPE_F32 : DIT_DTYPE_C64;
}

// Every number of a fresh float64 or complex128 tensor off by a random relative error.
static void tensor_shake(const struct compare_case *c, PyObject *tensor, int i) {
  struct engine_tensor known;
  struct dit_tensor_view view;
  engine_tensor_read(tensor, &known);
  double size = c->shake > 0 ? c->shake : compare_roundoff_get(c->dtypes[i]);
  size = c->jitter > 0 ? c->jitter * compare_roundoff_get(dtype_narrow(c, c->dtypes[i])) : size;
  if (c->is_on_site && size > 0) {
    compare_site_shake(c, tensor, size, i);
  } else if (size > 0 && engine_tensor_get_view(&known, &view) &&
             dit_shape_is_dense(view.ndim, view.sizes, view.strides) &&
             (view.dtype == DIT_DTYPE_F64 || view.dtype == DIT_DTYPE_C128)) {
    int64_t count = view.numel * (view.dtype == DIT_DTYPE_C128 ? 2 : 1);
    Py_BEGIN_ALLOW_THREADS;
    dit_verdict_move(view.data, count, size, c->shake_seed, i);
    Py_END_ALLOW_THREADS;
  }
  engine_tensor_reset(&known);
}

static PyObject *tensor_cast(PyObject *tensor, int dtype) {
  PyObject *dtype_object = torch_dtype_get(dtype);
  if (!dtype_object) {
    return NULL;
  }
  PyObject *const words[] = {tensor, dtype_object};
  return PyObject_Vectorcall(torch_names.py_to, words, 2, NULL);
}

// A few units in the last place away, rounded to the program's dtype again; for the wide run wide once more.
static PyObject *tensor_jitter(const struct compare_case *c, PyObject *twin, bool is_wide, int i) {
  int own = dtype_narrow(c, c->dtypes[i]);
  int wide = dit_dtype_get_class(own) == DIT_DTYPE_CLASS_COMPLEX ? DIT_DTYPE_C128 : DIT_DTYPE_F64;
  PyObject *py_wide = tensor_cast(twin, wide);
  if (py_wide == twin) {  // was wide already
    Py_SETREF(py_wide, PyObject_CallOneArg(torch_names.py_clone, twin));
  }
  if (!py_wide) {
    return NULL;
  }
  tensor_shake(c, py_wide, i);
  PyObject *py_own = tensor_cast(py_wide, own);
  Py_DECREF(py_wide);
  PyObject *py_cast = py_own && is_wide ? tensor_cast(py_own, wide) : Py_XNewRef(py_own);
  Py_XDECREF(py_own);
  return py_cast;
}

// With gradients off. The tensor that the run differentiates by (or is given as it is); a new reference.
static PyObject *input_make(const struct compare_case *c, const struct compare_op *info,
                            enum compare_precision precision, bool grad, int i, bool *fresh) {
  PyObject *twin = c->twins[i];
  bool fixed = c->is_on_site && c->fixed[i];
  int dtype = fixed ? c->dtypes[i] : dtype_choose(c, info, precision, grad, c->dtypes[i]);
  bool is_wide = dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128 || (c->is_single && dtype == DIT_DTYPE_F32);
  bool shaken = precision == COMPARE_SHAKEN && is_wide && !fixed;
  bool jittered =
      (precision == COMPARE_JITTER || precision == COMPARE_JITTER_WIDE) && compare_roundoff_get(c->dtypes[i]) > 0;
  *fresh = false;
  if (dtype == c->dtypes[i] && !shaken && !jittered) {
    return Py_NewRef(twin);
  }
  PyObject *py_cast = jittered                ? tensor_jitter(c, twin, precision == COMPARE_JITTER_WIDE, i)
                      : dtype == c->dtypes[i] ? PyObject_CallOneArg(torch_names.py_clone, twin)
                                              : tensor_cast(twin, dtype);
  if (!py_cast) {
    return NULL;
  }
  *fresh = true;
  if (shaken) {
    tensor_shake(c, py_cast, i);
  }
  if (grad && engine_tensor_requires_grad(twin) && py_call_none(torch_names.py_requires_grad, py_cast) < 0) {
    Py_CLEAR(py_cast);
  }
  return py_cast;
}

static int twin_find(const struct compare_case *c, int i) {
  for (int j = 0; j < i; j++) {
    if (c->twins[j] == c->twins[i]) {
      return j;
    }
  }
  return i;
}

// Two different arguments over the same memory, one of which is written to: copies must overlap in the same way.
static bool case_has_written_aliases(const struct compare_case *c) {
  bool found = false;
  for (int i = 0; i < c->twin_count && !found; i++) {
    if (!c->changed[i]) {
      continue;
    }
    struct engine_tensor a;
    struct dit_tensor_view first, second;
    engine_tensor_read(c->twins[i], &a);
    bool known = engine_tensor_get_view(&a, &first);
    for (int j = 0; known && j < c->twin_count && !found; j++) {
      if (c->twins[j] == c->twins[i]) {
        continue;
      }
      struct engine_tensor b;
      engine_tensor_read(c->twins[j], &b);
      if (engine_tensor_get_view(&b, &second)) {
        int64_t low, high, other_low, other_high;
        dit_tensor_get_span(&first, &low, &high);
        dit_tensor_get_span(&second, &other_low, &other_high);
        const char *at = first.data, *other = second.data;
        found = at + low < other + other_high && other + other_low < at + high;
      }
      engine_tensor_reset(&b);
    }
    engine_tensor_reset(&a);
  }
  return found;
}

static int arrays_allocate(const struct compare_case *c, struct compare_run *run) {
  size_t count = (size_t)c->twin_count;
  run->inputs = PyMem_Calloc(count + 1, sizeof *run->inputs);
  run->leaves = PyMem_Calloc(count + 1, sizeof *run->leaves);
  run->input_count = c->twin_count;
  if (!run->inputs || !run->leaves) {
    (void)PyErr_NoMemory();
    return -1;
  }
  return 0;
}

// A copy to write to. Where gradients are wanted it has the leaf as its history; so has a view of it.
static PyObject *input_copy(PyObject *leaf, bool grad, bool fresh) {
  bool tracked = grad && engine_tensor_requires_grad(leaf);
  if (fresh && !tracked) {
    return Py_NewRef(leaf);
  }
  if (tracked && grad_set(true) < 0) {
    return NULL;
  }
  PyObject *py_copy = PyObject_CallOneArg(torch_names.py_clone, leaf);
  if (tracked && grad_set(false) < 0) {
    Py_CLEAR(py_copy);
  }
  return py_copy;
}

// All inputs copied at once, overlapping as they did: in the program's own dtypes.
static int inputs_copy_together(const struct compare_case *c, struct compare_run *run) {
  struct engine_tensor *tensors = PyMem_Calloc((size_t)c->twin_count, sizeof *tensors);
  if (!tensors) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < c->twin_count; i++) {
    engine_tensor_read(c->twins[i], &tensors[i]);
  }
  int status = twin_make(tensors, c->twin_count, TWIN_DETACHED, true, run->inputs);
  for (int i = 0; i < c->twin_count; i++) {
    if (status == 0) {
      run->leaves[i] = Py_NewRef(run->inputs[i]);
    }
    engine_tensor_reset(&tensors[i]);
  }
  PyMem_Free(tensors);
  return status;
}

static int inputs_make(const struct compare_case *c, const struct compare_op *info, enum compare_precision precision,
                       bool grad, struct compare_run *run) {
  if (case_has_written_aliases(c)) {
    return inputs_copy_together(c, run);
  }
  for (int i = 0; i < c->twin_count; i++) {
    int first = twin_find(c, i);
    bool fresh = false;
    if (first < i) {
      run->leaves[i] = Py_NewRef(run->leaves[first]);
      run->inputs[i] = Py_NewRef(run->inputs[first]);
      continue;
    }
    run->leaves[i] = input_make(c, info, precision, grad, i, &fresh);
    if (!run->leaves[i]) {
      return -1;
    }
    run->inputs[i] = c->changed[i] ? input_copy(run->leaves[i], grad, fresh) : Py_NewRef(run->leaves[i]);
    if (!run->inputs[i]) {
      return -1;
    }
  }
  return 0;
}

// The run

struct swap {
  const struct compare_case *c;
  const struct compare_run *run;
  int next;  // they come in order
};

static PyObject *swap_find(void *context, PyObject *tensor) {
  struct swap *swap = context;
  for (int i = 0; i < swap->c->twin_count; i++) {
    int at = (swap->next + i) % swap->c->twin_count;
    if (swap->c->twins[at] == tensor) {
      swap->next = at + 1;
      return Py_NewRef(swap->run->inputs[at]);
    }
  }
  return Py_NewRef(tensor);
}

// In the wide runs an argument dtype=torch.float32 would round what is to be the reference.
static int kwargs_widen(PyObject **py_kwargs, bool narrow) {
  PyObject *value = *py_kwargs ? PyDict_GetItemWithError(*py_kwargs, torch_names.py_text_dtype) : NULL;  // borrowed
  if (!value) {
    return PyErr_Occurred() ? -1 : 0;
  }
  int dtype = torch_dtype_find(value);
  enum dit_dtype_class class = dtype >= 0 ? dit_dtype_get_class(dtype) : DIT_DTYPE_CLASS_BOOL;
  bool is_real = class == DIT_DTYPE_CLASS_FLOAT;
  if (dtype == DIT_DTYPE_F4_E2M1FN_X2 || (!is_real && class != DIT_DTYPE_CLASS_COMPLEX)) {
    return 0;
  }
  PyObject *py_copy = PyDict_Copy(*py_kwargs);
  PyObject *to = torch_dtype_get(narrow    ? (is_real ? DIT_DTYPE_F32 : DIT_DTYPE_C64)
                                 : is_real ? DIT_DTYPE_F64
                                           : DIT_DTYPE_C128);
  if (!py_copy || !to || PyDict_SetItem(py_copy, torch_names.py_text_dtype, to) < 0) {
    Py_XDECREF(py_copy);
    return -1;
  }
  Py_SETREF(*py_kwargs, py_copy);
  return 0;
}

static bool inputs_are_twins(const struct compare_case *c, const struct compare_run *run) {
  for (int i = 0; i < c->twin_count; i++) {
    if (run->inputs[i] != c->twins[i]) {
      return false;
    }
  }
  return true;
}

int compare_run_get_arguments(const struct compare_case *c, const struct compare_run *run, PyObject **py_args,
                              PyObject **py_kwargs) {
  bool same = inputs_are_twins(c, run);
  struct swap swap = {.c = c, .run = run};
  *py_kwargs = NULL;
  *py_args = same ? Py_NewRef(c->py_args) : remap_value(c->py_args, swap_find, &swap);
  if (*py_args && c->py_kwargs) {
    *py_kwargs = same ? Py_NewRef(c->py_kwargs) : remap_value(c->py_kwargs, swap_find, &swap);
    if (!*py_kwargs) {
      Py_CLEAR(*py_args);
    }
  }
  return *py_args ? 0 : -1;
}

// A number of the program (beta2, eps): kernels take it in float32, unless they compute in float64.
static PyObject *number_shake(PyObject *value, double size, uint64_t *state) {
  return PyFloat_CheckExact(value) ? PyFloat_FromDouble(dit_verdict_move_number(PyFloat_AS_DOUBLE(value), size, state))
                                   : Py_NewRef(value);
}

// Numbers among the arguments, and in a tuple of them (betas). New reference or NULL.
static PyObject *tuple_shake(PyObject *tuple, double size, uint64_t *state) {
  PyObject *py_made = PyTuple_New(PyTuple_GET_SIZE(tuple));
  for (Py_ssize_t i = 0; py_made && i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject *value = PyTuple_GET_ITEM(tuple, i);
    PyObject *py_new = PyTuple_CheckExact(value) ? tuple_shake(value, size, state) : number_shake(value, size, state);
    if (!py_new) {
      Py_CLEAR(py_made);
      break;
    }
    PyTuple_SET_ITEM(py_made, i, py_new);
  }
  return py_made;
}

static PyObject *dict_shake(PyObject *dict, double size, uint64_t *state) {
  PyObject *py_made = PyDict_New(), *key, *value;
  Py_ssize_t at = 0;
  while (py_made && PyDict_Next(dict, &at, &key, &value)) {
    PyObject *py_new = number_shake(value, size, state);
    if (!py_new || PyDict_SetItem(py_made, key, py_new) < 0) {
      Py_CLEAR(py_made);
    }
    Py_XDECREF(py_new);
  }
  return py_made;
}

static int numbers_shake(const struct compare_case *c, PyObject **py_args, PyObject **py_kwargs) {
  double size = 0x1p-24;
  for (int i = 0; i < c->twin_count; i++) {
    size = c->dtypes[i] == DIT_DTYPE_F64 || c->dtypes[i] == DIT_DTYPE_C128 ? 0x1p-53 : size;
  }
  uint64_t state = dit_verdict_move_begin(c->shake_seed);
  PyObject *py_new = tuple_shake(*py_args, size, &state);
  if (!py_new) {
    return -1;
  }
  Py_SETREF(*py_args, py_new);
  if (*py_kwargs && !(py_new = dict_shake(*py_kwargs, size, &state))) {
    return -1;
  }
  if (*py_kwargs) {
    Py_SETREF(*py_kwargs, py_new);
  }
  return 0;
}

static PyObject *operator_call_guests(const struct compare_case *c, const struct compare_run *run) {
  const struct compare_state *state = c->tool->state;
  PyObject *py_args, *py_kwargs, *dtype = torch_dtype_get(c->autocast);
  if (!dtype || compare_run_get_arguments(c, run, &py_args, &py_kwargs) < 0) {
    return NULL;
  }
  PyObject *py_result = PyObject_CallFunction(state->py_under_autocast, "OOOsO", c->py_func, py_args,
                                              py_kwargs ? py_kwargs : Py_None, c->device, dtype);
  Py_DECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

static PyObject *operator_call_otherwise(const struct compare_case *c, const struct compare_run *run) {
  const struct compare_state *state = c->tool->state;
  const struct dit_operator *op = dit_operator_find(c->op->name);
  PyObject *py_args, *py_kwargs;
  if (!op || compare_run_get_arguments(c, run, &py_args, &py_kwargs) < 0) {
    return NULL;
  }
  PyObject *py_result =
      PyObject_CallFunction(state->py_other_way, "sOO", op->name, py_args, py_kwargs ? py_kwargs : Py_None);
  Py_DECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

// The CPU refused (the exception is pending): composed of other operators where that is known. New reference, or NULL
// with the exception as it was.
static PyObject *operator_call_instead(const struct compare_case *c, PyObject *args, PyObject *kwargs) {
  const struct compare_state *state = c->tool->state;
  const struct dit_operator *op = dit_operator_find(c->op->name);
  if (!op || !state->py_instead || c->is_on_site || compare_error_is_foreign()) {
    return NULL;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyObject *py_result = PyObject_CallFunction(state->py_instead, "sOO", op->name, args, kwargs ? kwargs : Py_None);
  if (py_result && py_result != Py_NotImplemented) {
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return py_result;
  }
  Py_XDECREF(py_result);
  py_error_drop();
  PyErr_Restore(kind, value, traceback);
  return NULL;
}

static PyObject *operator_call(const struct compare_case *c, const struct compare_run *run, bool widen, bool shaken) {
  PyObject *py_args, *py_kwargs;
  bool failed = compare_run_get_arguments(c, run, &py_args, &py_kwargs) < 0;
  failed = failed || (shaken && numbers_shake(c, &py_args, &py_kwargs) < 0);
  bool narrow = c->narrow && !widen;
  failed = failed || ((widen || narrow) && kwargs_widen(&py_kwargs, narrow || c->is_single) < 0);
  PyObject *py_result = failed ? NULL : PyObject_Call(c->py_func, py_args, py_kwargs);
  if (!failed && !py_result) {
    py_result = operator_call_instead(c, py_args, py_kwargs);
  }
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

// .cuda() and its like: what was given is what is expected.
static PyObject *operator_stand_in(const struct compare_run *run) {
  if (run->input_count < 1) {
    PyErr_SetString(PyExc_TypeError, "moves to a device without a tensor");
    return NULL;
  }
  return Py_NewRef(run->inputs[0]);
}

static bool result_is_elsewhere(PyObject *result) {
  struct engine_leaves leaves;
  bool elsewhere = false;
  engine_leaves_init(&leaves);
  if (engine_leaves_add(&leaves, result, "out") == 0) {
    for (int i = 0; i < leaves.tensor_count; i++) {
      elsewhere |= (leaves.tensor[i].flags & ENGINE_TENSOR_DEVICE) != 0;
    }
  }
  engine_leaves_reset(&leaves);
  py_error_drop();
  return elsewhere;
}

static int run_fill(const struct compare_case *c, const struct compare_op *info, enum compare_precision precision,
                    bool grad, struct compare_run *run, const struct surroundings *around) {
  if (arrays_allocate(c, run) < 0 || inputs_make(c, info, precision, grad, run) < 0 || (grad && grad_set(true) < 0)) {
    return -1;
  }
  bool wide = (precision == COMPARE_WIDE || precision == COMPARE_SHAKEN || precision == COMPARE_JITTER_WIDE) &&
              (!info->is_exact || c->is_on_site);
  run->py_result = info->moves      ? operator_stand_in(run)
                   : around->guests ? operator_call_guests(c, run)
                   : precision == COMPARE_OTHER && case_has_other_way(c)
                       ? operator_call_otherwise(c, run)
                       : operator_call(c, run, wide, precision == COMPARE_SHAKEN);
  if (!run->py_result) {
    return -1;
  }
  if (!c->is_on_site && result_is_elsewhere(run->py_result)) {
    snprintf(run->reason, sizeof run->reason, "it leaves the CPU although all arguments are there");
  }
  PyObject *begin = around->py_begin ? around->py_begin : around->py_state;
  run->drew = begin && state_has_moved(begin);
  return 0;
}

int compare_run_forward(const struct compare_case *c, enum compare_precision precision, bool grad,
                        struct compare_run *run) {
  struct compare_state *state = c->tool->state;
  *run = (struct compare_run){0};
  const struct compare_op *info = compare_op_find(state, c->op);
  if (torch_names_load(TORCH_AUTOCAST | TORCH_RANDOM) < 0 || !info) {
    if (!PyErr_Occurred()) {
      (void)PyErr_NoMemory();
    }
    return -1;
  }
  state->runs++;
  struct surroundings around;
  int status = surroundings_enter(&around, c, info, precision);
  status = status < 0 ? status : run_fill(c, info, precision, grad, run, &around);
  surroundings_leave(&around, c);
  if (status == 0) {
    return 0;
  }
  if (compare_error_is_foreign()) {
    compare_run_reset(run);
    return -1;
  }
  char reason[sizeof run->reason];
  compare_error_take(reason, sizeof reason);
  compare_run_reset(run);
  memcpy(run->reason, reason, sizeof reason);
  return 0;
}

void compare_run_reset(struct compare_run *run) {
  for (int i = 0; i < run->input_count; i++) {
    if (run->inputs) {
      Py_XDECREF(run->inputs[i]);
    }
    if (run->leaves) {
      Py_XDECREF(run->leaves[i]);
    }
  }
  PyMem_Free(run->inputs);
  PyMem_Free(run->leaves);
  Py_XDECREF(run->py_result);
  *run = (struct compare_run){0};
}
