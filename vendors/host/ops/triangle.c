/// tril and triu: the elements on one side of a diagonal of each matrix, zero on the other side.
///
/// tril: out[..., i, j] = j - i <= diagonal ? input : 0; triu: j - i >= diagonal. The last two dimensions are the
/// matrix; input has at least two. Every dtype; out may be input, whose kept side is not touched then.
#include <string.h>

#include "dit/parallel.h"
#include "engine/cast.h"
#include "engine/nest.h"
#include "layout.h"

struct triangle_task {
  struct nest rest;  ///< the dimensions before the matrix: out, input
  int64_t rows, columns, diagonal;
  int64_t row_step[2], step[2];  ///< in bytes: out, input
  int width;
  bool upper, in_place;
};

static void zero(const struct triangle_task *task, char *out, int64_t count) {
  static const char none[16] = {0};
  if (count <= 0) {
    return;
  }
  if (task->step[0] == task->width) {
    memset(out, 0, (size_t)(count * task->width));
  } else {
    cast_move(out, task->step[0], none, 0, task->width, count);
  }
}

static void run_row(const struct triangle_task *task, char *out, const char *in, int64_t row) {
  // the first column right of the diagonal (tril) or on it (triu), within 0 and columns
  const int64_t border = row + task->diagonal + (task->upper ? 0 : 1);
  const int64_t edge = border < 0 ? 0 : border > task->columns ? task->columns : border;
  const int64_t begin = task->upper ? edge : 0, end = task->upper ? task->columns : edge;
  out += row * task->row_step[0];
  in += row * task->row_step[1];
  zero(task, out, begin);
  if (!task->in_place && end > begin) {
    cast_move(out + begin * task->step[0], task->step[0], in + begin * task->step[1], task->step[1], task->width,
              end - begin);
  }
  zero(task, out + end * task->step[0], task->columns - end);
}

/// Tasks are rows, of one matrix after another.
static void run_rows(void *context, int64_t begin, int64_t end) {
  const struct triangle_task *task = context;
  for (int64_t i = begin; i < end; i++) {
    char *out = task->rest.data[0];
    const char *in = task->rest.data[1];
    int64_t rest = i / task->rows;
    for (int dim = 0; dim < task->rest.ndim; dim++) {
      out += rest % task->rest.sizes[dim] * task->rest.strides[0][dim];
      in += rest % task->rest.sizes[dim] * task->rest.strides[1][dim];
      rest /= task->rest.sizes[dim];
    }
    run_row(task, out, in, i % task->rows);
  }
}

static void run_all(void *argument) {
  struct triangle_task *task = argument;
  dit_parallel_for(0, task->rest.numel * task->rows, NEST_GRAIN / task->columns + 1, run_rows, task);
}

static diopiError_t run_triangle(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                 diopiConstTensorHandle_t input, int64_t diagonal, bool upper) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct layout rest[2];
  struct triangle_task task = {.upper = upper};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, x.ndim >= 2, "'input' has %d dimensions; it must have at least 2", x.ndim);
  FRAME_TRY(layout_check_sizes(&frame, "out", &o, x.ndim, x.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, true));
  if (o.numel == 0) {
    return diopiSuccess;
  }
  const int64_t width = (int64_t)dit_dtype_get_size(o.dtype), size = x.sizes[x.ndim - 2] + x.sizes[x.ndim - 1];
  const struct dit_tensor_view *views[2] = {&o, &x};
  for (int i = 0; i < 2; i++) {
    task.row_step[i] = views[i]->strides[x.ndim - 2] * width;
    task.step[i] = views[i]->strides[x.ndim - 1] * width;
    layout_init(&rest[i], views[i]);
    rest[i].view.ndim -= 2;
    layout_finish(&rest[i]);
  }
  nest_init_ordered(&task.rest, 2, (const struct dit_tensor_view *const[]){&rest[0].view, &rest[1].view});
  task.rows = x.sizes[x.ndim - 2];
  task.columns = x.sizes[x.ndim - 1];
  task.diagonal = diagonal > size ? size : diagonal < -size ? -size : diagonal;  // beyond that nothing changes
  task.width = (int)width;
  task.in_place = layout_is_same(&o, &x);
  return frame_launch(&frame, run_all, &task, sizeof task);
}

diopiError_t diopiTril(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       int64_t diagonal) {
  return run_triangle(__func__, ctx, out, input, diagonal, false);
}

diopiError_t diopiTriu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       int64_t diagonal) {
  return run_triangle(__func__, ctx, out, input, diagonal, true);
}

diopiError_t diopiTriuInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t diagonal) {
  return run_triangle(__func__, ctx, input, input, diagonal, true);
}
