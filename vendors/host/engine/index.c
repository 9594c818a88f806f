/// Walking a tensor by positions from index tensors (see index.h).
///
/// Offsets of a block of positions are computed once, into the first-level cache, and used for every element of the
/// rest. Taking is split over blocks of positions and the rest; putting and adding over the rest alone, so that
/// positions that name one element meet in one thread and in order.
#include <stdatomic.h>
#include <string.h>

#include "cast.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "index_block.h"
#include "kernels.h"
#include "simd.h"

void *index_take_room(struct diopiContext *context, size_t size) {
  (void)context;
  return dit_calloc(size > 0 ? size : 1, 1);
}

void index_give_room(void *room) {
  dit_free(room);
}

// The range of an index tensor

struct range {
  int64_t low, high;
};

#define RANGE_LOOP(name, type)                                                           \
  KERNEL_INLINE void name##_body(const void *data, int64_t count, struct range *range) { \
    const type *values = data;                                                           \
    type low = values[0], high = values[0];                                              \
    for (int64_t i = 1; i < count; i++) {                                                \
      low = values[i] < low ? values[i] : low;                                           \
      high = values[i] > high ? values[i] : high;                                        \
    }                                                                                    \
    range->low = low;                                                                    \
    range->high = high;                                                                  \
  }                                                                                      \
  KERNEL_MULTI(static, name, (const void *data, int64_t count, struct range *range), (data, count, range))
RANGE_LOOP(scan_i64, int64_t)
RANGE_LOOP(scan_i32, int32_t)

struct scan_task {
  bool wide;
  int64_t stride;
  _Atomic int64_t low, high;
};

static void scan_run(void *context, char *const *data, int64_t count) {
  struct scan_task *task = context;
  struct range range = {INT64_MAX, INT64_MIN};
  if (task->stride == (task->wide ? 8 : 4)) {
    (task->wide ? scan_i64 : scan_i32)(data[0], count, &range);
  } else {
    for (int64_t i = 0; i < count; i++) {
      const int64_t value = index_read(data[0] + i * task->stride, task->wide);
      range.low = value < range.low ? value : range.low;
      range.high = value > range.high ? value : range.high;
    }
  }
  int64_t low = atomic_load(&task->low), high = atomic_load(&task->high);
  while (range.low < low && !atomic_compare_exchange_weak(&task->low, &low, range.low)) {
  }
  while (range.high > high && !atomic_compare_exchange_weak(&task->high, &high, range.high)) {
  }
}

void index_get_range(void *stream, const struct dit_tensor_view *index, int64_t *low, int64_t *high) {
  struct dit_tensor_view view = *index;
  int64_t sizes[DIT_MAX_DIMS];
  struct nest nest;
  struct scan_task task = {.wide = index->dtype == DIT_DTYPE_I64, .low = INT64_MAX, .high = INT64_MIN};
  (void)stream;
  *low = 0;
  *high = -1;
  if (index->numel == 0) {
    return;
  }
  view.numel = 1;
  for (int dim = 0; dim < index->ndim; dim++) {
    sizes[dim] = index->strides[dim] == 0 ? 1 : index->sizes[dim];  // an expanded dimension is read once
    view.numel *= sizes[dim];
  }
  view.sizes = sizes;
  nest_init(&nest, 1, (const struct dit_tensor_view *const[]){&view});
  task.stride = nest.strides[0][0];
  nest_run(&nest, scan_run, &task);
  *low = task.low;
  *high = task.high;
}

// Offsets of positions

/// Offsets of positions that lie along the innermost dimension.
static void add_column(const struct index_column *column, const char *data, int64_t stride, int64_t count,
                       int64_t *target) {
  const int64_t size = column->size, step = column->step;
  if (column->wide) {
    for (int64_t i = 0; i < count; i++) {
      const int64_t value = *(const int64_t *)(data + i * stride);
      target[i] += (value + (value >> 63 & size)) * step;
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      const int64_t value = *(const int32_t *)(data + i * stride);
      target[i] += (value + (value >> 63 & size)) * step;
    }
  }
}

void index_get_offsets(const struct index_walk *walk, int64_t begin, int64_t count, int64_t *target, int64_t *other) {
  const int inner = walk->ndim - 1;
  memset(target, 0, sizeof(int64_t) * (size_t)count);
  if (inner < 0) {
    for (int i = 0; i < walk->columns; i++) {
      add_column(&walk->column[i], walk->column[i].data, 0, 1, target);
    }
    other[0] = 0;
    return;
  }
  for (int64_t done = 0; done < count;) {
    int64_t rest = (begin + done) / walk->sizes[inner], first = (begin + done) % walk->sizes[inner];
    int64_t n = walk->sizes[inner] - first, base = 0, column_base[DIT_MAX_DIMS] = {0};
    n = n < count - done ? n : count - done;
    for (int dim = inner - 1; dim >= 0; dim--) {
      const int64_t at = rest % walk->sizes[dim];
      rest /= walk->sizes[dim];
      base += at * walk->other_strides[dim];
      for (int i = 0; i < walk->columns; i++) {
        column_base[i] += at * walk->column[i].strides[dim];
      }
    }
    for (int i = 0; i < walk->columns; i++) {
      const int64_t stride = walk->column[i].strides[inner];
      add_column(&walk->column[i], walk->column[i].data + column_base[i] + first * stride, stride, n, target + done);
    }
    for (int64_t i = 0; i < n; i++) {
      other[done + i] = base + (first + i) * walk->other_strides[inner];
    }
    done += n;
  }
}

// Moving

struct wide {
  uint64_t part[2];
};
#define MOVE(type)                                           \
  for (int64_t i = 0; i < count; i++) {                      \
    *(type *)(dst + to[i]) = *(const type *)(src + from[i]); \
  }                                                          \
  break;
/// Only for elements: neighbours in dst.
#define TAKE(type)                                     \
  for (int64_t i = 0; i < count; i++) {                \
    ((type *)dst)[i] = *(const type *)(src + from[i]); \
  }                                                    \
  break;
#define MOVE_WIDTHS(LOOP) \
  switch (width) {        \
    case 1:               \
      LOOP(uint8_t)       \
    case 2:               \
      LOOP(uint16_t)      \
    case 4:               \
      LOOP(uint32_t)      \
    case 8:               \
      LOOP(uint64_t)      \
    default:              \
      LOOP(struct wide)   \
  }

static void move_elements(int width, char *restrict dst, const int64_t *restrict to, const char *restrict src,
                          const int64_t *restrict from, int64_t count) {
  MOVE_WIDTHS(MOVE)
}

static void take_elements(int width, char *restrict dst, const char *restrict src, const int64_t *restrict from,
                          int64_t count) {
  MOVE_WIDTHS(TAKE)
}

static void move_runs(int64_t size, char *dst, const int64_t *to, const char *src, const int64_t *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    memcpy(dst + to[i], src + from[i], (size_t)size);
  }
}

static void move_block(void *context, char *const *data, int64_t count) {
  const struct index_block *block = context;
  const struct index_walk *walk = block->walk;
  const int64_t target_step = walk->rest.strides[0][0], other_step = walk->rest.strides[1][0];
  for (int64_t i = 0; i < count; i++) {
    char *target = data[0] + i * target_step, *other = data[1] + i * other_step;
    if (walk->spread && walk->run > 1) {
      for (int64_t k = 0; k < block->count; k++) {
        cast_move(target + block->target[k], walk->width, other + block->other[k], 0, walk->width, block->run);
      }
    } else if (walk->run == 1 && block->mode == INDEX_TAKE && block->dense) {
      take_elements(walk->width, other + block->other[0], target, block->target, block->count);
    } else if (walk->run == 1 && block->mode == INDEX_TAKE) {
      move_elements(walk->width, other, block->other, target, block->target, block->count);
    } else if (walk->run == 1) {
      move_elements(walk->width, target, block->target, other, block->other, block->count);
    } else if (block->mode == INDEX_TAKE) {
      move_runs(block->run * walk->width, other, block->other, target, block->target, block->count);
    } else {
      move_runs(block->run * walk->width, target, block->target, other, block->other, block->count);
    }
  }
}

// Running

struct walk_task {
  const struct index_walk *walk;
  enum index_mode mode;
  int64_t chunk;  ///< elements of the run per task; 0: tasks are elements of the rest
};

/// Tasks are pairs (block of positions, element of the rest), the rest fastest.
static void take_range(void *context, int64_t begin, int64_t end) {
  const struct walk_task *task = context;
  const struct index_walk *walk = task->walk;
  struct index_block block;
  block.walk = walk;
  block.mode = INDEX_TAKE;
  block.run = walk->run;
  block.dense = walk->ndim == 1 && walk->other_strides[0] == walk->width;
  while (begin < end) {
    const int64_t first = begin / walk->rest.numel * INDEX_BLOCK, from = begin % walk->rest.numel;
    const int64_t to = walk->rest.numel - from < end - begin ? walk->rest.numel : from + end - begin;
    block.count = walk->count - first < INDEX_BLOCK ? walk->count - first : INDEX_BLOCK;
    index_get_offsets(walk, first, block.count, block.target, block.other);
    nest_walk(&walk->rest, from, to, move_block, &block);
    begin += to - from;
  }
}

/// All positions, for a part of the rest or of the run.
static void put_range(void *context, int64_t begin, int64_t end) {
  const struct walk_task *task = context;
  const struct index_walk *walk = task->walk;
  struct nest rest = walk->rest;
  struct index_block block;
  block.walk = walk;
  block.mode = task->mode;
  block.run = walk->run;
  block.dense = false;
  if (task->chunk) {
    const int64_t first = begin * task->chunk;
    block.run = (end * task->chunk < walk->run ? end * task->chunk : walk->run) - first;
    rest.data[0] += first * walk->width;
    rest.data[1] += walk->spread ? 0 : first * walk->width;
    begin = 0;
    end = rest.numel;
  }
  for (int64_t first = 0; first < walk->count; first += INDEX_BLOCK) {
    block.count = walk->count - first < INDEX_BLOCK ? walk->count - first : INDEX_BLOCK;
    index_get_offsets(walk, first, block.count, block.target, block.other);
    nest_walk(&rest, begin, end, task->mode == INDEX_ADD ? index_add_block : move_block, &block);
  }
}

/// Few positions of much that lies in another order on both sides: each is a copy of its own, which turns tiles.
#define TURN_LEAST 1024
static bool is_turned(const struct index_walk *walk) {
  return walk->run == 1 && !walk->spread && walk->rest.ndim >= 2 && walk->rest.numel >= TURN_LEAST &&
         walk->rest.strides[1][0] != 0 && walk->count <= walk->rest.numel;
}

static void move_turned(const struct index_walk *walk, enum index_mode mode) {
  int64_t sizes[DIT_MAX_DIMS], strides[2][DIT_MAX_DIMS];
  struct dit_tensor_view views[2];
  const struct nest *rest = &walk->rest;
  for (int dim = 0; dim < rest->ndim; dim++) {
    sizes[rest->ndim - 1 - dim] = rest->sizes[dim];
    for (int i = 0; i < 2; i++) {
      strides[i][rest->ndim - 1 - dim] = rest->strides[i][dim] / walk->width;
    }
  }
  for (int i = 0; i < 2; i++) {
    views[i] = (struct dit_tensor_view){
        .sizes = sizes, .strides = strides[i], .numel = rest->numel, .ndim = rest->ndim, .dtype = (int16_t)walk->dtype};
  }
  for (int64_t position = 0; position < walk->count; position++) {
    int64_t target, other;
    index_get_offsets(walk, position, 1, &target, &other);
    views[0].data = rest->data[0] + target;
    views[1].data = rest->data[1] + other;
    const enum dit_status status = kernel_copy(NULL, &views[mode == INDEX_TAKE], &views[mode != INDEX_TAKE], NULL);
    (void)status;  // equal dtypes
  }
}

enum dit_status index_walk_run(struct diopiContext *context, void *stream, const struct index_walk *walk,
                               enum index_mode mode, struct dit_error *err) {
  struct walk_task task = {walk, mode, 0};
  const int64_t rest = walk->rest.numel;
  (void)context, (void)stream;
  if (mode == INDEX_ADD && !index_can_add(walk->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (walk->count == 0 || rest == 0 || walk->run == 0) {
    return DIT_OK;
  }
  if (mode != INDEX_ADD && is_turned(walk)) {
    move_turned(walk, mode);
  } else if (mode == INDEX_TAKE) {
    const int64_t blocks = (walk->count + INDEX_BLOCK - 1) / INDEX_BLOCK;
    const int64_t per_task = (walk->count < INDEX_BLOCK ? walk->count : INDEX_BLOCK) * walk->run;
    dit_parallel_for(0, blocks * rest, NEST_GRAIN / per_task + 1, take_range, &task);
  } else if (mode == INDEX_ADD && index_is_half(walk->dtype)) {
    return index_add_grouped(walk, err);
  } else if (rest >= 8 || walk->run < 128) {
    dit_parallel_for(0, rest, NEST_GRAIN / (walk->count * walk->run) + 1, put_range, &task);
  } else {
    task.chunk = 64;
    const int64_t grain = NEST_GRAIN / (walk->count * rest * task.chunk) + 1;
    dit_parallel_for(0, (walk->run + task.chunk - 1) / task.chunk, grain, put_range, &task);
  }
  return DIT_OK;
}
