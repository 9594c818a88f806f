/// What must hold for the arguments of the LLM operators (dit/infer.h), and what their results look like. Values inside
/// of tensors are not looked at here.
#include <math.h>
#include <string.h>

#include "llm.h"

#define CHECK(condition, ...)                                  \
  do {                                                         \
    if (!(condition)) {                                        \
      return dit_error_set(err, DIT_ERR_INVALID, __VA_ARGS__); \
    }                                                          \
  } while (0)
#define TRY DIT_RETURN_IF_NOT_OK

/// float32, float16, bfloat16. float64 is for the composed form.
static enum dit_status check_float(const char *name, const struct dit_tensor_view *view, struct dit_error *err) {
  if (view->dtype == DIT_DTYPE_F64) {
    return DIT_ERR_UNSUPPORTED;
  }
  CHECK(view->dtype == DIT_DTYPE_F32 || view->dtype == DIT_DTYPE_F16 || view->dtype == DIT_DTYPE_BF16,
        "'%s' is %s; valid: float32, float16, bfloat16", name, dit_dtype_get_name(view->dtype));
  return DIT_OK;
}

static enum dit_status check_index(const char *name, const struct dit_tensor_view *view, struct dit_error *err) {
  CHECK(view->dtype == DIT_DTYPE_I32 || view->dtype == DIT_DTYPE_I64, "'%s' is %s; valid: int32, int64", name,
        dit_dtype_get_name(view->dtype));
  return DIT_OK;
}

static enum dit_status check_dims(const char *name, const struct dit_tensor_view *view, int ndim,
                                  struct dit_error *err) {
  CHECK(view->ndim == ndim, "'%s' has %d dimensions; valid: %d", name, (int)view->ndim, ndim);
  return DIT_OK;
}

static enum dit_status check_same_dtype(const char *name, const struct dit_tensor_view *view, const char *other_name,
                                        const struct dit_tensor_view *other, struct dit_error *err) {
  CHECK(view->dtype == other->dtype, "'%s' is %s and '%s' %s; valid: one dtype", name, dit_dtype_get_name(view->dtype),
        other_name, dit_dtype_get_name(other->dtype));
  return DIT_OK;
}

static bool has_shape(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || !memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim));
}

static int64_t get_last(const struct dit_tensor_view *view) {
  return view->ndim > 0 ? view->sizes[view->ndim - 1] : 0;
}

/// Shape of `like` without `less` of its last dimensions.
static void set_result(struct llm_result *result, const struct dit_tensor_view *like, int less, int dtype) {
  result->ndim = like->ndim - less;
  result->dtype = dtype;
  memcpy(result->sizes, like->sizes, sizeof(int64_t) * (size_t)result->ndim);
}

static enum dit_status check_quant(int64_t dtype, struct dit_error *err) {
  CHECK(dtype == DIT_DTYPE_I8, "'quant_dtype' is %s; valid: int8", dit_dtype_get_name((int)dtype));
  return DIT_OK;
}

// Norms

static enum dit_status check_norm(const struct dit_tensor_view *x, const struct dit_tensor_view *residual,
                                  const struct dit_tensor_view *weight, struct dit_error *err) {
  TRY(check_float("hidden_states", x, err));
  TRY(check_float("weight", weight, err));
  CHECK(x->ndim >= 1, "'hidden_states' has no dimension; valid: at least one");
  CHECK(weight->ndim == 1 && weight->sizes[0] == get_last(x),
        "'weight' must have one dimension of %lld elements, as the last one of 'hidden_states'",
        (long long)get_last(x));
  if (residual) {
    CHECK(has_shape(x, residual), "'residual' has another shape than 'hidden_states'");
    TRY(check_same_dtype("residual", residual, "hidden_states", x, err));
  }
  return DIT_OK;
}

enum dit_status llm_check_rms_norm(const struct dit_infer_rms_norm *call, struct llm_result *results,
                                   struct dit_error *err) {
  TRY(check_norm(&call->hidden_states, NULL, &call->weight, err));
  set_result(&results[0], &call->hidden_states, 0, call->hidden_states.dtype);
  return DIT_OK;
}

enum dit_status llm_check_add_rms_norm(const struct dit_infer_add_rms_norm *call, struct llm_result *results,
                                       struct dit_error *err) {
  TRY(check_norm(&call->hidden_states, &call->residual, &call->weight, err));
  set_result(&results[0], &call->hidden_states, 0, call->hidden_states.dtype);
  set_result(&results[1], &call->hidden_states, 0, call->hidden_states.dtype);
  return DIT_OK;
}

enum dit_status llm_check_rms_norm_w8a8(const struct dit_infer_rms_norm_w8a8 *call, struct llm_result *results,
                                        struct dit_error *err) {
  TRY(check_norm(&call->hidden_states, NULL, &call->weight, err));
  set_result(&results[0], &call->hidden_states, 0, DIT_DTYPE_I8);
  set_result(&results[1], &call->hidden_states, 1, DIT_DTYPE_F32);
  return check_quant(call->quant_dtype, err);
}

enum dit_status llm_check_add_rms_norm_w8a8(const struct dit_infer_add_rms_norm_w8a8 *call, struct llm_result *results,
                                            struct dit_error *err) {
  TRY(check_norm(&call->hidden_states, &call->residual, &call->weight, err));
  set_result(&results[0], &call->hidden_states, 0, DIT_DTYPE_I8);
  set_result(&results[1], &call->hidden_states, 1, DIT_DTYPE_F32);
  set_result(&results[2], &call->hidden_states, 0, call->hidden_states.dtype);
  return check_quant(call->quant_dtype, err);
}

enum dit_status llm_check_dynamic_quant(const struct dit_infer_dynamic_quant *call, struct llm_result *results,
                                        struct dit_error *err) {
  TRY(check_float("x", &call->x, err));
  CHECK(call->x.ndim >= 1, "'x' has no dimension; valid: at least one");
  set_result(&results[0], &call->x, 0, DIT_DTYPE_I8);
  set_result(&results[1], &call->x, 1, DIT_DTYPE_F32);
  return check_quant(call->quant_dtype, err);
}

// Activation and positions

enum dit_status llm_check_silu_and_mul(const struct dit_infer_silu_and_mul *call, struct llm_result *results,
                                       struct dit_error *err) {
  const int64_t width = get_last(&call->input_tensor);
  TRY(check_float("input_tensor", &call->input_tensor, err));
  CHECK(call->input_tensor.ndim >= 1 && width % 2 == 0, "'input_tensor' has %lld elements to halve; valid: even",
        (long long)width);
  set_result(&results[0], &call->input_tensor, 0, call->input_tensor.dtype);
  results[0].sizes[results[0].ndim - 1] = width / 2;
  return DIT_OK;
}

static enum dit_status check_rotary(const struct dit_infer_apply_rotary_pos_emb *call, struct llm_result *results,
                                    struct dit_error *err) {
  const struct dit_tensor_view *q = &call->query, *k = &call->key, *tables[2] = {&call->cos, &call->sin};
  TRY(check_dims("query", q, 3, err));
  TRY(check_dims("key", k, 3, err));
  TRY(check_float("query", q, err));
  TRY(check_same_dtype("key", k, "query", q, err));
  CHECK(k->sizes[0] == q->sizes[0] && k->sizes[2] == q->sizes[2],
        "'key' must have %lld tokens and heads of %lld elements, as 'query'", (long long)q->sizes[0],
        (long long)q->sizes[2]);
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "sin" : "cos";
    TRY(check_dims(name, tables[i], 2, err));
    TRY(check_float(name, tables[i], err));
    CHECK(tables[i]->sizes[0] == q->sizes[0] && tables[i]->sizes[1] <= q->sizes[2] && tables[i]->sizes[1] % 2 == 0 &&
              tables[i]->sizes[1] == tables[0]->sizes[1],
          "'%s' is %lld x %lld; valid: %lld tokens by an even number up to %lld, one shape for 'cos' and 'sin'", name,
          (long long)tables[i]->sizes[0], (long long)tables[i]->sizes[1], (long long)q->sizes[0],
          (long long)q->sizes[2]);
  }
  set_result(&results[0], q, 0, q->dtype);
  set_result(&results[1], k, 0, k->dtype);
  return DIT_OK;
}

enum dit_status llm_check_apply_rotary_pos_emb(const struct dit_infer_apply_rotary_pos_emb *call,
                                               struct llm_result *results, struct dit_error *err) {
  return check_rotary(call, results, err);
}

enum dit_status llm_check_apply_rotary_pos_emb_interleaved(
    const struct dit_infer_apply_rotary_pos_emb_interleaved *call, struct llm_result *results, struct dit_error *err) {
  const struct dit_infer_apply_rotary_pos_emb same = {
      .query = call->query, .key = call->key, .cos = call->cos, .sin = call->sin};
  return check_rotary(&same, results, err);
}

// Caches and attention

/// A cache (blocks, block, Hk, D): of the model's dtype, or bytes that mean int8.
static enum dit_status check_cache(const char *name, const struct dit_tensor_view *cache, int64_t quant_bits,
                                   const struct dit_tensor_view *tokens, struct dit_error *err) {
  TRY(check_dims(name, cache, 4, err));
  CHECK(quant_bits == 0 || quant_bits == 8, "'quant_bits' is %lld; valid: 0, 8", (long long)quant_bits);
  if (quant_bits == 8) {
    CHECK(cache->dtype == DIT_DTYPE_I8 || cache->dtype == DIT_DTYPE_U8,
          "'%s' is %s; valid with quant_bits 8: int8, uint8", name, dit_dtype_get_name(cache->dtype));
    return DIT_OK;
  }
  TRY(check_float(name, cache, err));
  CHECK(cache->dtype == tokens->dtype, "'%s' is %s and the tokens are %s; valid: one dtype", name,
        dit_dtype_get_name(cache->dtype), dit_dtype_get_name(tokens->dtype));
  return DIT_OK;
}

static enum dit_status check_numbers(const char *name, const struct dit_tensor_view *view, int64_t count,
                                     struct dit_error *err) {
  if (view->handle) {
    TRY(check_float(name, view, err));
    CHECK(view->numel >= count, "'%s' has %lld numbers; valid: %lld", name, (long long)view->numel, (long long)count);
  }
  return DIT_OK;
}

static enum dit_status check_rows(const char *name, const struct dit_tensor_view *rows, const char *cache_name,
                                  const struct dit_tensor_view *cache, struct dit_error *err) {
  TRY(check_dims(name, rows, 3, err));
  TRY(check_float(name, rows, err));
  CHECK(rows->sizes[1] == cache->sizes[2] && rows->sizes[2] == cache->sizes[3],
        "'%s' has %lld heads of %lld elements and '%s' %lld of %lld (a cache is blocks x tokens x heads x elements)",
        name, (long long)rows->sizes[1], (long long)rows->sizes[2], cache_name, (long long)cache->sizes[2],
        (long long)cache->sizes[3]);
  return DIT_OK;
}

enum dit_status llm_check_fill_kv_cache(const struct dit_infer_fill_kv_cache *call, struct llm_result *results,
                                        struct dit_error *err) {
  (void)results;
  TRY(check_cache("key_cache", &call->key_cache, call->quant_bits, &call->key, err));
  TRY(check_cache("value_cache", &call->value_cache, call->quant_bits, &call->value, err));
  TRY(check_rows("key", &call->key, "key_cache", &call->key_cache, err));
  TRY(check_rows("value", &call->value, "value_cache", &call->value_cache, err));
  CHECK(call->value.sizes[0] == call->key.sizes[0], "'value' has %lld tokens and 'key' %lld",
        (long long)call->value.sizes[0], (long long)call->key.sizes[0]);
  CHECK(
      call->value_cache.sizes[0] == call->key_cache.sizes[0] && call->value_cache.sizes[1] == call->key_cache.sizes[1],
      "'value_cache' must have as many blocks and tokens as 'key_cache'");
  TRY(check_index("kv_indices", &call->kv_indices, err));
  CHECK(call->kv_indices.numel == call->key.sizes[0], "'kv_indices' has %lld slots; valid: %lld, one for each token",
        (long long)call->kv_indices.numel, (long long)call->key.sizes[0]);
  if (call->quant_bits) {
    CHECK(call->key_scale.handle && call->value_scale.handle,
          "'k_scales_zeros' and 'v_scales_zeros' must hold a scale with quant_bits 8");
  }
  TRY(check_numbers("k_scales_zeros[0]", &call->key_scale, 1, err));
  TRY(check_numbers("k_scales_zeros[1]", &call->key_zero, 1, err));
  TRY(check_numbers("v_scales_zeros[0]", &call->value_scale, 1, err));
  return check_numbers("v_scales_zeros[1]", &call->value_zero, 1, err);
}

/// What all three attentions share.
static enum dit_status check_attention(const struct dit_tensor_view *query, int64_t key_heads, int64_t width,
                                       int64_t value_width, const struct dit_tensor_view *slopes,
                                       const struct dit_tensor_view *sinks, double softcap,
                                       const struct dit_tensor_view *out, struct dit_error *err) {
  TRY(check_dims("query", query, 3, err));
  TRY(check_float("query", query, err));
  CHECK(query->sizes[2] == width, "'query' has heads of %lld elements and the keys of %lld", (long long)query->sizes[2],
        (long long)width);
  CHECK(key_heads > 0 ? query->sizes[1] % key_heads == 0 : query->sizes[1] == 0,
        "'query' has %lld heads, no multiple of the keys' %lld", (long long)query->sizes[1], (long long)key_heads);
  TRY(check_dims("attn_output", out, 3, err));
  TRY(check_same_dtype("attn_output", out, "query", query, err));
  CHECK(out->sizes[0] == query->sizes[0] && out->sizes[1] == query->sizes[1] && out->sizes[2] == value_width,
        "'attn_output' is %lld x %lld x %lld; valid: %lld x %lld x %lld", (long long)out->sizes[0],
        (long long)out->sizes[1], (long long)out->sizes[2], (long long)query->sizes[0], (long long)query->sizes[1],
        (long long)value_width);
  const bool begins =
      out->data == query->data && !memcmp(out->strides, query->strides, 2 * sizeof(int64_t)) && value_width <= width;
  CHECK(begins || out->storage != query->storage || dit_tensor_get_shared(out, query) == DIT_OVERLAP_NO,
        "'attn_output' overlaps 'query' and is not its beginning");
  CHECK(softcap >= 0, "'softcap' is %g; valid: 0 (none) or more", softcap);
  TRY(check_numbers("alibi_slopes", slopes, query->sizes[1], err));
  return check_numbers("sinks", sinks, query->sizes[1], err);
}

static enum dit_status check_starts(const struct dit_tensor_view *starts, struct dit_error *err) {
  TRY(check_index("q_start_loc", starts, err));
  CHECK(starts->ndim == 1 && starts->sizes[0] >= 1, "'q_start_loc' must be a list of sequences + 1 numbers");
  return DIT_OK;
}

enum dit_status llm_check_prefill_attention(const struct dit_infer_prefill_attention *call, struct llm_result *results,
                                            struct dit_error *err) {
  (void)results;
  const struct dit_tensor_view *k = &call->key, *v = &call->value;
  TRY(check_dims("key", k, 3, err));
  TRY(check_dims("value", v, 3, err));
  TRY(check_same_dtype("key", k, "query", &call->query, err));
  TRY(check_same_dtype("value", v, "query", &call->query, err));
  TRY(check_attention(&call->query, k->sizes[1], k->sizes[2], v->sizes[2], &call->alibi_slopes, &call->sinks,
                      call->softcap, &call->attn_output, err));
  CHECK(k->sizes[0] == call->query.sizes[0], "'key' has %lld tokens and 'query' %lld", (long long)k->sizes[0],
        (long long)call->query.sizes[0]);
  CHECK(v->sizes[0] == k->sizes[0] && v->sizes[1] == k->sizes[1], "'value' must have the tokens and heads of 'key'");
  return check_starts(&call->q_start_loc, err);
}

static enum dit_status check_paged(const struct dit_infer_paged_prefill_attention *call, struct dit_error *err) {
  const struct dit_tensor_view *k = &call->key_cache, *v = &call->value_cache;
  TRY(check_cache("key_cache", k, call->quant_bits, &call->query, err));
  TRY(check_cache("value_cache", v, call->quant_bits, &call->query, err));
  TRY(check_attention(&call->query, k->sizes[2], k->sizes[3], v->sizes[3], &call->alibi_slopes, &call->sinks,
                      call->softcap, &call->attn_output, err));
  CHECK(v->sizes[0] == k->sizes[0] && v->sizes[1] == k->sizes[1] && v->sizes[2] == k->sizes[2],
        "'value_cache' must have the blocks, tokens and heads of 'key_cache'");
  TRY(check_dims("block_table", &call->block_table, 2, err));
  TRY(check_index("block_table", &call->block_table, err));
  TRY(check_index("kv_seq_len", &call->kv_seq_len, err));
  CHECK(call->kv_seq_len.ndim == 1 && call->kv_seq_len.sizes[0] == call->block_table.sizes[0],
        "'kv_seq_len' must have %lld lengths, as 'block_table' has rows", (long long)call->block_table.sizes[0]);
  const int64_t sequences = call->kv_seq_len.sizes[0];
  if (call->q_start_loc.handle) {
    TRY(check_starts(&call->q_start_loc, err));
    CHECK(call->q_start_loc.sizes[0] == sequences + 1, "'q_start_loc' has %lld numbers; valid: %lld",
          (long long)call->q_start_loc.sizes[0], (long long)sequences + 1);
  } else {
    CHECK(sequences > 0 ? call->query.sizes[0] % sequences == 0 : call->query.sizes[0] == 0,
          "'query' has %lld tokens, no multiple of the %lld sequences", (long long)call->query.sizes[0],
          (long long)sequences);
  }
  if (call->quant_bits) {
    CHECK(call->kv_scales.handle, "'kv_scales' must hold two scales with quant_bits 8");
  }
  TRY(check_numbers("kv_scales", &call->kv_scales, 2, err));
  return check_numbers("kv_zeros", &call->kv_zeros, 2, err);
}

enum dit_status llm_check_paged_prefill_attention(const struct dit_infer_paged_prefill_attention *call,
                                                  struct llm_result *results, struct dit_error *err) {
  (void)results;
  return check_paged(call, err);
}

enum dit_status llm_check_paged_decode_attention(const struct dit_infer_paged_decode_attention *call,
                                                 struct llm_result *results, struct dit_error *err) {
  struct dit_infer_paged_prefill_attention same;
  _Static_assert(sizeof same == sizeof *call, "both have the same arguments");
  (void)results;
  memcpy(&same, call, sizeof same);
  return check_paged(&same, err);
}

// Products

enum dit_status llm_check_linear_w8a8(const struct dit_infer_linear_w8a8 *call, struct llm_result *results,
                                      struct dit_error *err) {
  const struct dit_tensor_view *a = &call->a, *b = &call->b;
  CHECK(a->dtype == DIT_DTYPE_I8, "'a' is %s; valid: int8", dit_dtype_get_name(a->dtype));
  CHECK(b->dtype == DIT_DTYPE_I8, "'b' is %s; valid: int8", dit_dtype_get_name(b->dtype));
  TRY(check_dims("b", b, 2, err));
  CHECK(a->ndim >= 1 && get_last(a) == b->sizes[1], "'a' has rows of %lld elements; valid: %lld, as 'b'",
        (long long)get_last(a), (long long)b->sizes[1]);
  const int64_t rows = b->sizes[1] > 0 ? a->numel / b->sizes[1] : 0;
  TRY(check_float("rms_scale", &call->rms_scale, err));
  TRY(check_float("linear_scale", &call->linear_scale, err));
  CHECK(call->rms_scale.numel == rows, "'rms_scale' has %lld numbers; valid: %lld, one for each row of 'a'",
        (long long)call->rms_scale.numel, (long long)rows);
  CHECK(call->linear_scale.numel == b->sizes[0],
        "'linear_scale' has %lld numbers; valid: %lld, one for each row of 'b'", (long long)call->linear_scale.numel,
        (long long)b->sizes[0]);
  CHECK(call->out_dtype == DIT_DTYPE_F32 || call->out_dtype == DIT_DTYPE_F16 || call->out_dtype == DIT_DTYPE_BF16,
        "'out_dtype' is %s; valid: float32, float16, bfloat16", dit_dtype_get_name((int)call->out_dtype));
  TRY(check_numbers("bias", &call->bias, b->sizes[0], err));
  set_result(&results[0], a, 0, (int)call->out_dtype);
  results[0].sizes[a->ndim - 1] = b->sizes[0];
  return DIT_OK;
}

enum dit_status llm_check_weight_quant_matmul(const struct dit_infer_weight_quant_matmul *call,
                                              struct llm_result *results, struct dit_error *err) {
  const struct dit_tensor_view *x = &call->x1, *w = &call->x2, *scale = &call->scale, *offset = &call->offset;
  TRY(check_float("x1", x, err));
  TRY(check_dims("x2", w, 2, err));
  CHECK(w->dtype == DIT_DTYPE_I32, "'x2' is %s; valid: int32 with eight weights each", dit_dtype_get_name(w->dtype));
  CHECK(x->ndim >= 1 && get_last(x) == w->sizes[0], "'x1' has rows of %lld elements; valid: %lld, the rows of 'x2'",
        (long long)get_last(x), (long long)w->sizes[0]);
  TRY(check_dims("scale", scale, 2, err));
  TRY(check_float("scale", scale, err));
  const int64_t width = w->sizes[1] * 8, group = call->group_size > 0 ? call->group_size : w->sizes[0];
  CHECK(group > 0 && w->sizes[0] % group == 0, "'group_size' is %lld; valid: a divisor of %lld",
        (long long)call->group_size, (long long)w->sizes[0]);
  CHECK(scale->sizes[0] == w->sizes[0] / group && scale->sizes[1] == width,
        "'scale' is %lld x %lld; valid: %lld x %lld", (long long)scale->sizes[0], (long long)scale->sizes[1],
        (long long)(w->sizes[0] / group), (long long)width);
  if (offset->handle) {
    const bool packed = offset->dtype == DIT_DTYPE_I32;
    TRY(check_dims("offset", offset, 2, err));
    if (!packed) {
      TRY(check_float("offset", offset, err));
    }
    CHECK(offset->sizes[0] == scale->sizes[0] && offset->sizes[1] == (packed ? w->sizes[1] : width),
          "'offset' is %lld x %lld; valid: %lld x %lld", (long long)offset->sizes[0], (long long)offset->sizes[1],
          (long long)scale->sizes[0], (long long)(packed ? w->sizes[1] : width));
  }
  TRY(check_numbers("bias", &call->bias, width, err));
  set_result(&results[0], x, 0, x->dtype);
  results[0].sizes[x->ndim - 1] = width;
  return DIT_OK;
}

enum dit_status llm_check_moe_gating_topk_softmax(const struct dit_infer_moe_gating_topk_softmax *call,
                                                  struct llm_result *results, struct dit_error *err) {
  const struct dit_tensor_view *logits = &call->router_logits;
  TRY(check_dims("router_logits", logits, 2, err));
  TRY(check_float("router_logits", logits, err));
  const int64_t experts = logits->sizes[1], groups = call->router_n_groups;
  CHECK(call->topk >= 1 && call->topk <= experts, "'topk' is %lld; valid: 1 to %lld", (long long)call->topk,
        (long long)experts);
  CHECK(groups <= 0 || (call->topk % groups == 0 && experts % groups == 0),
        "'router_n_groups' is %lld; valid: a divisor of topk %lld and of %lld experts", (long long)groups,
        (long long)call->topk, (long long)experts);
  for (int i = 0; i < 2; i++) {
    set_result(&results[i], logits, 0, i ? DIT_DTYPE_I32 : DIT_DTYPE_F32);
    results[i].sizes[1] = call->topk;
  }
  return DIT_OK;
}

enum dit_status llm_check_fused_moe(const struct dit_infer_fused_moe *call, struct llm_result *results,
                                    struct dit_error *err) {
  const struct dit_tensor_view *x = &call->hidden_states, *up = &call->gate_up_weights, *down = &call->down_weights;
  const struct dit_tensor_view *weights = &call->topk_weights, *ids = &call->topk_ids;
  TRY(check_dims("hidden_states", x, 2, err));
  TRY(check_float("hidden_states", x, err));
  TRY(check_dims("gate_up_weights", up, 3, err));
  TRY(check_dims("down_weights", down, 3, err));
  TRY(check_same_dtype("gate_up_weights", up, "hidden_states", x, err));
  TRY(check_same_dtype("down_weights", down, "hidden_states", x, err));
  CHECK(up->sizes[2] == x->sizes[1] && up->sizes[1] % 2 == 0,
        "'gate_up_weights' is %lld x %lld x %lld; valid: experts x an even number x %lld", (long long)up->sizes[0],
        (long long)up->sizes[1], (long long)up->sizes[2], (long long)x->sizes[1]);
  CHECK(down->sizes[0] == up->sizes[0] && down->sizes[1] == x->sizes[1] && down->sizes[2] == up->sizes[1] / 2,
        "'down_weights' is %lld x %lld x %lld; valid: %lld x %lld x %lld", (long long)down->sizes[0],
        (long long)down->sizes[1], (long long)down->sizes[2], (long long)up->sizes[0], (long long)x->sizes[1],
        (long long)up->sizes[1] / 2);
  TRY(check_float("topk_weights", weights, err));
  TRY(check_index("topk_ids", ids, err));
  TRY(check_dims("topk_weights", weights, 2, err));
  CHECK(has_shape(ids, weights) && ids->sizes[0] == x->sizes[0],
        "'topk_ids' and 'topk_weights' must have one shape with %lld rows", (long long)x->sizes[0]);
  set_result(&results[0], x, 0, x->dtype);
  return DIT_OK;
}
