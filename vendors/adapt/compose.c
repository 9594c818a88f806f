/// Which functions can be composed, and the ways that need no recipe: in place by out of place, lists one by one.
#include <stdio.h>
#include <string.h>

#include "adapt.h"
#include "dit/alloc.h"

// In place by out of place

/// The function without "Inp" whose parameters are an output and the same ones; -1 when there is none.
static int find_base(int function) {
  const struct dit_diopi_info *infos = dit_diopi_get_functions(NULL);
  const char *name = infos[function].name, *inp = strstr(name, "Inp");
  char base[96];
  if (!inp || infos[function].kinds[1] != 'o') {
    return -1;
  }
  snprintf(base, sizeof base, "%.*s%s", (int)(inp - name), name, inp + 3);
  const int found = dit_diopi_find_function(base);
  if (found < 0) {
    return -1;
  }
  const char *kinds = infos[found].kinds;
  return kinds[1] == 'o' && kinds[2] == 't' && strcmp(kinds + 3, infos[function].kinds + 2) == 0 ? found : -1;
}

static bool gives_truth(int function) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  return strcmp(info->family, "comparison") == 0 || strncmp(info->name, "diopiLogical", 12) == 0;
}

static diopiError_t run_base(diopiContextHandle_t ctx, int function, int base, const union dit_diopi_value *values) {
  union dit_diopi_value v[ADAPT_PARAMETERS];
  const size_t rest = strlen(dit_diopi_get_functions(NULL)[function].kinds) - 2;
  diopiTensorHandle_t self = values[1].tensor;
  ADAPT_CHECK_ARGUMENT(self, "%s: 'input' is NULL; it must be a tensor", dit_diopi_get_functions(NULL)[function].name);
  ADAPT_CHECK_ARGUMENT(self->view.flags & DIT_TENSOR_ON_DEVICE, "%s: 'input' is in the host's memory",
                       dit_diopi_get_functions(NULL)[function].name);
  v[0].context = ctx;
  v[1].tensor =
      adapt_create(ctx, self->view.ndim, self->view.sizes, gives_truth(base) ? DIT_DTYPE_BOOL : self->view.dtype);
  v[2].tensor = self;
  memcpy(v + 3, values + 2, rest * sizeof v[0]);
  if (!v[1].tensor) {
    return diopiErrorOccurred;
  }
  ADAPT_TRY(adapt_call(base, v));
  ADAPT_TRY(adapt_copy(ctx, &self->view, &v[1].tensor->view, ADAPT_WRAP));
  adapt_count(COUNT_WRITTEN, 1);
  return diopiSuccess;
}

// Lists

static const struct list_row {
  int function, base;
  bool in_place, scalar;
} list_rows[] = {
    {DIT_DIOPI_diopiForeachaddScalar, DIT_DIOPI_diopiAddScalar, false, true},
    {DIT_DIOPI_diopiForeachaddInpScalar, DIT_DIOPI_diopiAddScalar, true, true},
    {DIT_DIOPI_diopiForeachmulScalar, DIT_DIOPI_diopiMulScalar, false, true},
    {DIT_DIOPI_diopiForeachmulInpScalar, DIT_DIOPI_diopiMulScalar, true, true},
    {DIT_DIOPI_diopiForeachmulTensor, DIT_DIOPI_diopiMul, false, false},
    {DIT_DIOPI_diopiForeachmulInpTensor, DIT_DIOPI_diopiMul, true, false},
};

static const struct list_row *find_list(int function) {
  for (size_t i = 0; i < sizeof list_rows / sizeof list_rows[0]; i++) {
    if (list_rows[i].function == function) {
      return &list_rows[i];
    }
  }
  return NULL;
}

static diopiError_t run_item(diopiContextHandle_t ctx, const struct list_row *row, diopiTensorHandle_t out,
                             diopiTensorHandle_t in, const union dit_diopi_value *other, diopiTensorHandle_t *result) {
  static diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};
  ADAPT_CHECK_ARGUMENT(in && out, "a tensor of the list is NULL");
  ADAPT_CHECK_ARGUMENT(in->view.flags & DIT_TENSOR_ON_DEVICE && out->view.flags & DIT_TENSOR_ON_DEVICE,
                       "a tensor of the list is in the host's memory");
  ADAPT_CHECK_ARGUMENT(other->pointer, "'other' is NULL");
  *result = adapt_create(ctx, out->view.ndim, out->view.sizes, out->view.dtype);
  const union dit_diopi_value v[5] = {{.context = ctx}, {.tensor = *result}, {.tensor = in}, *other, {.scalar = &one}};
  return *result ? adapt_call(row->base, v) : diopiErrorOccurred;
}

/// All results first, then they are written.
static diopiError_t run_list(diopiContextHandle_t ctx, const struct list_row *row, const union dit_diopi_value *v) {
  diopiTensorHandle_t *outs = v[1].tensors, *inputs = row->in_place ? v[1].tensors : v[2].tensors;
  const int64_t count = v[row->in_place ? 2 : 3].i;
  ADAPT_CHECK_ARGUMENT(count >= 0 && count < 1 << 20 && (count == 0 || (outs && inputs)), "a list of %lld tensors",
                       (long long)count);
  diopiTensorHandle_t *results = dit_calloc((size_t)count + 1, sizeof *results);
  diopiError_t code = results ? diopiSuccess : diopiErrorOccurred;
  for (int64_t i = 0; i < count && code == diopiSuccess; i++) {
    code = run_item(ctx, row, outs[i], inputs[i], &v[row->in_place ? 3 : 4], &results[i]);
  }
  for (int64_t i = 0; i < count && code == diopiSuccess; i++) {
    code = adapt_copy(ctx, &outs[i]->view, &results[i]->view, ADAPT_WRAP);
  }
  dit_free(results);
  return code;
}

// The only result that is no tensor

static diopiError_t run_equal(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  diopiTensorHandle_t a = v[2].tensor, b = v[3].tensor;
  ADAPT_CHECK_ARGUMENT(v[1].bools && a && b, "an argument is NULL");
  ADAPT_CHECK_ARGUMENT(a->view.flags & b->view.flags & DIT_TENSOR_ON_DEVICE, "a tensor is in the host's memory");
  ADAPT_CHECK_ARGUMENT(a->view.dtype == b->view.dtype, "'input' is %s and 'other' %s; they must be the same",
                       dit_dtype_get_name(a->view.dtype), dit_dtype_get_name(b->view.dtype));
  if (a->view.ndim != b->view.ndim ||
      (a->view.ndim && memcmp(a->view.sizes, b->view.sizes, sizeof(int64_t) * (size_t)a->view.ndim) != 0)) {
    v[1].bools[0] = false;
    return diopiSuccess;
  }
  diopiTensorHandle_t same = adapt_create(ctx, a->view.ndim, a->view.sizes, DIT_DTYPE_BOOL);
  const union dit_diopi_value call[4] = {{.context = ctx}, {.tensor = same}, {.tensor = a}, {.tensor = b}};
  int64_t *read = NULL;
  ADAPT_TRY(same ? adapt_call(DIT_DIOPI_diopiEq, call) : diopiErrorOccurred);
  ADAPT_TRY(adapt_read_ints(ctx, &same->view, &read));
  bool all = true;
  for (int64_t i = 0; i < same->view.numel; i++) {
    all = all && read[i];
  }
  dit_free(read);
  v[1].bools[0] = all;
  return diopiSuccess;
}

// The way of a composed call

static bool is_possible(const struct adapt_state *state, int function) {
  const int base = find_base(function);
  const struct list_row *row = find_list(function);
  const int needed = base >= 0 ? base : row ? row->base : function == DIT_DIOPI_diopiEqual ? DIT_DIOPI_diopiEq : -1;
  if (needed >= 0 && (state->functions[needed].behind || state->functions[needed].composed)) {
    return true;
  }
  return adapt_is_movement(function) || adapt_recipe_is_possible(state, function);
}

void adapt_compose_init(struct adapt_state *state) {
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < DIT_DIOPI_COUNT; i++) {
      if (!state->functions[i].composed && !state->functions[i].rule.alone &&
          dit_diopi_get_functions(NULL)[i].kinds[0] && is_possible(state, i)) {
        state->functions[i].composed = more = true;
      }
    }
  }
}

static diopiError_t run(struct diopiContext *child, int function, const union dit_diopi_value *values) {
  const int base = find_base(function);
  const struct list_row *row = find_list(function);
  if (base >= 0) {
    return run_base(child, function, base, values);
  }
  if (row) {
    return run_list(child, row, values);
  }
  if (function == DIT_DIOPI_diopiEqual) {
    return run_equal(child, values);
  }
  return adapt_is_movement(function) ? adapt_move(child, function, values) : adapt_recipe_run(child, function, values);
}

diopiError_t adapt_compose(struct adapt_state *state, int function, const union dit_diopi_value *values) {
  enum { DEPTH = 24 };
  static _Thread_local int stack[DEPTH], depth;
  struct diopiContext child;
  int again = 0;
  (void)state;
  ADAPT_TRY(adapt_check_tensors(function, values));
  for (int i = 0; i < depth; i++) {
    again += stack[i] == function;
  }
  if (depth == DEPTH || again > 0) {
    return adapt_fail(diopiDtypeNotSupported, diopiExtFailureOther, "%s does not take these tensors",
                      dit_diopi_get_functions(NULL)[function].name);
  }
  adapt_child_init(&child, values[0].context);
  stack[depth++] = function;
  const diopiError_t code = run(&child, function, values);
  depth--;
  dit_diopi_context_reset(&child);
  adapt_count(COUNT_COMPOSED, code == diopiSuccess);
  if (code == diopiErrorOccurred) {
    adapt_name_failure(function);
  }
  return code;
}
