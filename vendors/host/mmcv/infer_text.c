/// The rule of diopiExtInferOutputs for mmcv's operators: a shape that a text spells out.
///
/// The text has an item per dimension: "input:1" is size 1 of a tensor, "pooled_height" an integer argument, "4" a
/// number, "/4*input:1" and "2*input:0" divide and multiply. The dtype is that of the first name.
#include <stdlib.h>
#include <string.h>

#include "ops/infer.h"

/// One factor: a number, an argument, or a size of a tensor.
static diopiError_t read_factor(struct infer *infer, const char *item, int64_t *value) {
  struct dit_tensor_view view;
  char name[64];
  if (*item >= '0' && *item <= '9') {
    *value = strtoll(item, NULL, 10);
    return diopiSuccess;
  }
  const char *colon = strchr(item, ':');
  if (!colon) {
    return infer_get_integer(infer, item, value);
  }
  memcpy(name, item, (size_t)(colon - item));
  name[colon - item] = 0;
  const int dim = atoi(colon + 1);
  FRAME_TRY(infer_take(infer, name, &view));
  FRAME_CHECK(&infer->frame, view.ndim > dim, "'%s' has %d dimensions; it must have more than %d", name, (int)view.ndim,
              dim);
  *value = view.sizes[dim];
  return diopiSuccess;
}

static diopiError_t read_item(struct infer *infer, char *item, int64_t *value) {
  const bool divides = *item == '/';
  char *rest, *factor = strtok_r(item + divides, "*", &rest);
  int64_t divisor = 1, next = 1;
  if (divides) {
    FRAME_TRY(read_factor(infer, factor, &divisor));
    FRAME_CHECK(&infer->frame, divisor > 0, "'%s' is %lld; valid: from 1", factor, (long long)divisor);
    factor = strtok_r(NULL, "*", &rest);
  }
  *value = 1;
  for (; factor; factor = strtok_r(NULL, "*", &rest)) {
    FRAME_TRY(read_factor(infer, factor, &next));
    *value = infer_multiply(*value, next);
  }
  *value /= divisor;
  return diopiSuccess;
}

diopiError_t infer_text(struct infer *infer, const struct infer_item *item) {
  struct infer_shape shape = {.ndim = 0};
  struct dit_tensor_view view;
  char text[256], *rest;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  shape.dtype = view.dtype;
  strncpy(text, item->names[1], sizeof text - 1);
  text[sizeof text - 1] = 0;
  for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    int64_t size = 0;
    FRAME_TRY(read_item(infer, word, &size));
    FRAME_TRY(infer_add_size(infer, &shape, size));
  }
  return infer_emit(infer, &shape, item->as);
}

/// Of every pair, or with `aligned` of equal positions.
diopiError_t infer_pairs(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view a, b;
  struct infer_shape shape = {.ndim = 1};
  FRAME_TRY(infer_take(infer, item->names[0], &a));
  FRAME_TRY(infer_take(infer, item->names[1], &b));
  FRAME_CHECK(&infer->frame, a.ndim > 0 && b.ndim > 0, "'%s' or '%s' has no dimensions", item->names[0],
              item->names[1]);
  shape.dtype = a.dtype;
  shape.sizes[0] = a.sizes[0];
  FRAME_TRY(infer_get_flag(infer, "aligned") ? diopiSuccess : infer_add_size(infer, &shape, b.sizes[0]));
  return infer_emit(infer, &shape, item->as);
}

/// What diopiDynamicPointToVoxelMmcv makes: only the map's size does not depend on values.
diopiError_t infer_voxels(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view feats, coors;
  FRAME_TRY(infer_take(infer, item->names[0], &feats));
  FRAME_TRY(infer_take(infer, item->names[1], &coors));
  FRAME_CHECK(&infer->frame, coors.ndim > 0, "'%s' has no dimensions", item->names[1]);
  const struct infer_shape map = {.ndim = 1, .dtype = DIT_DTYPE_I32, .sizes = {coors.sizes[0]}};
  FRAME_TRY(infer_emit_unknown(infer, feats.dtype, AS_IS));
  FRAME_TRY(infer_emit_unknown(infer, coors.dtype, AS_IS));
  FRAME_TRY(infer_emit(infer, &map, AS_IS));
  return infer_emit_unknown(infer, DIT_DTYPE_I32, AS_IS);
}

/// A tensor like each of two arguments.
diopiError_t infer_two(struct infer *infer, const struct infer_item *item) {
  for (int i = 0; i < 2; i++) {
    struct dit_tensor_view view;
    struct infer_shape shape;
    FRAME_TRY(infer_take(infer, item->names[i], &view));
    infer_start(&shape, &view);
    FRAME_TRY(infer_emit(infer, &shape, item->as));
  }
  return diopiSuccess;
}

/// As many rows as argument 2 says, as many columns as the filters have.
diopiError_t infer_sparse(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view features, filters;
  struct infer_shape shape = {.ndim = 2};
  FRAME_TRY(infer_take(infer, item->names[0], &features));
  FRAME_TRY(infer_take(infer, item->names[1], &filters));
  FRAME_TRY(infer_get_integer(infer, item->names[2], &shape.sizes[0]));
  FRAME_CHECK(&infer->frame, filters.ndim >= 2, "'%s' has %d dimensions; it must have 2 or more", item->names[1],
              (int)filters.ndim);
  shape.dtype = features.dtype;
  shape.sizes[1] = filters.sizes[filters.ndim - 1];
  return infer_emit(infer, &shape, item->as);
}
