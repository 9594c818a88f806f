/// Batch norm: the walk over channels that forward and backward share (norm_batch.h).
///
/// Sums are in double over blocks of float, per-channel numbers in double. Tensors whose channels lie together
/// (channels-last, and any (N, C)) are walked in that order.
#include <string.h>

#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/scalar.h"
#include "norm_batch.h"

#define LINE_BLOCK 512
#define SUM_STEP 64
#define GRAIN 16384
#define MAX_CHUNKS 64

// bfloat16 in one pass

/// sum += x, or (x - mean)^2.
KERNEL_INLINE void add_bfloats_body(float *restrict sum, const uint16_t *restrict x, const float *restrict mean,
                                    int64_t count, bool squares) {
  if (squares) {
    for (int64_t i = 0; i < count; i++) {
      const float apart = bfloat_to_float(x[i]) - mean[i];
      sum[i] += apart * apart;
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += bfloat_to_float(x[i]);
    }
  }
}
KERNEL_MULTI(static, add_bfloats,
             (float *restrict sum, const uint16_t *restrict x, const float *restrict mean, int64_t count, bool squares),
             (sum, x, mean, count, squares))

/// out = b * (x - a) + c
KERNEL_INLINE void combine_bfloats_body(uint16_t *out, const uint16_t *x, const float *a, const float *b,
                                        const float *c, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = bfloat_from_float(b[i] * (bfloat_to_float(x[i]) - a[i]) + c[i]);
  }
}
KERNEL_MULTI(static, combine_bfloats,
             (uint16_t * out, const uint16_t *x, const float *a, const float *b, const float *c, int64_t count),
             (out, x, a, b, c, count))

static uint16_t *get_bfloats(const struct row_data *data, int64_t at) {
  return (uint16_t *)data->data + at;
}

#define REAL_LOOPS "norm_batch_loops.h"
#include "real.h"

// The passes

static void run_sum(void *context, int64_t begin, int64_t end) {
  const struct batch_task *task = context;
  const bool single = task->work == DIT_DTYPE_F32;
  if (!task->lines) {
    (single ? sum_planes_f32 : sum_planes_f64)(task, task->pass, begin, end);
    return;
  }
  for (int64_t chunk = begin; chunk < end; chunk++) {
    (single ? sum_lines_f32 : sum_lines_f64)(task, task->pass, chunk);
  }
}

void batch_sum(struct batch_task *task, int pass) {
  task->pass = pass;
  if (!task->lines) {
    const int64_t work = task->count > 0 ? task->count : 1;
    dit_parallel_for(0, task->channels, GRAIN / work, run_sum, task);
    return;
  }
  dit_parallel_for(0, task->chunks, 1, run_sum, task);
  memset(task->sum, 0, sizeof(double) * (size_t)task->channels);
  memset(task->dot, 0, sizeof(double) * (size_t)task->channels);
  for (int64_t chunk = 0; chunk < task->chunks; chunk++) {
    const double *part = task->partial + chunk * 2 * task->channels;
    for (int64_t c = 0; c < task->channels; c++) {
      task->sum[c] += part[c];
      task->dot[c] += part[task->channels + c];
    }
  }
}

static void run_apply(void *context, int64_t begin, int64_t end) {
  const struct batch_task *task = context;
  const bool single = task->work == DIT_DTYPE_F32;
  if (task->lines) {
    (single ? apply_lines_f32 : apply_lines_f64)(task, begin, end);
  } else {
    (single ? apply_planes_f32 : apply_planes_f64)(task, begin, end);
  }
}

void batch_apply(struct batch_task *task) {
  const int64_t width = task->lines ? task->channels : task->area;
  const int64_t rows = task->lines ? task->samples * task->area : task->samples * task->channels;
  dit_parallel_for(0, rows, GRAIN / (width > 0 ? width : 1), run_apply, task);
}

// Tensors and numbers per channel

bool batch_read_channels(const struct dit_tensor_view *view, double *out, int64_t count, double missing) {
  struct dense dense = {0};
  if (!view->handle) {
    for (int64_t i = 0; i < count; i++) {
      out[i] = missing;
    }
    return true;
  }
  if (!dense_read(&dense, view, DIT_DTYPE_F64)) {
    return false;
  }
  if (count > 0) {
    memcpy(out, dense.data, sizeof(double) * (size_t)count);
  }
  dense_close(&dense);
  return true;
}

bool batch_write_channels(const struct dit_tensor_view *view, const double *values, int64_t count) {
  struct dense dense = {0};
  if (!view->handle || count == 0) {
    return true;
  }
  if (!dense_reserve(&dense, view, DIT_DTYPE_F64)) {
    return false;
  }
  memcpy(dense.data, values, sizeof(double) * (size_t)count);
  dense_store(&dense);
  dense_close(&dense);
  return true;
}

bool batch_set_up(struct batch_task *task) {
  const struct dit_tensor_view *x = &task->v_x;
  const size_t channels = (size_t)task->channels;
  shaped_move_last(&task->moved[0], x, 1u << 1);
  task->lines =
      task->moved[0].view.flags & DIT_TENSOR_CONTIGUOUS && (!(x->flags & DIT_TENSOR_CONTIGUOUS) || task->area == 1);
  const int64_t rows = task->samples * task->area, least = GRAIN / (task->channels > 0 ? task->channels : 1);
  task->chunk = (rows + MAX_CHUNKS - 1) / MAX_CHUNKS;
  task->chunk = task->chunk < least ? least : task->chunk;
  task->chunk = task->chunk < SUM_STEP ? SUM_STEP : task->chunk;
  task->chunks = (rows + task->chunk - 1) / task->chunk;
  const size_t partial = task->lines ? (size_t)task->chunks * 2 * channels : 0;
  task->room = dit_malloc((9 * channels + partial) * sizeof(double) + 1);
  if (!task->room) {
    return false;
  }
  double **places[] = {&task->mean, &task->scale, &task->sum,    &task->dot, &task->a,
                       &task->b,    &task->c,     &task->weight, &task->bias};
  for (size_t i = 0; i < 9; i++) {
    *places[i] = task->room + i * channels;
  }
  task->partial = task->room + 9 * channels;
  return true;
}

bool batch_open(struct batch_task *task, struct batch_tensors *big) {
  const struct dit_tensor_view *views[3] = {&task->v_x, &task->v_g, &task->v_out};
  struct dense *dense[3] = {&big->x, &big->g, &big->out};
  for (int i = 0; i < 3; i++) {
    const struct dit_tensor_view *view = views[i];
    if (task->lines && view->handle) {
      shaped_move_last(&task->moved[i], view, 1u << 1);
      view = &task->moved[i].view;
    }
    if (!(i == 2 ? dense_reserve_data(dense[i], view, task->work) : dense_read_data(dense[i], view, task->work))) {
      return false;
    }
  }
  task->x = (struct row_data){big->x.data, big->x.dtype};
  task->g = (struct row_data){big->g.data, big->g.dtype};
  task->out = (struct row_data){big->out.data, big->out.dtype};
  return true;
}

void batch_close(struct batch_tensors *big) {
  dense_close(&big->x);
  dense_close(&big->g);
  dense_close(&big->out);
}
