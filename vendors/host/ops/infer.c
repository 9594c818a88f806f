/// diopiExtInferOutputs: the table of rules, the arguments of a question, and the rules for elements that stay.
///
/// Only shapes, dtypes and attributes are read, so the answer needs no device. What depends on values is reported as
/// such (ndim -1), and so is what the standard leaves to the caller (dtype diopi_dtype_unsupported). Wrong arguments
/// are codes with a text, as those of the operator itself, though not every one is noticed here.
#include "infer.h"

#include <string.h>

#include "dit/promotion.h"

#define ITEM(rule, as, number, ...)  \
  {                                  \
    infer_##rule, AS_##as, number, { \
      __VA_ARGS__                    \
    }                                \
  }
#define UNDECIDED {0}
#define OWN ITEM(own, IS, 0, NULL)
#define LIKE(name, as) ITEM(like, as, 0, #name, #name)
#define LIKE_OF(shape, dtype, as) ITEM(like, as, 0, #shape, #dtype)
#define MIX(shapes, as) ITEM(mix, as, 0, shapes, shapes)
#define MIX_OF(shapes, dtypes, as) ITEM(mix, as, 0, shapes, dtypes)
#define SIZES(list, dtype) ITEM(sizes, IS, 0, #list, #dtype)
#define UNKNOWN(dtype, as) ITEM(unknown, as, 0, #dtype)
#define SCALAR(dtype, as) ITEM(scalar, as, 0, #dtype)
#define REDUCE(input, dims, keep, as) ITEM(reduce, as, 0, #input, dims, keep)
#define MAYBE(name) ITEM(like, IS, 1, #name, #name)
#define SIZE_OF(shape, number, dtype, as) ITEM(size_of, as, number, #shape, #dtype)
#define POOL(ndim, as) ITEM(pool, as, ndim, "input")
#define CTC(number) ITEM(ctc, IS, number, "log_probs", "targets")
#define SUMS(...) ITEM(attention, WIDE, 0, __VA_ARGS__)
#define DIMS(dtype, sizes, as) ITEM(dims, as, 0, #dtype, sizes)
#define MATRICES(a, b, sizes) ITEM(matrices, IS, 0, a, b, sizes)
#define TEXT(dtype, as, sizes) ITEM(text, as, 0, #dtype, sizes)
#define RESIZE(input, dim, size, as) ITEM(resize, as, 0, #input, dim, #size)

struct infer_row {
  const char *name;
  struct infer_item items[6];
};

static const struct infer_row rows[] = {
#define HOST_FUNCTION(name, dtypes, flags, ...) {#name, {__VA_ARGS__}},
#include "functions.inc"
#undef HOST_FUNCTION
};

// Arguments

/// Number of the parameter with this name, from 0 after the context; -1 when there is none.
static int find_parameter(const struct infer *infer, const char *name) {
  const size_t length = strlen(name);
  int number = -1;
  for (const char *at = infer->info->names; at; number++) {
    const char *end = strchr(at, ',');
    if ((end ? (size_t)(end - at) : strlen(at)) == length && memcmp(at, name, length) == 0) {
      return number;
    }
    at = end ? end + 1 : NULL;
  }
  return -1;
}

const diopiExtArgument_t *infer_find(const struct infer *infer, const char *name) {
  const int number = name ? find_parameter(infer, name) : -1;
  return number >= 0 && infer->arguments[number].given ? &infer->arguments[number] : NULL;
}

char infer_get_kind(const struct infer *infer, const char *name) {
  const int number = name ? find_parameter(infer, name) : -1;
  return number >= 0 ? infer->info->kinds[number + 1] : 0;
}

diopiError_t infer_take(struct infer *infer, const char *name, struct dit_tensor_view *view) {
  const diopiExtArgument_t *argument = infer_find(infer, name);
  return frame_take(&infer->frame, name, argument ? argument->tensor : NULL, view);
}

diopiError_t infer_get_integer(struct infer *infer, const char *name, int64_t *value) {
  const diopiExtArgument_t *argument = infer_find(infer, name);
  FRAME_CHECK(&infer->frame, argument, "'%s' is absent; it must be a number", name);
  *value = argument->ival;
  return diopiSuccess;
}

diopiSize_t infer_get_list(const struct infer *infer, const char *name) {
  const diopiExtArgument_t *argument = infer_find(infer, name);
  return argument && argument->size.data && argument->size.len > 0 ? argument->size : (diopiSize_t){NULL, 0};
}

bool infer_get_flag(const struct infer *infer, const char *name) {
  const diopiExtArgument_t *argument = infer_find(infer, name);
  return argument && argument->ival != 0;
}

// Results

int infer_convert(int dtype, enum infer_as as) {
  if (dtype < 0) {
    return dtype;
  }
  const bool floating = frame_has_dtype(DTYPES_FLOAT, dtype);
  const bool complex = frame_has_dtype(DTYPES_COMPLEX | DTYPE_BIT(C32), dtype);
  switch (as) {
    case AS_FLOAT:
      return floating || complex ? dtype : DIT_DTYPE_F32;
    case AS_SUM:
      return floating || complex ? dtype : DIT_DTYPE_I64;
    case AS_WIDE:
      return frame_has_dtype(DTYPES_HALF, dtype) ? DIT_DTYPE_F32 : dtype;
    case AS_REAL:
      return dit_dtype_get_real(dtype);
    case AS_COMPLEX:
      return dit_dtype_get_complex(dtype);
    case AS_INDEX:
      return DIT_DTYPE_I64;
    case AS_I32:
      return DIT_DTYPE_I32;
    case AS_BOOL:
      return DIT_DTYPE_BOOL;
    case AS_TRUTH:
      return dtype == DIT_DTYPE_U8 ? DIT_DTYPE_U8 : DIT_DTYPE_BOOL;
    case AS_CHOSEN:
      return -1;
    default:
      return dtype;
  }
}

static void emit(struct infer *infer, int ndim, const int64_t *sizes, int dtype) {
  if (infer->count < infer->room) {
    diopiExtOutput_t *output = &infer->outputs[infer->count];
    output->ndim = ndim;
    output->dtype = dtype < 0 ? diopi_dtype_unsupported : dit_diopi_get_dtype(dtype);
    for (int i = 0; i < ndim; i++) {
      output->sizes[i] = sizes[i];
    }
  }
  infer->count++;
}

diopiError_t infer_emit(struct infer *infer, const struct infer_shape *shape, enum infer_as as) {
  const int dtype = infer_convert(shape->dtype, as);
  int64_t bytes = dtype < 0 ? 1 : (int64_t)dit_dtype_get_size(dtype);
  bool fits = true;
  for (int i = 0; i < shape->ndim; i++) {
    FRAME_CHECK(&infer->frame, shape->sizes[i] >= 0, "the result has size %lld in dimension %d; valid: 0 to 2^63 - 1",
                (long long)shape->sizes[i], i);
    fits = fits && !__builtin_mul_overflow(bytes, shape->sizes[i] ? shape->sizes[i] : 1, &bytes);
  }
  FRAME_CHECK(&infer->frame, fits, "the result has more elements than memory can hold (2^63 bytes)");
  emit(infer, shape->ndim, shape->sizes, dtype);
  return diopiSuccess;
}

diopiError_t infer_emit_unknown(struct infer *infer, int dtype, enum infer_as as) {
  emit(infer, -1, NULL, infer_convert(dtype, as));
  return diopiSuccess;
}

void infer_start(struct infer_shape *shape, const struct dit_tensor_view *view) {
  shape->ndim = view->ndim;
  shape->dtype = view->dtype;
  for (int i = 0; i < view->ndim; i++) {
    shape->sizes[i] = view->sizes[i];
  }
}

diopiError_t infer_add_size(struct infer *infer, struct infer_shape *shape, int64_t size) {
  FRAME_CHECK(&infer->frame, shape->ndim < DIT_MAX_DIMS, "the result has more than %d dimensions", DIT_MAX_DIMS);
  shape->sizes[shape->ndim++] = size;
  return diopiSuccess;
}

// rules: one tensor as another

static diopiError_t emit_handle(struct infer *infer, const char *name, diopiConstTensorHandle_t handle,
                                enum infer_as as) {
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(frame_take(&infer->frame, name, handle, &view));
  infer_start(&shape, &view);
  return infer_emit(infer, &shape, as);
}

static diopiError_t emit_list(struct infer *infer, const char *name, const diopiExtArgument_t *list, enum infer_as as,
                              bool as_scalar) {
  FRAME_CHECK(&infer->frame, list->count >= 0 && (list->tensors || list->count == 0),
              "'%s' is a list of %lld tensors at NULL", name, (long long)list->count);
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view view;
    struct infer_shape shape;
    FRAME_TRY(frame_take(&infer->frame, name, list->tensors[i], &view));
    infer_start(&shape, &view);
    shape.ndim = as_scalar ? 0 : shape.ndim;
    FRAME_TRY(infer_emit(infer, &shape, as));
  }
  return diopiSuccess;
}

/// The tensor that is written is its own model: in-place operators.
diopiError_t infer_own(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *argument = &infer->arguments[infer->parameter];
  const bool is_list = infer->info->kinds[infer->parameter + 1] == 'O';
  if (!argument->given || (!is_list && !argument->tensor)) {
    return is_list ? diopiSuccess : infer_emit_unknown(infer, -1, AS_IS);
  }
  return is_list ? emit_list(infer, "a list that is written", argument, item->as, false)
                 : emit_handle(infer, "a tensor that is written", argument->tensor, item->as);
}

/// The shape of argument 0 and the dtype of argument 1; of each one in a list. An absent argument: nobody knows.
diopiError_t infer_like(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *first = infer_find(infer, item->names[0]);
  struct dit_tensor_view view, other;
  struct infer_shape shape;
  if (infer_get_kind(infer, item->names[0]) == 'T') {
    FRAME_CHECK(&infer->frame, first, "'%s' is NULL; it must be a list of tensors", item->names[0]);
    return emit_list(infer, item->names[0], first, item->as, false);
  }
  if (item->number && !first) {
    return infer_emit_unknown(infer, -1, AS_IS);
  }
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(infer_take(infer, item->names[1], &other));
  infer_start(&shape, &view);
  shape.dtype = other.dtype;
  return infer_emit(infer, &shape, item->as);
}

/// No dimensions, the dtype of the argument; one for each in a list.
diopiError_t infer_scalar(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  if (infer_get_kind(infer, item->names[0]) == 'T') {
    const diopiExtArgument_t *list = infer_find(infer, item->names[0]);
    FRAME_CHECK(&infer->frame, list, "'%s' is NULL; it must be a list of tensors", item->names[0]);
    return emit_list(infer, item->names[0], list, item->as, true);
  }
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  return infer_emit(infer, &(struct infer_shape){.ndim = 0, .dtype = view.dtype}, item->as);
}

/// Depends on values; the dtype is that of the argument where one is named.
diopiError_t infer_unknown(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view = {.dtype = -1};
  FRAME_TRY(item->names[0][0] ? infer_take(infer, item->names[0], &view) : diopiSuccess);
  return infer_emit_unknown(infer, view.dtype, item->as);
}

// rules: broadcasting and promotion

/// A floating number counts as float32, PyTorch's default.
static diopiError_t add_scalar(struct infer *infer, const char *name, const diopiScalar_t *scalar,
                               struct dit_promotion *types) {
  struct dit_scalar number;
  FRAME_TRY(frame_get_scalar(&infer->frame, name, scalar, &number));
  const int dtype = number.kind == DIT_SCALAR_DOUBLE ? DIT_DTYPE_F32
                    : number.kind == DIT_SCALAR_BOOL ? DIT_DTYPE_BOOL
                                                     : DIT_DTYPE_I64;
  dit_promotion_add(&types->numbers, dtype);
  return diopiSuccess;
}

/// Make the shape fit the view too.
static diopiError_t add_view(struct infer *infer, const char *name, const struct dit_tensor_view *view,
                             struct infer_shape *shape) {
  const int grow = view->ndim - shape->ndim;
  if (grow > 0) {
    memmove(shape->sizes + grow, shape->sizes, sizeof *shape->sizes * (size_t)shape->ndim);
    shape->ndim = view->ndim;
    for (int i = 0; i < grow; i++) {
      shape->sizes[i] = 1;
    }
  }
  for (int i = 0; i < view->ndim; i++) {
    int64_t *size = &shape->sizes[shape->ndim - view->ndim + i];
    FRAME_CHECK(&infer->frame, view->sizes[i] == *size || view->sizes[i] == 1 || *size == 1,
                "'%s' has size %lld in dimension %d, which does not broadcast to %lld", name, (long long)view->sizes[i],
                i, (long long)*size);
    *size = *size == 1 ? view->sizes[i] : *size;
  }
  return diopiSuccess;
}

/// One name of a list "input,other"; false at its end.
static bool next_name(const char **list, char *name, size_t size) {
  const size_t length = strcspn(*list, ",");
  if (length == 0 || length >= size) {
    return false;
  }
  memcpy(name, *list, length);
  name[length] = 0;
  *list += length + ((*list)[length] == ',');
  return true;
}

static diopiError_t mix_shapes(struct infer *infer, const char *list, struct infer_shape *shape) {
  char name[64];
  while (next_name(&list, name, sizeof name)) {
    const diopiExtArgument_t *argument = infer_find(infer, name);
    struct dit_tensor_view view;
    if (infer_get_kind(infer, name) == 't' && argument && argument->tensor) {
      FRAME_TRY(infer_take(infer, name, &view));
      FRAME_TRY(add_view(infer, name, &view, shape));
    }
  }
  return diopiSuccess;
}

static diopiError_t mix_dtypes(struct infer *infer, const char *list, int *dtype) {
  struct dit_promotion types = DIT_PROMOTION_INIT;
  char name[64];
  while (next_name(&list, name, sizeof name)) {
    const diopiExtArgument_t *argument = infer_find(infer, name);
    struct dit_tensor_view view;
    if (!argument) {
      continue;
    }
    if (infer_get_kind(infer, name) == 's') {
      FRAME_TRY(add_scalar(infer, name, argument->scalar, &types));
    } else if (argument->tensor) {
      FRAME_TRY(infer_take(infer, name, &view));
      dit_promotion_add(view.ndim > 0 ? &types.dims : &types.zeros, view.dtype);
    }
  }
  *dtype = dit_promotion_get(&types);
  FRAME_CHECK(&infer->frame, *dtype >= 0, "the arguments have no common dtype");
  return diopiSuccess;
}

/// Arguments "a,b,..." broadcast; the dtype is the promotion of those in the second list. Absent ones do not count, but
/// the first must be there.
diopiError_t infer_mix(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape = {.ndim = 0};
  struct dit_tensor_view view;
  const char *list = item->names[0];
  char first[64];
  if (next_name(&list, first, sizeof first) && infer_get_kind(infer, first) == 't') {
    FRAME_TRY(infer_take(infer, first, &view));
  }
  FRAME_TRY(mix_shapes(infer, item->names[0], &shape));
  FRAME_TRY(mix_dtypes(infer, item->names[1], &shape.dtype));
  // Division keeps whole numbers only when it rounds.
  const bool rounds = infer_get_kind(infer, "rounding_mode") && infer_get_flag(infer, "rounding_mode");
  return infer_emit(infer, &shape, rounds ? AS_IS : item->as);
}

// rules: reductions, and shapes that stand in the arguments

/// Bits of the dimensions behind `name`: a list, a number, or absent (all of them).
static diopiError_t get_dims(struct infer *infer, const char *name, int ndim, uint32_t *mask) {
  const diopiExtArgument_t *argument = infer_find(infer, name);
  const char kind = infer_get_kind(infer, name);
  diopiSize_t dims = infer_get_list(infer, name);
  if (argument && (kind == 'i' || kind == 'I')) {
    dims = (diopiSize_t){&argument->ival, 1};
  }
  return frame_get_mask(&infer->frame, name ? name : "dim", dims, ndim, true, mask);
}

/// Argument 0 without the dimensions of argument 1, or with size 1 there when argument 2 says so.
diopiError_t infer_reduce(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  uint32_t mask;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(get_dims(infer, item->names[1], view.ndim, &mask));
  struct infer_shape shape = {.ndim = 0, .dtype = view.dtype};
  const bool keep = infer_get_flag(infer, item->names[2]);
  for (int i = 0; i < view.ndim; i++) {
    const bool reduced = mask >> i & 1;
    if (!reduced || keep) {
      shape.sizes[shape.ndim++] = reduced ? 1 : view.sizes[i];
    }
  }
  return infer_emit(infer, &shape, item->as);
}

/// The sizes are an argument; the dtype is that of another one, or the caller's affair.
diopiError_t infer_sizes(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t sizes = infer_get_list(infer, item->names[0]);
  struct dit_tensor_view view = {.dtype = -1};
  FRAME_TRY(item->names[1][0] ? infer_take(infer, item->names[1], &view) : diopiSuccess);
  struct infer_shape shape = {.ndim = 0, .dtype = view.dtype};
  for (int64_t i = 0; i < sizes.len; i++) {
    FRAME_TRY(infer_add_size(infer, &shape, sizes.data[i]));
  }
  return infer_emit(infer, &shape, view.dtype < 0 ? AS_CHOSEN : item->as);
}

/// One dimension of as many elements as argument 0 says.
diopiError_t infer_length(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape = {.ndim = 1};
  FRAME_TRY(infer_get_integer(infer, item->names[0], &shape.sizes[0]));
  return infer_emit(infer, &shape, item->as);
}

/// From start to end in steps: (end - start) / step, rounded up; whole numbers exactly.
diopiError_t infer_arange(struct infer *infer, const struct infer_item *item) {
  struct dit_scalar numbers[3];
  double values[3];
  bool whole = true;
  for (int i = 0; i < 3; i++) {
    const diopiExtArgument_t *argument = infer_find(infer, item->names[i]);
    FRAME_TRY(frame_get_scalar(&infer->frame, item->names[i], argument ? argument->scalar : NULL, &numbers[i]));
    values[i] = frame_scalar_to_double(numbers[i]);
    whole = whole && numbers[i].kind != DIT_SCALAR_DOUBLE;
  }
  const double ratio = (values[1] - values[0]) / values[2];
  FRAME_CHECK(&infer->frame, ratio >= 0 && ratio < 9e18,
              "'start' %g, 'end' %g and 'step' %g give no number of elements", values[0], values[1], values[2]);
  int64_t count = (int64_t)ratio;
  if (whole) {
    int64_t step = numbers[2].v.i, reach;
    FRAME_CHECK(&infer->frame, !__builtin_sub_overflow(numbers[1].v.i, numbers[0].v.i, &reach),
                "'start' %g and 'end' %g are too far apart", values[0], values[1]);
    count = reach / step + (reach % step != 0);
  } else {
    count += (double)count < ratio;
  }
  return infer_emit(infer, &(struct infer_shape){.ndim = 1, .sizes = {count}}, item->as);
}

// The function

static diopiError_t answer(struct infer *infer, const struct infer_row *row) {
  const struct infer_item *item = row->items;
  for (int i = 0; infer->info->kinds[i + 1]; i++) {
    const char kind = infer->info->kinds[i + 1];
    if (kind != 'o' && kind != 'O') {
      continue;
    }
    infer->parameter = i;
    FRAME_TRY(item->rule(infer, item));
    item += item + 1 < row->items + sizeof row->items / sizeof row->items[0] && item[1].rule ? 1 : 0;
  }
  return diopiSuccess;
}

diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                  diopiExtOutput_t *outputs, int64_t *count) {
  struct infer infer = {.frame = {.function = function ? function : "diopiExtInferOutputs"}, .arguments = arguments};
  FRAME_CHECK(&infer.frame, function && count && *count >= 0 && (outputs || *count == 0),
              "'function', 'outputs' or 'count' is NULL, or there is room for less than 0 results");
  const int number = dit_diopi_find_function(function);
  const struct infer_row *row = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !row; i++) {
    row = strcmp(rows[i].name, function) == 0 ? &rows[i] : NULL;
  }
  if (number < 0 || !row || !row->items[0].rule) {
    return frame_fail(&infer.frame, diopiNoImplement, "this library cannot tell its results before the call");
  }
  if (!arguments && length == 0) {
    return diopiSuccess;
  }
  infer.info = &dit_diopi_get_functions(NULL)[number];
  const int64_t wanted = (int64_t)strlen(infer.info->kinds) - 1;
  FRAME_CHECK(&infer.frame, length == wanted && arguments, "'length' is %lld; it has %lld arguments after the context",
              (long long)length, (long long)wanted);
  FRAME_TRY(answer(&infer, row));  // without room: nothing is written when it fails
  infer.outputs = outputs;
  infer.room = *count;
  infer.count = 0;
  FRAME_TRY(answer(&infer, row));
  *count = infer.count;
  return diopiSuccess;
}
