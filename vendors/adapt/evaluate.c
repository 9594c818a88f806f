/// Evaluating a recipe: parameters as values, calls of functions on tensors of one dtype and shape, results written at
/// the end.
///
/// Everything is computed in scratch memory; outputs are checked, then written, after the last call succeeded. So a
/// recipe can be tried with one dtype and again with another.
#include "evaluate.h"

#include <math.h>
#include <string.h>

bool run_is_integer(const struct run *run) {
  return run->work == DIT_DTYPE_I64 || run->work == DIT_DTYPE_I32;
}

static struct value make_real(double x) {
  return (struct value){.real = x, .integer = fabs(x) < 0x1p62 ? (int64_t)x : 0};
}

static struct value make_integer(int64_t x) {
  return (struct value){.real = (double)x, .integer = x, .is_integer = true};
}

static struct value take_scalar(const diopiScalar_t *scalar) {
  switch (scalar->stype) {
    case diopi_dtype_float16:
    case diopi_dtype_bfloat16:
    case diopi_dtype_float32:
    case diopi_dtype_tfloat32:
    case diopi_dtype_float64:
      return make_real(scalar->fval);
    default:
      return make_integer(scalar->ival);
  }
}

static diopiError_t take_parameter(struct run *run, int parameter, struct value *out) {
  const union dit_diopi_value *v = &run->values[parameter];
  switch (run->kinds[parameter]) {
    case 't':
    case 'o':
      ADAPT_CHECK_ARGUMENT(v->tensor, "%s: parameter %d is NULL; it must be a tensor",
                           dit_diopi_get_functions(NULL)[run->recipe->function].name, parameter);
      *out = (struct value){.tensor = v->tensor};
      return diopiSuccess;
    case 's':
      ADAPT_CHECK_ARGUMENT(v->scalar, "%s: parameter %d is NULL; it must be a scalar",
                           dit_diopi_get_functions(NULL)[run->recipe->function].name, parameter);
      *out = take_scalar(v->scalar);
      return diopiSuccess;
    case 'f':
    case 'd':
      *out = make_real(v->d);
      return diopiSuccess;
    default:
      *out = make_integer(v->i);
      return diopiSuccess;
  }
}

diopiError_t run_load(struct run *run, const struct value *value, int ndim, const int64_t *sizes, int dtype,
                      diopiTensorHandle_t *out) {
  const struct dit_tensor_view *view = value->tensor ? &value->tensor->view : NULL;
  if (view && view->dtype == dtype && view->flags & DIT_TENSOR_CONTIGUOUS && view->ndim == ndim &&
      (ndim == 0 || memcmp(view->sizes, sizes, sizeof(int64_t) * (size_t)ndim) == 0)) {
    *out = value->tensor;
    return diopiSuccess;
  }
  *out = adapt_create(run->ctx, ndim, sizes, dtype);
  if (!*out) {
    return diopiErrorOccurred;
  }
  if (view) {
    return adapt_copy(run->ctx, &(*out)->view, view, ADAPT_WRAP);
  }
  return value->is_integer ? adapt_write(run->ctx, &(*out)->view, &value->integer, DIT_DTYPE_I64, 1)
                           : adapt_write(run->ctx, &(*out)->view, &value->real, DIT_DTYPE_F64, 1);
}

// Calls

static bool gives_truth(int function) {
  const char *family = dit_diopi_get_functions(NULL)[function].family;
  return strcmp(family, "comparison") == 0 || function == DIT_DIOPI_diopiIsNan ||
         strncmp(dit_diopi_get_functions(NULL)[function].name, "diopiLogical", 12) == 0;
}

/// Numbers among themselves.
static bool fold_numbers(int function, const struct value *a, const struct value *b, struct value *out) {
  const bool integer = a->is_integer && b->is_integer;
  const uint64_t x = (uint64_t)a->integer, y = (uint64_t)b->integer;
  switch (function) {
    case DIT_DIOPI_diopiAdd:
      *out = integer ? make_integer((int64_t)(x + y)) : make_real(a->real + b->real);
      return true;
    case DIT_DIOPI_diopiSub:
      *out = integer ? make_integer((int64_t)(x - y)) : make_real(a->real - b->real);
      return true;
    case DIT_DIOPI_diopiMul:
      *out = integer ? make_integer((int64_t)(x * y)) : make_real(a->real * b->real);
      return true;
    case DIT_DIOPI_diopiDiv:
      *out = make_real(a->real / b->real);
      return true;
    default:
      return false;
  }
}

static diopiError_t get_shape(const struct value *arguments, int count, int *ndim, int64_t *sizes) {
  struct dit_error err = {.message = ""};
  *ndim = 0;
  for (int i = 0; i < count; i++) {
    const struct dit_tensor_view *view = arguments[i].tensor ? &arguments[i].tensor->view : NULL;
    ADAPT_CHECK_ARGUMENT(!view || dit_shape_broadcast(view->ndim, view->sizes, ndim, sizes, &err) == DIT_OK, "%s",
                         err.message);
  }
  return diopiSuccess;
}

diopiError_t run_call(struct run *run, int function, int64_t mode, const struct value *arguments, int count,
                      struct value *out) {
  static diopiScalar_t one_real = {.stype = diopi_dtype_float64, .fval = 1},
                       one_integer = {.stype = diopi_dtype_int64, .ival = 1};
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  union dit_diopi_value v[ADAPT_PARAMETERS] = {{.context = run->ctx}};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim, at = 0;
  ADAPT_TRY(get_shape(arguments, count, &ndim, sizes));
  if (count == 2 && !arguments[0].tensor && !arguments[1].tensor &&
      fold_numbers(function, &arguments[0], &arguments[1], out)) {
    return diopiSuccess;
  }
  for (int i = 1; kinds[i]; i++) {
    const bool truth = function == DIT_DIOPI_diopiWhere && at == 0;
    switch (kinds[i]) {
      case 'o':
        out->tensor = v[i].tensor =
            adapt_create(run->ctx, ndim, sizes, gives_truth(function) ? DIT_DTYPE_BOOL : run->work);
        if (!v[i].tensor) {
          return diopiErrorOccurred;
        }
        break;
      case 't':
        if (at == count) {
          return diopiNoImplement;
        }
        ADAPT_TRY(run_load(run, &arguments[at], ndim, sizes, truth ? DIT_DTYPE_BOOL : run->work, &v[i].tensor));
        at++;
        break;
      case 's':
        v[i].scalar = run_is_integer(run) ? &one_integer : &one_real;
        break;
      case 'm':
        v[i].i = mode;
        break;
      default:
        return diopiNoImplement;
    }
  }
  return adapt_call(function, v);
}

// Words

static int64_t find_number(const struct run *run, const char *name, int64_t absent) {
  const int parameter = adapt_find_parameter(run->recipe->function, name);
  return parameter < 0 ? absent : run->values[parameter].i;
}

static bool is_given(const struct run *run, int parameter) {
  switch (run->kinds[parameter]) {
    case 't':
    case 'o':
      return run->values[parameter].tensor != NULL;
    case 's':
      return run->values[parameter].scalar != NULL;
    default:
      return true;
  }
}

static diopiError_t evaluate(struct run *run, int number, struct value *out);

static diopiError_t divide(struct run *run, int word, const struct value *arguments, struct value *out) {
  const int64_t mode = word == WORD_FLOORDIV ? RoundModeFloor : find_number(run, "rounding_mode", RoundModeNone);
  ADAPT_CHECK_ARGUMENT(mode >= RoundModeNone && mode < RoundModeEND, "'rounding_mode' is %lld; valid: 0 to 2",
                       (long long)mode);
  if (mode == RoundModeNone || run_is_integer(run)) {
    return run_call(run, DIT_DIOPI_diopiDiv, mode, arguments, 2, out);
  }
  struct value quotient, floor_value, pieces[3], negative, up;
  const struct value minus = make_integer(-1);
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiDiv, RoundModeNone, arguments, 2, &quotient));
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiFloor, 0, &quotient, 1, &floor_value));
  if (mode == RoundModeFloor) {
    *out = floor_value;
    return diopiSuccess;
  }
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiMul, 0, (struct value[]){quotient, minus}, 2, &negative));
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiFloor, 0, &negative, 1, &up));
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiMul, 0, (struct value[]){up, minus}, 2, &pieces[1]));
  ADAPT_TRY(run_call(run, DIT_DIOPI_diopiLt, 0, (struct value[]){quotient, make_integer(0)}, 2, &pieces[0]));
  pieces[2] = floor_value;
  return run_call(run, DIT_DIOPI_diopiWhere, 0, pieces, 3, out);
}

static int choose_norm(const struct value *p) {
  return p->real == 0 ? 1 : p->real == INFINITY ? 2 : p->real == -INFINITY ? 3 : 4;
}

/// 1 + the number of the choice that a parameter makes.
static diopiError_t get_choice(const struct run *run, int parameter, int *out) {
  if (run->kinds[parameter] != 'C') {
    *out = 1 + (int)run->values[parameter].i;
    return diopiSuccess;
  }
  const char *text = run->values[parameter].string;
  ADAPT_CHECK_ARGUMENT(text && (strcmp(text, "none") == 0 || strcmp(text, "tanh") == 0),
                       "'approximate' is '%s'; valid: none, tanh", text ? text : "(null)");
  *out = strcmp(text, "none") == 0 ? 1 : 2;
  return diopiSuccess;
}

static diopiError_t evaluate_word(struct run *run, const struct node *node, struct value *out) {
  const int first = node->count ? run->recipe->nodes[node->arguments[0]].number : 0;
  struct value arguments[2];
  int chosen = 0;
  switch (node->number) {
    case WORD_CHOOSE:
      ADAPT_TRY(get_choice(run, first, &chosen));
      ADAPT_CHECK_ARGUMENT(chosen >= 1 && chosen < node->count, "parameter %d has the value %d", first, chosen - 1);
      return evaluate(run, node->arguments[chosen], out);
    case WORD_GIVEN:
      return evaluate(run, node->arguments[is_given(run, first) ? 1 : 2], out);
    case WORD_INTEGER:
      return evaluate(run, node->arguments[run_is_integer(run) ? 0 : 1], out);
    case WORD_TRUTH:
      ADAPT_CHECK_ARGUMENT(run->values[first].tensor, "parameter %d is NULL; it must be a tensor", first);
      return evaluate(run, node->arguments[run->values[first].tensor->view.dtype == DIT_DTYPE_BOOL ? 1 : 2], out);
    case WORD_NORM:
      ADAPT_TRY(evaluate(run, node->arguments[0], &arguments[0]));
      return evaluate(run, node->arguments[choose_norm(&arguments[0])], out);
    case WORD_ZERO:
      ADAPT_TRY(evaluate(run, node->arguments[0], &arguments[0]));
      return evaluate(run, node->arguments[arguments[0].real == 0 ? 1 : 2], out);
    case WORD_PRODUCT:
    case WORD_TPRODUCT:
      ADAPT_TRY(evaluate(run, node->arguments[0], &arguments[0]));
      ADAPT_TRY(evaluate(run, node->arguments[1], &arguments[1]));
      return run_product(run, &arguments[0], &arguments[1], node->number == WORD_TPRODUCT, out);
    case WORD_FLOORDIV:
    case WORD_DIVMODE:
      ADAPT_TRY(evaluate(run, node->arguments[0], &arguments[0]));
      ADAPT_TRY(evaluate(run, node->arguments[1], &arguments[1]));
      return divide(run, node->number, arguments, out);
    default:
      ADAPT_TRY(evaluate(run, node->arguments[0], &arguments[0]));
      return run_fold(run, node->number, &arguments[0], out);
  }
}

static diopiError_t evaluate(struct run *run, int number, struct value *out) {
  const struct node *node = &run->recipe->nodes[number];
  struct value arguments[RECIPE_ARGUMENTS];
  *out = (struct value){0};
  switch (node->kind) {
    case NODE_NUMBER:
      *out = make_real(node->value);
      out->is_integer = node->value == floor(node->value) && fabs(node->value) < 1e15;
      return diopiSuccess;
    case NODE_PARAMETER:
      return take_parameter(run, node->number, out);
    case NODE_NAME:
      *out = run->statements[node->number];
      return diopiSuccess;
    case NODE_WORD:
      return evaluate_word(run, node, out);
    default:
      for (int i = 0; i < node->count; i++) {
        ADAPT_TRY(evaluate(run, node->arguments[i], &arguments[i]));
      }
      return run_call(run, node->number, RoundModeNone, arguments, node->count, out);
  }
}

// Results

/// Give the value the shape of the output: the same, or without the dimensions that a fold took.
static diopiError_t fit_result(struct run *run, struct value *value, const struct dit_tensor_view *out) {
  if (!value->tensor) {
    ADAPT_TRY(run_load(run,
                       &(struct value){.real = value->real, .integer = value->integer, .is_integer = value->is_integer},
                       out->ndim, out->sizes, value->is_integer ? DIT_DTYPE_I64 : DIT_DTYPE_F64, &value->tensor));
    return diopiSuccess;
  }
  struct dit_tensor_view *view = &value->tensor->view;
  const bool same = view->ndim == out->ndim &&
                    (view->ndim == 0 || memcmp(view->sizes, out->sizes, sizeof(int64_t) * (size_t)view->ndim) == 0);
  if (same) {
    return diopiSuccess;
  }
  int64_t kept[DIT_MAX_DIMS];
  int count = 0;
  for (int d = 0; d < view->ndim; d++) {
    if (!(run->folded >> d & 1)) {
      kept[count++] = view->sizes[d];
    }
  }
  ADAPT_CHECK_ARGUMENT(run->folded && run->folded_ndim == view->ndim && count == out->ndim &&
                           (count == 0 || memcmp(kept, out->sizes, sizeof(int64_t) * (size_t)count) == 0),
                       "%s: an output has the wrong shape", dit_diopi_get_functions(NULL)[run->recipe->function].name);
  diopiTensorHandle_t flat = adapt_create(run->ctx, count, kept, view->dtype);
  if (!flat) {
    return diopiErrorOccurred;
  }
  struct dit_tensor_view source = *view;  // contiguous, so the kept dimensions describe it as well
  source.ndim = count;
  source.sizes = flat->view.sizes;
  source.strides = flat->view.strides;
  ADAPT_TRY(adapt_copy(run->ctx, &flat->view, &source, ADAPT_WRAP));
  value->tensor = flat;
  return diopiSuccess;
}

static diopiError_t run_once(struct run *run) {
  const struct recipe *recipe = run->recipe;
  for (int i = 0; i < recipe->statement_count; i++) {
    ADAPT_TRY(evaluate(run, recipe->statements[i].root, &run->statements[i]));
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < recipe->statement_count; i++) {
      const int parameter = recipe->statements[i].parameter;
      if (parameter < 0) {
        continue;
      }
      const struct dit_tensor_view *out = &run->values[parameter].tensor->view;
      ADAPT_TRY(pass ? adapt_copy(run->ctx, out, &run->statements[i].tensor->view, ADAPT_WRAP)
                     : fit_result(run, &run->statements[i], out));
    }
  }
  return diopiSuccess;
}

// The dtype of the work

enum operands { OPERANDS_INTEGER, OPERANDS_REAL, OPERANDS_DOUBLE, OPERANDS_OTHER };

static bool is_mask(int function, int parameter) {
  return parameter == adapt_find_parameter(function, "mask") ||
         parameter == adapt_find_parameter(function, "condition");
}

static enum operands join_dtype(enum operands now, int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F64:
      return now > OPERANDS_DOUBLE ? now : OPERANDS_DOUBLE;
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
    case DIT_DTYPE_F32:
      return now > OPERANDS_REAL ? now : OPERANDS_REAL;
    case DIT_DTYPE_U64:
    case DIT_DTYPE_C32:
    case DIT_DTYPE_C64:
    case DIT_DTYPE_C128:
      return OPERANDS_OTHER;
    default:
      return now;
  }
}

/// Also checks that tensors are there and on the device.
static diopiError_t look_at_operands(const struct run *run, enum operands *out, bool *wide_integers) {
  const struct recipe *recipe = run->recipe;
  *out = OPERANDS_INTEGER;
  *wide_integers = false;
  for (int i = 1; run->kinds[i]; i++) {
    const union dit_diopi_value *v = &run->values[i];
    if (run->kinds[i] == 's' && v->scalar && !take_scalar(v->scalar).is_integer) {
      *out = *out > OPERANDS_REAL ? *out : OPERANDS_REAL;
    }
    if (run->kinds[i] != 't' && run->kinds[i] != 'o') {
      continue;
    }
    ADAPT_CHECK_ARGUMENT(v->tensor || run->kinds[i] == 't', "%s: an output is NULL",
                         dit_diopi_get_functions(NULL)[recipe->function].name);
    ADAPT_CHECK_ARGUMENT(!v->tensor || v->tensor->view.flags & DIT_TENSOR_ON_DEVICE,
                         "%s: a tensor is in the host's memory", dit_diopi_get_functions(NULL)[recipe->function].name);
    if (!v->tensor || is_mask(recipe->function, i)) {
      continue;
    }
    const enum operands joined = join_dtype(*out, v->tensor->view.dtype);
    *out = run->kinds[i] == 't' || joined == OPERANDS_OTHER ? joined : *out;
    *wide_integers = *wide_integers || v->tensor->view.dtype == DIT_DTYPE_I64 || v->tensor->view.dtype == DIT_DTYPE_U32;
  }
  return diopiSuccess;
}

diopiError_t adapt_recipe_run(struct diopiContext *ctx, int function, const union dit_diopi_value *values) {
  struct run run = {.recipe = recipe_get(function),
                    .values = values,
                    .kinds = dit_diopi_get_functions(NULL)[function].kinds,
                    .ctx = ctx};
  enum operands operands;
  bool wide;
  ADAPT_TRY(look_at_operands(&run, &operands, &wide));
  if (operands == OPERANDS_OTHER) {
    return adapt_fail(diopiDtypeNotSupported, diopiExtFailureOther,
                      "%s: the adaptor composes no complex or uint64 work",
                      dit_diopi_get_functions(NULL)[function].name);
  }
  const char work = run.recipe->work == 'd' ? (find_number(&run, "rounding_mode", 0) ? 'p' : 'f') : run.recipe->work;
  const bool integer = work == 'p' && operands == OPERANDS_INTEGER;
  const int dtypes[2] = {integer ? DIT_DTYPE_I64 : DIT_DTYPE_F64, integer ? DIT_DTYPE_I32 : DIT_DTYPE_F32};
  const int tries = (integer ? wide : operands == OPERANDS_DOUBLE) ? 1 : 2;
  diopiError_t code = diopiNoImplement;
  for (int i = 0; i < tries && dit_diopi_is_refusal(code); i++) {
    run.work = dtypes[i];
    run.folded = 0;
    code = run_once(&run);
  }
  return code;
}
