/// Attention of one new token per sequence over tokens of a pool, in two steps (TokenAttentionInference,
/// TokenSoftmaxReduceVInference) or one (PagedAttention). Scores are divided by the root of a head's width.
///
/// Two steps: q (B, H, D), k and v (pool, Hk, D), H a multiple of Hk; row b of b_loc (B, L) lists the places of its
/// tokens at its end, in columns max_input_len - b_seq_len[b] to max_input_len; scores (H, total) of sequence b lie
/// from b_start_loc[b] on, others stay as they are. out (B, H, D) = softmax(scores) v. other_kv_index is what devices
/// read in place of tokens that are not there; it is not needed. Paged: q and out (B, H, D), (B, 1, H D) or (B, H D), k
/// and v blocks of block_size tokens of num_kv_heads heads in any shape of that order, block_table (B, blocks);
/// attenMask (bool or uint8, not 0 hides) broadcasts to (B, H, 1, tokens). A sequence without tokens gives 0. Floating
/// dtypes, one for all; half types are computed in float. Places are checked first, so the calls wait for their stream.
#include "attention_token.h"

#include <math.h>
#include <string.h>

#include "dense.h"
#include "engine/scratch.h"
#include "fail.h"

struct token_call {
  struct frame *frame;
  struct dit_tensor_view out, q, k, v, scores, places, starts, lengths, mask;
  int64_t sequences, heads, key_heads, width, longest, block;
  diopiSize_t given;  ///< paged: lengths on the host
  int64_t mask_strides[4];
};

struct token_room {
  struct dense out, q, k, v, scores, table, starts, lengths;
  int64_t *numbers;  ///< lengths, offsets, then places
};

static void close_room(struct token_room *room) {
  struct dense *const all[] = {&room->out,    &room->q,     &room->k,      &room->v,
                               &room->scores, &room->table, &room->starts, &room->lengths};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    dense_close(all[i]);
  }
  scratch_give(room->numbers);
}

/// How many tokens sequence i has.
static int64_t get_length(const struct token_call *call, const struct token_room *room, int64_t i) {
  return call->block ? call->given.data[i] : ((const int64_t *)room->lengths.data)[i];
}

/// Row of the pool that token j of sequence i has.
static int64_t find_row(const struct token_call *call, const struct token_room *room, int64_t i, int64_t j,
                        int64_t length) {
  const int64_t *table = (const int64_t *)room->table.data + i * call->places.sizes[1];
  const int64_t at = call->block ? table[j / call->block] : table[call->longest - length + j];
  return call->block ? (at < 0 ? -1 : at * call->block + j % call->block) : at;
}

static diopiError_t list_places(struct token_call *call, struct token_room *room, int64_t rows) {
  int64_t total = 0, *lengths, *offsets, *places;
  for (int64_t i = 0; i < call->sequences; i++) {
    const int64_t length = get_length(call, room, i),
                  most = call->block ? call->places.sizes[1] * call->block : call->longest;
    FRAME_CHECK_RANGE(call->frame, length >= 0 && length <= most, "sequence %lld has %lld tokens; valid: 0 to %lld",
                      (long long)i, (long long)length, (long long)most);
    total += length;
  }
  room->numbers = scratch_take(sizeof(int64_t) * (size_t)(2 * call->sequences + total + 1));
  if (!room->numbers) {
    return dense_fail(call->frame);
  }
  lengths = room->numbers;
  offsets = lengths + call->sequences;
  places = offsets + call->sequences;
  total = 0;
  for (int64_t i = 0; i < call->sequences; i++) {
    lengths[i] = get_length(call, room, i);
    offsets[i] = total;
    for (int64_t j = 0; j < lengths[i]; j++) {
      places[total] = find_row(call, room, i, j, lengths[i]);
      FRAME_CHECK_RANGE(call->frame, places[total] >= 0 && places[total] < rows,
                        "token %lld of sequence %lld is not in the pool of %lld tokens", (long long)j, (long long)i,
                        (long long)rows);
      total++;
    }
    if (call->scores.handle) {
      const int64_t start = ((const int64_t *)room->starts.data)[i];
      FRAME_CHECK_RANGE(call->frame, start >= 0 && start + lengths[i] <= call->scores.sizes[1],
                        "scores of sequence %lld begin at %lld; there are %lld", (long long)i, (long long)start,
                        (long long)call->scores.sizes[1]);
    }
  }
  return diopiSuccess;
}

/// The pool behind a view (rows, heads, width) or, in blocks, of any shape with that order of elements.
static struct token_pool get_pool(const struct token_call *call, const struct dit_tensor_view *view, int work) {
  struct token_pool pool = {.data = view->data,
                            .heads = call->key_heads,
                            .width = call->width,
                            .stride = 1,
                            .dtype = view->dtype,
                            .work = work};
  const int64_t row = call->key_heads * call->width;
  pool.rows = row > 0 ? view->numel / row : 0;
  pool.row_stride = row;
  pool.head_stride = call->width;
  if (!call->block && view->handle) {
    pool.rows = view->sizes[0];
    pool.row_stride = view->strides[0];
    pool.head_stride = view->strides[1];
    pool.stride = view->strides[2];
  }
  return pool;
}

static diopiError_t compute(struct token_call *call, struct token_room *room, int work) {
  const struct token_pool k = get_pool(call, &call->k, work), v = get_pool(call, &call->v, work);
  FRAME_TRY(list_places(call, room, call->k.handle ? k.rows : v.rows));
  const struct token_step step = {.sequences = call->sequences,
                                  .heads = call->heads,
                                  .width = call->width,
                                  .scale = 1 / sqrt((double)call->width),
                                  .lengths = room->numbers,
                                  .offsets = room->numbers + call->sequences,
                                  .places = room->numbers + 2 * call->sequences,
                                  .k = call->k.handle ? &k : NULL,
                                  .v = call->v.handle ? &v : NULL,
                                  .q = room->q.data,
                                  .scores = room->scores.data,
                                  .starts = room->starts.data,
                                  .score_row = call->scores.handle ? call->scores.sizes[1] : 0,
                                  .mask = call->mask.handle ? call->mask.data : NULL,
                                  .mask_sequence = call->mask_strides[0],
                                  .mask_head = call->mask_strides[1],
                                  .mask_key = call->mask_strides[3],
                                  .out = room->out.data};
  if (!token_step_run(&step, work == DIT_DTYPE_F64)) {
    return dense_fail(call->frame);
  }
  dense_store(call->v.handle ? &room->out : &room->scores);
  return diopiSuccess;
}

static diopiError_t work(void *context) {
  struct token_call *call = context;
  const int type = dense_get_work(call->k.handle ? call->k.dtype : call->v.dtype);
  struct token_room room = {0};
  const bool done = dense_reserve(&room.out, &call->out, type) && dense_read(&room.q, &call->q, type) &&
                    (!call->block ||
                     (dense_read(&room.k, &call->k, call->k.dtype) && dense_read(&room.v, &call->v, call->v.dtype))) &&
                    dense_read(&room.scores, &call->scores, type) &&
                    dense_read(&room.table, &call->places, DIT_DTYPE_I64) &&
                    dense_read(&room.starts, &call->starts, DIT_DTYPE_I64) &&
                    dense_read(&room.lengths, &call->lengths, DIT_DTYPE_I64);
  if (done && call->block) {  // blocks of any strides become rows
    call->k.data = room.k.data;
    call->v.data = room.v.data;
  }
  const bool empty = call->sequences * call->heads * call->width == 0;
  const diopiError_t code = !done ? dense_fail(call->frame) : empty ? diopiSuccess : compute(call, &room, type);
  close_room(&room);
  return code;
}

// Checks

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

/// What the two steps have: scores (H, total), a pool (rows, Hk, D), lists of places.
static diopiError_t check_step(struct token_call *call, const char *scores, const char *pool,
                               const struct dit_tensor_view *rows, const struct dit_tensor_view *tokens,
                               const char *tokens_name, int max_input_len) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, tokens->ndim == 3, "'%s' has %d dimensions; valid: 3", tokens_name, (int)tokens->ndim);
  FRAME_CHECK(frame, rows->ndim == 3 && rows->sizes[2] == tokens->sizes[2],
              "'%s' must have 3 dimensions, the last of %lld", pool, (long long)tokens->sizes[2]);
  call->sequences = tokens->sizes[0];
  call->heads = tokens->sizes[1];
  call->width = tokens->sizes[2];
  call->key_heads = rows->sizes[1];
  call->longest = max_input_len;
  FRAME_CHECK(frame, call->key_heads > 0 ? call->heads % call->key_heads == 0 : call->heads == 0,
              "%lld heads are no multiple of the %lld of '%s'", (long long)call->heads, (long long)call->key_heads,
              pool);
  FRAME_CHECK(frame, call->scores.ndim == 2 && call->scores.sizes[0] == call->heads, "'%s' must have %lld rows", scores,
              (long long)call->heads);
  FRAME_CHECK(frame, rows->dtype == tokens->dtype && rows->dtype == call->scores.dtype,
              "'%s' is %s, '%s' %s and '%s' %s; valid: one dtype", scores, dit_dtype_get_name(call->scores.dtype), pool,
              dit_dtype_get_name(rows->dtype), tokens_name, dit_dtype_get_name(tokens->dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, rows->dtype)) {
    return frame_fail_dtype(frame, pool, rows->dtype);
  }
  FRAME_CHECK(frame,
              call->places.ndim == 2 && call->places.sizes[0] == call->sequences &&
                  call->places.sizes[1] >= max_input_len && max_input_len >= 0 && is_index(call->places.dtype),
              "'b_loc' must have %lld rows of at least %d places, int32 or int64", (long long)call->sequences,
              max_input_len);
  FRAME_CHECK(frame, call->starts.ndim == 1 && call->starts.sizes[0] == call->sequences && is_index(call->starts.dtype),
              "'b_start_loc' must have %lld numbers, int32 or int64", (long long)call->sequences);
  FRAME_CHECK(frame,
              call->lengths.ndim == 1 && call->lengths.sizes[0] == call->sequences && is_index(call->lengths.dtype),
              "'b_seq_len' must have %lld numbers, int32 or int64", (long long)call->sequences);
  return diopiSuccess;
}

diopiError_t diopiTokenAttentionInference(diopiContextHandle_t ctx, diopiTensorHandle_t token_attention_out,
                                          diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                          diopiConstTensorHandle_t b_loc, diopiConstTensorHandle_t b_start_loc,
                                          diopiConstTensorHandle_t b_seq_len, int max_input_len) {
  struct frame frame;
  struct token_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, token_attention_out, &call.scores);
  FRAME_TAKE(&frame, q, &call.q);
  FRAME_TAKE(&frame, k, &call.k);
  FRAME_TAKE(&frame, b_loc, &call.places);
  FRAME_TAKE(&frame, b_start_loc, &call.starts);
  FRAME_TAKE(&frame, b_seq_len, &call.lengths);
  FRAME_TRY(check_step(&call, "token_attention_out", "k", &call.k, &call.q, "q", max_input_len));
  const struct dit_tensor_view *inputs[] = {&call.q, &call.k, &call.places, &call.starts, &call.lengths};
  FRAME_TRY(frame_check_output(&frame, "token_attention_out", &call.scores, inputs, 5, false));
  return frame_run(&frame, work, &call);
}

diopiError_t diopiTokenSoftmaxReduceVInference(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                               diopiConstTensorHandle_t logics, diopiConstTensorHandle_t v,
                                               diopiConstTensorHandle_t b_loc, diopiConstTensorHandle_t b_start_loc,
                                               diopiConstTensorHandle_t b_seq_len, int max_input_len,
                                               int other_kv_index) {
  struct frame frame;
  struct token_call call = {.frame = &frame};
  (void)other_kv_index;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, logics, &call.scores);
  FRAME_TAKE(&frame, v, &call.v);
  FRAME_TAKE(&frame, b_loc, &call.places);
  FRAME_TAKE(&frame, b_start_loc, &call.starts);
  FRAME_TAKE(&frame, b_seq_len, &call.lengths);
  FRAME_TRY(check_step(&call, "logics", "v", &call.v, &call.out, "out", max_input_len));
  const struct dit_tensor_view *inputs[] = {&call.scores, &call.v, &call.places, &call.starts, &call.lengths};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 5, false));
  return frame_run(&frame, work, &call);
}

static diopiError_t check_paged(struct token_call *call) {
  struct frame *frame = call->frame;
  const int64_t row = call->heads * call->width;
  FRAME_CHECK(
      frame,
      call->heads > 0 && call->key_heads > 0 && call->width > 0 && call->block > 0 &&
          call->heads % call->key_heads == 0,
      "'num_heads', 'num_kv_heads', 'dim' and 'block_size' must be positive, the first a multiple of the second");
  FRAME_CHECK(frame, call->q.ndim >= 2 && call->q.numel == call->q.sizes[0] * row,
              "'q' must have %lld elements for each sequence", (long long)row);
  call->sequences = call->q.sizes[0];
  FRAME_CHECK(frame, frame_is_same_shape(&call->out, &call->q), "'out' has another shape than 'q'");
  FRAME_CHECK(frame, frame_is_same_shape(&call->k, &call->v), "'v' has another shape than 'k'");
  FRAME_CHECK(frame, call->k.numel % (call->block * call->key_heads * call->width) == 0,
              "'k' must be blocks of %lld tokens of %lld heads of %lld elements", (long long)call->block,
              (long long)call->key_heads, (long long)call->width);
  FRAME_CHECK(frame,
              call->q.dtype == call->k.dtype && call->q.dtype == call->v.dtype && call->q.dtype == call->out.dtype,
              "'out', 'q', 'k' and 'v' must have one dtype");
  if (!frame_has_dtype(DTYPES_FLOAT, call->q.dtype)) {
    return frame_fail_dtype(frame, "q", call->q.dtype);
  }
  FRAME_CHECK(frame, call->places.ndim == 2 && call->places.sizes[0] == call->sequences && is_index(call->places.dtype),
              "'block_table' must have %lld rows, int32 or int64", (long long)call->sequences);
  FRAME_CHECK(frame, call->given.len == call->sequences && (call->given.data || call->sequences == 0),
              "'actual_seq_lengths' has %lld entries; valid: %lld", (long long)call->given.len,
              (long long)call->sequences);
  return diopiSuccess;
}

static diopiError_t check_mask(struct token_call *call) {
  int64_t longest = 0, strides[DIT_MAX_DIMS];
  struct dit_tensor_view whole;
  if (!call->mask.handle) {
    return diopiSuccess;
  }
  for (int64_t i = 0; i < call->given.len; i++) {
    longest = call->given.data[i] > longest ? call->given.data[i] : longest;
  }
  const int64_t last = call->mask.ndim > 0 ? call->mask.sizes[call->mask.ndim - 1] : 0;
  const int64_t sizes[4] = {call->sequences, call->heads, 1, last > longest ? last : longest};
  FRAME_CHECK(call->frame, call->mask.dtype == DIT_DTYPE_BOOL || call->mask.dtype == DIT_DTYPE_U8,
              "'attenMask' is %s; valid: bool, uint8", dit_dtype_get_name(call->mask.dtype));
  FRAME_CHECK(call->frame, frame_expand(&call->mask, 4, sizes, strides, &whole),
              "'attenMask' does not broadcast to %lld x %lld x 1 x %lld", (long long)sizes[0], (long long)sizes[1],
              (long long)sizes[3]);
  memcpy(call->mask_strides, whole.strides, sizeof call->mask_strides);
  return diopiSuccess;
}

diopiError_t diopiPagedAttention(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t q,
                                 diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
                                 diopiConstTensorHandle_t attenMask, diopiSize_t actual_seq_lengths, int64_t num_heads,
                                 int64_t num_kv_heads, int64_t dim, diopiConstTensorHandle_t block_table,
                                 int64_t block_size) {
  struct frame frame;
  struct token_call call = {.frame = &frame,
                            .given = actual_seq_lengths,
                            .heads = num_heads,
                            .key_heads = num_kv_heads,
                            .width = dim,
                            .block = block_size};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, q, &call.q);
  FRAME_TAKE(&frame, k, &call.k);
  FRAME_TAKE(&frame, v, &call.v);
  FRAME_TAKE_OPTIONAL(&frame, attenMask, &call.mask);
  FRAME_TAKE(&frame, block_table, &call.places);
  FRAME_TRY(check_paged(&call));
  FRAME_TRY(check_mask(&call));
  const struct dit_tensor_view *inputs[] = {&call.q, &call.k, &call.v, &call.mask, &call.places};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 5, false));
  return frame_run(&frame, work, &call);
}
