/// The next token of each sequence by its likelihood (lmdeploy): top-k and top-p sampling, and the numbers they need.
///
/// Setup: k and p of each sequence are top_ks[b], top_ps[b] where top_ks_size, top_ps_size are positive, else top_k,
/// top_p. k = 1 where both are 0. Topk: p = 1 where it is 0 and k is not, k at most 1024; skip_decode where k is 0.
/// Topp: skip_decode where k is not 0; initial_top_p_buf = p, top_p_decay_buf = top_p_decay (1 unless it is in (0, 1]),
/// top_p_min_buf = top_p_min (0.5 unless it is in (0, 1]), top_p_reset_ids_buf = top_p_reset_ids. p stays in [0, 1].
///
/// Sampling: logits (batch, vocab_size_padded or more). A finished sequence takes its end_ids[b], one with skip_decode
/// nothing. Top-k: of the runtime_top_k[b] largest logits, in falling order, the first where the sum of probabilities
/// reaches u * runtime_top_p[b] * their sum. Top-p: the first of all, in falling order, where it reaches u *
/// runtime_top_p[b]; the largest when it alone reaches runtime_top_p[b]. u is a number of generators[b] in (0, 1], one
/// counter each. output_ids[step, b] = the token; sequence_lengths[b] grows by 1 unless it was finished; finished[b] =
/// it is end_ids[b]. Log probabilities (or NULL): cum_log_probs[b] += log p of all tokens; output_log_probs[b] = log p
/// among those that could be drawn. logits and runtime_top_p are not changed. Equal logits: the lower id first.
#include "lmdeploy_sampling.h"

#include "dense.h"
#include "workspace.h"

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

// Setup

struct setup_call {
  struct frame *frame;
  struct dit_tensor_view ks, ps, skip, initial, decay, least, reset;
  int64_t batch, k, reset_id;
  double p, decay_value, least_value;
  bool own_k, own_p, by_k;
};

static double get_share(double value, double otherwise) {
  return value > 1 || !(value > 0) ? otherwise : value;
}

static void set_one(const struct setup_call *call, int64_t b, struct dense *room) {
  int64_t k = call->own_k ? ((int64_t *)room[0].data)[b] : call->k;
  double p = call->own_p ? (double)((float *)room[1].data)[b] : call->p;
  k = k < 0 ? 0 : k;
  k = k == 0 && p == 0 ? 1 : k;
  if (call->by_k) {
    p = k > 0 && p == 0 ? 1 : p;
    k = k > 1024 ? 1024 : k;
  }
  p = p > 1 ? 1 : !(p > 0) ? 0 : p;
  ((int64_t *)room[0].data)[b] = k;
  ((float *)room[1].data)[b] = (float)p;
  ((uint8_t *)room[2].data)[b] = call->by_k ? k == 0 : k > 0;
  if (!call->by_k) {
    ((float *)room[3].data)[b] = (float)p;
    ((float *)room[4].data)[b] = (float)get_share(call->decay_value, 1);
    ((float *)room[5].data)[b] = (float)get_share(call->least_value, 0.5);
    ((int64_t *)room[6].data)[b] = call->reset_id;
  }
}

static diopiError_t work_setup(void *context) {
  struct setup_call *call = context;
  const struct dit_tensor_view *views[7] = {&call->ks,    &call->ps,    &call->skip, &call->initial,
                                            &call->decay, &call->least, &call->reset};
  static const int types[7] = {DIT_DTYPE_I64, DIT_DTYPE_F32, DIT_DTYPE_BOOL, DIT_DTYPE_F32,
                               DIT_DTYPE_F32, DIT_DTYPE_F32, DIT_DTYPE_I64};
  struct dense room[7] = {{0}};
  bool done = true;
  for (int i = 0; done && i < 7; i++) {
    done = dense_read(&room[i], views[i], types[i]);
  }
  for (int64_t b = 0; done && b < call->batch; b++) {
    set_one(call, b, room);
  }
  for (int i = 0; i < 7; i++) {
    if (done) {
      dense_store(&room[i]);
    }
    dense_close(&room[i]);
  }
  return done ? diopiSuccess : dense_fail(call->frame);
}

static diopiError_t check_buffer(struct setup_call *call, const char *name, const struct dit_tensor_view *view,
                                 uint64_t dtypes) {
  FRAME_CHECK(call->frame, view->ndim == 1 && view->sizes[0] == call->batch && frame_has_dtype(dtypes, view->dtype),
              "'%s' is %s with %lld elements; valid: %lld numbers of its dtype", name, dit_dtype_get_name(view->dtype),
              (long long)view->numel, (long long)call->batch);
  return frame_check_output(call->frame, name, view, NULL, 0, false);
}

static diopiError_t check_setup(struct setup_call *call, diopiTensorHandle_t top_ks, diopiTensorHandle_t top_ps,
                                diopiTensorHandle_t skip_decode) {
  struct frame *frame = call->frame;
  FRAME_TAKE(frame, top_ks, &call->ks);
  FRAME_TAKE(frame, top_ps, &call->ps);
  FRAME_TAKE(frame, skip_decode, &call->skip);
  FRAME_TRY(check_buffer(call, "top_ks", &call->ks, DTYPE_BIT(I32) | DTYPE_BIT(I64)));
  FRAME_TRY(check_buffer(call, "top_ps", &call->ps, DTYPE_BIT(F32)));
  return check_buffer(call, "skip_decode", &call->skip, DTYPE_BIT(BOOL));
}

diopiError_t diopiSetupTopkRuntimeArgsInp(diopiContextHandle_t ctx, diopiTensorHandle_t top_ks,
                                          diopiTensorHandle_t top_ps, diopiTensorHandle_t skip_decode,
                                          int64_t batch_size, int64_t top_k, int64_t top_ks_size, float top_p,
                                          int64_t top_ps_size) {
  struct frame frame;
  struct setup_call call = {.frame = &frame,
                            .batch = batch_size,
                            .k = top_k,
                            .p = (double)top_p,
                            .own_k = top_ks_size > 0,
                            .own_p = top_ps_size > 0,
                            .by_k = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(check_setup(&call, top_ks, top_ps, skip_decode));
  return FRAME_QUEUE(&frame, work_setup, &call, &call.frame, &call.ks, &call.ps, &call.skip);
}

diopiError_t diopiSetupToppRuntimeArgsInp(diopiContextHandle_t ctx, diopiTensorHandle_t top_ks,
                                          diopiTensorHandle_t top_ps, diopiTensorHandle_t skip_decode,
                                          int64_t batch_size, int64_t top_k, int64_t top_ks_size, float top_p,
                                          int64_t top_ps_size, diopiTensorHandle_t initial_top_p_buf,
                                          diopiTensorHandle_t top_p_decay_buf, float top_p_decay,
                                          diopiTensorHandle_t top_p_min_buf, float top_p_min,
                                          diopiTensorHandle_t top_p_reset_ids_buf, int64_t top_p_reset_ids) {
  struct frame frame;
  struct setup_call call = {.frame = &frame,
                            .batch = batch_size,
                            .k = top_k,
                            .p = (double)top_p,
                            .own_k = top_ks_size > 0,
                            .own_p = top_ps_size > 0,
                            .decay_value = (double)top_p_decay,
                            .least_value = (double)top_p_min,
                            .reset_id = top_p_reset_ids};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(check_setup(&call, top_ks, top_ps, skip_decode));
  FRAME_TAKE(&frame, initial_top_p_buf, &call.initial);
  FRAME_TAKE(&frame, top_p_decay_buf, &call.decay);
  FRAME_TAKE(&frame, top_p_min_buf, &call.least);
  FRAME_TAKE(&frame, top_p_reset_ids_buf, &call.reset);
  FRAME_TRY(check_buffer(&call, "initial_top_p_buf", &call.initial, DTYPE_BIT(F32)));
  FRAME_TRY(check_buffer(&call, "top_p_decay_buf", &call.decay, DTYPE_BIT(F32)));
  FRAME_TRY(check_buffer(&call, "top_p_min_buf", &call.least, DTYPE_BIT(F32)));
  FRAME_TRY(check_buffer(&call, "top_p_reset_ids_buf", &call.reset, DTYPE_BIT(I32) | DTYPE_BIT(I64)));
  return FRAME_QUEUE(&frame, work_setup, &call, &call.frame, &call.ks, &call.ps, &call.skip, &call.initial, &call.decay,
                     &call.least, &call.reset);
}

// Sampling

static diopiError_t check_row(struct sampling_call *call, const char *name, const struct dit_tensor_view *view,
                              uint64_t dtypes) {
  FRAME_CHECK(
      call->frame,
      !view->handle || (view->ndim == 1 && view->sizes[0] == call->batch && frame_has_dtype(dtypes, view->dtype)),
      "'%s' must have %lld numbers of its dtype", name, (long long)call->batch);
  return diopiSuccess;
}

static diopiError_t start(struct sampling_call *call) {
  struct frame *frame = call->frame;
  const uint64_t indices = DTYPE_BIT(I32) | DTYPE_BIT(I64), bools = DTYPE_BIT(BOOL), floats = DTYPE_BIT(F32);
  FRAME_CHECK(frame, call->batch >= 0 && call->vocab > 0, "'batch_size' is %lld and 'vocab_size_padded' %lld",
              (long long)call->batch, (long long)call->vocab);
  FRAME_CHECK(frame, call->generators || call->batch == 0, "'generators' is NULL; it must be a generator per sequence");
  for (int64_t b = 0; b < call->batch; b++) {
    FRAME_CHECK(frame, call->generators[b], "'generators' has none for sequence %lld", (long long)b);
  }
  FRAME_CHECK(frame,
              call->logits.ndim == 2 && call->logits.sizes[0] == call->batch && call->logits.sizes[1] >= call->vocab,
              "'logits' must have %lld rows of at least %lld elements", (long long)call->batch, (long long)call->vocab);
  if (!frame_has_dtype(DTYPES_FLOAT, call->logits.dtype)) {
    return frame_fail_dtype(frame, "logits", call->logits.dtype);
  }
  FRAME_CHECK(frame,
              call->ids.ndim == 2 && call->ids.sizes[1] == call->batch && is_index(call->ids.dtype) &&
                  call->step >= 0 && call->step < call->ids.sizes[0],
              "'output_ids' must have %lld columns and a row for step %lld, int32 or int64", (long long)call->batch,
              (long long)call->step);
  FRAME_TRY(check_row(call, "end_ids", &call->end_ids, indices));
  FRAME_TRY(check_row(call, "finished", &call->finished, bools));
  FRAME_TRY(check_row(call, "sequence_lengths", &call->lengths, indices));
  FRAME_TRY(check_row(call, "runtime_top_k", &call->top_k, indices));
  FRAME_TRY(check_row(call, "runtime_top_p", &call->top_p, floats));
  FRAME_TRY(check_row(call, "skip_decode", &call->skip, bools));
  FRAME_TRY(check_row(call, "cum_log_probs", &call->cum, floats));
  FRAME_TRY(check_row(call, "output_log_probs", &call->own, floats));
  const struct dit_tensor_view *inputs[] = {&call->logits, &call->end_ids, &call->top_k, &call->top_p, &call->skip};
  FRAME_TRY(frame_check_output(frame, "output_ids", &call->ids, inputs, 5, false));
  FRAME_TRY(frame_check_output(frame, "finished", &call->finished, inputs, 5, false));
  FRAME_TRY(frame_check_output(frame, "sequence_lengths", &call->lengths, inputs, 5, false));
  if (call->cum.handle) {
    FRAME_TRY(frame_check_output(frame, "cum_log_probs", &call->cum, inputs, 5, false));
  }
  if (call->own.handle) {
    FRAME_TRY(frame_check_output(frame, "output_log_probs", &call->own, inputs, 5, false));
  }
  return sampling_run(call);
}

/// What both functions have, by its own name.
#define TAKE_COMMON(call)                                        \
  FRAME_TAKE((call).frame, output_ids, &(call).ids);             \
  FRAME_TAKE((call).frame, logits, &(call).logits);              \
  FRAME_TAKE((call).frame, end_ids, &(call).end_ids);            \
  FRAME_TAKE((call).frame, finished, &(call).finished);          \
  FRAME_TAKE((call).frame, sequence_lengths, &(call).lengths);   \
  FRAME_TAKE((call).frame, runtime_top_p, &(call).top_p);        \
  FRAME_TAKE_OPTIONAL((call).frame, skip_decode, &(call).skip);  \
  FRAME_TAKE_OPTIONAL((call).frame, cum_log_probs, &(call).cum); \
  FRAME_TAKE_OPTIONAL((call).frame, output_log_probs, &(call).own)

diopiError_t diopiTopKSampling(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids, diopiTensorHandle_t logits,
                               diopiTensorHandle_t workspace, int64_t *workspace_size, int64_t fusion_level,
                               diopiConstTensorHandle_t end_ids, diopiTensorHandle_t finished,
                               diopiTensorHandle_t sequence_lengths, int64_t step, int64_t batch_size,
                               int64_t vocab_size_padded, diopiConstTensorHandle_t runtime_top_k,
                               diopiConstTensorHandle_t runtime_top_p, diopiConstTensorHandle_t skip_decode,
                               diopiTensorHandle_t cum_log_probs, diopiTensorHandle_t output_log_probs,
                               diopiGeneratorHandle_t *generators) {
  struct frame frame;
  struct sampling_call call = {.frame = &frame,
                               .step = step,
                               .batch = batch_size,
                               .vocab = vocab_size_padded,
                               .generators = generators,
                               .by_k = true};
  (void)workspace;
  (void)fusion_level;
  FRAME_BEGIN(&frame, ctx);
  if (workspace_is_question(workspace_size)) {
    return diopiSuccess;
  }
  TAKE_COMMON(call);
  FRAME_TAKE(&frame, runtime_top_k, &call.top_k);
  return start(&call);
}

diopiError_t diopiTopPSampling(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids, diopiTensorHandle_t logits,
                               diopiTensorHandle_t persistent_workspace, int64_t *persistent_workspace_size,
                               diopiTensorHandle_t workspace, int64_t *workspace_size, int64_t fusion_level,
                               diopiConstTensorHandle_t end_ids, diopiTensorHandle_t finished,
                               diopiTensorHandle_t sequence_lengths, int64_t step, int64_t batch_size,
                               int64_t vocab_size_padded, diopiTensorHandle_t runtime_top_p,
                               diopiConstTensorHandle_t skip_decode, diopiTensorHandle_t cum_log_probs,
                               diopiTensorHandle_t output_log_probs, diopiGeneratorHandle_t *generators) {
  struct frame frame;
  struct sampling_call call = {
      .frame = &frame, .step = step, .batch = batch_size, .vocab = vocab_size_padded, .generators = generators};
  (void)workspace;
  (void)persistent_workspace;
  (void)fusion_level;
  FRAME_BEGIN(&frame, ctx);
  const bool first = workspace_is_question(persistent_workspace_size), second = workspace_is_question(workspace_size);
  if (first || second) {
    return diopiSuccess;
  }
  TAKE_COMMON(call);
  return start(&call);
}
