/// Losses between elements: mean squared error, smooth L1, binary cross entropy with and without logits, focal loss.
///
/// With d = input - target:
///   MSE d^2; smooth L1 d^2 / (2 beta) for |d| < beta, else |d| - beta / 2;
///   BCE -(t log x + (1 - t) log(1 - x)), logarithms not below -100, times weight; x must lie in [0, 1];
///   logits (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x)), times weight;
///   focal alpha_t (1 - p_t)^gamma BCE(sigmoid(x), t) with p_t the probability of the target (alpha < 0: alpha_t = 1).
/// Operands broadcast; `out` has that shape, or no dimension (or one element) for a mean or sum. Gradients are those of
/// `input`, times grad_output (of the loss's shape; one element for a mean or sum). Computed in float for half types,
/// sums in double over blocks. An output may be exactly an input.
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/rows.h"
#include "lines.h"

#define BLOCK 512
#define CHUNK 32768

enum loss_kind { LOSS_MSE, LOSS_SMOOTH_L1, LOSS_BCE, LOSS_LOGITS, LOSS_WEIGHTED_LOGITS, LOSS_FOCAL, LOSS_COUNT };
enum { OUT, X, TARGET, WEIGHT, POS_WEIGHT, GRAD, OPERANDS };

struct loss_task {
  struct frame frame;
  enum loss_kind kind;
  diopiReduction_t reduction;
  bool backward;
  bool one_gradient;  ///< grad_output is one number
  double a, b, scale;
  int ndim;
  int64_t sizes[DIT_MAX_DIMS], numel;
  int work;
  struct dit_tensor_view views[OPERANDS];  ///< handle NULL: absent
  int64_t strides[OPERANDS][DIT_MAX_DIMS];
  void *p[OPERANDS];
  double *sum;  ///< per chunk, for a mean or sum
};

#define REAL_LOOPS "loss_loops.h"
#include "real.h"

static void run_chunks(void *context, int64_t begin, int64_t end) {
  const struct loss_task *task = context;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    (task->work == DIT_DTYPE_F32 ? run_chunk_f32 : run_chunk_f64)(task, chunk);
  }
}

/// Probabilities outside [0, 1] (or NaN) are refused before anything is written.
static diopiError_t check_probabilities(struct loss_task *task) {
  if (task->kind != LOSS_BCE || task->backward) {
    return diopiSuccess;
  }
  for (int64_t i = 0; i < task->numel; i++) {
    const double x =
        task->work == DIT_DTYPE_F32 ? (double)((const float *)task->p[X])[i] : ((const double *)task->p[X])[i];
    FRAME_CHECK(&task->frame, x >= 0 && x <= 1, "'input' has the value %g; all must be between 0 and 1", x);
  }
  return diopiSuccess;
}

static void store_sum(struct loss_task *task, int64_t chunks, void *out) {
  double sum = 0;
  for (int64_t i = 0; i < chunks; i++) {
    sum += task->sum[i];
  }
  if (task->reduction == ReductionMean) {
    sum /= (double)task->numel;
  }
  if (task->work == DIT_DTYPE_F32) {
    *(float *)out = (float)sum;
  } else {
    *(double *)out = sum;
  }
}

static diopiError_t run_loss(void *argument) {
  struct loss_task *task = argument;
  struct dense d[OPERANDS] = {0};
  const int64_t chunks = (task->numel + CHUNK - 1) / CHUNK;
  const bool reduces = !task->backward && task->reduction != ReductionNone;
  bool done = dense_reserve(&d[OUT], &task->views[OUT], task->work);
  for (int i = X; i < OPERANDS && done; i++) {
    done = dense_read(&d[i], &task->views[i], task->work);
  }
  if (done && reduces) {
    task->sum = dit_malloc(sizeof(double) * (size_t)(chunks + 1));
    done = task->sum != NULL;
  }
  diopiError_t code = diopiSuccess;
  if (done) {
    for (int i = 0; i < OPERANDS; i++) {
      task->p[i] = d[i].data;
    }
    code = check_probabilities(task);
  } else {
    code = dense_fail(&task->frame);
  }
  if (code == diopiSuccess) {
    dit_parallel_for(0, chunks, 1, run_chunks, task);
    if (reduces) {
      store_sum(task, chunks, d[OUT].data);
    }
    dense_store(&d[OUT]);
  }
  for (int i = 0; i < OPERANDS; i++) {
    dense_close(&d[i]);
  }
  dit_free(task->sum);
  return code;
}

// Arguments

static const char *get_name(const struct loss_task *task, int operand) {
  static const char *const names[OPERANDS] = {"out", "input", "target", "weight", "pos_weight", "grad_output"};
  return operand == OUT && task->backward ? "grad_input" : names[operand];
}

static diopiError_t take(struct loss_task *task, int operand, diopiConstTensorHandle_t handle) {
  return frame_take(&task->frame, get_name(task, operand), handle, &task->views[operand]);
}

/// Broadcast everything but the result of a mean or sum and a gradient of one element.
static diopiError_t set_shapes(struct loss_task *task) {
  struct dit_error err = {.message = ""};
  for (int i = X; i <= TARGET; i++) {
    const struct dit_tensor_view *view = &task->views[i];
    enum dit_status status = dit_shape_broadcast(view->ndim, view->sizes, &task->ndim, task->sizes, &err);
    if (status != DIT_OK) {
      return frame_get_code(&task->frame, status, &err);
    }
  }
  FRAME_TRY(frame_get_code(&task->frame, dit_shape_get_numel(task->ndim, task->sizes, &task->numel, &err), &err));
  for (int i = OUT; i < OPERANDS; i++) {
    struct dit_tensor_view *view = &task->views[i];
    const bool single = task->reduction != ReductionNone && (i == GRAD || (i == OUT && !task->backward));
    if (!view->handle) {
      continue;
    }
    if (single) {
      FRAME_CHECK(&task->frame, view->numel == 1, "'%s' has %lld elements; it must have one for this reduction",
                  get_name(task, i), (long long)view->numel);
      task->one_gradient = task->one_gradient || i == GRAD;
      continue;
    }
    bool fits = view->ndim == task->ndim &&
                (view->ndim == 0 || memcmp(view->sizes, task->sizes, sizeof(int64_t) * (size_t)view->ndim) == 0);
    if (!fits && i != OUT) {
      struct dit_tensor_view wide;
      fits = frame_expand(view, task->ndim, task->sizes, task->strides[i], &wide);
      *view = wide;
    }
    FRAME_CHECK(&task->frame, fits, "'%s' does not have the broadcast shape of 'input' and 'target'",
                get_name(task, i));
  }
  return diopiSuccess;
}

static diopiError_t launch(struct loss_task *task) {
  const struct dit_tensor_view *inputs[OPERANDS - 1];
  FRAME_CHECK(&task->frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  for (int i = 0; i < OPERANDS; i++) {
    const struct dit_tensor_view *view = &task->views[i];
    if (view->handle && !frame_has_dtype(i == TARGET ? DTYPES_PLAIN : DTYPES_FLOAT, view->dtype)) {
      return frame_fail_dtype(&task->frame, get_name(task, i), view->dtype);
    }
    if (i > 0) {
      inputs[i - 1] = view;
    }
  }
  FRAME_TRY(frame_check_output(&task->frame, get_name(task, OUT), &task->views[OUT], inputs, OPERANDS - 1, true));
  FRAME_TRY(set_shapes(task));
  task->work = task->views[X].dtype == DIT_DTYPE_F64 || task->views[TARGET].dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64
                                                                                                   : DIT_DTYPE_F32;
  task->scale = task->reduction == ReductionMean ? 1 / (double)task->numel : 1;
  return FRAME_QUEUE(&task->frame, run_loss, task, NULL, &task->views[OUT], &task->views[X], &task->views[TARGET],
                     &task->views[WEIGHT], &task->views[POS_WEIGHT], &task->views[GRAD]);
}

static diopiError_t run_forward(const char *function, diopiContextHandle_t ctx, enum loss_kind kind,
                                diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction, double a, double b) {
  struct loss_task task = {.kind = kind, .reduction = reduction, .a = a, .b = b};
  FRAME_TRY(frame_begin(&task.frame, function, ctx));
  FRAME_TRY(take(&task, OUT, out));
  FRAME_TRY(take(&task, X, input));
  FRAME_TRY(take(&task, TARGET, target));
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.views[WEIGHT]);
  FRAME_TAKE_OPTIONAL(&task.frame, pos_weight, &task.views[POS_WEIGHT]);
  return launch(&task);
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, enum loss_kind kind,
                                 diopiTensorHandle_t grad_input, diopiConstTensorHandle_t grad_output,
                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t pos_weight,
                                 diopiReduction_t reduction, double a, double b) {
  struct loss_task task = {.kind = kind, .reduction = reduction, .backward = true, .a = a, .b = b};
  FRAME_TRY(frame_begin(&task.frame, function, ctx));
  FRAME_TRY(take(&task, OUT, grad_input));
  FRAME_TRY(take(&task, GRAD, grad_output));
  FRAME_TRY(take(&task, X, input));
  FRAME_TRY(take(&task, TARGET, target));
  FRAME_TAKE_OPTIONAL(&task.frame, weight, &task.views[WEIGHT]);
  FRAME_TAKE_OPTIONAL(&task.frame, pos_weight, &task.views[POS_WEIGHT]);
  return launch(&task);
}

diopiError_t diopiMSELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_MSE, out, input, target, NULL, NULL, reduction, 0, 0);
}

diopiError_t diopiMSELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_MSE, grad_input, grad_output, input, target, NULL, NULL, reduction, 0, 0);
}

/// A negative or NaN beta is an argument error.
static diopiError_t check_beta(const char *function, diopiContextHandle_t ctx, double beta) {
  struct frame frame;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_CHECK(&frame, beta >= 0, "'beta' is %g; it must not be negative", beta);
  return diopiSuccess;
}

diopiError_t diopiSmoothL1Loss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t target, diopiReduction_t reduction, double beta) {
  FRAME_TRY(check_beta(__func__, ctx, beta));
  return run_forward(__func__, ctx, LOSS_SMOOTH_L1, out, input, target, NULL, NULL, reduction, beta, 0);
}

diopiError_t diopiSmoothL1LossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                       diopiConstTensorHandle_t target, diopiReduction_t reduction, double beta) {
  FRAME_TRY(check_beta(__func__, ctx, beta));
  return run_backward(__func__, ctx, LOSS_SMOOTH_L1, grad_input, grad_output, input, target, NULL, NULL, reduction,
                      beta, 0);
}

diopiError_t diopiBCELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                          diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_BCE, out, input, target, weight, NULL, reduction, 0, 0);
}

diopiError_t diopiBCELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                  diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_BCE, grad_input, grad_output, input, target, weight, NULL, reduction, 0, 0);
}

diopiError_t diopiBCEWithLogits(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction) {
  return run_forward(__func__, ctx, pos_weight ? LOSS_WEIGHTED_LOGITS : LOSS_LOGITS, out, input, target, weight,
                     pos_weight, reduction, 0, 0);
}

diopiError_t diopiBCEWithLogitsBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                        diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                        diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                        diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction) {
  return run_backward(__func__, ctx, pos_weight ? LOSS_WEIGHTED_LOGITS : LOSS_LOGITS, grad_input, grad_output, input,
                      target, weight, pos_weight, reduction, 0, 0);
}

diopiError_t diopiSigmoidFocalLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t inputs,
                                   diopiConstTensorHandle_t targets, float alpha, float gamma,
                                   diopiReduction_t reduction) {
  return run_forward(__func__, ctx, LOSS_FOCAL, out, inputs, targets, NULL, NULL, reduction, (double)alpha,
                     (double)gamma);
}

/// The standard's order of parameters: grad_output first, the result fourth, gamma before alpha.
diopiError_t diopiSigmoidFocalLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_output,
                                           diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                           diopiTensorHandle_t grad_input, float gamma, float alpha,
                                           diopiReduction_t reduction) {
  return run_backward(__func__, ctx, LOSS_FOCAL, grad_input, grad_output, input, target, NULL, NULL, reduction,
                      (double)alpha, (double)gamma);
}
