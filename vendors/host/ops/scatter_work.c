/// scatter on the host (see scatter.c).
#include <string.h>

#include "dit/parallel.h"
#include "engine/cast.h"
#include "engine/index.h"
#include "engine/scratch.h"
#include "gather.h"

/// Lines beside each other: `count` of them, the steps between them in bytes.
struct lines {
  char *self;
  const char *index, *src;
  int64_t self_step, index_step, src_step;
  int64_t count;
};
typedef void scatter_loop(const struct scatter_task *task, const struct lines *lines);

/// One element; `t` and `s` point to the target's and the source's.
#define SCATTER_STEP(type, expr)                                                        \
  {                                                                                     \
    const int64_t at = index_read(index + line * index_next + step * index_step, wide); \
    type *t = (type *)(self + line * self_next + at * self_step);                       \
    const type *s = (const type *)(src + line * src_next + step * src_step);            \
    expr;                                                                               \
  }
/// A whole row of lines whose index is one number.
#define SCATTER_ROW(type, expr)                                        \
  {                                                                    \
    const int64_t at = index_read(index + step * index_step, wide);    \
    type *restrict to = (type *)(self + at * self_step);               \
    const type *restrict from = (const type *)(src + step * src_step); \
    for (int64_t line = 0; line < lines->count; line++) {              \
      type *t = to + line;                                             \
      const type *s = from + line;                                     \
      expr;                                                            \
    }                                                                  \
  }
/// Along the line first, or across the lines first, whichever is nearer in memory.
#define SCATTER_LOOP(name, type, expr)                                                                        \
  static void name(const struct scatter_task *task, const struct lines *lines) {                              \
    char *self = lines->self;                                                                                 \
    const char *index = lines->index, *src = lines->src;                                                      \
    const int64_t self_next = lines->self_step, index_next = lines->index_step, src_next = lines->src_step;   \
    const int64_t self_step = task->self_step, index_step = task->index_step, src_step = task->src_step;      \
    const int64_t count = task->count;                                                                        \
    const bool wide = task->wide;                                                                             \
    if (index_next == 0 && self_next == (int64_t)sizeof(type) && src_next == self_next && lines->count > 1) { \
      for (int64_t step = 0; step < count; step++) SCATTER_ROW(type, expr)                                    \
    } else if ((index_next ? index_step <= index_next : self_step <= self_next) || lines->count == 1) {       \
      for (int64_t line = 0; line < lines->count; line++) {                                                   \
        for (int64_t step = 0; step < count; step++) SCATTER_STEP(type, expr)                                 \
      }                                                                                                       \
    } else {                                                                                                  \
      for (int64_t step = 0; step < count; step++) {                                                          \
        for (int64_t line = 0; line < lines->count; line++) SCATTER_STEP(type, expr)                          \
      }                                                                                                       \
    }                                                                                                         \
  }

struct wide {
  uint64_t part[2];
};
SCATTER_LOOP(set_1, uint8_t, *t = *s)
SCATTER_LOOP(set_2, uint16_t, *t = *s)
SCATTER_LOOP(set_4, uint32_t, *t = *s)
SCATTER_LOOP(set_8, uint64_t, *t = *s)
SCATTER_LOOP(set_16, struct wide, *t = *s)

#define PAIR(name, type)                                                        \
  struct name {                                                                 \
    type re, im;                                                                \
  };                                                                            \
  static inline struct name add_##name(struct name a, struct name b) {          \
    return (struct name){a.re + b.re, a.im + b.im};                             \
  }                                                                             \
  static inline struct name multiply_##name(struct name a, struct name b) {     \
    return (struct name){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; \
  }
PAIR(pair_f32, float)
PAIR(pair_f64, double)
#define ARITHMETIC_LIST(X)                                                           \
  X(U8, uint8_t, *t = (uint8_t)(*t + *s), *t = (uint8_t)(*t * *s))                   \
  X(I16, uint16_t, *t = (uint16_t)(*t + *s), *t = (uint16_t)((uint32_t) * s * *t))   \
  X(I32, uint32_t, *t += *s, *t *= *s)                                               \
  X(I64, uint64_t, *t += *s, *t *= *s)                                               \
  X(BOOL, uint8_t, *t = (*t | *s) != 0, *t = *t && *s)                               \
  X(F32, float, *t += *s, *t *= *s)                                                  \
  X(F64, double, *t += *s, *t *= *s)                                                 \
  X(C64, struct pair_f32, *t = add_pair_f32(*t, *s), *t = multiply_pair_f32(*t, *s)) \
  X(C128, struct pair_f64, *t = add_pair_f64(*t, *s), *t = multiply_pair_f64(*t, *s))
#define DEFINE_LOOPS(suffix, type, add, multiply) \
  SCATTER_LOOP(add_##suffix, type, add)           \
  SCATTER_LOOP(multiply_##suffix, type, multiply)
ARITHMETIC_LIST(DEFINE_LOOPS)

static scatter_loop *const arithmetic[][2] = {
#define LOOPS(suffix, type, add, multiply) [DIT_DTYPE_##suffix] = {add_##suffix, multiply_##suffix},
    ARITHMETIC_LIST(LOOPS)[DIT_DTYPE_I8] = {add_U8, multiply_U8},
};

static bool is_half(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

static scatter_loop *select_loop(enum scatter_mode mode, int dtype) {
  if (mode != SCATTER_SET) {
    const bool known = (size_t)dtype < sizeof arithmetic / sizeof arithmetic[0];
    return is_half(dtype) ? arithmetic[DIT_DTYPE_F32][mode - 1] : known ? arithmetic[dtype][mode - 1] : NULL;
  }
  switch (dit_dtype_get_size(dtype)) {
    case 1:
      return set_1;
    case 2:
      return set_2;
    case 4:
      return set_4;
    case 8:
      return set_8;
    default:
      return set_16;
  }
}

/// Half types: lines of self and src are widened, worked on in float and rounded back; lines that are neighbours in
/// both go together. `room` holds the lines of each, their steps apart by `lines->count` elements.
#define HALF_ROOM 262144  ///< elements of both that the second-level cache holds
static int64_t count_half_lines(const struct scatter_task *task, const struct lines *lines) {
  const int64_t elements = task->self.sizes[task->dim] + task->count, fit = HALF_ROOM / elements;
  const bool beside = lines->self_step == 2 && (lines->src_step == 2 || lines->src_step == 0);
  return !beside || fit < 2 ? 1 : fit < lines->count ? fit : lines->count;
}

/// `steps` steps of lines into or out of the room.
static void widen_lines(int dtype, float *room, const char *from, int64_t step, int64_t steps, int64_t count) {
  for (int64_t i = 0; i < steps; i++) {
    cast_block(DIT_DTYPE_F32, room + i * count, dtype, from + i * step, count);
  }
}

/// One line: gathered as a whole.
static void widen_line(int dtype, float *room, char *raw, const char *from, int64_t step, int64_t steps) {
  cast_gather(raw, from, step, 2, steps);
  cast_block(DIT_DTYPE_F32, room, dtype, raw, steps);
}

static void run_half_lines(const struct scatter_task *task, const struct lines *lines, char *room) {
  const int dtype = task->self.dtype;
  const int64_t size = task->self.sizes[task->dim], terms = task->src_step ? task->count : 1, count = lines->count;
  const int64_t src_count = lines->src_step ? count : 1;
  float *self = (float *)room, *src = self + size * count;
  char *raw = (char *)(src + terms * count);
  struct scatter_task wide = *task;
  struct lines floats = *lines;
  floats.self = room;
  floats.src = (const char *)src;
  floats.self_step = 4;
  floats.src_step = lines->src_step ? 4 : 0;
  wide.self_step = 4 * count;
  wide.src_step = task->src_step ? 4 * src_count : 0;
  if (count == 1) {
    widen_line(dtype, self, raw, lines->self, task->self_step, size);
    widen_line(dtype, src, raw, lines->src, task->src_step, terms);
  } else {
    widen_lines(dtype, self, lines->self, task->self_step, size, count);
    widen_lines(dtype, src, lines->src, task->src_step, terms, src_count);
  }
  select_loop(task->mode, DIT_DTYPE_F32)(&wide, &floats);
  if (count == 1) {
    cast_block(dtype, raw, DIT_DTYPE_F32, self, size);
    cast_scatter(lines->self, task->self_step, raw, 2, size);
    return;
  }
  for (int64_t i = 0; i < size; i++) {
    cast_block(dtype, lines->self + i * task->self_step, DIT_DTYPE_F32, self + i * count, count);
  }
}

struct scatter_walk {
  struct scatter_task *task;
  scatter_loop *loop;
  _Atomic bool *failed;
};

static void run_lines(void *context, char *const *data, int64_t count) {
  const struct scatter_walk *walk = context;
  const struct scatter_task *task = walk->task;
  const struct nest *nest = &task->nest;
  const struct lines lines = {data[0], data[1], data[2], nest->strides[0][0], nest->strides[1][0], nest->strides[2][0],
                              count};
  if (task->mode == SCATTER_SET || !is_half(task->self.dtype)) {
    walk->loop(task, &lines);
    return;
  }
  const int64_t size = task->self.sizes[task->dim], longest = size > task->count ? size : task->count;
  const int64_t together = count_half_lines(task, &lines);
  char *room = scratch_take((size_t)((size + task->count) * together) * sizeof(float) + (size_t)longest * 2);
  if (!room) {
    *walk->failed = true;
    return;
  }
  for (int64_t line = 0; line < count; line += together) {
    struct lines some = lines;
    some.self += line * lines.self_step;
    some.index += line * lines.index_step;
    some.src += line * lines.src_step;
    some.count = count - line < together ? count - line : together;
    run_half_lines(task, &some, room);
  }
  scratch_give(room);
}

static void scatter_range(void *context, int64_t begin, int64_t end) {
  const struct scatter_walk *walk = context;
  nest_walk(&walk->task->nest, begin, end, run_lines, context);
}

static diopiError_t run_scatter(void *argument) {
  struct scatter_task *task = argument;
  struct layout self, src, index;
  _Atomic bool failed = false;
  FRAME_TRY(layout_check_index(task->frame, "index", &task->index, task->self.sizes[task->dim], false));
  FRAME_TRY(scatter_prepare(task));
  if (task->index.numel == 0) {
    return diopiSuccess;
  }
  task->width = (int)dit_dtype_get_size(task->self.dtype);
  task->wide = task->index.dtype == DIT_DTYPE_I64;
  task->count = task->index.sizes[task->dim];
  task->self_step = task->self.strides[task->dim] * task->width;
  task->index_step = task->index.strides[task->dim] * (task->wide ? 8 : 4);
  task->src_step = task->src.handle ? task->src.strides[task->dim] * task->width : 0;
  gather_limit(&index, &task->index, &task->index, -1);
  layout_narrow(&index, task->dim, 0, 1, 1);
  gather_limit(&self, &task->self, &index.view, -1);
  gather_limit(&src, task->src.handle ? &task->src : &task->self, &index.view, -1);
  if (!task->src.handle) {
    src.view.data = task->value;
    memset(src.strides, 0, sizeof src.strides);
  }
  nest_init(&task->nest, 3, (const struct dit_tensor_view *const[]){&self.view, &index.view, &src.view});
  if (!task->src.handle) {
    memset(task->nest.strides[2], 0, sizeof task->nest.strides[2]);
  }
  struct scatter_walk walk = {task, select_loop(task->mode, task->self.dtype), &failed};
  dit_parallel_for(0, task->nest.numel, NEST_GRAIN / task->count + 1, scatter_range, &walk);
  return failed ? frame_fail(task->frame, diopiErrorOccurred, "no memory for a line of %lld elements",
                             (long long)task->self.sizes[task->dim])
                : diopiSuccess;
}

bool scatter_has_dtype(enum scatter_mode mode, int dtype) {
  return mode == SCATTER_SET || select_loop(mode, dtype);
}

diopiError_t scatter_run(struct scatter_task *task) {
  return frame_run(task->frame, run_scatter, task);
}
