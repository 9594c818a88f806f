/// Operators of large models: attention, normalisation, rotary embedding, fused optimizers.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_EXT_H
#define DIOPI_FUNCTIONS_EXT_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// ---- attention

DIOPI_API diopiError_t diopiRotaryEmbedding(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t x, diopiConstTensorHandle_t cos,
                                            diopiConstTensorHandle_t sin, const bool conj, const bool interleaved);

// ---- normalization

DIOPI_API diopiError_t diopiRMSNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t inv_rms,
                                    diopiConstTensorHandle_t input, diopiSize_t normalized_shape,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, double eps);

DIOPI_API diopiError_t diopiRMSNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                            diopiConstTensorHandle_t inv_rms, diopiSize_t normalized_shape, double eps);

// ---- attention

DIOPI_API diopiError_t diopiMultiHeadAttention(diopiContextHandle_t ctx, diopiTensorHandle_t q, diopiTensorHandle_t k,
                                               diopiTensorHandle_t v, double dropout_p, bool is_causal,
                                               bool return_debug_mask, double scale, diopiTensorHandle_t out,
                                               diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                               diopiTensorHandle_t debug_attn_mask);

DIOPI_API diopiError_t diopiMultiHeadAttentionBackward(diopiContextHandle_t ctx, diopiConstTensorHandle_t grad_out,
                                                       diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                       diopiConstTensorHandle_t v, diopiConstTensorHandle_t out,
                                                       diopiConstTensorHandle_t softmax_lse, double dropout_p,
                                                       bool is_causal, diopiGeneratorHandle_t gen, double scale,
                                                       diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k,
                                                       diopiTensorHandle_t grad_v);

DIOPI_API diopiError_t diopiMultiHeadAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t q,
                                                     diopiTensorHandle_t k, diopiTensorHandle_t v,
                                                     diopiConstTensorHandle_t cum_seq_q,
                                                     diopiConstTensorHandle_t cum_seq_k, int64_t max_q, int64_t max_k,
                                                     double dropout_p, bool is_causal, bool return_debug_mask,
                                                     double scale, diopiTensorHandle_t out,
                                                     diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                                     diopiTensorHandle_t debug_attn_mask);

DIOPI_API diopiError_t diopiMultiHeadAttentionVarLenBackward(diopiContextHandle_t ctx,
                                                             diopiConstTensorHandle_t grad_out,
                                                             diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                             diopiConstTensorHandle_t v, diopiConstTensorHandle_t out,
                                                             diopiConstTensorHandle_t softmax_lse,
                                                             diopiConstTensorHandle_t cum_seq_q,
                                                             diopiConstTensorHandle_t cum_seq_k, int64_t max_q,
                                                             int64_t max_k, double dropout_p, bool is_causal,
                                                             diopiGeneratorHandle_t gen, double scale,
                                                             diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k,
                                                             diopiTensorHandle_t grad_v);

DIOPI_API diopiError_t diopiFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                           diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                           diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                           diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes,
                                           float p_dropout, float softmax_scale, bool is_causal,
                                           int32_t window_size_left, int32_t window_size_right);

DIOPI_API diopiError_t diopiFlashAttentionBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_q,
                                                   diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
                                                   diopiConstTensorHandle_t grad_output, diopiGeneratorHandle_t gen,
                                                   diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                   diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes,
                                                   diopiConstTensorHandle_t attention_out,
                                                   diopiConstTensorHandle_t softmax_lse, float p_dropout,
                                                   float softmax_scale, bool is_causal, int32_t window_size_left,
                                                   int32_t window_size_right);

DIOPI_API diopiError_t diopiCustomizedFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                                     diopiTensorHandle_t *dropout_mask,
                                                     diopiTensorHandle_t *softmax_max,
                                                     diopiTensorHandle_t *softmax_sum,
                                                     diopiTensorHandle_t *softmax_out, diopiGeneratorHandle_t gen,
                                                     diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                     diopiConstTensorHandle_t v,
                                                     diopiConstTensorHandle_t alibi_slopes,
                                                     diopiConstTensorHandle_t attention_mask, float p_dropout,
                                                     float softmax_scale, bool is_causal, int32_t window_size_left,
                                                     int32_t window_size_right, int32_t head_num,
                                                     const char *input_layout);

DIOPI_API diopiError_t diopiCustomizedFlashAttentionBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_q,
                                                             diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
                                                             diopiConstTensorHandle_t grad_output,
                                                             diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                             diopiConstTensorHandle_t v,
                                                             diopiConstTensorHandle_t alibi_slopes,
                                                             diopiConstTensorHandle_t attention_out,
                                                             diopiConstTensorHandle_t attention_mask,
                                                             diopiConstTensorHandle_t dropout_mask,
                                                             diopiConstTensorHandle_t softmax_max,
                                                             diopiConstTensorHandle_t softmax_sum,
                                                             diopiConstTensorHandle_t softmax_out, float p_dropout,
                                                             float softmax_scale, bool is_causal,
                                                             int32_t window_size_left, int32_t window_size_right,
                                                             int32_t head_num, const char *input_layout);

DIOPI_API diopiError_t diopiFlashAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                                 diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                                 diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                 diopiConstTensorHandle_t v, diopiConstTensorHandle_t cum_seq_q,
                                                 diopiConstTensorHandle_t cum_seq_kv,
                                                 diopiConstTensorHandle_t alibi_slopes, int32_t max_seqlen_q,
                                                 int32_t max_seqlen_kv, float p_dropout, float softmax_scale,
                                                 bool is_causal, int32_t window_size_left, int32_t window_size_right);

DIOPI_API diopiError_t diopiFlashAttentionVarLenBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_q,
                                                         diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
                                                         diopiConstTensorHandle_t grad_output,
                                                         diopiGeneratorHandle_t gen, diopiConstTensorHandle_t q,
                                                         diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
                                                         diopiConstTensorHandle_t cum_seq_q,
                                                         diopiConstTensorHandle_t cum_seq_kv,
                                                         diopiConstTensorHandle_t alibi_slopes,
                                                         diopiConstTensorHandle_t attention_out,
                                                         diopiConstTensorHandle_t softmax_lse, int32_t max_seqlen_q,
                                                         int32_t max_seqlen_kv, float p_dropout, float softmax_scale,
                                                         bool is_causal, int32_t window_size_left,
                                                         int32_t window_size_right);

DIOPI_API diopiError_t diopiCustomizedFlashAttentionVarLen(diopiContextHandle_t ctx,
                                                           diopiTensorHandle_t attention_out,
                                                           diopiTensorHandle_t *dropout_mask,
                                                           diopiTensorHandle_t *softmax_max,
                                                           diopiTensorHandle_t *softmax_sum,
                                                           diopiTensorHandle_t *softmax_out,
                                                           diopiGeneratorHandle_t gen, diopiConstTensorHandle_t q,
                                                           diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
                                                           diopiSize_t cum_seq_q, diopiSize_t cum_seq_kv,
                                                           diopiConstTensorHandle_t alibi_slopes,
                                                           diopiConstTensorHandle_t attention_mask,
                                                           int32_t max_seqlen_q, int32_t max_seqlen_kv,
                                                           float p_dropout, float softmax_scale, bool is_causal,
                                                           int32_t window_size_left, int32_t window_size_right);

DIOPI_API diopiError_t diopiCustomizedFlashAttentionVarLenBackward(diopiContextHandle_t ctx,
                                                                   diopiTensorHandle_t grad_q,
                                                                   diopiTensorHandle_t grad_k,
                                                                   diopiTensorHandle_t grad_v,
                                                                   diopiConstTensorHandle_t grad_output,
                                                                   diopiConstTensorHandle_t q,
                                                                   diopiConstTensorHandle_t k,
                                                                   diopiConstTensorHandle_t v, diopiSize_t cum_seq_q,
                                                                   diopiSize_t cum_seq_kv,
                                                                   diopiConstTensorHandle_t alibi_slopes,
                                                                   diopiConstTensorHandle_t attention_out,
                                                                   diopiConstTensorHandle_t attention_mask,
                                                                   diopiConstTensorHandle_t dropout_mask,
                                                                   diopiConstTensorHandle_t softmax_max,
                                                                   diopiConstTensorHandle_t softmax_sum,
                                                                   diopiConstTensorHandle_t softmax_out,
                                                                   int32_t max_seqlen_q, int32_t max_seqlen_kv,
                                                                   float p_dropout, float softmax_scale,
                                                                   bool is_causal, int32_t window_size_left,
                                                                   int32_t window_size_right);

DIOPI_API diopiError_t diopiScaledMaskedSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                                double scale, bool fixed_triu_mask);

DIOPI_API diopiError_t diopiScaledMaskedSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                        diopiConstTensorHandle_t grad_output,
                                                        diopiConstTensorHandle_t output,
                                                        diopiConstTensorHandle_t mask, double scale,
                                                        bool fixed_triu_mask);

// ---- llm inference

DIOPI_API diopiError_t diopiApplyPenalty(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                         diopiConstTensorHandle_t presence_penalty,
                                         diopiConstTensorHandle_t frequency_penalty,
                                         diopiConstTensorHandle_t p_token_ids,
                                         diopiConstTensorHandle_t p_token_counts,
                                         diopiConstTensorHandle_t p_cumsum_seq_len, int p_max_len_in_batch);

DIOPI_API diopiError_t diopiApplyPenaltyV2(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                           diopiConstTensorHandle_t presence_penalty,
                                           diopiConstTensorHandle_t frequency_penalty,
                                           diopiConstTensorHandle_t repetition_penalty,
                                           diopiConstTensorHandle_t p_token_ids,
                                           diopiConstTensorHandle_t p_token_counts);

DIOPI_API diopiError_t diopiDestIndexCopyKV(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t k, diopiConstTensorHandle_t dest_loc);

// ---- attention

DIOPI_API diopiError_t diopiTokenAttentionInference(diopiContextHandle_t ctx, diopiTensorHandle_t token_attention_out,
                                                    diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                    diopiConstTensorHandle_t b_loc,
                                                    diopiConstTensorHandle_t b_start_loc,
                                                    diopiConstTensorHandle_t b_seq_len, int max_input_len);

DIOPI_API diopiError_t diopiTokenSoftmaxReduceVInference(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                         diopiConstTensorHandle_t logics, diopiConstTensorHandle_t v,
                                                         diopiConstTensorHandle_t b_loc,
                                                         diopiConstTensorHandle_t b_start_loc,
                                                         diopiConstTensorHandle_t b_seq_len, int max_input_len,
                                                         int other_kv_index);

DIOPI_API diopiError_t diopiPagedAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                           diopiConstTensorHandle_t v, diopiConstTensorHandle_t attenMask,
                                           diopiSize_t actual_seq_lengths, int64_t num_heads, int64_t num_kv_heads,
                                           int64_t dim, diopiConstTensorHandle_t block_table, int64_t block_size);

DIOPI_API diopiError_t diopiContextAttentionInference(diopiContextHandle_t ctx,
                                                      diopiTensorHandle_t context_attention_out,
                                                      diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                      diopiConstTensorHandle_t v,
                                                      diopiConstTensorHandle_t b_start_loc,
                                                      diopiConstTensorHandle_t b_seq_len, int max_input_len);

DIOPI_API diopiError_t diopiRotaryEmbeddingV2(diopiContextHandle_t ctx, diopiTensorHandle_t query,
                                              diopiTensorHandle_t key, diopiConstTensorHandle_t cos,
                                              diopiConstTensorHandle_t sin, int64_t dim);

// ---- llm inference

DIOPI_API diopiError_t diopiMatmulAllReduce(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t x1, diopiConstTensorHandle_t x2,
                                            diopiConstTensorHandle_t bias, const char *group, const char *reduce_op,
                                            int64_t comm_turn, int64_t stream_mode);

// ---- attention

DIOPI_API diopiError_t diopiPromptFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiConstTensorHandle_t query, diopiConstTensorHandle_t key,
                                                 diopiConstTensorHandle_t value, diopiConstTensorHandle_t atten_mask,
                                                 diopiSize_t actual_seq_lengths, int64_t max_input_len,
                                                 int64_t num_heads, int64_t num_kv_heads, int64_t dim);

DIOPI_EXTERN_C_END
// clang-format on

#endif
