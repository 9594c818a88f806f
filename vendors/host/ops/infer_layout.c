/// Rules of diopiExtInferOutputs for operators that move elements: parts, joins, other orders, indices (see infer.h).
#include <string.h>

#include "fail.h"
#include "infer.h"

/// The argument as a tensor, a shape to change, and the dimension that another argument names.
static diopiError_t start_at(struct infer *infer, const char *name, const char *dim, struct infer_shape *shape,
                             int *at) {
  struct dit_tensor_view view;
  int64_t value = -1;
  FRAME_TRY(infer_take(infer, name, &view));
  infer_start(shape, &view);
  FRAME_TRY(dim ? infer_get_integer(infer, dim, &value) : diopiSuccess);
  return frame_wrap_dim(&infer->frame, dim ? dim : "dim", value, view.ndim, at);
}

static diopiError_t check_has_dims(struct infer *infer, const char *name, const struct infer_shape *shape) {
  FRAME_CHECK(&infer->frame, shape->ndim > 0, "'%s' has 0 dimensions; it must have at least 1", name);
  return diopiSuccess;
}

static void remove_dim(struct infer_shape *shape, int at) {
  shape->ndim--;
  memmove(shape->sizes + at, shape->sizes + at + 1, sizeof *shape->sizes * (size_t)(shape->ndim - at));
}

static diopiError_t insert_dim(struct infer *infer, struct infer_shape *shape, int at, int64_t size) {
  FRAME_TRY(infer_add_size(infer, shape, size));
  memmove(shape->sizes + at + 1, shape->sizes + at, sizeof *shape->sizes * (size_t)(shape->ndim - 1 - at));
  shape->sizes[at] = size;
  return diopiSuccess;
}

/// Argument 0 with another size in dimension (argument 1; without it the last): argument 2, or its number of elements.
diopiError_t infer_resize(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape;
  struct dit_tensor_view index;
  int64_t size;
  int at;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
  if (infer_get_kind(infer, item->names[2]) == 't') {
    FRAME_TRY(infer_take(infer, item->names[2], &index));
    FRAME_CHECK(&infer->frame, index.ndim <= 1, "'%s' has %d dimensions; valid: 0 or 1", item->names[2],
                (int)index.ndim);
    size = index.numel;
  } else {
    FRAME_TRY(infer_get_integer(infer, item->names[2], &size));
  }
  if (shape.ndim > 0) {
    shape.sizes[at] = size;
  }
  return infer_emit(infer, &shape, item->as);
}

static diopiError_t take_list(struct infer *infer, const char *name, const diopiExtArgument_t **list) {
  *list = infer_find(infer, name);
  FRAME_CHECK(&infer->frame, *list && (*list)->tensors && (*list)->count > 0,
              "'%s' has no tensors; it must have at least 1", name);
  return diopiSuccess;
}

/// Tensors joined along a dimension; empty ones of one dimension do not count.
diopiError_t infer_cat(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *list;
  struct infer_shape shape = {.ndim = -1};
  int dtype = -1, at = 0;
  int64_t dim;
  FRAME_TRY(take_list(infer, item->names[0], &list));
  FRAME_TRY(infer_get_integer(infer, item->names[1], &dim));
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view view;
    FRAME_TRY(frame_take(&infer->frame, item->names[0], list->tensors[i], &view));
    dtype = dtype < 0 ? view.dtype : dit_dtype_promote(dtype, view.dtype);
    if (view.ndim == 1 && view.numel == 0 && list->count > 1) {
      continue;
    }
    if (shape.ndim < 0) {
      infer_start(&shape, &view);
      FRAME_TRY(check_has_dims(infer, item->names[0], &shape));
      FRAME_TRY(frame_wrap_dim(&infer->frame, item->names[1], dim, shape.ndim, &at));
      continue;
    }
    FRAME_CHECK(&infer->frame, view.ndim == shape.ndim, "'%s' has tensors of %d and of %d dimensions", item->names[0],
                shape.ndim, (int)view.ndim);
    FRAME_CHECK(&infer->frame, !__builtin_add_overflow(shape.sizes[at], view.sizes[at], &shape.sizes[at]),
                "'%s' has more elements than there can be", item->names[0]);
  }
  if (shape.ndim < 0) {
    shape = (struct infer_shape){.ndim = 1};
  }
  shape.dtype = dtype;
  return infer_emit(infer, &shape, item->as);
}

diopiError_t infer_stack(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *list;
  struct dit_tensor_view view;
  struct infer_shape shape;
  int64_t dim;
  int at;
  FRAME_TRY(take_list(infer, item->names[0], &list));
  FRAME_TRY(infer_get_integer(infer, item->names[1], &dim));
  FRAME_TRY(frame_take(&infer->frame, item->names[0], list->tensors[0], &view));
  infer_start(&shape, &view);
  FRAME_TRY(frame_wrap_dim(&infer->frame, item->names[1], dim, view.ndim + 1, &at));
  FRAME_TRY(insert_dim(infer, &shape, at, list->count));
  return infer_emit(infer, &shape, item->as);
}

/// One result for each size.
diopiError_t infer_split(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t sizes = infer_get_list(infer, item->names[2]);
  struct infer_shape shape;
  int at;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
  FRAME_TRY(check_has_dims(infer, item->names[0], &shape));
  for (int64_t i = 0; i < sizes.len; i++) {
    shape.sizes[at] = sizes.data[i];
    FRAME_TRY(infer_emit(infer, &shape, item->as));
  }
  return diopiSuccess;
}

/// Vectors as the axes of a grid: as many results as there are, each of the whole grid.
diopiError_t infer_mesh(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *list;
  struct infer_shape shape = {.ndim = 0};
  FRAME_TRY(take_list(infer, item->names[0], &list));
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view view;
    FRAME_TRY(frame_take(&infer->frame, item->names[0], list->tensors[i], &view));
    FRAME_CHECK(&infer->frame, view.ndim <= 1, "'%s' has a tensor of %d dimensions; valid: 0 or 1", item->names[0],
                (int)view.ndim);
    FRAME_TRY(infer_add_size(infer, &shape, view.numel));
    shape.dtype = view.dtype;
  }
  for (int64_t i = 0; i < list->count; i++) {
    FRAME_TRY(infer_emit(infer, &shape, item->as));
  }
  return diopiSuccess;
}

diopiError_t infer_select(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape;
  int at;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
  FRAME_TRY(check_has_dims(infer, item->names[0], &shape));
  remove_dim(&shape, at);
  return infer_emit(infer, &shape, item->as);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/// [start:end:step] by Python's rules.
diopiError_t infer_slice(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape;
  int64_t start, end, step;
  int at;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
  FRAME_TRY(check_has_dims(infer, item->names[0], &shape));
  FRAME_TRY(infer_get_integer(infer, "start", &start));
  FRAME_TRY(infer_get_integer(infer, "end", &end));
  FRAME_TRY(infer_get_integer(infer, "step", &step));
  FRAME_CHECK(&infer->frame, step > 0, "'step' is %lld; valid: 1 and more", (long long)step);
  const int64_t size = shape.sizes[at];
  const int64_t first = clamp(start < 0 ? start + size : start, 0, size);
  const int64_t stop = clamp(end < 0 ? end + size : end, first, size);
  shape.sizes[at] = stop > first ? (stop - first - 1) / step + 1 : 0;
  return infer_emit(infer, &shape, item->as);
}

diopiError_t infer_transpose(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape;
  int a, b;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &a));
  FRAME_TRY(start_at(infer, item->names[0], item->names[2], &shape, &b));
  if (shape.ndim > 0) {
    const int64_t size = shape.sizes[a];
    shape.sizes[a] = shape.sizes[b];
    shape.sizes[b] = size;
  }
  return infer_emit(infer, &shape, item->as);
}

diopiError_t infer_permute(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t dims = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  infer_start(&shape, &view);
  FRAME_CHECK(&infer->frame, dims.len == view.ndim, "'%s' has %lld entries; it must have %d", item->names[1],
              (long long)dims.len, (int)view.ndim);
  for (int i = 0; i < view.ndim; i++) {
    int dim;
    FRAME_TRY(frame_wrap_dim(&infer->frame, item->names[1], dims.data[i], view.ndim, &dim));
    shape.sizes[i] = view.sizes[dim];
  }
  return infer_emit(infer, &shape, item->as);
}

/// Each dimension as often as the list says; dimensions before the first are of size 1.
diopiError_t infer_repeat(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t times = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape = {.ndim = 0};
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, times.len >= view.ndim, "'%s' has %lld entries; it must have at least %d", item->names[1],
              (long long)times.len, (int)view.ndim);
  for (int64_t i = 0; i < times.len; i++) {
    const int64_t own = i - (times.len - view.ndim);
    FRAME_TRY(infer_add_size(infer, &shape, infer_multiply(own < 0 ? 1 : view.sizes[own], times.data[i])));
  }
  shape.dtype = view.dtype;
  return infer_emit(infer, &shape, item->as);
}

/// Pairs (before, after) from the last dimension on.
diopiError_t infer_pad(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t pad = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  infer_start(&shape, &view);
  FRAME_CHECK(&infer->frame, pad.len % 2 == 0 && pad.len / 2 <= view.ndim,
              "'%s' has %lld entries; valid: an even number up to %d", item->names[1], (long long)pad.len,
              2 * (int)view.ndim);
  for (int64_t i = 0; i < pad.len; i++) {
    int64_t *size = &shape.sizes[view.ndim - 1 - i / 2];
    FRAME_CHECK(&infer->frame, !__builtin_add_overflow(*size, pad.data[i], size), "'%s' has the entry %lld",
                item->names[1], (long long)pad.data[i]);
  }
  return infer_emit(infer, &shape, item->as);
}

/// Windows of `size` in steps along a dimension, which become the last dimension.
diopiError_t infer_unfold(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape;
  int64_t size, step;
  int at;
  FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
  FRAME_TRY(infer_get_integer(infer, "size", &size));
  FRAME_TRY(infer_get_integer(infer, "step", &step));
  const int64_t whole = shape.ndim > 0 ? shape.sizes[at] : 1;
  FRAME_CHECK_RANGE(&infer->frame, size >= 0 && size <= whole && step > 0,
                    "'size' is %lld and 'step' %lld; valid for a dimension of size %lld: 0 to %lld, and 1 and more",
                    (long long)size, (long long)step, (long long)whole, (long long)whole);
  if (shape.ndim > 0) {
    shape.sizes[at] = (whole - size) / step + 1;
  }
  FRAME_TRY(infer_add_size(infer, &shape, size));
  return infer_emit(infer, &shape, item->as);
}

/// One dimension more, of num_classes; -1: as many as the largest value says.
diopiError_t infer_one_hot(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  struct infer_shape shape;
  int64_t classes;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(infer_get_integer(infer, item->names[1], &classes));
  if (classes < 0) {
    return infer_emit_unknown(infer, view.dtype, item->as);
  }
  infer_start(&shape, &view);
  FRAME_TRY(infer_add_size(infer, &shape, classes));
  return infer_emit(infer, &shape, item->as);
}

/// The indices' shape, then that of a row.
diopiError_t infer_embedding(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view weight, indices;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &weight));
  FRAME_TRY(infer_take(infer, item->names[1], &indices));
  FRAME_CHECK(&infer->frame, weight.ndim > 0, "'%s' has 0 dimensions; it must have 2", item->names[0]);
  infer_start(&shape, &indices);
  shape.dtype = weight.dtype;
  for (int i = 1; i < weight.ndim; i++) {
    FRAME_TRY(infer_add_size(infer, &shape, weight.sizes[i]));
  }
  return infer_emit(infer, &shape, item->as);
}

/// (rows, length of a gradient's row).
diopiError_t infer_embedding_backward(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view grad;
  struct infer_shape shape = {.ndim = 2};
  FRAME_TRY(infer_take(infer, item->names[0], &grad));
  FRAME_CHECK(&infer->frame, grad.ndim > 0, "'%s' has 0 dimensions; it must have at least 1", item->names[0]);
  FRAME_TRY(infer_get_integer(infer, item->names[1], &shape.sizes[0]));
  shape.sizes[1] = grad.sizes[grad.ndim - 1];
  shape.dtype = grad.dtype;
  return infer_emit(infer, &shape, item->as);
}

/// What indices do to the shape: the broadcast of all of them stands where they stand when they are neighbours, else
/// first. A mask has as many places as it has true elements, which nobody knows here.
struct index_columns {
  struct infer_shape joined;
  int count, first, last;
};

static diopiError_t add_index(struct infer *infer, const char *name, diopiConstTensorHandle_t handle, int at,
                              struct index_columns *columns, bool *is_mask) {
  struct dit_tensor_view view, wide;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_TRY(frame_take(&infer->frame, name, handle, &view));
  *is_mask = view.dtype == DIT_DTYPE_BOOL || view.dtype == DIT_DTYPE_U8;
  struct infer_shape *joined = &columns->joined;
  for (int i = 1; i <= view.ndim; i++) {
    const int64_t size = view.sizes[view.ndim - i];
    if (i > joined->ndim) {
      FRAME_TRY(insert_dim(infer, joined, 0, size));
    } else if (joined->sizes[joined->ndim - i] == 1) {
      joined->sizes[joined->ndim - i] = size;
    }
  }
  FRAME_CHECK(&infer->frame, *is_mask || frame_expand(&view, joined->ndim, joined->sizes, strides, &wide),
              "'%s' has tensors that do not broadcast", name);
  columns->first = columns->count++ == 0 ? at : columns->first;
  columns->last = at;
  return diopiSuccess;
}

diopiError_t infer_index(struct infer *infer, const struct infer_item *item) {
  const diopiExtArgument_t *list = infer_find(infer, item->names[1]);
  struct index_columns columns = {.count = 0};
  struct infer_shape shape = {.ndim = 0};
  struct dit_tensor_view view;
  bool rest[DIT_MAX_DIMS] = {false};
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  const int64_t count = list && list->tensors ? list->count : 0;
  FRAME_CHECK(&infer->frame, count >= 0 && count <= view.ndim, "'%s' has %lld tensors; valid: 0 to %d", item->names[1],
              (long long)count, (int)view.ndim);
  for (int i = 0; i < view.ndim; i++) {
    bool is_mask = false;
    rest[i] = i >= count || !list->tensors[i];
    FRAME_TRY(rest[i] ? diopiSuccess : add_index(infer, item->names[1], list->tensors[i], i, &columns, &is_mask));
    if (is_mask) {
      return infer_emit_unknown(infer, view.dtype, item->as);
    }
  }
  const bool joint = columns.count > 0 && columns.last - columns.first + 1 == columns.count;
  const int place = joint ? columns.first : 0;
  for (int i = 0, kept = 0; i <= view.ndim; i++) {
    for (int k = 0; kept == place && k < columns.joined.ndim; k++) {
      FRAME_TRY(infer_add_size(infer, &shape, columns.joined.sizes[k]));
    }
    columns.joined.ndim = kept == place ? 0 : columns.joined.ndim;
    if (i < view.ndim && rest[i]) {
      FRAME_TRY(infer_add_size(infer, &shape, view.sizes[i]));
      kept++;
    }
  }
  shape.dtype = view.dtype;
  return infer_emit(infer, &shape, item->as);
}

/// The place of each element, or of each slice along a dimension, among the distinct ones.
diopiError_t infer_unique(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  struct infer_shape shape;
  int at;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  infer_start(&shape, &view);
  if (infer_find(infer, item->names[1])) {
    FRAME_TRY(start_at(infer, item->names[0], item->names[1], &shape, &at));
    shape.sizes[0] = shape.ndim > 0 ? shape.sizes[at] : 1;
    shape.ndim = 1;
  }
  return infer_emit(infer, &shape, item->as);
}
