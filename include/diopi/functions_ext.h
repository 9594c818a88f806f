/// Operators of large models: attention, normalisation, rotary embedding, fused optimizers.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_EXT_H
#define DIOPI_FUNCTIONS_EXT_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// attention

/// Rotates pairs of x (..., S, H, D) by the angles whose cos and sin (S, D / 2) are given: (a cos - b sin, a sin + b
/// cos), with -sin when `conj`. Pairs are (x[k], x[k + D / 2]), or (x[2 k], x[2 k + 1]) when `interleaved`. `out` has
/// x's shape and may be x. Floating dtypes.
DIOPI_API diopiError_t diopiRotaryEmbedding(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t x, diopiConstTensorHandle_t cos,
                                            diopiConstTensorHandle_t sin, const bool conj, const bool interleaved);

// normalization

/// out = input * inv_rms * weight + bias, inv_rms = 1 / sqrt(mean(input^2) + eps) over the trailing dimensions
/// `normalized_shape`. weight and bias may be NULL. inv_rms keeps those dimensions as 1; float32 for half types.
/// Floating dtypes.
DIOPI_API diopiError_t diopiRMSNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t inv_rms,
                                    diopiConstTensorHandle_t input, diopiSize_t normalized_shape,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, double eps);

/// Gradients of diopiRMSNorm from grad_output, with its `inv_rms`. grad_weight and grad_bias may be NULL when they are
/// not wanted; so may weight and bias.
DIOPI_API diopiError_t diopiRMSNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                            diopiConstTensorHandle_t inv_rms, diopiSize_t normalized_shape, double eps);

// attention

/// Deprecated form of diopiFlashAttention: q (B, Sq, H, D), k and v (B, Sk, Hk, D), H a multiple of Hk (heads of k and
/// v are shared by H / Hk heads of q); `scale` multiplies q k^T. Outputs come last; debug_attn_mask is written with
/// return_debug_mask alone. q, k and v are only read although they are not const.
DIOPI_API diopiError_t diopiMultiHeadAttention(diopiContextHandle_t ctx, diopiTensorHandle_t q, diopiTensorHandle_t k,
                                               diopiTensorHandle_t v, double dropout_p, bool is_causal,
                                               bool return_debug_mask, double scale, diopiTensorHandle_t out,
                                               diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                               diopiTensorHandle_t debug_attn_mask);

/// Gradients of diopiMultiHeadAttention. Outputs come last.
DIOPI_API diopiError_t diopiMultiHeadAttentionBackward(diopiContextHandle_t ctx, diopiConstTensorHandle_t grad_out,
                                                       diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                       diopiConstTensorHandle_t v, diopiConstTensorHandle_t out,
                                                       diopiConstTensorHandle_t softmax_lse, double dropout_p,
                                                       bool is_causal, diopiGeneratorHandle_t gen, double scale,
                                                       diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k,
                                                       diopiTensorHandle_t grad_v);

/// Deprecated form of diopiFlashAttentionVarLen; see diopiMultiHeadAttention.
DIOPI_API diopiError_t diopiMultiHeadAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t q,
                                                     diopiTensorHandle_t k, diopiTensorHandle_t v,
                                                     diopiConstTensorHandle_t cum_seq_q,
                                                     diopiConstTensorHandle_t cum_seq_k, int64_t max_q, int64_t max_k,
                                                     double dropout_p, bool is_causal, bool return_debug_mask,
                                                     double scale, diopiTensorHandle_t out,
                                                     diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                                     diopiTensorHandle_t debug_attn_mask);

/// Gradients of diopiMultiHeadAttentionVarLen. Outputs come last.
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

/// attention_out = softmax(q k^T * softmax_scale) v per head: q (B, Sq, H, D), k and v (B, Sk, Hk, D), H a multiple of
/// Hk (heads of k and v are shared by H / Hk heads of q). `is_causal` hides keys behind each query, aligned at the end;
/// window_size_left and _right limit the distance (-1: no limit); alibi_slopes (H) or (B, H) or NULL adds -slope *
/// distance. Dropout with p_dropout by `gen`. softmax_lse (B, H, Sq), float32, gets the logarithms of the sums. half
/// types; accumulated in float.
DIOPI_API diopiError_t diopiFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                           diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                           diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                           diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes,
                                           float p_dropout, float softmax_scale, bool is_causal,
                                           int32_t window_size_left, int32_t window_size_right);

/// grad_q, grad_k and grad_v of diopiFlashAttention from grad_output, with its attention_out and softmax_lse, the same
/// attributes, and the generator's state of the forward call.
DIOPI_API diopiError_t diopiFlashAttentionBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_q,
                                                   diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
                                                   diopiConstTensorHandle_t grad_output, diopiGeneratorHandle_t gen,
                                                   diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                   diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes,
                                                   diopiConstTensorHandle_t attention_out,
                                                   diopiConstTensorHandle_t softmax_lse, float p_dropout,
                                                   float softmax_scale, bool is_causal, int32_t window_size_left,
                                                   int32_t window_size_right);

/// diopiFlashAttention with what one vendor needs kept for its gradient: dropout_mask, softmax_max, softmax_sum and
/// softmax_out receive tensors that the library makes: the first two (B, N, Sq), whose max + log(sum) is the logarithm
/// of a query's sum of exponentials, the others as it likes. attention_mask (true hides) may be NULL; input_layout is
/// "BSH", "SBH", "BSND" or "BNSD".
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

/// Gradients of diopiCustomizedFlashAttention, with what it kept.
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

/// diopiFlashAttention over sequences of different lengths one after another: q (Tq, H, D), k and v (Tk, Hk, D);
/// cum_seq_q and cum_seq_kv (B + 1, int32) are where each begins; max_seqlen_q and _kv are the longest.
DIOPI_API diopiError_t diopiFlashAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                                 diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                                 diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                 diopiConstTensorHandle_t v, diopiConstTensorHandle_t cum_seq_q,
                                                 diopiConstTensorHandle_t cum_seq_kv,
                                                 diopiConstTensorHandle_t alibi_slopes, int32_t max_seqlen_q,
                                                 int32_t max_seqlen_kv, float p_dropout, float softmax_scale,
                                                 bool is_causal, int32_t window_size_left, int32_t window_size_right);

/// Gradients of diopiFlashAttentionVarLen, as diopiFlashAttentionBackward.
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

/// diopiCustomizedFlashAttention over sequences of different lengths; cum_seq_q and cum_seq_kv are lists on the host.
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

/// Gradients of diopiCustomizedFlashAttentionVarLen, with what it kept.
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

/// output = softmax over the last dimension of input * scale, with -10000 where `mask` is true; fixed_triu_mask hides
/// everything above the diagonal instead of reading `mask`. Rows that are all hidden give zeros. half types; computed
/// in float.
DIOPI_API diopiError_t diopiScaledMaskedSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                                double scale, bool fixed_triu_mask);

/// grad_input = scale * (grad_output - sum(grad_output * output)) * output, over the last dimension; 0 where hidden.
DIOPI_API diopiError_t diopiScaledMaskedSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                        diopiConstTensorHandle_t grad_output,
                                                        diopiConstTensorHandle_t output,
                                                        diopiConstTensorHandle_t mask, double scale,
                                                        bool fixed_triu_mask);

// llm inference

/// logits[b, token] -= frequency_penalty[b] * count + presence_penalty[b] for each token that sequence b has used:
/// p_token_ids and p_token_counts one after another, p_cumsum_seq_len where each sequence begins. In place.
DIOPI_API diopiError_t diopiApplyPenalty(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                         diopiConstTensorHandle_t presence_penalty,
                                         diopiConstTensorHandle_t frequency_penalty,
                                         diopiConstTensorHandle_t p_token_ids,
                                         diopiConstTensorHandle_t p_token_counts,
                                         diopiConstTensorHandle_t p_cumsum_seq_len, int p_max_len_in_batch);

/// As diopiApplyPenalty, with repetition_penalty: positive logits are divided by it, negative ones multiplied, before
/// the others act; ids and counts are one row per sequence. In place.
DIOPI_API diopiError_t diopiApplyPenaltyV2(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                           diopiConstTensorHandle_t presence_penalty,
                                           diopiConstTensorHandle_t frequency_penalty,
                                           diopiConstTensorHandle_t repetition_penalty,
                                           diopiConstTensorHandle_t p_token_ids,
                                           diopiConstTensorHandle_t p_token_counts);

/// out[dest_loc[t]] = k[t] for every token t: writes keys or values into their places of the pool.
DIOPI_API diopiError_t diopiDestIndexCopyKV(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t k, diopiConstTensorHandle_t dest_loc);

// attention

/// Scores of one new token per sequence against the keys of a token pool: q (B, H, D), k (pool, H, D); row b of b_loc
/// lists its tokens' places at its end, in columns max_input_len - b_seq_len[b] to max_input_len; b_start_loc and
/// b_seq_len tell where its scores begin in token_attention_out (H, total) and how many there are. They are divided by
/// the root of D.
DIOPI_API diopiError_t diopiTokenAttentionInference(diopiContextHandle_t ctx, diopiTensorHandle_t token_attention_out,
                                                    diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                    diopiConstTensorHandle_t b_loc,
                                                    diopiConstTensorHandle_t b_start_loc,
                                                    diopiConstTensorHandle_t b_seq_len, int max_input_len);

/// Softmax of the scores that diopiTokenAttentionInference gave, times the values of the pool: out (B, H, D).
DIOPI_API diopiError_t diopiTokenSoftmaxReduceVInference(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                         diopiConstTensorHandle_t logics, diopiConstTensorHandle_t v,
                                                         diopiConstTensorHandle_t b_loc,
                                                         diopiConstTensorHandle_t b_start_loc,
                                                         diopiConstTensorHandle_t b_seq_len, int max_input_len,
                                                         int other_kv_index);

/// Attention of one new token per sequence over keys and values in blocks of block_size tokens; block_table (B, blocks)
/// lists each sequence's blocks, actual_seq_lengths its length. num_kv_heads heads are shared as in
/// diopiFlashAttention.
DIOPI_API diopiError_t diopiPagedAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                           diopiConstTensorHandle_t v, diopiConstTensorHandle_t attenMask,
                                           diopiSize_t actual_seq_lengths, int64_t num_heads, int64_t num_kv_heads,
                                           int64_t dim, diopiConstTensorHandle_t block_table, int64_t block_size);

/// Causal attention over whole prompts one after another: q, k, v (T, H, D); b_start_loc and b_seq_len (B) tell where
/// each begins and how long it is.
DIOPI_API diopiError_t diopiContextAttentionInference(diopiContextHandle_t ctx,
                                                      diopiTensorHandle_t context_attention_out,
                                                      diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                                      diopiConstTensorHandle_t v,
                                                      diopiConstTensorHandle_t b_start_loc,
                                                      diopiConstTensorHandle_t b_seq_len, int max_input_len);

/// diopiRotaryEmbedding of `query` and `key` in place, with cos and sin given per token; `dim` is the head size that is
/// rotated.
DIOPI_API diopiError_t diopiRotaryEmbeddingV2(diopiContextHandle_t ctx, diopiTensorHandle_t query,
                                              diopiTensorHandle_t key, diopiConstTensorHandle_t cos,
                                              diopiConstTensorHandle_t sin, int64_t dim);

// llm inference

/// out = x1 @ x2 + bias, reduced over the ranks of `group` by `reduce_op` ("sum"). `bias` may be NULL. comm_turn and
/// stream_mode are hints.
DIOPI_API diopiError_t diopiMatmulAllReduce(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t x1, diopiConstTensorHandle_t x2,
                                            diopiConstTensorHandle_t bias, const char *group, const char *reduce_op,
                                            int64_t comm_turn, int64_t stream_mode);

// attention

/// Attention over padded prompts with their real lengths in actual_seq_lengths; atten_mask (true hides) may be NULL.
/// num_kv_heads heads are shared as in diopiFlashAttention.
DIOPI_API diopiError_t diopiPromptFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiConstTensorHandle_t query, diopiConstTensorHandle_t key,
                                                 diopiConstTensorHandle_t value, diopiConstTensorHandle_t atten_mask,
                                                 diopiSize_t actual_seq_lengths, int64_t max_input_len,
                                                 int64_t num_heads, int64_t num_kv_heads, int64_t dim);

DIOPI_EXTERN_C_END
// clang-format on

#endif
