/// Attention of a layer with its projections and caches (lmdeploy), in place: whole prompts, and one new token each.
///
/// H = local_head_num heads of q, Hk = local_kv_head_num of k and v (H a multiple), D = size_per_head. inoutput
/// (tokens, H D); qkv_weight (H D, (H + 2 Hk) D) gives q, k and v in this order, qkv_bias as many numbers or NULL. The
/// first rotary_embedding elements (even, at most D; 0: none) of each head of q and k are rotated in neighbouring
/// pairs: pair i at position t by the angle t / rope_theta^(2 i / rotary_embedding). key_cache and value_cache (layers,
/// batch, Hk, max_seq_len, D) get k and v of layer_id. Scores are divided by the root of D.
///
/// Context: pre_work (2, B), int32 or int64, holds input lengths and history lengths of the sequences, whose tokens
/// follow each other; NULL: tokens / max_q_len sequences of max_q_len tokens with max_kv_len - max_q_len before them. A
/// token sees the history, itself and those before it. Decoder: a token per sequence, at place sequence_lengths[b] of
/// the cache and position sequence_lengths[b] - total_padding_tokens[b] (NULL: 0); where that is max_seq_len or more,
/// places begin again and the cache is seen whole. Finished sequences are passed over: nothing of theirs changes. One
/// floating dtype; half types are computed in float. Lengths are read first, so the calls wait for their stream.
#include "lmdeploy_attention.h"

#include <string.h>

#include "fail.h"
#include "workspace.h"

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

static diopiError_t check_cache(struct fused_call *call, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(call->frame,
              view->ndim == 5 && view->sizes[2] == call->key_heads && view->sizes[3] == call->longest &&
                  view->sizes[4] == call->width && view->dtype == call->x.dtype,
              "'%s' must be layers x batch x %lld x %lld x %lld of the dtype of 'inoutput'", name,
              (long long)call->key_heads, (long long)call->longest, (long long)call->width);
  FRAME_CHECK(call->frame, call->layer >= 0 && call->layer < view->sizes[0], "'layer_id' is %lld; valid: 0 to %lld",
              (long long)call->layer, (long long)view->sizes[0] - 1);
  return diopiSuccess;
}

static diopiError_t start(struct fused_call *call) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x, *w = &call->weight;
  FRAME_CHECK(frame,
              call->heads > 0 && call->key_heads > 0 && call->width > 0 && call->longest > 0 &&
                  call->heads % call->key_heads == 0,
              "'local_head_num', 'local_kv_head_num', 'size_per_head' and 'max_seq_len' must be positive, the first a "
              "multiple of the second");
  const int64_t hidden = call->heads * call->width, all = (call->heads + 2 * call->key_heads) * call->width;
  FRAME_CHECK(frame, x->ndim == 2 && x->sizes[1] == hidden, "'inoutput' must have rows of %lld elements",
              (long long)hidden);
  FRAME_CHECK(frame, w->ndim == 2 && w->sizes[0] == hidden && w->sizes[1] == all && w->dtype == x->dtype,
              "'qkv_weight' must be %lld x %lld of the dtype of 'inoutput'", (long long)hidden, (long long)all);
  FRAME_CHECK(frame, !call->bias.handle || (call->bias.numel == all && call->bias.dtype == x->dtype),
              "'qkv_bias' must have %lld elements of the dtype of 'inoutput'", (long long)all);
  FRAME_CHECK(frame,
              call->rotary >= 0 && call->rotary <= call->width && call->rotary % 2 == 0 &&
                  (call->rotary == 0 || call->theta > 0),
              "'rotary_embedding' is %lld and 'rope_theta' %g; valid: even numbers up to %lld, and above 0",
              (long long)call->rotary, call->theta, (long long)call->width);
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(frame, "inoutput", x->dtype);
  }
  FRAME_TRY(check_cache(call, "key_cache", &call->keys));
  FRAME_TRY(check_cache(call, "value_cache", &call->values));
  const struct dit_tensor_view *inputs[] = {
      w, &call->bias, &call->lengths, &call->finished, &call->padding, &call->values, &call->keys};
  FRAME_TRY(frame_check_output(frame, "inoutput", x, inputs, 7, false));
  FRAME_TRY(frame_check_output(frame, "key_cache", &call->keys, inputs, 6, false));
  FRAME_TRY(frame_check_output(frame, "value_cache", &call->values, inputs, 5, false));
  return fused_attention_run(call);
}

diopiError_t diopiFusedContextAttentionInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                           diopiConstTensorHandle_t qkv_weight, diopiConstTensorHandle_t qkv_bias,
                                           diopiTensorHandle_t pre_work, int64_t *pre_work_size, bool is_prepared,
                                           diopiTensorHandle_t workspace, int64_t *workspace_size, int64_t fusion_level,
                                           diopiTensorHandle_t key_cache, diopiTensorHandle_t value_cache,
                                           int64_t layer_id, int64_t local_head_num, int64_t local_kv_head_num,
                                           int64_t size_per_head, int64_t max_seq_len, int64_t max_q_len,
                                           int64_t max_kv_len, int64_t rotary_embedding, float rope_theta) {
  struct frame frame;
  struct fused_call call = {.frame = &frame,
                            .layer = layer_id,
                            .heads = local_head_num,
                            .key_heads = local_kv_head_num,
                            .width = size_per_head,
                            .longest = max_seq_len,
                            .max_q = max_q_len,
                            .max_k = max_kv_len,
                            .rotary = rotary_embedding,
                            .theta = (double)rope_theta};
  (void)is_prepared;
  (void)workspace;
  (void)fusion_level;
  FRAME_BEGIN(&frame, ctx);
  const bool first = workspace_is_question(pre_work_size), second = workspace_is_question(workspace_size);
  if (first || second) {
    return diopiSuccess;
  }
  FRAME_TAKE(&frame, inoutput, &call.x);
  FRAME_TAKE(&frame, qkv_weight, &call.weight);
  FRAME_TAKE_OPTIONAL(&frame, qkv_bias, &call.bias);
  FRAME_TAKE_OPTIONAL(&frame, pre_work, &call.lengths);
  FRAME_TAKE(&frame, key_cache, &call.keys);
  FRAME_TAKE(&frame, value_cache, &call.values);
  FRAME_CHECK(&frame, max_q_len > 0 && max_kv_len >= max_q_len, "'max_q_len' is %lld and 'max_kv_len' %lld",
              (long long)max_q_len, (long long)max_kv_len);
  if (call.lengths.handle) {
    FRAME_CHECK(&frame, call.lengths.ndim == 2 && call.lengths.sizes[0] == 2 && is_index(call.lengths.dtype),
                "'pre_work' must be 2 x sequences, int32 or int64: input lengths and history lengths");
    call.batch = call.lengths.sizes[1];
  } else {
    FRAME_CHECK(&frame, call.x.ndim == 2 && call.x.sizes[0] % max_q_len == 0,
                "'inoutput' must have a multiple of %lld rows ('max_q_len')", (long long)max_q_len);
    call.batch = call.x.sizes[0] / max_q_len;
  }
  return start(&call);
}

diopiError_t diopiFusedDecoderAttentionInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                           diopiConstTensorHandle_t qkv_weight, diopiConstTensorHandle_t qkv_bias,
                                           diopiTensorHandle_t workspace, int64_t *workspace_size, int64_t fusion_level,
                                           diopiTensorHandle_t key_cache, diopiTensorHandle_t value_cache,
                                           diopiConstTensorHandle_t finished,
                                           diopiConstTensorHandle_t total_padding_tokens,
                                           diopiConstTensorHandle_t sequence_lengths, int64_t step, int64_t layer_id,
                                           int64_t local_head_num, int64_t local_kv_head_num, int64_t size_per_head,
                                           int64_t max_seq_len, int64_t rotary_embedding, float rope_theta) {
  struct frame frame;
  struct fused_call call = {.frame = &frame,
                            .layer = layer_id,
                            .heads = local_head_num,
                            .key_heads = local_kv_head_num,
                            .width = size_per_head,
                            .longest = max_seq_len,
                            .rotary = rotary_embedding,
                            .theta = (double)rope_theta,
                            .decode = true};
  (void)workspace;
  (void)fusion_level;
  (void)step;  // sequence_lengths tells it for each sequence
  FRAME_BEGIN(&frame, ctx);
  if (workspace_is_question(workspace_size)) {
    return diopiSuccess;
  }
  FRAME_TAKE(&frame, inoutput, &call.x);
  FRAME_TAKE(&frame, qkv_weight, &call.weight);
  FRAME_TAKE_OPTIONAL(&frame, qkv_bias, &call.bias);
  FRAME_TAKE(&frame, key_cache, &call.keys);
  FRAME_TAKE(&frame, value_cache, &call.values);
  FRAME_TAKE_OPTIONAL(&frame, finished, &call.finished);
  FRAME_TAKE_OPTIONAL(&frame, total_padding_tokens, &call.padding);
  FRAME_TAKE(&frame, sequence_lengths, &call.lengths);
  FRAME_CHECK(&frame, call.x.ndim == 2, "'inoutput' has %d dimensions; valid: 2", (int)call.x.ndim);
  call.batch = call.x.sizes[0];
  FRAME_CHECK(&frame, call.lengths.ndim == 1 && call.lengths.sizes[0] == call.batch && is_index(call.lengths.dtype),
              "'sequence_lengths' must have %lld numbers, int32 or int64", (long long)call.batch);
  FRAME_CHECK(&frame,
              !call.padding.handle ||
                  (call.padding.ndim == 1 && call.padding.sizes[0] == call.batch && is_index(call.padding.dtype)),
              "'total_padding_tokens' must have %lld numbers, int32 or int64", (long long)call.batch);
  FRAME_CHECK(&frame,
              !call.finished.handle || (call.finished.ndim == 1 && call.finished.sizes[0] == call.batch &&
                                        call.finished.dtype == DIT_DTYPE_BOOL),
              "'finished' must be %lld bools", (long long)call.batch);
  return start(&call);
}
