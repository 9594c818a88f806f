/// Fused operators of a serving engine for large language models.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_LMDEPLOY_H
#define DIOPI_FUNCTIONS_LMDEPLOY_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// llm inference

/// inoutput = (silu(x @ weight1) * (x @ weight3)) @ weight2 with x = inoutput, in place. `workspace` holds scratch;
/// when *workspace_size is negative the function only stores the size it needs there. fusion_level is a hint.
DIOPI_API diopiError_t diopiFusedSiluFfnInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                            diopiConstTensorHandle_t weight1, diopiConstTensorHandle_t weight2,
                                            diopiConstTensorHandle_t weight3, diopiTensorHandle_t workspace,
                                            int64_t *workspace_size, int64_t fusion_level);

/// inoutput = inoutput / sqrt(mean(inoutput^2) + eps) * scale over the last dimension, in place. half types compute in
/// float.
DIOPI_API diopiError_t diopiRootMeanSquareNormInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                                  diopiConstTensorHandle_t scale, float eps);

/// residual += inoutput + bias (NULL: none), then inoutput = diopiRootMeanSquareNormInp of residual. Both in place.
DIOPI_API diopiError_t diopiFusedAddRootMeanSquareNormInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                                          diopiTensorHandle_t residual, diopiConstTensorHandle_t bias,
                                                          diopiConstTensorHandle_t scale, float eps);

/// Attention of a whole prompt: projects inoutput (tokens, H D) to q, k and v, rotates the first rotary_embedding
/// elements of their heads in neighbouring pairs, writes k and v into the caches (layers, batch, heads, max_seq_len, D)
/// of layer_id, attends, and puts the result into inoutput. pre_work (2, B) holds input and history lengths (NULL: all
/// max_q_len, max_kv_len - max_q_len) and is prepared once (is_prepared). `workspace` holds scratch; when
/// *workspace_size is negative the function only stores the size it needs there. fusion_level is a hint.
DIOPI_API diopiError_t diopiFusedContextAttentionInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                                     diopiConstTensorHandle_t qkv_weight,
                                                     diopiConstTensorHandle_t qkv_bias, diopiTensorHandle_t pre_work,
                                                     int64_t *pre_work_size, bool is_prepared,
                                                     diopiTensorHandle_t workspace, int64_t *workspace_size,
                                                     int64_t fusion_level, diopiTensorHandle_t key_cache,
                                                     diopiTensorHandle_t value_cache, int64_t layer_id,
                                                     int64_t local_head_num, int64_t local_kv_head_num,
                                                     int64_t size_per_head, int64_t max_seq_len, int64_t max_q_len,
                                                     int64_t max_kv_len, int64_t rotary_embedding, float rope_theta);

/// Attention of one new token per sequence, as diopiFusedContextAttentionInp, with the lengths in sequence_lengths and
/// finished sequences passed over. `workspace` holds scratch; when *workspace_size is negative the function only stores
/// the size it needs there. fusion_level is a hint.
DIOPI_API diopiError_t diopiFusedDecoderAttentionInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                                     diopiConstTensorHandle_t qkv_weight,
                                                     diopiConstTensorHandle_t qkv_bias, diopiTensorHandle_t workspace,
                                                     int64_t *workspace_size, int64_t fusion_level,
                                                     diopiTensorHandle_t key_cache, diopiTensorHandle_t value_cache,
                                                     diopiConstTensorHandle_t finished,
                                                     diopiConstTensorHandle_t total_padding_tokens,
                                                     diopiConstTensorHandle_t sequence_lengths, int64_t step,
                                                     int64_t layer_id, int64_t local_head_num,
                                                     int64_t local_kv_head_num, int64_t size_per_head,
                                                     int64_t max_seq_len, int64_t rotary_embedding, float rope_theta);

/// Fills top_ks and top_ps for `batch_size` sequences from top_k and top_p where the sizes are 0, limits them to valid
/// ranges, and sets skip_decode where top-k sampling does not apply. In place.
DIOPI_API diopiError_t diopiSetupTopkRuntimeArgsInp(diopiContextHandle_t ctx, diopiTensorHandle_t top_ks,
                                                    diopiTensorHandle_t top_ps, diopiTensorHandle_t skip_decode,
                                                    int64_t batch_size, int64_t top_k, int64_t top_ks_size,
                                                    float top_p, int64_t top_ps_size);

/// Draws the next id of each sequence from its runtime_top_k likeliest, within runtime_top_p, with one generator per
/// sequence; writes output_ids, sequence_lengths, finished and the optional log probabilities. `workspace` holds
/// scratch; when *workspace_size is negative the function only stores the size it needs there. fusion_level is a hint.
DIOPI_API diopiError_t diopiTopKSampling(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids,
                                         diopiTensorHandle_t logits, diopiTensorHandle_t workspace,
                                         int64_t *workspace_size, int64_t fusion_level,
                                         diopiConstTensorHandle_t end_ids, diopiTensorHandle_t finished,
                                         diopiTensorHandle_t sequence_lengths, int64_t step, int64_t batch_size,
                                         int64_t vocab_size_padded, diopiConstTensorHandle_t runtime_top_k,
                                         diopiConstTensorHandle_t runtime_top_p, diopiConstTensorHandle_t skip_decode,
                                         diopiTensorHandle_t cum_log_probs, diopiTensorHandle_t output_log_probs,
                                         diopiGeneratorHandle_t *generators);

/// As diopiSetupTopkRuntimeArgsInp for top-p sampling, with the buffers of decaying thresholds set up as well. In
/// place.
DIOPI_API diopiError_t diopiSetupToppRuntimeArgsInp(diopiContextHandle_t ctx, diopiTensorHandle_t top_ks,
                                                    diopiTensorHandle_t top_ps, diopiTensorHandle_t skip_decode,
                                                    int64_t batch_size, int64_t top_k, int64_t top_ks_size,
                                                    float top_p, int64_t top_ps_size,
                                                    diopiTensorHandle_t initial_top_p_buf,
                                                    diopiTensorHandle_t top_p_decay_buf, float top_p_decay,
                                                    diopiTensorHandle_t top_p_min_buf, float top_p_min,
                                                    diopiTensorHandle_t top_p_reset_ids_buf, int64_t top_p_reset_ids);

/// Draws the next id of each sequence from the likeliest whose probabilities reach runtime_top_p, with one generator
/// per sequence. persistent_workspace keeps state between steps. `workspace` holds scratch; when *workspace_size is
/// negative the function only stores the size it needs there. fusion_level is a hint.
DIOPI_API diopiError_t diopiTopPSampling(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids,
                                         diopiTensorHandle_t logits, diopiTensorHandle_t persistent_workspace,
                                         int64_t *persistent_workspace_size, diopiTensorHandle_t workspace,
                                         int64_t *workspace_size, int64_t fusion_level,
                                         diopiConstTensorHandle_t end_ids, diopiTensorHandle_t finished,
                                         diopiTensorHandle_t sequence_lengths, int64_t step, int64_t batch_size,
                                         int64_t vocab_size_padded, diopiTensorHandle_t runtime_top_p,
                                         diopiConstTensorHandle_t skip_decode, diopiTensorHandle_t cum_log_probs,
                                         diopiTensorHandle_t output_log_probs, diopiGeneratorHandle_t *generators);

/// output_ids (batch, max_output_len) = ids (steps, batch) with the padding between prompt and answer left out;
/// context_length holds the prompts' lengths.
DIOPI_API diopiError_t diopiGatherOutput(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids,
                                         diopiConstTensorHandle_t ids, diopiConstTensorHandle_t context_length,
                                         int64_t max_context_len, int64_t max_gen_step, int64_t max_output_len,
                                         int64_t batch_size);

/// The first `size` elements of inoutput grow by `val`, in place. Integers.
DIOPI_API diopiError_t diopiPlusScalarInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput, const int64_t val,
                                          const int64_t size);

/// total_padding_count[b] += max_input_length - input_lengths[b].
DIOPI_API diopiError_t diopiUpdatePaddingCount(diopiContextHandle_t ctx, diopiTensorHandle_t total_padding_count,
                                               diopiConstTensorHandle_t input_lengths, int64_t max_input_length,
                                               int64_t batch_size);

/// output (dim1, dim0, dim2) = input (dim0, dim1, dim2) with its first two dimensions exchanged. Every dtype.
DIOPI_API diopiError_t diopiTransposeAxis01(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                            diopiConstTensorHandle_t input, const int64_t dim0, const int64_t dim1,
                                            const int64_t dim2);

/// from_tensor[b] = embedding_table[all_ids[step, b]] for `batch_size` sequences; hidden_units is the row's length.
DIOPI_API diopiError_t diopiEmbeddingLookupPosEncoding(diopiContextHandle_t ctx, diopiTensorHandle_t from_tensor,
                                                       diopiConstTensorHandle_t embedding_table,
                                                       diopiConstTensorHandle_t all_ids, const int64_t batch_size,
                                                       const int64_t hidden_units, const int64_t step);

/// from_tensor[t] = embedding_table[input_ids[t]] for the input_lengths tokens of a prompt.
DIOPI_API diopiError_t diopiInputIdsEmbeddingLookupPosEncoding(diopiContextHandle_t ctx,
                                                               diopiTensorHandle_t from_tensor,
                                                               diopiConstTensorHandle_t input_ids,
                                                               diopiConstTensorHandle_t embedding_table,
                                                               const int64_t input_lengths, const int64_t hidden_units);

/// logits of the last token of a banned sequence become -inf where the tokens before it are the sequence's newest ones;
/// bad_words holds tokens and ends, once for all sequences when share_words. In place.
DIOPI_API diopiError_t diopiBanBadWordsInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                           diopiConstTensorHandle_t output_ids, diopiConstTensorHandle_t bad_words,
                                           int64_t id_offset, int64_t bad_words_len, bool share_words,
                                           int64_t batch_size, int64_t vocab_size, int64_t step);

/// finished[b] becomes true when the newest tokens of sequence b are one of its stop_words.
DIOPI_API diopiError_t diopiStopWordsCriterion(diopiContextHandle_t ctx, diopiConstTensorHandle_t output_ids,
                                               diopiConstTensorHandle_t stop_words, diopiTensorHandle_t finished,
                                               int64_t id_offset, int64_t stop_words_len, int64_t batch_size,
                                               int64_t step);

/// finished[b] becomes true when `step` reaches sequence_limit_length[b]; finished_sum counts them, should_stop tells
/// whether all are.
DIOPI_API diopiError_t diopiLengthCriterion(diopiContextHandle_t ctx, diopiTensorHandle_t finished,
                                            diopiTensorHandle_t should_stop, diopiTensorHandle_t finished_sum,
                                            diopiConstTensorHandle_t sequence_limit_length, int64_t batch_size,
                                            int64_t step);

/// Logits of tokens that a sequence has used are changed by penalties[b]: subtracted (penalty_type 1), or divided where
/// positive and multiplied where negative (2). In place.
DIOPI_API diopiError_t diopiBatchApplyRepetitionPenaltyInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                                           diopiConstTensorHandle_t penalties,
                                                           diopiConstTensorHandle_t output_ids,
                                                           const int64_t batch_size, const int64_t vocab_size,
                                                           diopiConstTensorHandle_t input_lengths,
                                                           const int64_t max_input_length, const int64_t step,
                                                           const int64_t penalty_type);

/// logits[b] = (logits[b] + bias) / temperatures[b]; columns from vocab_size to vocab_size_padd become the lowest
/// value. `bias` may be NULL. In place.
DIOPI_API diopiError_t diopiBatchApplyTemperaturePenaltyInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                                            diopiConstTensorHandle_t bias,
                                                            diopiConstTensorHandle_t temperatures,
                                                            const int64_t batch_size, const int64_t vocab_size,
                                                            const int64_t vocab_size_padd);

DIOPI_EXTERN_C_END
// clang-format on

#endif
