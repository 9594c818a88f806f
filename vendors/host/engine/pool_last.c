/// Pooling of tensors whose channels lie side by side (see pool.h): loops run over channels, not over windows.
///
/// Positions are walked in the order of the planes' pooling and take the same decisions, so results are the same to the
/// last bit for maxima.
#include <math.h>
#include <string.h>

#include "dit/dtype.h"
#include "dit/parallel.h"
#include "pool.h"
#include "simd.h"

#define CHANNELS 512  // whose indices are collected at once

struct last_task {
  const struct pool_shape *shape;
  int64_t channels, in_plane, out_plane, size;
  char *out;
  int64_t *indices;
  const char *in;
  bool max;
};

/// The window of one position of the result.
struct window {
  int64_t first, divisor, count[3];
};

/// The positions of the window, in memory order.
#define FOR_WINDOW(s, w, at)                                                                                           \
  for (int64_t dz = 0; dz < (w)->count[0]; dz++)                                                                       \
    for (int64_t dy = 0; dy < (w)->count[1]; dy++)                                                                     \
      for (int64_t dx = 0, at = (w)->first +                                                                           \
                                (dz * (s)->axis[0].step * (s)->axis[1].in + dy * (s)->axis[1].step) * (s)->axis[2].in; \
           dx < (w)->count[2]; dx++, at += (s)->axis[2].step)

#define POOL_LOOPS "pool_last_loops.h"
#include "pool_types.h"

static void set_window(const struct pool_shape *s, int64_t position, struct window *w) {
  const struct pool_axis *az = &s->axis[0], *ay = &s->axis[1], *ax = &s->axis[2];
  const int64_t x = position % ax->out, y = position / ax->out % ay->out, z = position / ax->out / ay->out;
  w->first = (az->begin[z] * ay->in + ay->begin[y]) * ax->in + ax->begin[x];
  w->divisor = s->divisor ? s->divisor : az->extent[z] * ay->extent[y] * ax->extent[x];
  w->count[0] = az->count[z];
  w->count[1] = ay->count[y];
  w->count[2] = ax->count[x];
}

#define RUN(type, suffix)                                                                               \
  if (task->max) {                                                                                      \
    max_position_##suffix(task, &window, (type *)(void *)out, indices, (const type *)(const void *)in); \
  } else {                                                                                              \
    mean_position_##suffix(task, &window, (type *)(void *)out, (const type *)(const void *)in);         \
  }

static void run_positions(void *context, int64_t begin, int64_t end) {
  const struct last_task *task = context;
  for (int64_t i = begin; i < end; i++) {
    struct window window;
    char *out = task->out + i * task->channels * task->size;
    int64_t *indices = task->indices ? task->indices + i * task->channels : NULL;
    const char *in = task->in + i / task->out_plane * task->in_plane * task->channels * task->size;
    set_window(task->shape, i % task->out_plane, &window);
    if (task->shape->work == DIT_DTYPE_F32) {
      RUN(float, f32)
    } else if (task->shape->work == DIT_DTYPE_F64) {
      RUN(double, f64)
    } else {
      RUN(int64_t, i64)
    }
  }
}

static void run(struct last_task *task) {
  const struct pool_shape *s = task->shape;
  task->in_plane = s->axis[0].in * s->axis[1].in * s->axis[2].in;
  task->out_plane = s->axis[0].out * s->axis[1].out * s->axis[2].out;
  task->size = s->work == DIT_DTYPE_F32 ? 4 : 8;
  const int64_t work = (task->in_plane / task->out_plane + 1) * task->channels;
  dit_parallel_for(0, s->planes * task->out_plane, 16384 / work + 1, run_positions, task);
}

void pool_max_last(const struct pool_shape *shape, int64_t channels, void *out, int64_t *indices, const void *in) {
  struct last_task task = {.shape = shape, .channels = channels, .out = out, .indices = indices, .in = in, .max = true};
  run(&task);
}

void pool_mean_last(const struct pool_shape *shape, int64_t channels, void *out, const void *in) {
  struct last_task task = {.shape = shape, .channels = channels, .out = out, .in = in};
  run(&task);
}
