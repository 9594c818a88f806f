/// Fused operators of LLM inference that a chip maker may offer: one struct of functions, one struct of arguments each.
///
/// An operator library (dit/diopi.h) that has some exports dit_infer_get_table. Slots that are NULL, and calls that a
/// function answers with DIT_ERR_UNSUPPORTED before it wrote anything, are composed of PyTorch's operators. libdit has
/// checked shapes and dtypes, and made the results, before a function is called (src/ops/llm_checks.c); what stands in
/// tensors (slots, block numbers, lengths) is the function's to check: DIT_ERR_INVALID with the argument's name.
/// Tensors are of the call's device, except small integer tensors (lengths, indices), whose flags tell where they are.
/// Elements of a tensor's last dimension lie side by side (stride 1); all other strides are free. The table only grows
/// at its end. Written by tools/gen_infer.py from standard/dlinfer.tsv.
#ifndef DIT_INFER_H
#define DIT_INFER_H

#include <stdbool.h>

#include "dit/export.h"
#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

#define DIT_INFER_VERSION 1

enum dit_infer_function {
  DIT_INFER_RMS_NORM,
  DIT_INFER_ADD_RMS_NORM,
  DIT_INFER_RMS_NORM_W8A8,
  DIT_INFER_ADD_RMS_NORM_W8A8,
  DIT_INFER_SILU_AND_MUL,
  DIT_INFER_APPLY_ROTARY_POS_EMB,
  DIT_INFER_APPLY_ROTARY_POS_EMB_INTERLEAVED,
  DIT_INFER_FILL_KV_CACHE,
  DIT_INFER_PREFILL_ATTENTION,
  DIT_INFER_PAGED_PREFILL_ATTENTION,
  DIT_INFER_PAGED_DECODE_ATTENTION,
  DIT_INFER_DYNAMIC_QUANT,
  DIT_INFER_LINEAR_W8A8,
  DIT_INFER_WEIGHT_QUANT_MATMUL,
  DIT_INFER_MOE_GATING_TOPK_SOFTMAX,
  DIT_INFER_FUSED_MOE,
  DIT_INFER_COUNT
};

/// rms_norm: out = hidden_states / sqrt(mean of its squares over the last dimension + epsilon) * weight, computed in
/// float32 and rounded once.
struct dit_infer_rms_norm {
  struct dit_tensor_view out;  ///< result
  struct dit_tensor_view hidden_states;
  struct dit_tensor_view weight;
  double epsilon;
};

/// add_rms_norm: added = hidden_states + residual, rounded to their dtype; out = rms_norm(added). Both are new tensors.
struct dit_infer_add_rms_norm {
  struct dit_tensor_view out;    ///< result
  struct dit_tensor_view added;  ///< result
  struct dit_tensor_view hidden_states;
  struct dit_tensor_view residual;
  struct dit_tensor_view weight;
  double epsilon;
};

/// rms_norm_w8a8: rms_norm, then dynamic_quant of the unrounded result.
struct dit_infer_rms_norm_w8a8 {
  struct dit_tensor_view out;    ///< result
  struct dit_tensor_view scale;  ///< result
  struct dit_tensor_view hidden_states;
  struct dit_tensor_view weight;
  double epsilon;
  int64_t quant_dtype;  ///< enum dit_dtype
};

/// add_rms_norm_w8a8: add_rms_norm, its first result quantised as in rms_norm_w8a8.
struct dit_infer_add_rms_norm_w8a8 {
  struct dit_tensor_view out;    ///< result
  struct dit_tensor_view scale;  ///< result
  struct dit_tensor_view added;  ///< result
  struct dit_tensor_view hidden_states;
  struct dit_tensor_view residual;
  struct dit_tensor_view weight;
  double epsilon;
  int64_t quant_dtype;  ///< enum dit_dtype
};

/// silu_and_mul: silu(first half of the dimension) * second half.
struct dit_infer_silu_and_mul {
  struct dit_tensor_view out;  ///< result
  struct dit_tensor_view input_tensor;
};

/// apply_rotary_pos_emb: query (T, H, D), key (T, Hk, D), cos and sin (T, R), R even and at most D: elements i and i +
/// R/2 of the first R are rotated by angle i; the rest is copied.
struct dit_infer_apply_rotary_pos_emb {
  struct dit_tensor_view out_query;  ///< result
  struct dit_tensor_view out_key;    ///< result
  struct dit_tensor_view query;
  struct dit_tensor_view key;
  struct dit_tensor_view cos;
  struct dit_tensor_view sin;
};

/// apply_rotary_pos_emb_interleaved: the same with elements 2i and 2i + 1 as a pair; cos and sin hold every angle
/// twice, side by side.
struct dit_infer_apply_rotary_pos_emb_interleaved {
  struct dit_tensor_view out_query;  ///< result
  struct dit_tensor_view out_key;    ///< result
  struct dit_tensor_view query;
  struct dit_tensor_view key;
  struct dit_tensor_view cos;
  struct dit_tensor_view sin;
};

/// fill_kv_cache: row t of key (T, Hk, D) and value (T, Hk, Dv) goes to slot kv_indices[t] of the caches (blocks,
/// block, Hk, D); slot -1 writes nothing, of equal slots the last one stays. quant_bits 8: the caches hold round(x /
/// scale - zero) as int8. A value cache that lies inside the key cache (MLA) is not written.
struct dit_infer_fill_kv_cache {
  struct dit_tensor_view key;
  struct dit_tensor_view value;
  struct dit_tensor_view key_cache;    ///< written
  struct dit_tensor_view value_cache;  ///< written
  struct dit_tensor_view kv_indices;
  struct dit_tensor_view key_scale;    ///< or absent (handle NULL)
  struct dit_tensor_view key_zero;     ///< or absent (handle NULL)
  struct dit_tensor_view value_scale;  ///< or absent (handle NULL)
  struct dit_tensor_view value_zero;   ///< or absent (handle NULL)
  int64_t quant_bits;
};

/// prefill_attention: attention of packed sequences over themselves: query (T, H, D), key (T, Hk, D), value (T, Hk,
/// Dv), sequence b has rows q_start_loc[b] to q_start_loc[b + 1]. attn_output (T, H, Dv) may be query itself.
struct dit_infer_prefill_attention {
  struct dit_tensor_view query;
  struct dit_tensor_view key;
  struct dit_tensor_view value;
  struct dit_tensor_view q_start_loc;
  bool causal;
  double softmax_scale;
  struct dit_tensor_view alibi_slopes;  ///< or absent (handle NULL)
  struct dit_tensor_view sinks;         ///< or absent (handle NULL)
  int64_t window;
  double softcap;
  struct dit_tensor_view attn_output;  ///< written
};

/// paged_prefill_attention: attention of new tokens over a paged cache that holds them already: sequence b has
/// kv_seq_len[b] tokens in the blocks of row b of block_table, its queries are the last of them; causal.
struct dit_infer_paged_prefill_attention {
  struct dit_tensor_view query;
  struct dit_tensor_view key_cache;
  struct dit_tensor_view value_cache;
  struct dit_tensor_view block_table;
  struct dit_tensor_view q_start_loc;  ///< or absent (handle NULL)
  struct dit_tensor_view kv_seq_len;
  double softmax_scale;
  struct dit_tensor_view alibi_slopes;  ///< or absent (handle NULL)
  struct dit_tensor_view sinks;         ///< or absent (handle NULL)
  int64_t window;
  double softcap;
  struct dit_tensor_view kv_scales;  ///< or absent (handle NULL)
  struct dit_tensor_view kv_zeros;   ///< or absent (handle NULL)
  int64_t quant_bits;
  struct dit_tensor_view attn_output;  ///< written
};

/// paged_decode_attention: the same with T / B queries for each sequence, without q_start_loc.
struct dit_infer_paged_decode_attention {
  struct dit_tensor_view query;
  struct dit_tensor_view key_cache;
  struct dit_tensor_view value_cache;
  struct dit_tensor_view block_table;
  struct dit_tensor_view q_start_loc;  ///< or absent (handle NULL)
  struct dit_tensor_view kv_seq_len;
  double softmax_scale;
  struct dit_tensor_view alibi_slopes;  ///< or absent (handle NULL)
  struct dit_tensor_view sinks;         ///< or absent (handle NULL)
  int64_t window;
  double softcap;
  struct dit_tensor_view kv_scales;  ///< or absent (handle NULL)
  struct dit_tensor_view kv_zeros;   ///< or absent (handle NULL)
  int64_t quant_bits;
  struct dit_tensor_view attn_output;  ///< written
};

/// dynamic_quant: scale = largest magnitude of a row / 127 (float32, shape without the last dimension), out = round(x /
/// scale); a row of zeros has scale 0.
struct dit_infer_dynamic_quant {
  struct dit_tensor_view out;    ///< result
  struct dit_tensor_view scale;  ///< result
  struct dit_tensor_view x;
  int64_t quant_dtype;  ///< enum dit_dtype
};

/// linear_w8a8: a (..., K) and b (N, K) int8: whole numbers are summed, then multiplied by the row's rms_scale and the
/// column's linear_scale.
struct dit_infer_linear_w8a8 {
  struct dit_tensor_view out;  ///< result
  struct dit_tensor_view a;
  struct dit_tensor_view b;
  struct dit_tensor_view rms_scale;
  struct dit_tensor_view linear_scale;
  int64_t out_dtype;            ///< enum dit_dtype
  struct dit_tensor_view bias;  ///< or absent (handle NULL)
};

/// weight_quant_matmul: x1 (..., K) by 4-bit weights x2 int32 (K, N / 8), scale (K / group_size, N). offset int32:
/// AWQ's packing (nibbles 0 2 4 6 1 3 5 7), w = (q - offset) * scale; a floating offset (or none): nibbles in order and
/// signed, w = (q + offset) * scale.
struct dit_infer_weight_quant_matmul {
  struct dit_tensor_view out;  ///< result
  struct dit_tensor_view x1;
  struct dit_tensor_view x2;
  struct dit_tensor_view scale;
  struct dit_tensor_view offset;  ///< or absent (handle NULL)
  struct dit_tensor_view bias;    ///< or absent (handle NULL)
  int64_t group_size;
};

/// moe_gating_topk_softmax: softmax over the experts in float32, its topk largest (float32, int32), not renormalised;
/// with groups, topk / groups of each group; of equal ones the first.
struct dit_infer_moe_gating_topk_softmax {
  struct dit_tensor_view weights;  ///< result
  struct dit_tensor_view ids;      ///< result
  struct dit_tensor_view router_logits;
  int64_t topk;
  int64_t router_n_groups;
};

/// fused_moe: sum over a token's experts of weight * down @ silu_and_mul(gate_up @ token); gate_up (E, 2I, N), down (E,
/// N, I). An id outside 0 to E - 1 adds nothing; topk_weights stay as they are.
struct dit_infer_fused_moe {
  struct dit_tensor_view out;  ///< result
  struct dit_tensor_view hidden_states;
  struct dit_tensor_view gate_up_weights;
  struct dit_tensor_view down_weights;
  struct dit_tensor_view topk_weights;
  struct dit_tensor_view topk_ids;
  bool renormalize;
};

struct dit_infer_table {
  uint32_t version;  ///< DIT_INFER_VERSION
  uint32_t size;     ///< sizeof(struct dit_infer_table) of the library; slots beyond it count as NULL
  enum dit_status (*rms_norm)(void *stream, const struct dit_infer_rms_norm *call, struct dit_error *err);
  enum dit_status (*add_rms_norm)(void *stream, const struct dit_infer_add_rms_norm *call, struct dit_error *err);
  enum dit_status (*rms_norm_w8a8)(void *stream, const struct dit_infer_rms_norm_w8a8 *call, struct dit_error *err);
  enum dit_status (*add_rms_norm_w8a8)(void *stream, const struct dit_infer_add_rms_norm_w8a8 *call,
                                       struct dit_error *err);
  enum dit_status (*silu_and_mul)(void *stream, const struct dit_infer_silu_and_mul *call, struct dit_error *err);
  enum dit_status (*apply_rotary_pos_emb)(void *stream, const struct dit_infer_apply_rotary_pos_emb *call,
                                          struct dit_error *err);
  enum dit_status (*apply_rotary_pos_emb_interleaved)(void *stream,
                                                      const struct dit_infer_apply_rotary_pos_emb_interleaved *call,
                                                      struct dit_error *err);
  enum dit_status (*fill_kv_cache)(void *stream, const struct dit_infer_fill_kv_cache *call, struct dit_error *err);
  enum dit_status (*prefill_attention)(void *stream, const struct dit_infer_prefill_attention *call,
                                       struct dit_error *err);
  enum dit_status (*paged_prefill_attention)(void *stream, const struct dit_infer_paged_prefill_attention *call,
                                             struct dit_error *err);
  enum dit_status (*paged_decode_attention)(void *stream, const struct dit_infer_paged_decode_attention *call,
                                            struct dit_error *err);
  enum dit_status (*dynamic_quant)(void *stream, const struct dit_infer_dynamic_quant *call, struct dit_error *err);
  enum dit_status (*linear_w8a8)(void *stream, const struct dit_infer_linear_w8a8 *call, struct dit_error *err);
  enum dit_status (*weight_quant_matmul)(void *stream, const struct dit_infer_weight_quant_matmul *call,
                                         struct dit_error *err);
  enum dit_status (*moe_gating_topk_softmax)(void *stream, const struct dit_infer_moe_gating_topk_softmax *call,
                                             struct dit_error *err);
  enum dit_status (*fused_moe)(void *stream, const struct dit_infer_fused_moe *call, struct dit_error *err);
};

/// What a library exports.
typedef const struct dit_infer_table *dit_infer_get_table_function(void);

/// For frameworks: the name of function `number` (NULL beyond the last), and whether a table (NULL: none) has it.
DIT_API const char *dit_infer_get_name(int number);
DIT_API bool dit_infer_has(const struct dit_infer_table *table, int number);

DIT_EXTERN_C_END

#endif
