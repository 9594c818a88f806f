/// Building a walk (see index.h): dimensions of the positions and of the rest, joined where that is possible.
#include "index.h"

/// Join neighbouring dimensions of the positions that every operand walks as one.
static void fuse_positions(struct index_walk *walk) {
  int last = walk->ndim - 1;
  for (int dim = walk->ndim - 2; dim >= 0; dim--) {
    bool fits = walk->other_strides[dim] == walk->other_strides[last] * walk->sizes[last];
    for (int i = 0; fits && i < walk->columns; i++) {
      const int64_t *strides = walk->column[i].strides;
      fits = strides[dim] == strides[last] * walk->sizes[last];
    }
    if (fits) {
      walk->sizes[last] *= walk->sizes[dim];
      continue;
    }
    last--;
    walk->sizes[last] = walk->sizes[dim];
    walk->other_strides[last] = walk->other_strides[dim];
    for (int i = 0; i < walk->columns; i++) {
      walk->column[i].strides[last] = walk->column[i].strides[dim];
    }
  }
  for (int dim = last; last > 0 && dim < walk->ndim; dim++) {
    walk->sizes[dim - last] = walk->sizes[dim];
    walk->other_strides[dim - last] = walk->other_strides[dim];
    for (int i = 0; i < walk->columns; i++) {
      walk->column[i].strides[dim - last] = walk->column[i].strides[dim];
    }
  }
  walk->ndim -= last;
}

/// The innermost dimension of the rest becomes the run where it is contiguous.
static void take_run(struct index_walk *walk) {
  struct nest *rest = &walk->rest;
  walk->run = 1;
  walk->spread = false;
  if (rest->strides[0][0] != walk->width || (rest->strides[1][0] != walk->width && rest->strides[1][0] != 0)) {
    return;
  }
  walk->run = rest->sizes[0];
  walk->spread = rest->strides[1][0] == 0;
  rest->numel = walk->run ? rest->numel / walk->run : 0;
  for (int dim = 1; dim < rest->ndim; dim++) {
    rest->sizes[dim - 1] = rest->sizes[dim];
    rest->strides[0][dim - 1] = rest->strides[0][dim];
    rest->strides[1][dim - 1] = rest->strides[1][dim];
  }
  if (rest->ndim > 1) {
    rest->ndim--;
  } else {
    rest->sizes[0] = 1;
  }
}

void index_walk_init(struct index_walk *walk, const struct dit_tensor_view *target,
                     const struct dit_tensor_view *const *indices, const struct dit_tensor_view *other, int at) {
  int64_t sizes[DIT_MAX_DIMS], strides[2][DIT_MAX_DIMS];
  struct dit_tensor_view views[2] = {*target, *other};
  int rest = 0;
  const struct dit_tensor_view *shape = NULL;
  walk->columns = 0;
  walk->number = NULL;
  walk->strict = false;
  walk->dtype = target->dtype;
  walk->width = (int)dit_dtype_get_size(target->dtype);
  views[0].numel = 1;
  for (int dim = 0; dim < target->ndim; dim++) {
    shape = indices[dim] ? indices[dim] : shape;
  }
  const int positions = shape ? shape->ndim : 0;
  for (int dim = 0; dim < target->ndim; dim++) {
    if (!indices[dim]) {
      sizes[rest] = target->sizes[dim];
      strides[0][rest] = target->strides[dim];
      strides[1][rest] = other->strides[rest < at ? rest : rest + positions];
      views[0].numel *= sizes[rest++];
      continue;
    }
    struct index_column *column = &walk->column[walk->columns++];
    column->data = indices[dim]->data;
    column->size = target->sizes[dim];
    column->step = target->strides[dim] * walk->width;
    column->wide = indices[dim]->dtype == DIT_DTYPE_I64;
    for (int i = 0; i < positions; i++) {
      column->strides[i] = indices[dim]->strides[i] * (column->wide ? 8 : 4);
    }
  }
  walk->count = 1;
  walk->ndim = positions;
  for (int i = 0; i < positions; i++) {
    walk->sizes[i] = shape->sizes[i];
    walk->other_strides[i] = other->strides[at + i] * walk->width;
    walk->count *= shape->sizes[i];
  }
  if (walk->ndim > 1) {
    fuse_positions(walk);
  }
  for (int i = 0; i < 2; i++) {
    views[i].ndim = rest;
    views[i].sizes = sizes;
    views[i].strides = strides[i];
  }
  nest_init(&walk->rest, 2, (const struct dit_tensor_view *const[]){&views[0], &views[1]});
  take_run(walk);
}
