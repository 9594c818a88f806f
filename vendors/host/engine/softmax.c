/// softmax and log-softmax over one dimension.
///
/// out = exp(x - max) / sum(exp(x - max)), computed in float (double for double). Lines that lie along memory are done
/// one at a time; otherwise a block of neighbouring lines advances together. A line of NaN or of -infinity alone gives
/// NaN, as in PyTorch.
#include <math.h>
#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "mathd.h"
#include "mathf.h"
#include "nest.h"
#include "scratch.h"

#define SHORT_ROW 128                       // elements of a line that stays in registers
#define SOFTMAX_SHORT 4096                  // elements of a line that is loaded once
#define SOFTMAX_KEPT ((size_t)1024 * 1024)  // bytes of exponentials that a block of columns keeps
#define COLUMN_BLOCK 128
#define COLUMN_STEP 128  // steps of a line between two levels of its sum

struct softmax_task {
  struct nest nest;  ///< all dimensions but the one of the softmax; operands out, in
  int64_t length, in_step, out_step;
  int in_dtype, out_dtype, work;
  int in_width, out_width;
  bool log, rows;
};

static void load_block(const struct softmax_task *task, const char *data, int64_t stride, int64_t count, void *block) {
  _Alignas(16) char raw[NEST_BLOCK * 8];
  if (stride != task->in_width) {
    cast_gather(raw, data, stride, task->in_width, count);
    data = raw;
  }
  cast_block(task->work, block, task->in_dtype, data, count);
}

static void store_block(const struct softmax_task *task, char *data, int64_t stride, int64_t count, const void *block) {
  _Alignas(16) char raw[NEST_BLOCK * 8];
  if (stride == task->out_width) {
    cast_block(task->out_dtype, data, task->work, block, count);
    return;
  }
  cast_block(task->out_dtype, raw, task->work, block, count);
  cast_scatter(data, stride, raw, task->out_width, count);
}

__attribute__((noinline)) static void load_line(const struct softmax_task *task, const char *data, int64_t stride,
                                                int64_t count, void *line) {
  const int64_t width = task->work == DIT_DTYPE_F64 ? 8 : 4;
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    load_block(task, data + i * stride, stride, count - i < NEST_BLOCK ? count - i : NEST_BLOCK,
               (char *)line + i * width);
  }
}

static void store_line(const struct softmax_task *task, char *data, int64_t stride, int64_t count, const void *line) {
  const int64_t width = task->work == DIT_DTYPE_F64 ? 8 : 4;
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    store_block(task, data + i * stride, stride, count - i < NEST_BLOCK ? count - i : NEST_BLOCK,
                (const char *)line + i * width);
  }
}

#define REAL float
#define EXP exp_f32
#define EXP_NEGATIVE exp_negative_f32
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "softmax_loops.h"
#undef REAL
#undef EXP
#undef EXP_NEGATIVE
#undef NAME
#undef BODY
#define REAL double
#define EXP exp_f64
#define EXP_NEGATIVE exp_f64
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "softmax_loops.h"

static void run_lines(void *context, char *const *data, int64_t count) {
  const struct softmax_task *task = context;
  const int64_t out_stride = task->nest.strides[0][0], in_stride = task->nest.strides[1][0];
  const bool wide = task->work == DIT_DTYPE_F64;
  if (task->rows && (wide ? run_short_rows_f64 : run_short_rows_f32)(task, data[0], data[1], count)) {
    return;
  }
  if (task->rows) {
    bool direct = task->in_dtype == task->work && task->out_dtype == task->work && task->in_step == task->in_width &&
                  task->out_step == task->out_width;
    void (*row)(const struct softmax_task *, char *, const char *) =
        wide ? (direct ? run_row_direct_f64 : run_row_f64) : (direct ? run_row_direct_f32 : run_row_f32);
    for (int64_t i = 0; i < count; i++) {
      row(task, data[0] + i * out_stride, data[1] + i * in_stride);
    }
    return;
  }
  for (int64_t i = 0; i < count; i += COLUMN_BLOCK) {
    int64_t n = count - i < COLUMN_BLOCK ? count - i : COLUMN_BLOCK;
    (wide ? run_columns_f64 : run_columns_f32)(task, data[0] + i * out_stride, data[1] + i * in_stride, n);
  }
}

static void run_range(void *context, int64_t begin, int64_t end) {
  struct softmax_task *task = context;
  nest_walk(&task->nest, begin, end, run_lines, task);
}

static void run_softmax(void *argument) {
  struct softmax_task *task = argument;
  int64_t grain = NEST_GRAIN / 4 / task->length;
  if (!task->rows) {
    grain = grain < COLUMN_BLOCK ? COLUMN_BLOCK : grain;
  }
  dit_parallel_for(0, task->nest.numel, grain, run_range, task);
}

static bool has_strides_of(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  for (int dim = 0; dim < a->ndim; dim++) {
    if (a->sizes[dim] > 1 && a->strides[dim] != b->strides[dim]) {
      return false;
    }
  }
  return true;
}

enum dit_status kernel_softmax(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int dim, bool log, struct dit_error *err) {
  struct softmax_task task;
  struct dit_tensor_view views[2];
  int64_t rest[3][DIT_MAX_DIMS];
  bool half = in->dtype == DIT_DTYPE_F16 || in->dtype == DIT_DTYPE_BF16;
  if ((!half && in->dtype != DIT_DTYPE_F32 && in->dtype != DIT_DTYPE_F64) ||
      (out->dtype != in->dtype && !(half && out->dtype == DIT_DTYPE_F32))) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (in->numel == 0) {
    return DIT_OK;
  }
  if (!has_strides_of(out, in)) {  // a copy that turns tiles costs less than lines that are gathered
    DIT_RETURN_IF_NOT_OK(kernel_copy(stream, out, in, err));
    in = out;
  }
  for (int d = 0, next = 0; d < in->ndim; d++) {
    if (d != dim) {
      rest[0][next] = in->sizes[d];
      rest[1][next] = out->strides[d];
      rest[2][next++] = in->strides[d];
    }
  }
  for (int i = 0; i < 2; i++) {
    views[i] = i == 0 ? *out : *in;
    views[i].ndim = in->ndim - 1;
    views[i].sizes = rest[0];
    views[i].strides = rest[1 + i];
    views[i].numel = in->numel / in->sizes[dim];
  }
  nest_init(&task.nest, 2, (const struct dit_tensor_view *const[]){&views[0], &views[1]});
  task.in_dtype = in->dtype;
  task.out_dtype = out->dtype;
  task.work = in->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  task.in_width = (int)dit_dtype_get_size(in->dtype);
  task.out_width = (int)dit_dtype_get_size(out->dtype);
  task.length = in->sizes[dim];
  task.in_step = in->strides[dim] * task.in_width;
  task.out_step = out->strides[dim] * task.out_width;
  task.log = log;
  task.rows = task.nest.numel == 1 || task.in_step <= task.nest.strides[1][0] || task.nest.sizes[0] < 8;
  return host_stream_launch(stream, run_softmax, &task, sizeof(task), err);
}
