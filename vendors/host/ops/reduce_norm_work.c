/// Norms of complex numbers, gradients of norms and normalisation on the host (see reduce_norm.c).
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/rows.h"
#include "reduce_norm.h"

#define NORM_BLOCK 2048
#define GRAIN 16384

#define MEMBER f
#define REAL float
#define NAME(x) x##_f32
#define FABS fabsf
#define POW powf
#include "reduce_norm_loops.h"
#undef MEMBER
#undef REAL
#undef NAME
#undef FABS
#undef POW
#define MEMBER d
#define REAL double
#define NAME(x) x##_f64
#define FABS fabs
#define POW pow
#include "reduce_norm_loops.h"

/// Magnitudes of complex numbers, then their norm.
struct complex_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *in;
  double p;
  uint32_t mask;
};

static diopiError_t run_complex(void *argument) {
  const struct complex_task *task = argument;
  struct dense pairs = {0};
  struct dit_error err = {.message = ""};
  enum dit_status status = DIT_ERR_NOMEM;
  struct shaped sizes;
  if (dense_read(&pairs, task->in, DIT_DTYPE_C128)) {
    const size_t count = (size_t)task->in->numel;
    double *length = dit_malloc(sizeof(double) * count + 1);
    const double *part = pairs.data;
    for (size_t i = 0; length && i < count; i++) {
      length[i] = hypot(part[2 * i], part[2 * i + 1]);
    }
    shaped_init(&sizes, task->in, false);
    dit_shape_set_contiguous(sizes.view.ndim, sizes.sizes, sizes.strides);
    sizes.view.data = length;
    sizes.view.dtype = DIT_DTYPE_F64;
    if (length) {
      status = reduce_launch(NULL, norm_get_kind(task->p), task->p, task->out, &sizes.view, task->mask, &err);
    }
    dit_free(length);
  }
  dense_close(&pairs);
  return frame_get_code(task->frame, status, &err);
}

static void run_gradient_rows(void *context, int64_t begin, int64_t end) {
  const struct norm_task *task = context;
  (task->work == DIT_DTYPE_F32 ? norm_backward_rows_f32 : norm_backward_rows_f64)(task, begin, end);
}

static void run_normalize_rows(void *context, int64_t begin, int64_t end) {
  const struct norm_task *task = context;
  (task->work == DIT_DTYPE_F32 ? normalize_rows_f32 : normalize_rows_f64)(task, begin, end);
}

static diopiError_t run_rows(void *argument) {
  struct norm_task *task = argument;
  static const struct dit_tensor_view absent;
  struct dense x = {0}, g = {0}, norm = {0}, out = {0};
  const bool normalize = !task->v_norm;
  bool done = dense_read(&x, task->v_x, task->work) && dense_read(&g, task->v_g ? task->v_g : &absent, task->work) &&
              dense_read(&norm, normalize ? &absent : task->v_norm, task->work) &&
              dense_reserve(&out, task->v_out, task->work);
  if (done && normalize && task->v_g) {
    task->room = dit_malloc((size_t)task->v_x->numel * dit_dtype_get_size(task->work) + 1);
    done = task->room != NULL;
  }
  if (done) {
    task->x = x.data;
    task->g = g.data;
    task->norm = norm.data;
    task->out = out.data;
    dit_parallel_for(0, task->kept, GRAIN / (task->length > 0 ? task->length : 1),
                     normalize ? run_normalize_rows : run_gradient_rows, task);
    dense_store(&out);
  }
  dense_close(&x);
  dense_close(&g);
  dense_close(&norm);
  dense_close(&out);
  dit_free(task->room);
  return done ? diopiSuccess : dense_fail(task->frame);
}

diopiError_t norm_run_complex(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                              double p, uint32_t mask) {
  struct complex_task task = {frame, out, in, p, mask};
  return frame_run(frame, run_complex, &task);
}

diopiError_t norm_run_rows(struct norm_task *task) {
  task->fold = reduce_find_fold(task->kind, task->work);
  return frame_run(task->frame, run_rows, task);
}
