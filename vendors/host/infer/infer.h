/// The operators of LLM inference on the host: one function each, which does the whole work in the calling thread (and
/// the pool's). table.c puts them onto streams. Arguments were checked by libdit (src/ops/llm_checks.c).
#ifndef DIT_HOST_INFER_INFER_H
#define DIT_HOST_INFER_INFER_H

#include "dit/infer.h"

/// X(name, views ...): the tensors of its struct, for the queue of a side stream.
#define HOST_INFER_LIST(X)                                                                                          \
  X(rms_norm, V(out), V(hidden_states), V(weight))                                                                  \
  X(add_rms_norm, V(out), V(added), V(hidden_states), V(residual), V(weight))                                       \
  X(rms_norm_w8a8, V(out), V(scale), V(hidden_states), V(weight))                                                   \
  X(add_rms_norm_w8a8, V(out), V(scale), V(added), V(hidden_states), V(residual), V(weight))                        \
  X(silu_and_mul, V(out), V(input_tensor))                                                                          \
  X(apply_rotary_pos_emb, V(out_query), V(out_key), V(query), V(key), V(cos), V(sin))                               \
  X(apply_rotary_pos_emb_interleaved, V(out_query), V(out_key), V(query), V(key), V(cos), V(sin))                   \
  X(fill_kv_cache, V(key), V(value), V(key_cache), V(value_cache), V(kv_indices), V(key_scale), V(key_zero),        \
    V(value_scale), V(value_zero))                                                                                  \
  X(prefill_attention, V(query), V(key), V(value), V(q_start_loc), V(alibi_slopes), V(sinks), V(attn_output))       \
  X(paged_prefill_attention, V(query), V(key_cache), V(value_cache), V(block_table), V(q_start_loc), V(kv_seq_len), \
    V(alibi_slopes), V(sinks), V(kv_scales), V(kv_zeros), V(attn_output))                                           \
  X(paged_decode_attention, V(query), V(key_cache), V(value_cache), V(block_table), V(q_start_loc), V(kv_seq_len),  \
    V(alibi_slopes), V(sinks), V(kv_scales), V(kv_zeros), V(attn_output))                                           \
  X(dynamic_quant, V(out), V(scale), V(x))                                                                          \
  X(linear_w8a8, V(out), V(a), V(b), V(rms_scale), V(linear_scale), V(bias))                                        \
  X(weight_quant_matmul, V(out), V(x1), V(x2), V(scale), V(offset), V(bias))                                        \
  X(moe_gating_topk_softmax, V(weights), V(ids), V(router_logits))                                                  \
  X(fused_moe, V(out), V(hidden_states), V(gate_up_weights), V(down_weights), V(topk_weights), V(topk_ids))

#define HOST_INFER_DECLARE(name, ...) \
  enum dit_status infer_##name(const struct dit_infer_##name *call, struct dit_error *err);
HOST_INFER_LIST(HOST_INFER_DECLARE)
#undef HOST_INFER_DECLARE

#define INFER_NO_MEMORY(err) dit_error_set(err, DIT_ERR_NOMEM, "no memory for the operator's working space")

#endif
