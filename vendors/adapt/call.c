/// A call of the library behind with other tensors: what must change, the copies, the call, and the way back.
///
/// A ladder of steps is tried until the library takes one: the rules alone, contiguous tensors, expanded ones, then
/// wider dtypes. The step that worked is remembered for calls with the same dtypes and layouts. Every tensor that may
/// be written is copied in first unless it is known to be written only, and written back only when the call succeeded.
#include <stdatomic.h>
#include <string.h>

#include "adapt.h"
#include "dit/alloc.h"
#include "dit/memory.h"

// What a dtype becomes at a step

enum step {
  STEP_RULES,       ///< what rules say, nothing else
  STEP_CONTIGUOUS,  ///< and every tensor contiguous
  STEP_EXPANDED,    ///< and every operand of a pointwise function with the shape of the output
  STEP_FLOAT,       ///< half types as float32
  STEP_DOUBLE,      ///< all floating types as float64
  STEP_INT64,       ///< integers as int64, half types as float32
  STEP_INT32,       ///< short integers as int32, half types as float32
  STEP_BOTH,        ///< floating types as float64, integers as int64
  STEP_INDEX32,     ///< int64 indices as int32, where all values fit
  STEP_MIXED,       ///< pointwise: everything as the widest floating type that takes part, at least float32
  STEP_PROXY,       ///< functions that look at signs, zeros and NaN only: everything as float32
  STEP_COUNT
};

/// Functions whose results depend on signs, zeros and NaN alone, or (relu) are such an input itself.
static bool takes_proxies(int function) {
  switch (function) {
    case DIT_DIOPI_diopiRelu:
    case DIT_DIOPI_diopiSign:
    case DIT_DIOPI_diopiIsNan:
    case DIT_DIOPI_diopiLogicalNot:
    case DIT_DIOPI_diopiLogicalAnd:
    case DIT_DIOPI_diopiLogicalOr:
      return true;
    default:
      return false;
  }
}

/// Functions that write the lowest number of the tensor's dtype.
static bool writes_lowest(int function) {
  return function == DIT_DIOPI_diopiBatchApplyTemperaturePenaltyInp;
}

/// The dtype of the tensor decides what the function does: random integers up to the largest that it holds.
static bool is_about_dtype(int function) {
  return function == DIT_DIOPI_diopiRandomInp;
}

static bool is_half(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

static bool is_short(int dtype) {
  return dtype == DIT_DTYPE_I8 || dtype == DIT_DTYPE_U8 || dtype == DIT_DTYPE_I16;
}

static bool is_real(int dtype) {
  return is_half(dtype) || dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64;
}

/// One call on its way.
struct converted {
  struct adapt_state *state;
  const struct adapt_rule *rule;
  int function, widest;  ///< `widest` floating dtype among the tensors, or -1
  enum step step;
  const char *kinds;
  const union dit_diopi_value *original;
  const struct dit_tensor_view *model;  ///< the output that operands are expanded to, or NULL
  union dit_diopi_value values[ADAPT_PARAMETERS];
  struct diopiContext child;
  struct change *changes;
  int change_count, room;
  diopiTensorHandle_t *lists;
  int list_used;
};
struct change {
  diopiConstTensorHandle_t from;
  diopiTensorHandle_t to;
  int parameter;
  bool written;
  struct diopiTensor sparse;  ///< what `to` is when `from` is sparse: the same places, other values
};

static bool is_index(int function, int parameter) {
  int length;
  const char *name = adapt_get_name(function, parameter, &length);
  return strncmp(name, "ind", 3) == 0 || strncmp(name, "target", 6) == 0;
}

/// Truth values in bytes, as older programs have them. A function that takes these takes bools.
static bool is_mask(int function, int parameter) {
  int length;
  const char *name = adapt_get_name(function, parameter, &length);
  return length >= 4 && memcmp(name + length - 4, "mask", 4) == 0;
}

static int get_step_dtype(const struct converted *c, int parameter, int dtype) {
  switch (c->step) {
    case STEP_FLOAT:
      return is_half(dtype) ? DIT_DTYPE_F32 : dtype;
    case STEP_DOUBLE:
      return is_real(dtype) ? DIT_DTYPE_F64 : dtype;
    case STEP_INT64:
      return is_short(dtype) || dtype == DIT_DTYPE_I32 ? DIT_DTYPE_I64 : is_half(dtype) ? DIT_DTYPE_F32 : dtype;
    case STEP_INT32:
      return is_short(dtype) ? DIT_DTYPE_I32 : is_half(dtype) ? DIT_DTYPE_F32 : dtype;
    case STEP_BOTH:
      return is_real(dtype) ? DIT_DTYPE_F64 : is_short(dtype) || dtype == DIT_DTYPE_I32 ? DIT_DTYPE_I64 : dtype;
    case STEP_INDEX32:
      return dtype == DIT_DTYPE_I64 && is_index(c->function, parameter) ? DIT_DTYPE_I32 : dtype;
    case STEP_MIXED:
      return c->kinds[parameter] == 't' && c->widest >= 0 && dtype != DIT_DTYPE_BOOL &&
                     (is_real(dtype) || is_short(dtype))
                 ? c->widest
             : is_half(dtype) ? c->widest
                              : dtype;
    case STEP_PROXY:
      return is_real(dtype) || is_short(dtype) || dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64 ? DIT_DTYPE_F32
                                                                                                   : dtype;
    default:
      return dtype;
  }
}

static int get_rule_dtype(const struct adapt_rule *rule, int parameter, int dtype) {
  const unsigned number = dit_diopi_get_dtype(dtype);
  if (number >= ADAPT_DTYPES) {
    return dtype;
  }
  int to = rule->to[number];
  for (int i = 0; i < rule->tensor_count; i++) {
    to = rule->tensors[i].parameter == parameter && rule->tensors[i].has_dtypes ? rule->tensors[i].to[number] : to;
  }
  return to < 0 ? dtype : dit_diopi_find_dtype((diopiDtype_t)to);
}

// Layouts

static bool is_channels_last(const struct dit_tensor_view *view) {
  int64_t strides[DIT_MAX_DIMS];
  if (view->ndim < 3 || view->ndim > 5) {
    return false;
  }
  adapt_set_channels_last(view->ndim, view->sizes, strides);
  for (int d = 0; d < view->ndim; d++) {
    if (view->sizes[d] > 1 && view->strides[d] != strides[d]) {
      return false;
    }
  }
  return true;
}

/// Which layout the tensor must get: 0 stays as it is.
static int get_layout(const struct converted *c, int parameter, const struct dit_tensor_view *view) {
  int layouts = c->rule->layouts;
  for (int i = 0; i < c->rule->tensor_count; i++) {
    const struct adapt_tensor_rule *own = &c->rule->tensors[i];
    layouts = own->parameter == parameter && own->layouts ? own->layouts : layouts;
  }
  const bool contiguous = view->flags & DIT_TENSOR_CONTIGUOUS;
  if (layouts & ADAPT_CHANNELS_LAST && view->ndim >= 3 && view->ndim <= 5) {
    return is_channels_last(view) || (contiguous && layouts & ADAPT_CONTIGUOUS) ? 0
           : layouts & ADAPT_CONTIGUOUS                                         ? ADAPT_CONTIGUOUS
                                                                                : ADAPT_CHANNELS_LAST;
  }
  if (c->step >= STEP_CONTIGUOUS || (layouts & (ADAPT_CONTIGUOUS | ADAPT_CHANNELS_LAST) && !(layouts & ADAPT_ANY))) {
    return contiguous ? 0 : ADAPT_CONTIGUOUS;
  }
  return 0;
}

static unsigned add_to_hash(unsigned hash, const struct dit_tensor_view *view, int64_t *numel) {
  *numel = *numel < 0 ? view->numel : *numel;
  const unsigned own = (unsigned)view->dtype * 4 + (view->flags & DIT_TENSOR_CONTIGUOUS) + 2 * (view->numel != *numel);
  return hash * 2654435761U + own + 256 * (unsigned)view->ndim;
}

/// The step that was learned for a hash, 0: none.
static int get_hint(const struct adapt_function *own, unsigned hash) {
  const uint32_t hint = atomic_load_explicit(&own->hints[hash % ADAPT_HINTS], memory_order_relaxed);
  return (hint ^ hash) >> 8 ? 0 : (int)(hint & 255);
}

static void set_hint(struct adapt_function *own, unsigned hash, int hint) {
  atomic_store_explicit(&own->hints[hash % ADAPT_HINTS], (hash & ~255U) | (unsigned)hint, memory_order_relaxed);
}

/// The tensors of a list that holds some before the call, else NULL.
static diopiTensorHandle_t *get_list(int function, const union dit_diopi_value *values, int parameter, char kind,
                                     int64_t *count) {
  if ((kind != 'T' && (kind != 'O' || !dit_diopi_is_list(function, parameter))) || !values[parameter].tensors) {
    *count = 0;
    return NULL;
  }
  *count = adapt_get_length(function, values, parameter);
  return values[parameter].tensors;
}

static bool has_rule(const struct adapt_function *own, int function, int parameter,
                     const struct dit_tensor_view *view) {
  struct converted c;
  c.rule = &own->rule;
  c.step = STEP_RULES;
  return (get_rule_dtype(&own->rule, parameter, view->dtype) != view->dtype && !is_about_dtype(function)) ||
         get_layout(&c, parameter, view) != 0;
}

bool adapt_needs_conversion(const struct adapt_state *state, int function, const union dit_diopi_value *values) {
  const struct adapt_function *own = &state->functions[function];
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  unsigned hash = 0;
  int64_t numel = -1, count;
  for (int i = 1; kinds[i]; i++) {
    if ((kinds[i] == 't' || kinds[i] == 'o') && values[i].tensor) {
      hash = add_to_hash(hash, &values[i].tensor->view, &numel);
      if (!own->plain && has_rule(own, function, i, &values[i].tensor->view)) {
        return true;
      }
    } else if (kinds[i] == 'T' || kinds[i] == 'O') {
      diopiTensorHandle_t *list = get_list(function, values, i, kinds[i], &count);
      for (int64_t k = 0; k < count; k++) {
        hash = list[k] ? add_to_hash(hash, &list[k]->view, &numel) : hash;
        if (list[k] && !own->plain && has_rule(own, function, i, &list[k]->view)) {
          return true;
        }
      }
    }
  }
  const int hint = get_hint(own, hash);
  return hint != 0 && hint < ADAPT_REFUSED;
}

static unsigned get_hash(int function, const char *kinds, const union dit_diopi_value *values) {
  unsigned hash = 0;
  int64_t numel = -1, count;
  for (int i = 1; kinds[i]; i++) {
    if ((kinds[i] == 't' || kinds[i] == 'o') && values[i].tensor) {
      hash = add_to_hash(hash, &values[i].tensor->view, &numel);
    } else if (kinds[i] == 'T' || kinds[i] == 'O') {
      diopiTensorHandle_t *list = get_list(function, values, i, kinds[i], &count);
      for (int64_t k = 0; k < count; k++) {
        hash = list[k] ? add_to_hash(hash, &list[k]->view, &numel) : hash;
      }
    }
  }
  return hash;
}

// Copies of one call

static diopiTensorHandle_t create(struct converted *c, const struct dit_tensor_view *shape, int dtype, int layout) {
  if (layout != ADAPT_CHANNELS_LAST) {
    return adapt_create(&c->child, shape->ndim, shape->sizes, dtype);
  }
  int64_t strides[DIT_MAX_DIMS];
  adapt_set_channels_last(shape->ndim, shape->sizes, strides);
  const diopiSize_t size = {shape->sizes, shape->ndim}, stride = {strides, shape->ndim};
  diopiTensorHandle_t out = NULL;
  if (diopiRequireTensor(&c->child, &out, &size, &stride, dit_diopi_get_dtype(dtype), diopi_device) != diopiSuccess) {
    adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for a tensor that the adaptor needs");
  }
  return out;
}

static bool same_shape(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) == 0);
}

static bool broadcasts(const struct dit_tensor_view *small, const struct dit_tensor_view *large) {
  for (int d = 1; d <= small->ndim && d <= large->ndim; d++) {
    const int64_t size = small->sizes[small->ndim - d];
    if (size != 1 && size != large->sizes[large->ndim - d]) {
      return false;
    }
  }
  return small->ndim <= large->ndim;
}

static int get_dtype(const struct converted *c, int parameter, const struct dit_tensor_view *view) {
  if (is_about_dtype(c->function)) {
    return view->dtype;
  }
  const int ruled = get_rule_dtype(c->rule, parameter, view->dtype);
  if (ruled != view->dtype && view->dtype == DIT_DTYPE_U8 && c->kinds[parameter] == 't' &&
      is_mask(c->function, parameter)) {
    return DIT_DTYPE_BOOL;
  }
  return get_step_dtype(c, parameter, ruled);
}

/// A matrix in CSR form in another dtype: its values are, and which elements it has stays.
static diopiError_t change_sparse(struct converted *c, int parameter, diopiTensorHandle_t from,
                                  diopiTensorHandle_t *out) {
  const int dtype = get_dtype(c, parameter, &from->view);
  struct change *change = &c->changes[c->change_count];
  diopiTensorHandle_t values = dtype == from->view.dtype ? NULL : create(c, &from->values->view, dtype, 0);
  if (dtype == from->view.dtype) {
    return diopiSuccess;
  }
  ADAPT_TRY(values ? adapt_copy(&c->child, &values->view, &from->values->view, ADAPT_CHECK) : diopiErrorOccurred);
  *change = (struct change){from, &change->sparse, parameter, false, *from};
  change->sparse.view.dtype = (int16_t)dtype;
  change->sparse.values = values;
  adapt_count_copy(from->view.dtype, dtype);
  c->change_count++;
  *out = change->to;
  return diopiSuccess;
}

/// The tensor that stands for `from` in this step: itself, or a copy that is noted.
static diopiError_t change_tensor(struct converted *c, int parameter, diopiTensorHandle_t from, bool written,
                                  diopiTensorHandle_t *out) {
  *out = from;
  if (!from || !(from->view.flags & DIT_TENSOR_ON_DEVICE)) {
    return diopiSuccess;
  }
  if (from->values) {
    return written ? diopiSuccess : change_sparse(c, parameter, from, out);
  }
  const struct dit_tensor_view *view = &from->view, *shape = view;
  const int dtype = get_dtype(c, parameter, view);
  int layout = get_layout(c, parameter, view);
  if (c->step >= STEP_EXPANDED && c->model && !written && !same_shape(view, c->model) && broadcasts(view, c->model)) {
    shape = c->model;
    layout = ADAPT_CONTIGUOUS;
  }
  if (dtype == view->dtype && layout == 0) {
    return diopiSuccess;
  }
  struct change *change = &c->changes[c->change_count];
  *change = (struct change){.from = from, create(c, shape, dtype, layout), parameter, written};
  if (!change->to) {
    return diopiErrorOccurred;
  }
  if (!written || !adapt_is_output(c->function, parameter)) {
    const bool garbage = written && adapt_may_be_garbage(c->function, parameter);
    const enum adapt_mode mode = c->step == STEP_PROXY ? ADAPT_PROXY : garbage ? ADAPT_WRAP : ADAPT_CHECK;
    ADAPT_TRY(adapt_copy(&c->child, &change->to->view, view, mode));
  }
  adapt_count_copy(view->dtype, dtype);
  c->change_count++;
  *out = change->to;
  return diopiSuccess;
}

static diopiError_t change_list(struct converted *c, int parameter, bool written) {
  const int64_t length = adapt_get_length(c->function, c->original, parameter);
  diopiTensorHandle_t *list = c->lists + c->list_used;
  if (!c->original[parameter].tensors || length <= 0) {
    return diopiSuccess;
  }
  c->list_used += (int)length;
  for (int64_t i = 0; i < length; i++) {
    ADAPT_TRY(change_tensor(c, parameter, c->original[parameter].tensors[i], written, &list[i]));
  }
  c->values[parameter].tensors = list;
  return diopiSuccess;
}

static diopiError_t change_all(struct converted *c) {
  for (int i = 1; c->kinds[i]; i++) {
    switch (c->kinds[i]) {
      case 't':
      case 'o':
        ADAPT_TRY(change_tensor(c, i, c->original[i].tensor, c->kinds[i] == 'o', &c->values[i].tensor));
        break;
      case 'O':
        if (!dit_diopi_is_list(c->function, i)) {
          break;
        }
        ADAPT_TRY(change_list(c, i, true));
        break;
      case 'T':
        ADAPT_TRY(change_list(c, i, false));
        break;
      default:
        break;
    }
  }
  return diopiSuccess;
}

// The way back

/// relu of proxies: where the result is the proxy of its input, it is the input.
static diopiError_t restore_relu(struct converted *c, const struct dit_tensor_view *out) {
  diopiTensorHandle_t in = c->original[2].tensor;
  diopiTensorHandle_t plain = adapt_create(&c->child, out->ndim, out->sizes, out->dtype);
  diopiTensorHandle_t result = adapt_create(&c->child, out->ndim, out->sizes, out->dtype);
  if (!plain || !result || !same_shape(out, &in->view) || in->view.dtype != out->dtype) {
    return diopiErrorOccurred;
  }
  ADAPT_TRY(adapt_copy(&c->child, &plain->view, &in->view, ADAPT_WRAP));
  ADAPT_TRY(adapt_copy(&c->child, &result->view, &c->values[1].tensor->view, ADAPT_WRAP));
  adapt_wait(&c->child);
  dit_memory_access_begin();
  adapt_elements_restore(&result->view, &plain->view, &c->values[1].tensor->view, &c->values[2].tensor->view);
  dit_memory_access_end();
  return adapt_copy(&c->child, out, &result->view, ADAPT_WRAP);
}

static diopiError_t write_back(struct converted *c) {
  const enum adapt_mode mode = writes_lowest(c->function) ? ADAPT_LOWEST : ADAPT_WRAP;
  for (int i = 0; i < c->change_count; i++) {
    const struct change *change = &c->changes[i];
    if (change->written) {
      const bool restore = c->step == STEP_PROXY && c->function == DIT_DIOPI_diopiRelu;
      ADAPT_TRY(restore ? restore_relu(c, &change->from->view)
                        : adapt_copy(&c->child, &change->from->view, &change->to->view, mode));
      adapt_count(COUNT_WRITTEN, 1);
    }
  }
  return diopiSuccess;
}

/// A result that the library made has the dtype of converted inputs: the caller gets that of its own.
static diopiError_t convert_result(struct converted *c, diopiTensorHandle_t *result) {
  const diopiTensorHandle_t made = *result;
  for (int k = 0; k < c->change_count && made; k++) {
    const struct change *change = &c->changes[k];
    if (change->to->view.dtype == made->view.dtype && change->from->view.dtype != made->view.dtype) {
      diopiTensorHandle_t own =
          adapt_create(c->original[0].context, made->view.ndim, made->view.sizes, change->from->view.dtype);
      ADAPT_TRY(own ? adapt_copy(&c->child, &own->view, &made->view, ADAPT_WRAP) : diopiErrorOccurred);
      *result = own;
      break;
    }
  }
  return diopiSuccess;
}

static diopiError_t convert_made(struct converted *c) {
  for (int i = 1; c->kinds[i]; i++) {
    const bool makes = c->kinds[i] == 'O' && !dit_diopi_is_list(c->function, i) && c->values[i].tensors;
    const int count = makes ? dit_diopi_count_results(c->function, i) : 0;
    for (int k = 0; k < count; k++) {
      ADAPT_TRY(convert_result(c, &c->values[i].tensors[k]));
    }
  }
  return diopiSuccess;
}

static bool makes_results(const struct converted *c) {
  for (int i = 1; c->kinds[i]; i++) {
    if (c->kinds[i] == 'O' && !dit_diopi_is_list(c->function, i)) {
      return true;
    }
  }
  return false;
}

/// One step. diopiNoImplement: it would change nothing more than the step before.
static diopiError_t try_step(struct converted *c, int *changed) {
  memcpy(c->values, c->original, sizeof(c->values[0]) * strlen(c->kinds));
  c->change_count = c->list_used = 0;
  if (!makes_results(c)) {
    c->values[0].context = &c->child;
  }
  ADAPT_TRY(change_all(c));
  if (c->change_count == 0) {
    return diopiNoImplement;
  }
  *changed = c->change_count;
  ADAPT_TRY(adapt_call_behind(c->state, c->function, c->values));
  ADAPT_TRY(write_back(c));
  return convert_made(c);
}

/// Room for all tensors, and what steps must know of them.
static diopiError_t prepare(struct converted *c) {
  int64_t tensors = 0, listed = 0;
  c->widest = -1;
  for (int i = 1; c->kinds[i]; i++) {
    const bool list = c->kinds[i] == 'T' || (c->kinds[i] == 'O' && dit_diopi_is_list(c->function, i));
    const int64_t length = list ? adapt_get_length(c->function, c->original, i) : 0;
    listed += length > 0 ? length : 0;
    tensors += c->kinds[i] == 't' || c->kinds[i] == 'o';
    if ((c->kinds[i] == 't' || c->kinds[i] == 'o') && c->original[i].tensor) {
      const struct dit_tensor_view *view = &c->original[i].tensor->view;
      if (c->kinds[i] == 'o' && !c->model && adapt_is_pointwise(c->function)) {
        c->model = view;
      }
      if (is_real(view->dtype)) {
        c->widest = view->dtype == DIT_DTYPE_F64 || c->widest == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
      }
    }
  }
  ADAPT_CHECK_ARGUMENT(listed < 1 << 20, "a list has %lld tensors", (long long)listed);
  c->changes = dit_calloc((size_t)(tensors + listed) + 1, sizeof *c->changes);
  c->lists = dit_calloc((size_t)listed + 1, sizeof(void *));
  return c->changes && c->lists ? diopiSuccess
                                : adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for a call");
}

/// From the remembered step upwards until the library takes one.
static diopiError_t climb(struct converted *c, struct adapt_function *own, unsigned hash) {
  const int known = get_hint(own, hash);
  diopiError_t refusal = diopiNoImplement;
  if (known >= ADAPT_REFUSED) {
    return known == ADAPT_HOPELESS ? diopiDtypeNotSupported : diopiForceFallbackToCPU;
  }
  for (int step = known ? known - 1 : STEP_RULES; step < STEP_COUNT; step++) {
    int changed = 0;
    if ((step == STEP_PROXY && !takes_proxies(c->function)) || (step == STEP_MIXED && !c->model)) {
      continue;
    }
    c->step = (enum step)step;
    const diopiError_t code = try_step(c, &changed);
    dit_diopi_context_reset(&c->child);
    if (!dit_diopi_is_refusal(code)) {
      if (code == diopiSuccess && step != STEP_RULES) {
        set_hint(own, hash, step + 1);
      }
      return code;
    }
    refusal = code == diopiNoImplement ? refusal : code;
  }
  set_hint(own, hash, refusal == diopiDtypeNotSupported ? ADAPT_HOPELESS : ADAPT_REFUSED);
  return refusal;
}

diopiError_t adapt_call_converted(struct adapt_state *state, int function, const union dit_diopi_value *values) {
  struct adapt_function *own = &state->functions[function];
  struct converted c = {.state = state,
                        .rule = &own->rule,
                        .function = function,
                        .kinds = dit_diopi_get_functions(NULL)[function].kinds,
                        .original = values};
  ADAPT_TRY(adapt_check_tensors(function, values));
  adapt_child_init(&c.child, values[0].context);
  diopiError_t code = prepare(&c);
  if (code == diopiSuccess) {
    code = climb(&c, own, get_hash(function, c.kinds, values));
  }
  adapt_count(COUNT_CONVERTED, code == diopiSuccess);
  dit_diopi_context_reset(&c.child);
  dit_free(c.changes);
  dit_free(c.lists);
  return code;
}
