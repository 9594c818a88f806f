/// Pooling (see pool.h): windows from tables, one plane after the other.
#include "pool.h"

#include <math.h>
#include <string.h>

#include "dit/dtype.h"
#include "dit/parallel.h"
#include "simd.h"

#define POOL_LANES 16
#define POOL_RUN 256      // most windows that are taken together
#define POOL_RUN_LEAST 8  // fewer are not worth it

struct pool_task {
  const struct pool_shape *shape;
  char *result;
  const char *x;
  const int64_t *indices;
  int64_t *made_indices;
  int64_t in_plane, out_plane, size;
  int64_t alike, alike_end, stride;  ///< windows of a row that have one size and lie `stride` elements apart
};

#define POOL_LOOPS "pool_loops.h"
#include "pool_types.h"

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void pool_set_axis(struct pool_axis *axis, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                   bool count_padding) {
  axis->step = dilation;
  for (int64_t o = 0; o < axis->out; o++) {
    int64_t begin = o * stride - padding;
    const int64_t end = min_of(begin + (kernel - 1) * dilation + 1, axis->in);
    axis->extent[o] = count_padding ? min_of(begin + kernel, axis->in + padding) - begin : 0;
    if (begin < 0) {
      begin += (-begin + dilation - 1) / dilation * dilation;
    }
    axis->count[o] = end > begin ? (end - begin + dilation - 1) / dilation : 0;
    axis->begin[o] = min_of(begin, axis->in - 1);
    if (!count_padding) {
      axis->extent[o] = axis->count[o];
    }
  }
}

void pool_set_adaptive(struct pool_axis *axis) {
  axis->step = 1;
  for (int64_t o = 0; o < axis->out; o++) {
    // o * in would overflow only for sizes whose product no memory holds
    axis->begin[o] = o * axis->in / axis->out;
    axis->count[o] = ((o + 1) * axis->in + axis->out - 1) / axis->out - axis->begin[o];
    axis->extent[o] = axis->count[o];
  }
}

static void init_task(struct pool_task *task, const struct pool_shape *s) {
  memset(task, 0, sizeof *task);
  task->shape = s;
  task->in_plane = s->axis[0].in * s->axis[1].in * s->axis[2].in;
  task->out_plane = s->axis[0].out * s->axis[1].out * s->axis[2].out;
  task->size = s->work == DIT_DTYPE_F32 ? 4 : 8;
}

static void run_planes(struct pool_task *task, void (*body)(void *, int64_t, int64_t)) {
  const int64_t work = task->in_plane + task->out_plane;
  dit_parallel_for(0, task->shape->planes, 16384 / (work + 1) + 1, body, task);
}

/// Windows of full size that begin at equal distances; none when positions do not fit the loops' indices.
static void find_alike(struct pool_task *task) {
  const struct pool_axis *axis = &task->shape->axis[2];
  int64_t full = 0, at = 0;
  for (int64_t x = 0; x < axis->out; x++) {
    full = axis->count[x] > full ? axis->count[x] : full;
  }
  while (at < axis->out && axis->count[at] != full) {
    at++;
  }
  task->alike = task->alike_end = at;
  if (at + 1 >= axis->out || task->in_plane > INT32_MAX) {
    return;
  }
  task->stride = axis->begin[at + 1] - axis->begin[at];
  for (task->alike_end++; task->alike_end < axis->out; task->alike_end++) {
    const int64_t end = task->alike_end;
    if (axis->count[end] != full || axis->begin[end] - axis->begin[end - 1] != task->stride) {
      break;
    }
  }
  if (task->alike_end - task->alike < POOL_RUN_LEAST) {
    task->alike_end = task->alike;
  }
}

static void run_max(void *context, int64_t begin, int64_t end) {
  const struct pool_task *task = context;
  for (int64_t i = begin; i < end; i++) {
    char *out = task->result + i * task->out_plane * task->size;
    const char *in = task->x + i * task->in_plane * task->size;
    int64_t *indices = task->made_indices ? task->made_indices + i * task->out_plane : NULL;
    switch (task->shape->work) {
      case DIT_DTYPE_F32:
        max_plane_f32(task, (float *)out, indices, (const float *)in);
        break;
      case DIT_DTYPE_F64:
        max_plane_f64(task, (double *)out, indices, (const double *)in);
        break;
      default:
        max_plane_i64(task, (int64_t *)out, indices, (const int64_t *)in);
    }
  }
}

void pool_max(const struct pool_shape *shape, void *out, int64_t *indices, const void *in) {
  struct pool_task task;
  init_task(&task, shape);
  task.result = out;
  task.made_indices = indices;
  task.x = in;
  find_alike(&task);
  run_planes(&task, run_max);
}

/// The loops of mean for one type: rows of a window that are long enough are summed in lanes.
#define RUN_MEAN(type, suffix) \
  (wide ? mean_wide_plane_##suffix : mean_plane_##suffix)(task, (type *)out, (const type *)in)

static void run_mean(void *context, int64_t begin, int64_t end) {
  const struct pool_task *task = context;
  const struct pool_shape *s = task->shape;
  const bool wide = s->axis[2].out > 0 && s->axis[2].count[0] >= 2 * POOL_LANES;
  for (int64_t i = begin; i < end; i++) {
    char *out = task->result + i * task->out_plane * task->size;
    const char *in = task->x + i * task->in_plane * task->size;
    switch (s->work) {
      case DIT_DTYPE_F32:
        RUN_MEAN(float, f32);
        break;
      case DIT_DTYPE_F64:
        RUN_MEAN(double, f64);
        break;
      default:
        RUN_MEAN(int64_t, i64);
    }
  }
}

void pool_mean(const struct pool_shape *shape, void *out, const void *in) {
  struct pool_task task;
  init_task(&task, shape);
  task.result = out;
  task.x = in;
  find_alike(&task);
  run_planes(&task, run_mean);
}

KERNEL_INLINE void check_block_body(const int64_t *indices, int64_t count, uint64_t plane, uint64_t *outside) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < count; i++) {
    bad |= (uint64_t)indices[i] >= plane ? 1 : 0;
  }
  *outside |= bad;
}
KERNEL_MULTI(static, check_block, (const int64_t *indices, int64_t count, uint64_t plane, uint64_t *outside),
             (indices, count, plane, outside))

bool pool_check_indices(const int64_t *indices, int64_t count, int64_t plane) {
  uint64_t outside = 0;
  check_block(indices, count, (uint64_t)plane, &outside);
  return outside == 0;
}

static void run_max_backward(void *context, int64_t begin, int64_t end) {
  const struct pool_task *task = context;
  for (int64_t i = begin; i < end; i++) {
    char *grad_in = task->result + i * task->in_plane * task->size;
    const char *grad = task->x + i * task->out_plane * task->size;
    const int64_t *indices = task->indices + i * task->out_plane;
    memset(grad_in, 0, (size_t)(task->in_plane * task->size));
    switch (task->shape->work) {
      case DIT_DTYPE_F32:
        max_backward_plane_f32((float *)grad_in, (const float *)grad, indices, task->out_plane);
        break;
      case DIT_DTYPE_F64:
        max_backward_plane_f64((double *)grad_in, (const double *)grad, indices, task->out_plane);
        break;
      default:
        max_backward_plane_i64((int64_t *)grad_in, (const int64_t *)grad, indices, task->out_plane);
    }
  }
}

void pool_max_backward(const struct pool_shape *shape, void *grad_in, const void *grad_out, const int64_t *indices) {
  struct pool_task task;
  init_task(&task, shape);
  task.result = grad_in;
  task.x = grad_out;
  task.indices = indices;
  run_planes(&task, run_max_backward);
}

static void run_mean_backward(void *context, int64_t begin, int64_t end) {
  const struct pool_task *task = context;
  const struct pool_shape *s = task->shape;
  for (int64_t i = begin; i < end; i++) {
    char *grad_in = task->result + i * task->in_plane * task->size;
    const char *grad = task->x + i * task->out_plane * task->size;
    memset(grad_in, 0, (size_t)(task->in_plane * task->size));
    switch (s->work) {
      case DIT_DTYPE_F32:
        mean_backward_plane_f32(s, (float *)grad_in, (const float *)grad);
        break;
      case DIT_DTYPE_F64:
        mean_backward_plane_f64(s, (double *)grad_in, (const double *)grad);
        break;
      default:
        mean_backward_plane_i64(s, (int64_t *)grad_in, (const int64_t *)grad);
    }
  }
}

void pool_mean_backward(const struct pool_shape *shape, void *grad_in, const void *grad_out) {
  struct pool_task task;
  init_task(&task, shape);
  task.result = grad_in;
  task.x = grad_out;
  run_planes(&task, run_mean_backward);
}
