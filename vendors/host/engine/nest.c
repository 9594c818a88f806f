/// Building and walking loop nests (see nest.h).
#include "nest.h"

#include "dit/parallel.h"

/// Should dimension `i` lie inside dimension `j`?
static bool is_inner(const struct nest *nest, int i, int j) {
  for (int operand = 0; operand < nest->operands; operand++) {
    int64_t a = nest->strides[operand][i], b = nest->strides[operand][j];
    if (a != b && a != 0 && b != 0) {
      return a < b;
    }
  }
  return false;
}

static void swap_dims(struct nest *nest, int i, int j) {
  int64_t size = nest->sizes[i];
  nest->sizes[i] = nest->sizes[j];
  nest->sizes[j] = size;
  for (int operand = 0; operand < nest->operands; operand++) {
    int64_t stride = nest->strides[operand][i];
    nest->strides[operand][i] = nest->strides[operand][j];
    nest->strides[operand][j] = stride;
  }
}

static bool can_fuse(const struct nest *nest, int inner, int outer) {
  for (int operand = 0; operand < nest->operands; operand++) {
    if (nest->strides[operand][outer] != nest->strides[operand][inner] * nest->sizes[inner]) {
      return false;
    }
  }
  return true;
}

static void fuse_dims(struct nest *nest) {
  int last = 0;
  for (int dim = 1; dim < nest->ndim; dim++) {
    if (can_fuse(nest, last, dim)) {
      nest->sizes[last] *= nest->sizes[dim];
      continue;
    }
    last++;
    nest->sizes[last] = nest->sizes[dim];
    for (int operand = 0; operand < nest->operands; operand++) {
      nest->strides[operand][last] = nest->strides[operand][dim];
    }
  }
  nest->ndim = last + 1;
}

static void collect_dims(struct nest *nest, int operands, const struct dit_tensor_view *const *views) {
  int64_t width[NEST_OPERANDS];
  nest->operands = operands;
  nest->numel = views[0]->numel;
  nest->ndim = 0;
  for (int operand = 0; operand < operands; operand++) {
    nest->data[operand] = views[operand]->data;
    width[operand] = (int64_t)dit_dtype_get_size(views[operand]->dtype);
  }
  for (int dim = views[0]->ndim - 1; dim >= 0; dim--) {
    if (views[0]->sizes[dim] == 1) {
      continue;
    }
    nest->sizes[nest->ndim] = views[0]->sizes[dim];
    for (int operand = 0; operand < operands; operand++) {
      nest->strides[operand][nest->ndim] = views[operand]->strides[dim] * width[operand];
    }
    nest->ndim++;
  }
  if (nest->ndim == 0) {
    nest->ndim = 1;
    nest->sizes[0] = 1;
    for (int operand = 0; operand < operands; operand++) {
      nest->strides[operand][0] = width[operand];
    }
  }
}

void nest_init(struct nest *nest, int operands, const struct dit_tensor_view *const *views) {
  collect_dims(nest, operands, views);
  for (int i = 1; i < nest->ndim; i++) {
    for (int j = i; j > 0 && is_inner(nest, j, j - 1); j--) {
      swap_dims(nest, j, j - 1);
    }
  }
  fuse_dims(nest);
}

void nest_init_ordered(struct nest *nest, int operands, const struct dit_tensor_view *const *views) {
  collect_dims(nest, operands, views);
  fuse_dims(nest);
}

void nest_walk(const struct nest *nest, int64_t begin, int64_t end, nest_body *body, void *context) {
  int64_t index[DIT_MAX_DIMS], rest = begin;
  char *data[NEST_OPERANDS];
  for (int operand = 0; operand < nest->operands; operand++) {
    data[operand] = nest->data[operand];
  }
  for (int dim = 0; dim < nest->ndim; dim++) {
    index[dim] = rest % nest->sizes[dim];
    rest /= nest->sizes[dim];
    for (int operand = 0; operand < nest->operands; operand++) {
      data[operand] += index[dim] * nest->strides[operand][dim];
    }
  }
  while (begin < end) {
    int64_t count = nest->sizes[0] - index[0] < end - begin ? nest->sizes[0] - index[0] : end - begin;
    body(context, data, count);
    begin += count;
    index[0] += count;
    for (int operand = 0; operand < nest->operands; operand++) {
      data[operand] += count * nest->strides[operand][0];
    }
    for (int dim = 0; dim + 1 < nest->ndim && index[dim] == nest->sizes[dim]; dim++) {
      index[dim] = 0;
      index[dim + 1]++;
      for (int operand = 0; operand < nest->operands; operand++) {
        data[operand] += nest->strides[operand][dim + 1] - nest->sizes[dim] * nest->strides[operand][dim];
      }
    }
  }
}

struct walk_task {
  const struct nest *nest;
  nest_body *body;
  void *context;
};

static void run_walk(void *context, int64_t begin, int64_t end) {
  const struct walk_task *task = context;
  nest_walk(task->nest, begin, end, task->body, task->context);
}

void nest_run(const struct nest *nest, nest_body *body, void *context) {
  if (nest->numel <= 0) {
    return;
  }
  if (nest->ndim == 1 && nest->numel <= NEST_GRAIN) {
    body(context, nest->data, nest->numel);
  } else if (nest->numel <= NEST_GRAIN) {
    nest_walk(nest, 0, nest->numel, body, context);
  } else {
    struct walk_task task = {nest, body, context};
    dit_parallel_for(0, nest->numel, NEST_GRAIN, run_walk, &task);
  }
}
