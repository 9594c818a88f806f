/// Optimizer steps: one pass over parameter, gradient and state, all written in place.
///
/// Formulas of torch.optim, g = grad + weight_decay * param unless said otherwise:
///   SGD       buf = momentum buf + (1 - dampening) g;  param -= lr (nesterov ? g + momentum buf : buf), or lr g
///   Adam(W)   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  param -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) +
///   eps)
///             AdamW and FusedAdamW: param *= 1 - lr weight_decay instead of the term in g; amsgrad: max of v
///   Adadelta  s = rho s + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(s + eps) g;  a = rho a + (1 - rho) d^2
///   RMSprop   s = alpha s + (1 - alpha) g^2;  d = g / (sqrt(s - avg^2) + eps);  param -= lr (momentum buf + d)
///
/// Tensors have param's shape; dtypes may differ among float types; half types compute in float. Nothing is allocated.
#include "optimizer.h"

#include <math.h>
#include <string.h>

/// A loop over `o[k][i]` (state, param first) and `p[k][i]` (the same, then the gradient), numbers n[].
#ifdef LOOP_PARAMS
#define STEP_LOOP(name, tag, type, states, statements)                                                                \
  KERNEL_INLINE void name##_##tag##_body LOOP_PARAMS {                                                                \
    const type *n = parameters;                                                                                       \
    type *o0 = out[0], *o1 = out[states > 1 ? 1 : 0], *o2 = out[states > 2 ? 2 : 0], *o3 = out[states > 3 ? 3 : 0];   \
    const type *p0 = in[0], *p1 = in[states > 1 ? 1 : 0], *p2 = in[states > 2 ? 2 : 0], *p3 = in[states > 3 ? 3 : 0], \
               *pg = in[states];                                                                                      \
    (void)o1, (void)o2, (void)o3, (void)p1, (void)p2, (void)p3;                                                       \
    KERNEL_LANES                                                                                                      \
    for (int64_t i = 0; i < count; i++) {                                                                             \
      type param = p0[i], grad = pg[i];                                                                               \
      statements o0[i] = param;                                                                                       \
    }                                                                                                                 \
  }                                                                                                                   \
  KERNEL_MULTI(static, name##_##tag, LOOP_PARAMS, LOOP_ARGS)
#define STEP_LOOPS(name, states, statements)       \
  STEP_LOOP(name, f32, float, states, statements)  \
  STEP_LOOP(name, f64, double, states, statements) \
  static loop_table name##_loops = {ROWS_FLOAT(name)};
#define LOOP_STEP STEP_LOOPS
#endif
#include "optimizer_expressions.h"

/// One step: param and states (names[0] is "param"), the gradient, the loop's numbers.
struct step {
  int states;
  const char *names[4];
  diopiTensorHandle_t tensors[4];
  diopiConstTensorHandle_t grad;
  int numbers;
  double values[12];
};

static void store_numbers(struct elementwise *e, const struct step *step) {
  for (int i = 0; i < step->numbers; i++) {
    if (e->run.work[0] == DIT_DTYPE_F64) {
      ((double *)e->run.parameters)[i] = step->values[i];
    } else {
      ((float *)e->run.parameters)[i] = (float)step->values[i];
    }
  }
}

/// Fill `e` up to the launch. Parameters of the loop are a plain array in its type.
static diopiError_t prepare_step(struct elementwise *e, const char *function, diopiContextHandle_t ctx,
                                 const struct step *step, loop_table loops) {
  FRAME_TRY(elementwise_begin(e, function, ctx));
  for (int i = 0; i < step->states; i++) {
    FRAME_TRY(elementwise_add_output(e, step->names[i], step->tensors[i]));
  }
  for (int i = 0; i < step->states; i++) {
    FRAME_TRY(elementwise_add_input(e, step->names[i], step->tensors[i]));
  }
  FRAME_TRY(elementwise_add_input(e, "grad", step->grad));
  FRAME_CHECK(&e->frame, frame_is_same_shape(&e->views[0], &e->views[2 * step->states]),
              "'grad' has another shape than 'param'");
  FRAME_TRY(elementwise_check(e));
  for (int i = 0; i < e->outputs + e->inputs; i++) {
    if (!frame_has_dtype(DTYPES_FLOAT, e->views[i].dtype)) {
      return frame_fail_dtype(&e->frame, e->names[i], e->views[i].dtype);
    }
  }
  FRAME_TRY(elementwise_set_type(e, elementwise_promote(e), loops));
  e->run.rounded = 0;
  store_numbers(e, step);
  return diopiSuccess;
}

static diopiError_t run_step(const char *function, diopiContextHandle_t ctx, const struct step *step,
                             loop_table loops) {
  struct elementwise e;
  FRAME_TRY(prepare_step(&e, function, ctx, step, loops));
  return elementwise_launch(&e);
}

diopiError_t diopiSgd(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiTensorHandle_t grad,
                      diopiTensorHandle_t buf, double lr, double momentum, double dampening, double weight_decay,
                      bool nesterov) {
  const struct step step = {.states = momentum != 0 ? 2 : 1,
                            .names = {"param", "buf"},
                            .tensors = {param, buf},
                            .grad = grad,
                            .numbers = 5,
                            .values = {lr, momentum, 1 - dampening, weight_decay, nesterov}};
  return momentum != 0 ? run_step(__func__, ctx, &step, sgd_momentum_loops)
                       : run_step(__func__, ctx, &step, sgd_plain_loops);
}

struct adam {
  double lr, beta1, beta2, eps, weight_decay, step;
  bool amsgrad, maximize, decoupled;
};

static void fill_adam(struct step *step, const struct adam *adam) {
  const double values[] = {adam->beta1,
                           1 - adam->beta1,
                           adam->beta2,
                           1 - adam->beta2,
                           adam->eps,
                           ADAM_GET_STEP(adam->lr, adam->beta1, adam->step),
                           ADAM_GET_ROOT(adam->beta2, adam->step),
                           adam->decoupled ? 1 - adam->lr * adam->weight_decay : 1,
                           adam->decoupled ? 0 : adam->weight_decay,
                           adam->maximize ? -1 : 1};
  step->states = adam->amsgrad ? 4 : 3;
  step->names[0] = "param";
  step->names[1] = "exp_avg";
  step->names[2] = "exp_avg_sq";
  step->names[3] = "max_exp_avg_sq";
  step->numbers = sizeof values / sizeof values[0];
  memcpy(step->values, values, sizeof values);
}

#define DEFINE_ADAM(Name, is_decoupled)                                                                              \
  diopiError_t Name(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiConstTensorHandle_t grad,              \
                    diopiTensorHandle_t exp_avg, diopiTensorHandle_t exp_avg_sq, diopiTensorHandle_t max_exp_avg_sq, \
                    float lr, float beta1, float beta2, float eps, float weight_decay, int64_t step, bool amsgrad) { \
    const struct adam adam = {(double)lr,   (double)beta1, (double)beta2, (double)eps, (double)weight_decay,         \
                              (double)step, amsgrad,       false,         is_decoupled};                             \
    struct step one = {.tensors = {param, exp_avg, exp_avg_sq, max_exp_avg_sq}, .grad = grad};                       \
    fill_adam(&one, &adam);                                                                                          \
    return run_step(__func__, ctx, &one, amsgrad ? amsgrad_loops : adam_loops);                                      \
  }
DEFINE_ADAM(diopiAdam, false)
DEFINE_ADAM(diopiAdamW, true)

/// The lists of a call of FusedAdamW.
struct fused {
  diopiContextHandle_t context;
  diopiTensorHandle_t *params, *exp_avgs, *exp_avg_sqs, *max_exp_avg_sqs;
  diopiConstTensorHandle_t *grads, *state_steps;
  struct adam adam;
};

static diopiError_t take_count(struct frame *frame, diopiConstTensorHandle_t handle, struct dit_tensor_view *view) {
  FRAME_TRY(frame_take(frame, "state_steps", handle, view));
  FRAME_CHECK(frame, view->numel == 1, "'state_steps' has a tensor of %lld elements; each holds one number",
              (long long)view->numel);
  return frame_has_dtype(DTYPES_REAL, view->dtype) ? diopiSuccess : frame_fail_dtype(frame, "state_steps", view->dtype);
}

static diopiError_t prepare_fused(const struct optimizer_list *list, int64_t i, struct optimizer_item *item) {
  const struct fused *fused = list->context;
  struct step step = {.tensors = {fused->params[i], fused->exp_avgs[i], fused->exp_avg_sqs[i],
                                  fused->adam.amsgrad ? fused->max_exp_avg_sqs[i] : NULL},
                      .grad = fused->grads[i]};
  FRAME_TRY(take_count(list->frame, fused->state_steps[i], &item->count));
  fill_adam(&step, &fused->adam);
  return prepare_step(&item->run, list->frame->function, fused->context, &step,
                      fused->adam.amsgrad ? amsgrad_loops : adam_loops);
}

static void set_fused_count(const struct optimizer_list *list, struct optimizer_item *item, double count) {
  struct adam adam = ((const struct fused *)list->context)->adam;
  struct step step;
  adam.step = count;
  fill_adam(&step, &adam);
  store_numbers(&item->run, &step);
}

diopiError_t diopiFusedAdamW(diopiContextHandle_t ctx, diopiTensorHandle_t *params, diopiConstTensorHandle_t *grads,
                             diopiTensorHandle_t *exp_avgs, diopiTensorHandle_t *exp_avg_sqs,
                             diopiTensorHandle_t *max_exp_avg_sqs, diopiConstTensorHandle_t *state_steps, int64_t nums,
                             double lr, double beta1, double beta2, double eps, double weight_decay, bool amsgrad,
                             bool maximize) {
  struct frame frame;
  struct fused fused = {ctx,
                        params,
                        exp_avgs,
                        exp_avg_sqs,
                        max_exp_avg_sqs,
                        grads,
                        state_steps,
                        {lr, beta1, beta2, eps, weight_decay, 1, amsgrad, maximize, true}};
  const struct optimizer_list list = {&frame, &fused, nums, prepare_fused, set_fused_count, lr, beta1, beta2, amsgrad};
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, nums >= 0, "'nums' is %lld; it must not be negative", (long long)nums);
  FRAME_CHECK(&frame, nums == 0 || (params && grads && exp_avgs && exp_avg_sqs && state_steps),
              "a list of tensors is NULL");
  FRAME_CHECK(&frame, nums == 0 || !amsgrad || max_exp_avg_sqs, "'max_exp_avg_sqs' is NULL with amsgrad");
  for (int64_t i = 0; i < nums; i++) {  // everything is checked before the first tensor is written
    struct optimizer_item item;
    FRAME_TRY(prepare_fused(&list, i, &item));
  }
  return optimizer_run_list(&list);
}

diopiError_t diopiAdadelta(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiConstTensorHandle_t grad,
                           diopiTensorHandle_t square_avg, diopiTensorHandle_t acc_delta, float lr, float rho,
                           float eps, float weight_decay) {
  const struct step step = {.states = 3,
                            .names = {"param", "square_avg", "acc_delta"},
                            .tensors = {param, square_avg, acc_delta},
                            .grad = grad,
                            .numbers = 5,
                            .values = {(double)lr, (double)rho, 1 - (double)rho, (double)eps, (double)weight_decay}};
  return run_step(__func__, ctx, &step, adadelta_loops);
}

diopiError_t diopiRmsprop(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiConstTensorHandle_t grad,
                          diopiTensorHandle_t square_avg, diopiTensorHandle_t grad_avg,
                          diopiTensorHandle_t momentum_buf, float lr, float alpha, float eps, float weight_decay,
                          float momentum, bool centered) {
  struct step step = {
      .states = 2,
      .names = {"param", "square_avg"},
      .tensors = {param, square_avg},
      .grad = grad,
      .numbers = 6,
      .values = {(double)lr, (double)alpha, 1 - (double)alpha, (double)eps, (double)weight_decay, (double)momentum}};
  if (centered) {
    step.names[step.states] = "grad_avg";
    step.tensors[step.states++] = grad_avg;
  }
  if (momentum > 0) {
    step.names[step.states] = "momentum_buf";
    step.tensors[step.states++] = momentum_buf;
  }
  if (momentum > 0) {
    return run_step(__func__, ctx, &step, centered ? rms_both_loops : rms_momentum_loops);
  }
  return run_step(__func__, ctx, &step, centered ? rms_centered_loops : rms_plain_loops);
}
