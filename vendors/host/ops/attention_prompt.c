/// Attention over whole prompts: sequences in one row of tokens (ContextAttentionInference), or padded to one length
/// (PromptFlashAttention). Scores are divided by the root of a head's width.
///
/// Context: q (T, H, D), k and v (T, Hk, D) with H a multiple of Hk, b_start_loc and b_seq_len (B), int32 or int64:
/// where a sequence begins and how long it is. A token sees itself and those before it. Tokens of no sequence stay as
/// they are in context_attention_out. Prompt: query (B, S, H D) or (B S, H D), key and value likewise with num_kv_heads
/// heads; `dim` is the width of a head, actual_seq_lengths (B) the real lengths (absent: S). A token sees all real ones
/// but those that atten_mask hides (bool or uint8, broadcasts to B, H, S, S). Rows of padding become 0. Floating
/// dtypes, one for all; half types are computed in float. Lengths are read first, so the calls wait for their stream.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "engine/attention.h"
#include "engine/scratch.h"
#include "fail.h"

struct prompt_call {
  struct frame *frame;
  struct dit_tensor_view out, q, k, v, starts, lengths, mask;
  struct attention_shape shape;
  diopiSize_t given;  ///< lengths on the host; len 0: whole
  bool padded;
};

/// Starts and lengths on the host, checked.
static diopiError_t read_lengths(struct prompt_call *call, int64_t *starts, int64_t *lengths) {
  struct attention_shape *s = &call->shape;
  struct dense first = {0}, count = {0};
  diopiError_t code = diopiSuccess;
  if (!dense_read(&first, &call->starts, DIT_DTYPE_I64) || !dense_read(&count, &call->lengths, DIT_DTYPE_I64)) {
    code = dense_fail(call->frame);
  }
  for (int64_t i = 0; code == diopiSuccess && i < s->sequences; i++) {
    starts[i] = call->padded ? i * s->queries : ((const int64_t *)first.data)[i];
    lengths[i] = !call->padded         ? ((const int64_t *)count.data)[i]
                 : call->given.len > 0 ? call->given.data[i]
                                       : s->queries;
    const int64_t rows = call->padded ? s->queries : call->q.sizes[0] - starts[i];
    if (starts[i] < 0 || lengths[i] < 0 || lengths[i] > rows || lengths[i] > s->queries) {
      code = frame_fail_range(call->frame,
                              "sequence %lld begins at %lld and has %lld tokens; there are %lld, the longest "
                              "may have %lld",
                              (long long)i, (long long)starts[i], (long long)lengths[i], (long long)call->q.sizes[0],
                              (long long)s->queries);
    }
  }
  dense_close(&first);
  dense_close(&count);
  return code;
}

/// Rows of padding.
static void clear_padding(const struct prompt_call *call, char *out) {
  const struct attention_shape *s = &call->shape;
  const size_t row = (size_t)(s->heads * s->width) * (s->wide ? 8 : 4);
  for (int64_t i = 0; i < s->sequences; i++) {
    memset(out + (size_t)(i * s->queries + s->lengths[i]) * row, 0, (size_t)(s->queries - s->lengths[i]) * row);
  }
}

static diopiError_t work(void *context) {
  struct prompt_call *call = context;
  struct attention_shape *s = &call->shape;
  const int type = s->wide ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  struct dense out = {0}, q = {0}, k = {0}, v = {0};
  int64_t *room = scratch_take(sizeof(int64_t) * (size_t)(2 * s->sequences + 1));
  void *lse = scratch_take((size_t)(s->sequences * s->heads * s->queries) * 8 + 1);
  bool done = room && lse;
  diopiError_t code = done ? read_lengths(call, room, room + s->sequences) : dense_fail(call->frame);
  if (code == diopiSuccess) {
    done = dense_read(&q, &call->q, type) && dense_read(&k, &call->k, type) && dense_read(&v, &call->v, type) &&
           dense_read(&out, &call->out, type);
    const int64_t wide = s->heads * s->width, narrow = s->key_heads * s->width;
    const struct attention_tensor to = {out.data, 0, wide, s->width}, a = {q.data, 0, wide, s->width};
    const struct attention_tensor b = {k.data, 0, narrow, s->width}, c = {v.data, 0, narrow, s->width};
    s->starts = room;
    s->lengths = room + s->sequences;
    done = done && (call->out.numel == 0 || attention_forward(s, &to, lse, &a, &b, &c));
    if (done && call->padded && call->out.numel > 0) {
      clear_padding(call, out.data);
    }
    if (done) {
      dense_store(&out);
    }
    code = done ? diopiSuccess : dense_fail(call->frame);
  }
  dense_close(&out);
  dense_close(&q);
  dense_close(&k);
  dense_close(&v);
  scratch_give(room);
  scratch_give(lse);
  return code;
}

static diopiError_t check_common(struct prompt_call *call, const char *out, const char *q, const char *k,
                                 const char *v) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, frame_is_same_shape(&call->out, &call->q) && call->out.dtype == call->q.dtype,
              "'%s' has another shape or dtype than '%s'", out, q);
  FRAME_CHECK(frame, frame_is_same_shape(&call->k, &call->v), "'%s' has another shape than '%s'", v, k);
  FRAME_CHECK(frame, call->q.dtype == call->k.dtype && call->q.dtype == call->v.dtype,
              "'%s' is %s, '%s' %s and '%s' %s; valid: one dtype", q, dit_dtype_get_name(call->q.dtype), k,
              dit_dtype_get_name(call->k.dtype), v, dit_dtype_get_name(call->v.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call->q.dtype)) {
    return frame_fail_dtype(frame, q, call->q.dtype);
  }
  const struct attention_shape *s = &call->shape;
  FRAME_CHECK(frame, s->key_heads > 0 ? s->heads % s->key_heads == 0 : s->heads == 0,
              "%lld heads are no multiple of %lld", (long long)s->heads, (long long)s->key_heads);
  const struct dit_tensor_view *inputs[] = {&call->q, &call->k, &call->v, &call->starts, &call->lengths, &call->mask};
  call->shape.wide = call->q.dtype == DIT_DTYPE_F64;
  call->shape.left = -1;
  call->shape.scale = s->width > 0 ? 1 / sqrt((double)s->width) : 1;
  return frame_check_output(frame, out, &call->out, inputs, 6, false);
}

static diopiError_t check_numbers(struct prompt_call *call, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(call->frame,
              view->ndim == 1 && view->sizes[0] == call->shape.sequences &&
                  (view->dtype == DIT_DTYPE_I32 || view->dtype == DIT_DTYPE_I64),
              "'%s' must have %lld numbers, int32 or int64", name, (long long)call->shape.sequences);
  return diopiSuccess;
}

diopiError_t diopiContextAttentionInference(diopiContextHandle_t ctx, diopiTensorHandle_t context_attention_out,
                                            diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                            diopiConstTensorHandle_t v, diopiConstTensorHandle_t b_start_loc,
                                            diopiConstTensorHandle_t b_seq_len, int max_input_len) {
  struct frame frame;
  struct prompt_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, context_attention_out, &call.out);
  FRAME_TAKE(&frame, q, &call.q);
  FRAME_TAKE(&frame, k, &call.k);
  FRAME_TAKE(&frame, v, &call.v);
  FRAME_TAKE(&frame, b_start_loc, &call.starts);
  FRAME_TAKE(&frame, b_seq_len, &call.lengths);
  FRAME_CHECK(
      &frame,
      call.q.ndim == 3 && call.k.ndim == 3 && call.q.sizes[0] == call.k.sizes[0] && call.q.sizes[2] == call.k.sizes[2],
      "'q' and 'k' must have 3 dimensions, as many tokens and heads of one width");
  FRAME_CHECK(&frame, max_input_len >= 0, "'max_input_len' is %d; valid: from 0", max_input_len);
  call.shape = (struct attention_shape){.sequences = call.lengths.numel,
                                        .heads = call.q.sizes[1],
                                        .key_heads = call.k.sizes[1],
                                        .width = call.q.sizes[2],
                                        .queries = max_input_len,
                                        .keys = max_input_len,
                                        .right = 0};
  FRAME_TRY(check_numbers(&call, "b_start_loc", &call.starts));
  FRAME_TRY(check_numbers(&call, "b_seq_len", &call.lengths));
  FRAME_TRY(check_common(&call, "context_attention_out", "q", "k", "v"));
  return frame_run(&frame, work, &call);
}

/// The mask's address and strides for sequences, heads, queries and keys.
static diopiError_t check_mask(struct prompt_call *call) {
  struct attention_shape *s = &call->shape;
  const int64_t sizes[4] = {s->sequences, s->heads, s->queries, s->keys};
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view whole, mask = call->mask;
  if (!mask.handle) {
    return diopiSuccess;
  }
  FRAME_CHECK(call->frame, mask.dtype == DIT_DTYPE_BOOL || mask.dtype == DIT_DTYPE_U8,
              "'atten_mask' is %s; valid: bool, uint8", dit_dtype_get_name(mask.dtype));
  int64_t own[4], steps[4];
  if (mask.ndim == 3) {  // (B, S, S): one for all heads
    const int64_t shape[4] = {mask.sizes[0], 1, mask.sizes[1], mask.sizes[2]};
    const int64_t step[4] = {mask.strides[0], 0, mask.strides[1], mask.strides[2]};
    memcpy(own, shape, sizeof own);
    memcpy(steps, step, sizeof steps);
    mask.ndim = 4;
    mask.sizes = own;
    mask.strides = steps;
  }
  FRAME_CHECK(call->frame, frame_expand(&mask, 4, sizes, strides, &whole),
              "'atten_mask' does not broadcast to %lld x %lld x %lld x %lld", (long long)sizes[0], (long long)sizes[1],
              (long long)sizes[2], (long long)sizes[3]);
  s->mask = call->mask.data;
  memcpy(s->mask_strides, whole.strides, sizeof s->mask_strides);
  return diopiSuccess;
}

diopiError_t diopiPromptFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t query, diopiConstTensorHandle_t key,
                                       diopiConstTensorHandle_t value, diopiConstTensorHandle_t atten_mask,
                                       diopiSize_t actual_seq_lengths, int64_t max_input_len, int64_t num_heads,
                                       int64_t num_kv_heads, int64_t dim) {
  struct frame frame;
  struct prompt_call call = {.frame = &frame, .given = actual_seq_lengths, .padded = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, query, &call.q);
  FRAME_TAKE(&frame, key, &call.k);
  FRAME_TAKE(&frame, value, &call.v);
  FRAME_TAKE_OPTIONAL(&frame, atten_mask, &call.mask);
  FRAME_CHECK(&frame, max_input_len > 0 && num_heads > 0 && num_kv_heads > 0 && dim > 0,
              "'max_input_len', 'num_heads', 'num_kv_heads' and 'dim' must be positive");
  const int n = call.q.ndim;
  const int64_t rows = n == 3 ? call.q.sizes[0] * call.q.sizes[1] : n == 2 ? call.q.sizes[0] : -1;
  FRAME_CHECK(&frame, rows >= 0 && rows % max_input_len == 0 && (n == 2 || call.q.sizes[1] == max_input_len),
              "'query' must be sequences of %lld rows, in 2 or 3 dimensions", (long long)max_input_len);
  FRAME_CHECK(&frame, call.q.sizes[n - 1] == num_heads * dim, "rows of 'query' must have %lld elements",
              (long long)(num_heads * dim));
  bool fits = call.k.ndim == n && call.k.sizes[n - 1] == num_kv_heads * dim;
  for (int i = 0; fits && i < n - 1; i++) {
    fits = call.k.sizes[i] == call.q.sizes[i];
  }
  FRAME_CHECK(&frame, fits, "'key' must have the shape of 'query' with %lld elements in a row",
              (long long)(num_kv_heads * dim));
  call.shape = (struct attention_shape){.sequences = rows / max_input_len,
                                        .heads = num_heads,
                                        .key_heads = num_kv_heads,
                                        .width = dim,
                                        .queries = max_input_len,
                                        .keys = max_input_len,
                                        .right = -1};
  FRAME_CHECK(
      &frame,
      actual_seq_lengths.len == 0 || (actual_seq_lengths.data && actual_seq_lengths.len == call.shape.sequences),
      "'actual_seq_lengths' has %lld entries; valid: %lld, or none", (long long)actual_seq_lengths.len,
      (long long)call.shape.sequences);
  FRAME_TRY(check_common(&call, "out", "query", "key", "value"));
  FRAME_TRY(check_mask(&call));
  return frame_run(&frame, work, &call);
}
