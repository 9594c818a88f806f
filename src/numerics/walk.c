/// Building and walking the numeric passes' loop nests (see walk.h).
#include "numerics/walk.h"

#include <string.h>

#include "dit/parallel.h"

enum dit_status walk_check(const struct dit_tensor_view *view, const char *what, struct dit_error *err) {
  if (!dit_dtype_is_valid(view->dtype)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s has dtype number %d; valid: 0 to %d", what, view->dtype,
                         DIT_DTYPE_COUNT - 1);
  }
  if (view->ndim < 0 || view->ndim > DIT_MAX_DIMS) {
    return dit_error_set(err, view->ndim < 0 ? DIT_ERR_INVALID : DIT_ERR_UNSUPPORTED,
                         "%s has %d dimensions; the numeric passes take 0 to %d: reshape it", what, view->ndim,
                         DIT_MAX_DIMS);
  }
  int64_t numel = 0;
  DIT_RETURN_IF_NOT_OK(dit_shape_get_numel(view->ndim, view->sizes, &numel, err));
  if (numel != view->numel) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s says it has %lld elements but its sizes make %lld", what,
                         (long long)view->numel, (long long)numel);
  }
  if (numel > 0 && !view->data) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s has %lld elements but no data (NULL); only an empty tensor may",
                         what, (long long)numel);
  }
  return DIT_OK;
}

/// Should dimension `i` lie inside dimension `j`?
static bool is_inner(const struct walk *walk, int i, int j) {
  for (int operand = 0; operand < walk->operands; operand++) {
    int64_t a = walk->strides[operand][i], b = walk->strides[operand][j];
    if (a != b && a != 0 && b != 0) {
      return a < b;
    }
  }
  return false;
}

static void swap_dims(struct walk *walk, int i, int j) {
  int64_t size = walk->sizes[i];
  walk->sizes[i] = walk->sizes[j];
  walk->sizes[j] = size;
  for (int operand = 0; operand < walk->operands; operand++) {
    int64_t stride = walk->strides[operand][i];
    walk->strides[operand][i] = walk->strides[operand][j];
    walk->strides[operand][j] = stride;
  }
}

static bool can_fuse(const struct walk *walk, int inner, int outer) {
  for (int operand = 0; operand < walk->operands; operand++) {
    if (walk->strides[operand][outer] != walk->strides[operand][inner] * walk->sizes[inner]) {
      return false;
    }
  }
  return true;
}

static void fuse_dims(struct walk *walk) {
  int last = 0;
  for (int dim = 1; dim < walk->ndim; dim++) {
    if (can_fuse(walk, last, dim)) {
      walk->sizes[last] *= walk->sizes[dim];
      continue;
    }
    last++;
    walk->sizes[last] = walk->sizes[dim];
    for (int operand = 0; operand < walk->operands; operand++) {
      walk->strides[operand][last] = walk->strides[operand][dim];
    }
  }
  walk->ndim = last + 1;
}

void walk_init(struct walk *walk, int operands, const struct dit_tensor_view *const *views, enum walk_order order) {
  walk->operands = operands;
  walk->numel = views[0]->numel;
  walk->ndim = 0;
  int64_t slot = (walk->numel / WALK_SLOTS / WALK_CHUNK + 1) * WALK_CHUNK;
  walk->slot = slot > WALK_SLOT_MIN ? slot : WALK_SLOT_MIN;
  for (int operand = 0; operand < operands; operand++) {
    walk->data[operand] = views[operand]->data;
    walk->width[operand] = (int64_t)dit_dtype_get_size(views[operand]->dtype);
  }
  for (int dim = walk->numel == 0 ? -1 : views[0]->ndim - 1; dim >= 0; dim--) {
    if (views[0]->sizes[dim] == 1) {
      continue;
    }
    walk->sizes[walk->ndim] = views[0]->sizes[dim];
    for (int operand = 0; operand < operands; operand++) {
      walk->strides[operand][walk->ndim] = views[operand]->strides[dim] * walk->width[operand];
    }
    walk->ndim++;
  }
  if (walk->ndim == 0) {
    walk->ndim = 1;
    walk->sizes[0] = 1;
    for (int operand = 0; operand < operands; operand++) {
      walk->strides[operand][0] = walk->width[operand];
    }
  }
  for (int i = 1; i < walk->ndim && order == WALK_ANY; i++) {
    for (int j = i; j > 0 && is_inner(walk, j, j - 1); j--) {
      swap_dims(walk, j, j - 1);
    }
  }
  fuse_dims(walk);
}

#define GATHER(bytes)                                                                        \
  for (int64_t i = 0; i < count; i++) {                                                      \
    memcpy(target + i * (bytes), source + i * stride, bytes); /* fixed size: a plain move */ \
  }                                                                                          \
  break

static void gather(char *target, const char *source, int64_t stride, int64_t width, int64_t count) {
  if (stride == width) {
    memcpy(target, source, (size_t)(count * width));
    return;
  }
  switch (width) {
    case 1:
      GATHER(1);
    case 2:
      GATHER(2);
    case 4:
      GATHER(4);
    case 8:
      GATHER(8);
    default:
      GATHER(16);
  }
}

/// A position in the nest: index and address per operand.
struct cursor {
  int64_t index[DIT_MAX_DIMS];
  int64_t offset[WALK_OPERANDS];
};

static void cursor_init(struct cursor *cursor, const struct walk *walk, int64_t position) {
  memset(cursor->offset, 0, sizeof(cursor->offset));
  for (int dim = 0; dim < walk->ndim; dim++) {
    cursor->index[dim] = position % walk->sizes[dim];
    position /= walk->sizes[dim];
    for (int operand = 0; operand < walk->operands; operand++) {
      cursor->offset[operand] += cursor->index[dim] * walk->strides[operand][dim];
    }
  }
}

static void cursor_advance(struct cursor *cursor, const struct walk *walk, int64_t count) {
  cursor->index[0] += count;
  for (int operand = 0; operand < walk->operands; operand++) {
    cursor->offset[operand] += count * walk->strides[operand][0];
  }
  for (int dim = 0; dim + 1 < walk->ndim && cursor->index[dim] == walk->sizes[dim]; dim++) {
    cursor->index[dim] = 0;
    cursor->index[dim + 1]++;
    for (int operand = 0; operand < walk->operands; operand++) {
      cursor->offset[operand] += walk->strides[operand][dim + 1] - walk->sizes[dim] * walk->strides[operand][dim];
    }
  }
}

/// Copy the next `count` elements of every operand that is not packed.
static void gather_chunk(const struct walk *walk, struct cursor *cursor, char (*room)[WALK_CHUNK * WALK_ELEMENT_MAX],
                         int64_t count) {
  for (int64_t done = 0; done < count;) {
    int64_t run = walk->sizes[0] - cursor->index[0];
    run = run < count - done ? run : count - done;
    for (int operand = 0; operand < walk->operands; operand++) {
      int64_t width = walk->width[operand];
      gather(room[operand] + done * width, walk->data[operand] + cursor->offset[operand], walk->strides[operand][0],
             width, run);
    }
    cursor_advance(cursor, walk, run);
    done += run;
  }
}

void walk_range(const struct walk *walk, int64_t begin, int64_t end, walk_body *body, void *context) {
  _Alignas(64) char room[WALK_OPERANDS][WALK_CHUNK * WALK_ELEMENT_MAX];
  const char *data[WALK_OPERANDS] = {room[0], room[1]};
  bool packed = walk->ndim == 1;
  for (int operand = 0; operand < walk->operands; operand++) {
    packed = packed && walk->strides[operand][0] == walk->width[operand];
  }
  struct cursor cursor;
  if (!packed) {
    cursor_init(&cursor, walk, begin);
  }
  for (; begin < end; begin += WALK_CHUNK) {
    int64_t count = end - begin < WALK_CHUNK ? end - begin : WALK_CHUNK;
    if (packed) {
      for (int operand = 0; operand < walk->operands; operand++) {
        data[operand] = walk->data[operand] + begin * walk->width[operand];
      }
    } else {
      gather_chunk(walk, &cursor, room, count);
    }
    body(context, data, begin, count);
  }
}

struct run_task {
  const struct walk *walk;
  walk_slot *slot;
  void *context;
};

static void run_slots(void *context, int64_t begin, int64_t end) {
  const struct run_task *task = context;
  int64_t size = task->walk->slot;
  for (; begin < end; begin += size) {
    task->slot(task->context, (int)(begin / size), begin, begin + size < end ? begin + size : end);
  }
}

int walk_run(const struct walk *walk, walk_slot *slot, void *context) {
  if (walk->numel == 0) {
    return 0;
  }
  struct run_task task = {walk, slot, context};
  dit_parallel_for(0, walk->numel, walk->slot, run_slots, &task);
  return (int)((walk->numel + walk->slot - 1) / walk->slot);
}
