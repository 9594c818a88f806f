/// Flash attention under its older names: MultiHeadAttention and its VarLen form, outputs last.
///
/// As diopiFlashAttention (attention.c) without slopes and windows. No mask is returned for debugging:
/// return_debug_mask must be false, debug_attn_mask is not written.
#include "flash.h"

static const struct flash_names names = {"out", "grad_out", "cum_seq_k"};

// Parameters that have one name in all functions of the family.
#define ARGUMENTS                                                                                  \
  .names = &names, .q = q, .k = k, .v = v, .generator = gen, .dropout = dropout_p, .scale = scale, \
  .causal = is_causal, .left = -1, .right = -1
#define PACKED_ARGUMENTS \
  ARGUMENTS, .packed = true, .cum_q = cum_seq_q, .cum_k = cum_seq_k, .max_q = max_q, .max_k = max_k

static diopiError_t refuse_mask(const char *function) {
  struct frame frame = {.function = function};
  return frame_fail(&frame, diopiForceFallbackToCPU,
                    "'return_debug_mask' is true; no mask is kept here, call it with false");
}

diopiError_t diopiMultiHeadAttention(diopiContextHandle_t ctx, diopiTensorHandle_t q, diopiTensorHandle_t k,
                                     diopiTensorHandle_t v, double dropout_p, bool is_causal, bool return_debug_mask,
                                     double scale, diopiTensorHandle_t out, diopiTensorHandle_t softmax_lse,
                                     diopiGeneratorHandle_t gen, diopiTensorHandle_t debug_attn_mask) {
  const struct flash_arguments arguments = {ARGUMENTS};
  (void)debug_attn_mask;
  return return_debug_mask ? refuse_mask(__func__) : flash_forward(__func__, ctx, out, softmax_lse, &arguments);
}

diopiError_t diopiMultiHeadAttentionBackward(diopiContextHandle_t ctx, diopiConstTensorHandle_t grad_out,
                                             diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                             diopiConstTensorHandle_t v, diopiConstTensorHandle_t out,
                                             diopiConstTensorHandle_t softmax_lse, double dropout_p, bool is_causal,
                                             diopiGeneratorHandle_t gen, double scale, diopiTensorHandle_t grad_q,
                                             diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v) {
  const struct flash_arguments arguments = {ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_out, out, softmax_lse};
  return flash_backward(__func__, ctx, &gradients, &arguments);
}

diopiError_t diopiMultiHeadAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t q, diopiTensorHandle_t k,
                                           diopiTensorHandle_t v, diopiConstTensorHandle_t cum_seq_q,
                                           diopiConstTensorHandle_t cum_seq_k, int64_t max_q, int64_t max_k,
                                           double dropout_p, bool is_causal, bool return_debug_mask, double scale,
                                           diopiTensorHandle_t out, diopiTensorHandle_t softmax_lse,
                                           diopiGeneratorHandle_t gen, diopiTensorHandle_t debug_attn_mask) {
  const struct flash_arguments arguments = {PACKED_ARGUMENTS};
  (void)debug_attn_mask;
  return return_debug_mask ? refuse_mask(__func__) : flash_forward(__func__, ctx, out, softmax_lse, &arguments);
}

diopiError_t diopiMultiHeadAttentionVarLenBackward(
    diopiContextHandle_t ctx, diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
    diopiConstTensorHandle_t v, diopiConstTensorHandle_t out, diopiConstTensorHandle_t softmax_lse,
    diopiConstTensorHandle_t cum_seq_q, diopiConstTensorHandle_t cum_seq_k, int64_t max_q, int64_t max_k,
    double dropout_p, bool is_causal, diopiGeneratorHandle_t gen, double scale, diopiTensorHandle_t grad_q,
    diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v) {
  const struct flash_arguments arguments = {PACKED_ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_out, out, softmax_lse};
  return flash_backward(__func__, ctx, &gradients, &arguments);
}
