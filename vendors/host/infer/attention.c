/// The three attentions: lengths and block numbers are read and checked, then attention_work.c computes. Scores are
/// scale q.k, then softcap * tanh(score / softcap), then - slope * distance; softmax over the visible keys, with
/// exp(sink) more in its denominator. The last query of a sequence stands at its last key. int8 caches: (q + zero) *
/// scale.
#include "attention.h"

#include <string.h>

#include "engine/scratch.h"
#include "infer.h"
#include "row.h"

#define CHECK(condition, ...)                                  \
  do {                                                         \
    if (!(condition)) {                                        \
      return dit_error_set(err, DIT_ERR_INVALID, __VA_ARGS__); \
    }                                                          \
  } while (0)

/// Where the queries of each sequence begin, in `out`.
static enum dit_status read_starts(const struct dit_tensor_view *starts, int64_t sequences, int64_t queries,
                                   int64_t *out, struct dit_error *err) {
  for (int64_t i = 0; i <= sequences; i++) {
    out[i] = starts->handle ? row_index(starts, i * starts->strides[0]) : i * (queries / (sequences ? sequences : 1));
    CHECK(out[i] >= (i ? out[i - 1] : 0) && out[i] <= queries,
          "'q_start_loc' (from q_seq_len) has %lld at %lld; valid: rising from 0 to %lld", (long long)out[i],
          (long long)i, (long long)queries);
  }
  return DIT_OK;
}

static const float *read_numbers(const struct dit_tensor_view *view, int64_t count, float *room) {
  return view->handle ? row_read(view, 0, count, room) : NULL;
}

static struct attention_rows get_rows(const struct dit_tensor_view *view, const struct dit_tensor_view *scales,
                                      const struct dit_tensor_view *zeros, int which, bool quantized) {
  const bool paged = view->ndim == 4;
  return (struct attention_rows){.view = view,
                                 .block = paged ? view->strides[0] : 0,
                                 .row = view->strides[paged ? 1 : 0],
                                 .head = view->strides[paged ? 2 : 1],
                                 .dtype = quantized ? DIT_DTYPE_I8 : view->dtype,
                                 .size = quantized ? 1 : (int)dit_dtype_get_size(view->dtype),
                                 .scale = quantized ? row_number(scales, which) : 1,
                                 .zero = quantized && zeros->handle ? row_number(zeros, which) : 0};
}

/// A window beyond all positions hides nothing.
static int64_t get_window(int64_t window) {
  return window < INT32_MAX / 2 ? window : 0;
}

enum dit_status infer_prefill_attention(const struct dit_infer_prefill_attention *call, struct dit_error *err) {
  const struct dit_tensor_view none = {0};
  const int64_t sequences = call->q_start_loc.sizes[0] - 1, heads = call->query.sizes[1];
  int64_t *numbers = scratch_take(sizeof(int64_t) * (size_t)(2 * sequences + 1) + 2 * sizeof(float) * (size_t)heads);
  if (!numbers) {
    return INFER_NO_MEMORY(err);
  }
  int64_t *lengths = numbers + sequences + 1;
  float *rooms = (float *)(void *)(lengths + sequences);
  struct attention_call work = {.query = &call->query,
                                .out = &call->attn_output,
                                .k = get_rows(&call->key, &none, &none, 0, false),
                                .v = get_rows(&call->value, &none, &none, 1, false),
                                .starts = numbers,
                                .lengths = lengths,
                                .sequences = sequences,
                                .heads = heads,
                                .key_heads = call->key.sizes[1],
                                .width = call->key.sizes[2],
                                .value_width = call->value.sizes[2],
                                .causal = call->causal,
                                .window = get_window(call->window),
                                .scale = call->softmax_scale,
                                .softcap = call->softcap,
                                .slopes = read_numbers(&call->alibi_slopes, heads, rooms),
                                .sinks = read_numbers(&call->sinks, heads, rooms + heads)};
  enum dit_status status = read_starts(&call->q_start_loc, sequences, call->query.sizes[0], numbers, err);
  for (int64_t i = 0; i < sequences && status == DIT_OK; i++) {
    lengths[i] = numbers[i + 1] - numbers[i];
  }
  if (status == DIT_OK && heads > 0 && !attention_run(&work)) {
    status = INFER_NO_MEMORY(err);
  }
  scratch_give(numbers);
  return status;
}

/// The lengths, and the numbers of the blocks that they reach.
static enum dit_status read_blocks(const struct dit_infer_paged_prefill_attention *call, const int64_t *starts,
                                   int64_t *lengths, int64_t *blocks, struct dit_error *err) {
  const struct dit_tensor_view *table = &call->block_table, *given = &call->kv_seq_len;
  const int64_t columns = table->sizes[1], size = call->key_cache.sizes[1], count = call->key_cache.sizes[0];
  for (int64_t i = 0; i < given->sizes[0]; i++) {
    lengths[i] = row_index(given, i * given->strides[0]);
    CHECK(lengths[i] == 0 || (lengths[i] >= starts[i + 1] - starts[i] && lengths[i] <= columns * size),
          "'kv_seq_len' has %lld at %lld; valid: 0, or from %lld (its queries) to %lld (the blocks of 'block_table')",
          (long long)lengths[i], (long long)i, (long long)(starts[i + 1] - starts[i]), (long long)(columns * size));
    const int64_t used = size > 0 ? (lengths[i] + size - 1) / size : 0;
    for (int64_t j = 0; j < used && starts[i + 1] > starts[i]; j++) {
      const int64_t number = row_index(table, i * table->strides[0] + j * table->strides[1]);
      CHECK(number >= 0 && number < count, "'block_table' has block %lld at (%lld, %lld); valid: 0 to %lld",
            (long long)number, (long long)i, (long long)j, (long long)count - 1);
      blocks[i * columns + j] = number;
    }
  }
  return DIT_OK;
}

static enum dit_status run_paged(const struct dit_infer_paged_prefill_attention *call, struct dit_error *err) {
  const int64_t sequences = call->kv_seq_len.sizes[0], heads = call->query.sizes[1];
  const int64_t columns = call->block_table.sizes[1];
  int64_t *numbers = scratch_take(sizeof(int64_t) * (size_t)(2 * sequences + 1 + sequences * columns) +
                                  2 * sizeof(float) * (size_t)heads);
  if (!numbers) {
    return INFER_NO_MEMORY(err);
  }
  int64_t *lengths = numbers + sequences + 1, *blocks = lengths + sequences;
  float *rooms = (float *)(void *)(blocks + sequences * columns);
  const bool quantized = call->quant_bits == 8;
  struct attention_call work = {.query = &call->query,
                                .out = &call->attn_output,
                                .k = get_rows(&call->key_cache, &call->kv_scales, &call->kv_zeros, 0, quantized),
                                .v = get_rows(&call->value_cache, &call->kv_scales, &call->kv_zeros, 1, quantized),
                                .starts = numbers,
                                .lengths = lengths,
                                .blocks = blocks,
                                .table_row = columns,
                                .block_size = call->key_cache.sizes[1],
                                .sequences = sequences,
                                .heads = heads,
                                .key_heads = call->key_cache.sizes[2],
                                .width = call->key_cache.sizes[3],
                                .value_width = call->value_cache.sizes[3],
                                .causal = true,
                                .window = get_window(call->window),
                                .scale = call->softmax_scale,
                                .softcap = call->softcap,
                                .slopes = read_numbers(&call->alibi_slopes, heads, rooms),
                                .sinks = read_numbers(&call->sinks, heads, rooms + heads)};
  enum dit_status status = read_starts(&call->q_start_loc, sequences, call->query.sizes[0], numbers, err);
  if (status == DIT_OK) {
    status = read_blocks(call, numbers, lengths, blocks, err);
  }
  if (status == DIT_OK && heads > 0 && !attention_run(&work)) {
    status = INFER_NO_MEMORY(err);
  }
  scratch_give(numbers);
  return status;
}

enum dit_status infer_paged_prefill_attention(const struct dit_infer_paged_prefill_attention *call,
                                              struct dit_error *err) {
  return run_paged(call, err);
}

enum dit_status infer_paged_decode_attention(const struct dit_infer_paged_decode_attention *call,
                                             struct dit_error *err) {
  struct dit_infer_paged_prefill_attention same;
  _Static_assert(sizeof same == sizeof *call, "both have the same arguments");
  memcpy(&same, call, sizeof same);
  return run_paged(&same, err);
}
