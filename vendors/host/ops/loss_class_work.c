/// Losses of class numbers on the host (see loss_class.c).
#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/kernels.h"
#include "engine/rows.h"
#include "fail.h"
#include "loss_class.h"

#define CHUNK 256

#define REAL_LOOPS "loss_class_loops.h"
#include "real.h"

static void run_chunks(void *context, int64_t begin, int64_t end) {
  const struct class_task *task = context;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    (task->work == DIT_DTYPE_F32 ? run_points_f32 : run_points_f64)(task, chunk);
  }
}

static void add_sums(const struct class_task *task, double *loss, double *weight) {
  *loss = *weight = 0;
  for (int64_t i = 0; i < task->chunks; i++) {
    *loss += task->sums[2 * i];
    *weight += task->sums[2 * i + 1];
  }
}

static void store_one(int work, void *out, double value) {
  if (work == DIT_DTYPE_F32) {
    *(float *)out = (float)value;
  } else {
    *(double *)out = value;
  }
}

enum { X, TARGET, WEIGHT, GRAD, OUT, TOTAL, COUNT };

static diopiError_t check_targets(struct class_task *task) {
  for (int64_t i = 0; task->target && i < task->points; i++) {
    const int64_t t = task->target[i];
    FRAME_CHECK_RANGE(&task->frame, t == task->ignore || (t >= 0 && t < task->shape.length),
                      "'target' holds %lld; valid for a dimension of size %lld: 0 to %lld, and ignore_index %lld",
                      (long long)t, (long long)task->shape.length, (long long)task->shape.length - 1,
                      (long long)task->ignore);
  }
  return diopiSuccess;
}

/// Sum of the weights of the points that count.
static double sum_weights(const struct class_task *task) {
  double sum = 0;
  if (task->target_p) {
    return (double)task->points;
  }
  for (int64_t i = 0; i < task->points; i++) {
    sum += task->target[i] == task->ignore ? 0 : task->weight[task->target[i]];
  }
  return sum;
}

/// Softmax, or its logarithm, of the input as a row-major tensor at `room`.
static enum dit_status apply_softmax(struct class_task *task, void *room, const void *input, bool log) {
  const int64_t sizes[3] = {task->shape.outer, task->shape.length, task->shape.inner};
  int64_t strides[3];
  struct dit_tensor_view in = {.data = (void *)input, .sizes = sizes, .strides = strides, .ndim = 3};
  in.numel = sizes[0] * sizes[1] * sizes[2];
  in.dtype = (int16_t)task->work;
  in.flags = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  dit_shape_set_contiguous(3, sizes, strides);
  struct dit_tensor_view out = in;
  out.data = room;
  return kernel_softmax(NULL, &out, &in, 1, log, NULL);
}

static enum dit_status work_forward(struct class_task *task, struct dense *d) {
  double loss, weight;
  void *room = NULL;
  if (task->softmax && task->v_x.numel > 0) {
    room = dit_malloc((size_t)task->v_x.numel * dit_dtype_get_size(task->work));
    if (!room) {
      return DIT_ERR_NOMEM;
    }
    enum dit_status status = apply_softmax(task, room, task->x, true);
    if (status != DIT_OK) {
      dit_free(room);
      return status;
    }
    task->x = room;
  }
  dit_parallel_for(0, task->chunks, 1, run_chunks, task);
  dit_free(room);
  if (task->reduction != ReductionNone) {
    add_sums(task, &loss, &weight);
    store_one(task->work, d[OUT].data, task->reduction == ReductionMean ? loss / weight : loss);
    if (d[TOTAL].data) {
      store_one(task->work, d[TOTAL].data, weight);
    }
  } else if (d[TOTAL].data) {
    store_one(task->work, d[TOTAL].data, 0);
  }
  return DIT_OK;
}

static enum dit_status work_backward(struct class_task *task, struct dense *d) {
  if (task->softmax && task->v_x.numel > 0) {
    enum dit_status status = apply_softmax(task, task->out, task->x, false);
    if (status != DIT_OK) {
      return status;
    }
  }
  task->scale = 1;
  if (task->reduction == ReductionMean) {
    double total = task->total_given ? 0 : sum_weights(task);
    if (task->total_given) {
      total = task->work == DIT_DTYPE_F32 ? (double)*(float *)d[TOTAL].data : *(double *)d[TOTAL].data;
    }
    task->scale = 1 / total;
  }
  dit_parallel_for(0, task->chunks, 1, run_chunks, task);
  return DIT_OK;
}

static bool open_all(struct class_task *task, struct dense *d) {
  const bool classes = frame_has_dtype(DTYPES_INT, task->v_target.dtype);
  if (!dense_read(&d[X], &task->v_x, task->work) ||
      !dense_read(&d[TARGET], &task->v_target, classes ? DIT_DTYPE_I64 : task->work) ||
      !dense_read(&d[WEIGHT], &task->v_weight, DIT_DTYPE_F64) || !dense_read(&d[GRAD], &task->v_grad, task->work) ||
      !dense_reserve(&d[OUT], &task->v_out, task->work) ||
      !(task->backward ? dense_read : dense_reserve)(&d[TOTAL], &task->v_total, task->work)) {
    return false;
  }
  task->weight = dit_malloc(sizeof(double) * (size_t)(task->shape.length + 1));
  task->sums = dit_malloc(sizeof(double) * 2 * (size_t)(task->chunks + 1));
  if (!task->weight || !task->sums) {
    return false;
  }
  task->weight_sum = 0;
  for (int64_t c = 0; c < task->shape.length; c++) {
    task->weight[c] = d[WEIGHT].data ? ((const double *)d[WEIGHT].data)[c] : 1;
    task->weight_sum += task->weight[c];
  }
  task->x = d[X].data;
  task->grad = d[GRAD].data;
  task->out = d[OUT].data;
  if (classes) {
    task->target = d[TARGET].data;
  } else {
    task->target_p = d[TARGET].data;
  }
  return true;
}

static diopiError_t run_class(void *argument) {
  struct class_task *task = argument;
  task->chunks = (task->points + CHUNK - 1) / CHUNK;
  struct dense d[COUNT] = {0};
  struct dit_error err = {.message = "no memory for copies of the arguments"};
  diopiError_t code;
  if (open_all(task, d)) {
    code = check_targets(task);
    if (code == diopiSuccess) {
      code = frame_get_code(&task->frame, (task->backward ? work_backward : work_forward)(task, d), &err);
    }
    if (code == diopiSuccess) {
      dense_store(&d[OUT]);
      if (!task->backward) {
        dense_store(&d[TOTAL]);
      }
    }
  } else {
    code = frame_get_code(&task->frame, DIT_ERR_NOMEM, &err);
  }
  dit_free(task->weight);
  dit_free(task->sums);
  for (int i = 0; i < COUNT; i++) {
    dense_close(&d[i]);
  }
  return code;
}

diopiError_t class_run(struct class_task *task) {
  return frame_run(&task->frame, run_class, task);
}
