/// The list operators on the host (see foreach.h): one tensor after the other.
#include <math.h>

#include "engine/cast.h"
#include "engine/nest.h"
#include "foreach.h"

#define LANES 16

struct norm_task {
  struct nest nest;
  int dtype, width;
  double p;
  double total;
};

/// Sum (or maximum) over one block of doubles with a fixed order of additions.
static double fold_block(const double *x, int64_t count, double p) {
  double lanes[LANES] = {0};
  int64_t i = 0;
  if (p == 2) {
    for (; i + LANES <= count; i += LANES) {
      for (int k = 0; k < LANES; k++) {
        lanes[k] += x[i + k] * x[i + k];
      }
    }
    for (; i < count; i++) {
      lanes[0] += x[i] * x[i];
    }
  } else {
    for (; i < count; i++) {
      const double size = fabs(x[i]);
      lanes[0] += p == 1 ? size : p == 0 ? (double)(size != 0) : pow(size, p);
    }
  }
  double sum = 0;
  for (int k = 0; k < LANES; k++) {
    sum += lanes[k];
  }
  return sum;
}

static double fold_extreme(const double *x, int64_t count, double best, bool largest) {
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs(x[i]);
    best = size != size || best != best ? (double)NAN : (largest ? size > best : size < best) ? size : best;
  }
  return best;
}

static void norm_run(void *context, char *const *data, int64_t count) {
  struct norm_task *task = context;
  _Alignas(64) char raw[NEST_BLOCK * 16];
  _Alignas(64) double numbers[NEST_BLOCK];
  const int64_t stride = task->nest.strides[0][0];
  for (int64_t begin = 0; begin < count; begin += NEST_BLOCK) {
    const int64_t n = count - begin < NEST_BLOCK ? count - begin : NEST_BLOCK;
    const char *from = data[0] + begin * stride;
    if (stride != task->width) {
      cast_gather(raw, from, stride, task->width, n);
      from = raw;
    }
    cast_block(DIT_DTYPE_F64, numbers, task->dtype, from, n);
    if (isinf(task->p)) {
      task->total = fold_extreme(numbers, n, task->total, task->p > 0);
    } else {
      task->total += fold_block(numbers, n, task->p);
    }
  }
}

enum dit_status foreach_get_norm(const struct dit_tensor_view *view, double p, double *out) {
  struct norm_task task = {.dtype = view->dtype, .width = (int)dit_dtype_get_size(view->dtype), .p = p};
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.total = isinf(p) && p < 0 ? (double)INFINITY : 0;
  if (view->numel > 0) {
    nest_init(&task.nest, 1, &view);
    nest_walk(&task.nest, 0, task.nest.numel, norm_run, &task);
  }
  *out = isinf(p) || p == 0 || p == 1 ? task.total : p == 2 ? sqrt(task.total) : pow(task.total, 1 / p);
  return DIT_OK;
}

diopiError_t foreach_run_list(const struct foreach_list *list) {
  for (int64_t i = 0; i < list->count; i++) {
    struct elementwise e;
    FRAME_TRY(list->prepare(list, i, &e));
    FRAME_TRY(elementwise_launch(&e));
  }
  return diopiSuccess;
}

static diopiError_t run_norms(void *argument) {
  const struct foreach_norms *list = argument;
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view o, x;
    double norm;
    FRAME_TRY(frame_take(list->frame, "outs", list->outs[i], &o));
    FRAME_TRY(frame_take(list->frame, "inputs", list->inputs[i], &x));
    if (foreach_get_norm(&x, list->p, &norm) == DIT_OK) {
      cast_block(o.dtype, o.data, DIT_DTYPE_F64, &norm, 1);
    }
  }
  return diopiSuccess;
}

diopiError_t foreach_run_norms(const struct foreach_norms *list) {
  struct foreach_norms task = *list;
  return frame_run(list->frame, run_norms, &task);
}
