/// tril and triu on the host (see triangle.c).
#include <string.h>

#include "dit/parallel.h"
#include "engine/cast.h"
#include "triangle.h"

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

diopiError_t triangle_run(struct frame *frame, const struct triangle_task *task) {
  return frame_launch(frame, run_all, task, sizeof *task);
}
