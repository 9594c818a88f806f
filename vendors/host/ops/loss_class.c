/// Losses of class numbers: negative log likelihood, and cross entropy (with softmax inside).
///
/// input is (N, C, d...) or (C), target (N, d...) or () of class numbers; cross entropy also takes probabilities of
/// input's shape. With w the class weights (1 where absent) and l = input, or log_softmax(input) for cross entropy:
///   loss = -w[t] * l[t], 0 where t is ignore_index; with label smoothing s: (1 - s) * that - s / C * sum(w * l);
///   probabilities p: -sum(w * (p * (1 - s) + s / C) * l).
/// A mean divides by the sum of w[t] of the points that count (for probabilities by the number of points). `out` has
/// target's shape or one element; grad_input has input's shape and may be exactly the input. Sums are in double. A
/// class number outside [0, C) that is not ignore_index is an error before anything is written.
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/kernels.h"
#include "engine/rows.h"
#include "fail.h"
#include "lines.h"

#define CHUNK 256

struct class_task {
  struct frame frame;
  diopiReduction_t reduction;
  bool softmax, backward;
  int64_t ignore;
  double smoothing;
  struct dit_tensor_view v_out, v_x, v_target, v_weight, v_grad, v_total;
  bool total_given;  ///< the backward pass has the sum of weights
  struct line_shape shape;
  int64_t points, chunks;
  int work;
  const void *x, *grad, *target_p;
  const int64_t *target;
  void *out;
  double *weight, weight_sum;
  double scale;
  double *sums;  ///< per chunk: losses, weights
};

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

// Arguments

static diopiError_t check_dtypes(struct class_task *task) {
  const struct dit_tensor_view *views[] = {&task->v_x, &task->v_weight, &task->v_grad, &task->v_out, &task->v_total};
  const char *names[] = {"input", "weight", "grad_output", task->backward ? "grad_input" : "out", "totalWeight"};
  for (int i = 0; i < 5; i++) {
    if (views[i]->handle && !frame_has_dtype(DTYPES_FLOAT, views[i]->dtype)) {
      return frame_fail_dtype(&task->frame, names[i], views[i]->dtype);
    }
  }
  if (!frame_has_dtype(DTYPES_INT | (task->softmax ? DTYPES_FLOAT : 0), task->v_target.dtype)) {
    return frame_fail_dtype(&task->frame, "target", task->v_target.dtype);
  }
  return diopiSuccess;
}

/// Is `target` input without its class dimension?
static bool has_target_shape(const struct dit_tensor_view *x, int dim, const struct dit_tensor_view *target) {
  int next = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d != dim && (next >= target->ndim || target->sizes[next++] != x->sizes[d])) {
      return false;
    }
  }
  return next == target->ndim;
}

static diopiError_t check_shapes(struct class_task *task) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *x = &task->v_x, *target = &task->v_target;
  const bool classes = frame_has_dtype(DTYPES_INT, target->dtype);
  const int dim = x->ndim == 1 ? 0 : 1;
  FRAME_CHECK(frame, x->ndim >= 1, "'input' has no dimension; it must be (N, C, ...) or (C)");
  FRAME_CHECK(frame, classes ? has_target_shape(x, dim, target) : frame_is_same_shape(x, target),
              classes ? "'target' must have the shape of 'input' without its class dimension %d"
                      : "'target' holds probabilities and must have the shape of 'input' (class dimension %d)",
              dim);
  task->shape = line_shape_get(x, dim);
  task->points = task->shape.outer * task->shape.inner;
  task->chunks = (task->points + CHUNK - 1) / CHUNK;
  FRAME_CHECK(frame, !task->v_weight.handle || task->v_weight.numel == task->shape.length,
              "'weight' has %lld elements; the input has %lld classes", (long long)task->v_weight.numel,
              (long long)task->shape.length);
  const struct dit_tensor_view *points = task->backward ? &task->v_grad : &task->v_out;
  FRAME_CHECK(frame,
              task->reduction != ReductionNone ? points->numel == 1
              : classes                        ? frame_is_same_shape(points, target)
                                               : has_target_shape(x, dim, points),
              "'%s' must have %s", task->backward ? "grad_output" : "out",
              task->reduction == ReductionNone ? "one element per point" : "one element for this reduction");
  FRAME_CHECK(frame, !task->backward || frame_is_same_shape(&task->v_out, x),
              "'grad_input' has another shape than 'input'");
  FRAME_CHECK(frame, !task->v_total.handle || task->v_total.numel == 1, "'totalWeight' must have one element");
  return diopiSuccess;
}

static diopiError_t launch(struct class_task *task) {
  struct frame *frame = &task->frame;
  const char *name = task->backward ? "grad_input" : "out";
  FRAME_CHECK(frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  FRAME_CHECK(frame, task->smoothing >= 0 && task->smoothing <= 1, "'label_smoothing' is %g; valid: 0 to 1",
              task->smoothing);
  FRAME_TRY(check_dtypes(task));
  FRAME_TRY(check_shapes(task));
  const struct dit_tensor_view *inputs[] = {&task->v_x, &task->v_target, &task->v_weight, &task->v_grad};
  FRAME_TRY(frame_check_output(frame, name, &task->v_out, inputs, 1, task->backward));
  FRAME_TRY(frame_check_output(frame, name, &task->v_out, inputs + 1, 3, false));
  if (task->v_total.handle && !task->backward) {
    FRAME_TRY(frame_check_output(frame, "totalWeight", &task->v_total, inputs, 4, false));
    const struct dit_tensor_view *out = &task->v_out;
    FRAME_TRY(frame_check_output(frame, "totalWeight", &task->v_total, &out, 1, false));
  }
  task->work = task->v_x.dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return frame_run(frame, run_class, task);
}

static diopiError_t take(struct class_task *task, const char *function, diopiContextHandle_t ctx,
                         diopiTensorHandle_t out, diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                         diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight) {
  FRAME_TRY(frame_begin(&task->frame, function, ctx));
  FRAME_TRY(frame_take(&task->frame, task->backward ? "grad_input" : "out", out, &task->v_out));
  if (task->backward) {
    FRAME_TAKE(&task->frame, grad_output, &task->v_grad);
  }
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, target, &task->v_target);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &task->v_weight);
  return diopiSuccess;
}

diopiError_t diopiCrossEntropyLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                   diopiReduction_t reduction, int64_t ignore_index, double label_smoothing) {
  struct class_task task = {
      .reduction = reduction, .softmax = true, .ignore = ignore_index, .smoothing = label_smoothing};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  return launch(&task);
}

diopiError_t diopiCrossEntropyLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                           diopiReduction_t reduction, int64_t ignore_index, double label_smoothing) {
  struct class_task task = {
      .reduction = reduction, .softmax = true, .backward = true, .ignore = ignore_index, .smoothing = label_smoothing};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  return launch(&task);
}

diopiError_t diopiNLLLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight, diopiReduction_t reduction,
                          int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  return launch(&task);
}

diopiError_t diopiNLLLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                  diopiReduction_t reduction, int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .backward = true, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  return launch(&task);
}

/// totalWeight: the sum of weights that a mean divides by (0 without reduction).
diopiError_t diopiNLLLossV2(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t totalWeight,
                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                            diopiConstTensorHandle_t weight, diopiReduction_t reduction, int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .ignore = ignore_index};
  FRAME_TRY(take(&task, __func__, ctx, out, NULL, input, target, weight));
  FRAME_TAKE(&task.frame, totalWeight, &task.v_total);
  return launch(&task);
}

diopiError_t diopiNLLLossV2Backward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                    diopiConstTensorHandle_t totalWeight, diopiReduction_t reduction,
                                    int64_t ignore_index) {
  struct class_task task = {.reduction = reduction, .backward = true, .ignore = ignore_index, .total_given = true};
  FRAME_TRY(take(&task, __func__, ctx, grad_input, grad_output, input, target, weight));
  FRAME_TAKE(&task.frame, totalWeight, &task.v_total);
  return launch(&task);
}
