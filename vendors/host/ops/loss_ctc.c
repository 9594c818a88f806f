/// Connectionist temporal classification (CTC): the loss of an unaligned label sequence, and its gradient.
///
/// log_probs (T, N, C) or (T, C); targets (N, S) or all of them one after the other; input_lengths and target_lengths
/// hold N integers. With l' the target with blanks around every label, alpha[t][s] is the log probability of reaching
/// l'[s] at step t; neg_log_likelihood[n] = -log(alpha[last][end] + alpha[last][end - 1]) and log_alpha (N, T, 2 S + 1)
/// keeps all of alpha (-inf where nothing is reached). out: none gives the losses, sum adds them, mean divides each by
/// its target length (at least 1) and averages; zero_infinity turns infinite losses and their gradients into 0. The
/// gradient is that of the logits behind log_probs, as in PyTorch: exp(log_probs) minus the share of the paths.
/// Computed in double. Outputs are not inputs. Labels out of range are an error before anything is written.
#include "loss_ctc.h"

static diopiError_t check_shapes(struct ctc_task *task) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *probs = &task->v[CTC_PROBS], *alpha = &task->v[CTC_ALPHA],
                               *targets = &task->v[CTC_TARGETS];
  FRAME_CHECK(frame, probs->ndim == 2 || probs->ndim == 3, "'log_probs' has %d dimensions; valid: (T, N, C) or (T, C)",
              (int)probs->ndim);
  task->steps = probs->sizes[0];
  task->batch = probs->ndim == 3 ? probs->sizes[1] : 1;
  task->classes = probs->sizes[probs->ndim - 1];
  FRAME_CHECK(frame, task->blank >= 0 && task->blank < task->classes, "'blank' is %lld; valid: 0 to %lld",
              (long long)task->blank, (long long)task->classes - 1);
  FRAME_CHECK(frame, targets->ndim == 1 || (targets->ndim == 2 && targets->sizes[0] == task->batch),
              "'targets' must be (N, S) or all labels in one dimension");
  FRAME_CHECK(frame, task->v[CTC_INPUTS].numel == task->batch && task->v[CTC_LABELS].numel == task->batch,
              "'input_lengths' and 'target_lengths' must have one number for each of the %lld samples",
              (long long)task->batch);
  FRAME_CHECK(frame, task->v[CTC_NLL].numel == task->batch, "'neg_log_likelihood' must have one number per sample");
  FRAME_CHECK(frame, alpha->ndim >= 2 && alpha->numel == task->batch * task->steps * alpha->sizes[alpha->ndim - 1],
              "'log_alpha' must be (N, T, 2 * S + 1)");
  task->width = alpha->sizes[alpha->ndim - 1];
  const struct dit_tensor_view *losses = &task->v[task->backward ? CTC_GRAD : CTC_OUT];
  FRAME_CHECK(frame, losses->numel == (task->reduction == ReductionNone ? task->batch : 1),
              "'%s' has %lld elements; it must have %s", task->backward ? "grad_output" : "out",
              (long long)losses->numel, task->reduction == ReductionNone ? "one per sample" : "one");
  FRAME_CHECK(frame, !task->backward || frame_is_same_shape(&task->v[CTC_OUT], probs),
              "'grad_input' has another shape than 'log_probs'");
  return diopiSuccess;
}

static diopiError_t launch(struct ctc_task *task) {
  struct frame *frame = &task->frame;
  static const char *const names[CTC_COUNT] = {"log_probs",          "targets",   "input_lengths", "target_lengths",
                                               "neg_log_likelihood", "log_alpha", "grad_output",   "out"};
  FRAME_CHECK(frame, task->reduction >= ReductionNone && task->reduction < ReductionEND,
              "'reduction' is %d; valid: 0 (none), 1 (mean), 2 (sum)", (int)task->reduction);
  for (int i = 0; i < CTC_COUNT; i++) {
    const bool whole = i == CTC_TARGETS || i == CTC_INPUTS || i == CTC_LABELS;
    if (task->v[i].handle && !frame_has_dtype(whole ? DTYPES_INT : DTYPES_FLOAT, task->v[i].dtype)) {
      return frame_fail_dtype(frame, i == CTC_OUT && task->backward ? "grad_input" : names[i], task->v[i].dtype);
    }
  }
  FRAME_TRY(check_shapes(task));
  const struct dit_tensor_view *inputs[CTC_COUNT];
  for (int i = 0; i < CTC_COUNT; i++) {
    inputs[i] = &task->v[i];
  }
  FRAME_TRY(
      frame_check_output(frame, task->backward ? "grad_input" : "out", &task->v[CTC_OUT], inputs, CTC_OUT, false));
  if (!task->backward) {
    FRAME_TRY(frame_check_output(frame, "neg_log_likelihood", &task->v[CTC_NLL], inputs, CTC_NLL, false));
    FRAME_TRY(frame_check_output(frame, "log_alpha", &task->v[CTC_ALPHA], inputs, CTC_ALPHA, false));
  }
  return ctc_run(task);
}

diopiError_t diopiCTCLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t neg_log_likelihood,
                          diopiTensorHandle_t log_alpha, diopiConstTensorHandle_t log_probs,
                          diopiConstTensorHandle_t targets, diopiConstTensorHandle_t input_lengths,
                          diopiConstTensorHandle_t target_lengths, int64_t blank, diopiReduction_t reduction,
                          bool zero_infinity) {
  struct ctc_task task = {.zero_infinity = zero_infinity, .reduction = reduction, .blank = blank};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, out, &task.v[CTC_OUT]);
  FRAME_TAKE(&task.frame, neg_log_likelihood, &task.v[CTC_NLL]);
  FRAME_TAKE(&task.frame, log_alpha, &task.v[CTC_ALPHA]);
  FRAME_TAKE(&task.frame, log_probs, &task.v[CTC_PROBS]);
  FRAME_TAKE(&task.frame, targets, &task.v[CTC_TARGETS]);
  FRAME_TAKE(&task.frame, input_lengths, &task.v[CTC_INPUTS]);
  FRAME_TAKE(&task.frame, target_lengths, &task.v[CTC_LABELS]);
  return launch(&task);
}

diopiError_t diopiCTCLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t log_probs,
                                  diopiConstTensorHandle_t targets, diopiConstTensorHandle_t input_lengths,
                                  diopiConstTensorHandle_t target_lengths, diopiConstTensorHandle_t neg_log_likelihood,
                                  diopiConstTensorHandle_t log_alpha, int64_t blank, diopiReduction_t reduction,
                                  bool zero_infinity) {
  struct ctc_task task = {.backward = true, .zero_infinity = zero_infinity, .reduction = reduction, .blank = blank};
  FRAME_BEGIN(&task.frame, ctx);
  FRAME_TAKE(&task.frame, grad_input, &task.v[CTC_OUT]);
  FRAME_TAKE(&task.frame, grad_output, &task.v[CTC_GRAD]);
  FRAME_TAKE(&task.frame, log_probs, &task.v[CTC_PROBS]);
  FRAME_TAKE(&task.frame, targets, &task.v[CTC_TARGETS]);
  FRAME_TAKE(&task.frame, input_lengths, &task.v[CTC_INPUTS]);
  FRAME_TAKE(&task.frame, target_lengths, &task.v[CTC_LABELS]);
  FRAME_TAKE(&task.frame, neg_log_likelihood, &task.v[CTC_NLL]);
  FRAME_TAKE(&task.frame, log_alpha, &task.v[CTC_ALPHA]);
  return launch(&task);
}
