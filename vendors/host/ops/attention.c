/// Flash attention: out = softmax(scale q k^T) v without the matrix of scores, and its gradients.
///
/// q (B, Sq, H, D), k and v (B, Sk, Hk, D) with H a multiple of Hk (each head of k serves H / Hk of q); out like q;
/// softmax_lse (B, H, Sq), float32 or q's accumulation type: the logarithm of each row's sum, -inf where a query sees
/// no key (its out is 0). Causal: query i sees keys up to i + Sk - Sq. Window sizes limit the keys before and after
/// that position; -1 is no limit. alibi_slopes (H) or (B, H), float32: -slope * distance is added to the scores.
/// Dropout takes B H Sq Sk numbers from the generator; the backward call needs it as it was before the forward one and
/// leaves it. VarLen: q (T, H, D) and so on hold all sequences, cum_seq (B + 1, int32 or int64) where each begins and
/// ends; softmax_lse (B, H, max_seqlen_q). Floating dtypes, one for all; half types are computed in float.
#include <string.h>

#include "attention_work.h"
#include "flash.h"

static diopiError_t check_tensors(struct attention_call *call, int ndim) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *q = &call->q, *k = &call->k, *v = &call->v;
  FRAME_CHECK(frame, q->ndim == ndim, "'q' has %d dimensions; valid: %d", (int)q->ndim, ndim);
  FRAME_CHECK(frame, k->ndim == ndim, "'k' has %d dimensions; valid: %d", (int)k->ndim, ndim);
  FRAME_CHECK(frame, frame_is_same_shape(k, v), "'v' has another shape than 'k'");
  FRAME_CHECK(frame, ndim == 3 || q->sizes[0] == k->sizes[0], "'q' has %lld sequences and 'k' %lld",
              (long long)q->sizes[0], (long long)k->sizes[0]);
  FRAME_CHECK(frame, q->sizes[ndim - 1] == k->sizes[ndim - 1], "heads of 'q' have %lld elements, those of 'k' %lld",
              (long long)q->sizes[ndim - 1], (long long)k->sizes[ndim - 1]);
  const int64_t heads = q->sizes[ndim - 2], key_heads = k->sizes[ndim - 2];
  FRAME_CHECK(frame, key_heads > 0 ? heads % key_heads == 0 : heads == 0,
              "'q' has %lld heads, which is no multiple of the %lld of 'k'", (long long)heads, (long long)key_heads);
  FRAME_CHECK(frame, q->dtype == k->dtype && q->dtype == v->dtype, "'q' is %s, 'k' %s and 'v' %s; valid: one dtype",
              dit_dtype_get_name(q->dtype), dit_dtype_get_name(k->dtype), dit_dtype_get_name(v->dtype));
  return frame_has_dtype(DTYPES_FLOAT, q->dtype) ? diopiSuccess : frame_fail_dtype(frame, "q", q->dtype);
}

static diopiError_t check_slopes(struct attention_call *call) {
  struct attention_shape *s = &call->shape;
  const struct dit_tensor_view *slopes = &call->slopes;
  if (!slopes->handle) {
    return diopiSuccess;
  }
  const bool fits = slopes->ndim == 1
                        ? slopes->sizes[0] == s->heads
                        : slopes->ndim == 2 && slopes->sizes[0] == s->sequences && slopes->sizes[1] == s->heads;
  FRAME_CHECK(call->frame, fits && slopes->dtype == DIT_DTYPE_F32,
              "'alibi_slopes' must be float32 with one number per head, or per sequence and head");
  s->slopes = slopes->data;
  s->slope_head = slopes->strides[slopes->ndim - 1];
  s->slope_sequence = slopes->ndim == 2 ? slopes->strides[0] : 0;
  return diopiSuccess;
}

static diopiError_t check_ends(struct attention_call *call, const char *name, const struct dit_tensor_view *ends) {
  FRAME_CHECK(call->frame, ends->ndim == 1 && ends->sizes[0] == call->shape.sequences + 1,
              "'%s' must have one dimension of size %lld", name, (long long)(call->shape.sequences + 1));
  FRAME_CHECK(call->frame, ends->dtype == DIT_DTYPE_I32 || ends->dtype == DIT_DTYPE_I64,
              "'%s' is %s; valid: int32, int64", name, dit_dtype_get_name(ends->dtype));
  return diopiSuccess;
}

/// attention_mask broadcasts to (sequences, heads, queries, keys).
static diopiError_t check_mask(struct attention_call *call) {
  struct attention_shape *s = &call->shape;
  const struct dit_tensor_view *mask = &call->mask;
  const int64_t sizes[4] = {s->sequences, s->heads, s->queries, s->keys};
  struct dit_tensor_view whole;
  if (!mask->handle) {
    return diopiSuccess;
  }
  FRAME_CHECK(call->frame, mask->dtype == DIT_DTYPE_BOOL || mask->dtype == DIT_DTYPE_U8,
              "'attention_mask' is %s; valid: bool, uint8", dit_dtype_get_name(mask->dtype));
  FRAME_CHECK(call->frame, frame_expand(mask, 4, sizes, call->mask_dims, &whole),
              "'attention_mask' does not broadcast to %lld x %lld x %lld x %lld", (long long)sizes[0],
              (long long)sizes[1], (long long)sizes[2], (long long)sizes[3]);
  s->mask = mask->data;
  for (int i = 0; i < 4; i++) {
    s->mask_strides[i] = whole.strides[i];
  }
  return diopiSuccess;
}

/// The view in the order (batch, row, head, element); layouts that join heads and width are cut by the width of a head.
static diopiError_t arrange(struct attention_call *call, const char *name, const char *layout, int64_t width,
                            struct dit_tensor_view *view) {
  const bool joined = strlen(layout) == 3;
  int64_t *sizes = call->dims[call->arranged], *strides = sizes + 4;
  FRAME_CHECK(call->frame, view->ndim == (joined ? 3 : 4), "'%s' has %d dimensions; valid for \"%s\": %d", name,
              (int)view->ndim, layout, joined ? 3 : 4);
  const bool heads_first = strcmp(layout, "BNSD") == 0, rows_first = layout[0] == 'S';
  const int batch = rows_first ? 1 : 0, row = heads_first ? 2 : rows_first ? 0 : 1;
  const int head = heads_first ? 1 : 2;
  const int64_t last = view->sizes[view->ndim - 1], step = view->strides[view->ndim - 1];
  FRAME_CHECK(call->frame, !joined || (width > 0 && last % width == 0),
              "'%s' has %lld elements in a row, which are not heads of %lld", name, (long long)last, (long long)width);
  sizes[0] = view->sizes[batch];
  sizes[1] = view->sizes[row];
  sizes[2] = joined ? last / width : view->sizes[head];
  sizes[3] = joined ? width : last;
  strides[0] = view->strides[batch];
  strides[1] = view->strides[row];
  strides[2] = joined ? width * step : view->strides[head];
  strides[3] = step;
  view->ndim = 4;
  view->sizes = sizes;
  view->strides = strides;
  view->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS);
  view->flags |= dit_shape_is_contiguous(4, sizes, strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  call->arranged++;
  return diopiSuccess;
}

/// Customized calls have layouts of their own.
static diopiError_t arrange_all(struct attention_call *call, const struct flash_arguments *a) {
  static const char *const layouts[] = {"BSH", "SBH", "BSND", "BNSD"};
  bool known = false;
  if (!a->customized || a->packed) {
    return diopiSuccess;
  }
  for (int i = 0; i < 4; i++) {
    known = known || (a->layout && strcmp(a->layout, layouts[i]) == 0);
  }
  FRAME_CHECK(call->frame, known, "'input_layout' is \"%s\"; valid: \"BSH\", \"SBH\", \"BSND\", \"BNSD\"",
              a->layout ? a->layout : "NULL");
  const int64_t last = call->q.ndim > 0 ? call->q.sizes[call->q.ndim - 1] : 0;
  const bool joined = strlen(a->layout) == 3;
  FRAME_CHECK(call->frame, !joined || (a->heads > 0 && last % a->heads == 0),
              "'head_num' is %lld, which does not divide rows of %lld elements", (long long)a->heads, (long long)last);
  const int64_t width = joined ? last / a->heads : last;
  struct {
    const char *name;
    struct dit_tensor_view *view;
  } const views[] = {{"q", &call->q},
                     {"k", &call->k},
                     {"v", &call->v},
                     {"attention_out", &call->out},
                     {"grad_output", &call->grad},
                     {"grad_q", &call->grad_q},
                     {"grad_k", &call->grad_k},
                     {"grad_v", &call->grad_v}};
  for (int i = 0; i < 8; i++) {
    if (views[i].view->handle) {
      FRAME_TRY(arrange(call, views[i].name, a->layout, width, views[i].view));
    }
  }
  FRAME_CHECK(call->frame, call->q.sizes[2] == a->heads, "'head_num' is %lld and 'q' has %lld heads",
              (long long)a->heads, (long long)call->q.sizes[2]);
  return diopiSuccess;
}

static diopiError_t take_call(struct attention_call *call, const struct flash_arguments *a) {
  struct frame *frame = call->frame;
  struct attention_shape *s = &call->shape;
  FRAME_TRY(frame_take(frame, "q", a->q, &call->q));
  FRAME_TRY(frame_take(frame, "k", a->k, &call->k));
  FRAME_TRY(frame_take(frame, "v", a->v, &call->v));
  FRAME_TRY(frame_take_optional(frame, "alibi_slopes", a->alibi_slopes, &call->slopes));
  FRAME_TRY(frame_take_optional(frame, "attention_mask", a->mask, &call->mask));
  FRAME_TRY(arrange_all(call, a));
  const int ndim = a->packed ? 3 : 4;
  FRAME_TRY(check_tensors(call, ndim));
  FRAME_CHECK(frame, a->dropout >= 0 && a->dropout < 1, "'p_dropout' is %g; valid: 0 to below 1", a->dropout);
  FRAME_CHECK(frame, a->dropout == 0 || a->generator || a->seed, "'gen' is NULL; dropout needs a generator");
  *s = (struct attention_shape){.sequences = call->q.sizes[0],
                                .heads = call->q.sizes[ndim - 2],
                                .key_heads = call->k.sizes[ndim - 2],
                                .width = call->q.sizes[ndim - 1],
                                .queries = a->packed ? a->max_q : call->q.sizes[1],
                                .keys = a->packed ? a->max_k : call->k.sizes[1],
                                .scale = a->scale,
                                .left = a->left < 0 ? -1 : a->left,
                                .right = a->causal      ? 0
                                         : a->right < 0 ? -1
                                                        : a->right,
                                .dropout = a->dropout,
                                .wide = call->q.dtype == DIT_DTYPE_F64};
  if (a->seed) {
    s->seed = a->seed[0];
    s->offset = a->seed[1];
    call->seeded = true;
  }
  if (a->packed && a->customized) {
    FRAME_CHECK(frame, a->list_q.len >= 1 && a->list_q.len == a->list_k.len && a->list_q.data && a->list_k.data,
                "'cum_seq_q' and 'cum_seq_kv' must have the same number of entries, at least 1");
    FRAME_CHECK(frame, a->max_q >= 0 && a->max_k >= 0, "'max_seqlen_q' is %lld and 'max_seqlen_kv' %lld",
                (long long)a->max_q, (long long)a->max_k);
    s->sequences = a->list_q.len - 1;
    call->list_q = a->list_q;
    call->list_k = a->list_k;
  } else if (a->packed) {
    FRAME_TRY(frame_take(frame, "cum_seq_q", a->cum_q, &call->cum_q));
    FRAME_TRY(frame_take(frame, a->names->key_ends, a->cum_k, &call->cum_k));
    FRAME_CHECK(frame, call->cum_q.ndim == 1 && call->cum_q.sizes[0] >= 1, "'cum_seq_q' must have one dimension");
    s->sequences = call->cum_q.sizes[0] - 1;
    FRAME_TRY(check_ends(call, "cum_seq_q", &call->cum_q));
    FRAME_TRY(check_ends(call, a->names->key_ends, &call->cum_k));
    FRAME_CHECK(frame, a->max_q >= 0 && a->max_k >= 0, "'max_seqlen_q' is %lld and 'max_seqlen_kv' %lld",
                (long long)a->max_q, (long long)a->max_k);
  }
  FRAME_TRY(check_slopes(call));
  FRAME_TRY(check_mask(call));
  call->names = a->names;
  call->generator = a->generator;
  call->packed = a->packed;
  call->work = s->wide ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return diopiSuccess;
}

static diopiError_t check_lse(struct attention_call *call) {
  const struct attention_shape *s = &call->shape;
  const struct dit_tensor_view *lse = &call->lse;
  FRAME_CHECK(
      call->frame,
      lse->ndim == 3 && lse->sizes[0] == s->sequences && lse->sizes[1] == s->heads && lse->sizes[2] == s->queries,
      "'softmax_lse' must be %lld x %lld x %lld", (long long)s->sequences, (long long)s->heads, (long long)s->queries);
  FRAME_CHECK(call->frame, lse->dtype == DIT_DTYPE_F32 || lse->dtype == call->work, "'softmax_lse' is %s; valid: %s",
              dit_dtype_get_name(lse->dtype), dit_dtype_get_name(call->work));
  return diopiSuccess;
}

static diopiError_t check_like(struct attention_call *call, const char *name, const struct dit_tensor_view *view,
                               const char *other, const struct dit_tensor_view *like) {
  FRAME_CHECK(call->frame, frame_is_same_shape(view, like) && view->dtype == like->dtype,
              "'%s' has another shape or dtype than '%s'", name, other);
  return diopiSuccess;
}

diopiError_t attention_read_generator(struct attention_call *call, bool draw) {
  struct attention_shape *s = &call->shape;
  if (s->dropout > 0 && !call->seeded) {
    FRAME_CHECK(call->frame, diopiGeneratorGetSeedAndOffset(call->generator, &s->seed, &s->offset) == diopiSuccess,
                "'gen' has no seed and offset");
    const uint64_t numbers = (uint64_t)(s->sequences * s->heads * s->queries * s->keys);
    FRAME_CHECK(call->frame,
                !draw || diopiGeneratorSetSeedAndOffset(call->generator, s->seed, s->offset + (numbers + 3) / 4) ==
                             diopiSuccess,
                "'gen' takes no offset");
  }
  return diopiSuccess;
}

// Forward

diopiError_t flash_forward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                           diopiTensorHandle_t lse, const struct flash_arguments *arguments) {
  struct frame frame;
  struct attention_call call = {.frame = &frame};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, arguments->names->out, out, &call.out));
  FRAME_TRY(frame_take(&frame, "softmax_lse", lse, &call.lse));
  FRAME_TRY(take_call(&call, arguments));
  FRAME_TRY(check_like(&call, arguments->names->out, &call.out, "q", &call.q));
  FRAME_TRY(check_lse(&call));
  const struct dit_tensor_view *inputs[] = {&call.q, &call.k, &call.v, &call.slopes, &call.mask, &call.out};
  FRAME_TRY(frame_check_output(&frame, arguments->names->out, &call.out, inputs, 5, false));
  FRAME_TRY(frame_check_output(&frame, "softmax_lse", &call.lse, inputs, 6, false));
  return call.lse.numel == 0 || call.q.numel == 0 ? diopiSuccess : attention_run_forward(&call);
}

// Backward

diopiError_t flash_backward(const char *function, diopiContextHandle_t ctx, const struct flash_gradients *g,
                            const struct flash_arguments *arguments) {
  struct frame frame;
  struct attention_call call = {.frame = &frame};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, "grad_q", g->grad_q, &call.grad_q));
  FRAME_TRY(frame_take(&frame, "grad_k", g->grad_k, &call.grad_k));
  FRAME_TRY(frame_take(&frame, "grad_v", g->grad_v, &call.grad_v));
  FRAME_TRY(frame_take(&frame, arguments->names->grad, g->grad_output, &call.grad));
  FRAME_TRY(frame_take(&frame, arguments->names->out, g->out, &call.out));
  FRAME_TRY(frame_take(&frame, "softmax_lse", g->lse, &call.lse));
  FRAME_TRY(take_call(&call, arguments));
  FRAME_TRY(check_like(&call, arguments->names->out, &call.out, "q", &call.q));
  FRAME_TRY(check_like(&call, arguments->names->grad, &call.grad, "q", &call.q));
  FRAME_TRY(check_like(&call, "grad_q", &call.grad_q, "q", &call.q));
  FRAME_TRY(check_like(&call, "grad_k", &call.grad_k, "k", &call.k));
  FRAME_TRY(check_like(&call, "grad_v", &call.grad_v, "v", &call.v));
  FRAME_TRY(check_lse(&call));
  const struct dit_tensor_view *inputs[] = {&call.q,   &call.k,   &call.v,      &call.slopes, &call.grad,
                                            &call.out, &call.lse, &call.grad_q, &call.grad_k};
  FRAME_TRY(frame_check_output(&frame, "grad_q", &call.grad_q, inputs, 7, false));
  FRAME_TRY(frame_check_output(&frame, "grad_k", &call.grad_k, inputs, 7, false));
  FRAME_TRY(frame_check_output(&frame, "grad_v", &call.grad_v, inputs, 7, false));
  // the three may be slices of one tensor, whose spans meet
  const void *starts[] = {call.grad_q.data, call.grad_k.data, call.grad_v.data};
  const bool shared =
      (starts[0] && (starts[0] == starts[1] || starts[0] == starts[2])) || (starts[1] && starts[1] == starts[2]);
  FRAME_CHECK(&frame, !shared, "'grad_q', 'grad_k' and 'grad_v' share memory");
  FRAME_TRY(frame_check_output(&frame, "grad_k", &call.grad_k, inputs + 7, 1, true));
  FRAME_TRY(frame_check_output(&frame, "grad_v", &call.grad_v, inputs + 7, 2, true));
  return call.q.numel == 0 && call.k.numel == 0 ? diopiSuccess : attention_run_backward(&call);
}

// The functions

static const struct flash_names names = {"attention_out", "grad_output", "cum_seq_kv"};

// Parameters that have one name in all functions of the family.
#define ARGUMENTS                                                                                              \
  .names = &names, .q = q, .k = k, .v = v, .alibi_slopes = alibi_slopes, .generator = gen,                     \
  .dropout = (double)p_dropout, .scale = (double)softmax_scale, .causal = is_causal, .left = window_size_left, \
  .right = window_size_right
#define PACKED_ARGUMENTS \
  ARGUMENTS, .packed = true, .cum_q = cum_seq_q, .cum_k = cum_seq_kv, .max_q = max_seqlen_q, .max_k = max_seqlen_kv

diopiError_t diopiFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                 diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                 diopiConstTensorHandle_t q, diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
                                 diopiConstTensorHandle_t alibi_slopes, float p_dropout, float softmax_scale,
                                 bool is_causal, int32_t window_size_left, int32_t window_size_right) {
  const struct flash_arguments arguments = {ARGUMENTS};
  return flash_forward(__func__, ctx, attention_out, softmax_lse, &arguments);
}

diopiError_t diopiFlashAttentionBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_q,
                                         diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
                                         diopiConstTensorHandle_t grad_output, diopiGeneratorHandle_t gen,
                                         diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                         diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes,
                                         diopiConstTensorHandle_t attention_out, diopiConstTensorHandle_t softmax_lse,
                                         float p_dropout, float softmax_scale, bool is_causal, int32_t window_size_left,
                                         int32_t window_size_right) {
  const struct flash_arguments arguments = {ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_output, attention_out, softmax_lse};
  return flash_backward(__func__, ctx, &gradients, &arguments);
}

diopiError_t diopiFlashAttentionVarLen(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                       diopiTensorHandle_t softmax_lse, diopiGeneratorHandle_t gen,
                                       diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
                                       diopiConstTensorHandle_t v, diopiConstTensorHandle_t cum_seq_q,
                                       diopiConstTensorHandle_t cum_seq_kv, diopiConstTensorHandle_t alibi_slopes,
                                       int32_t max_seqlen_q, int32_t max_seqlen_kv, float p_dropout,
                                       float softmax_scale, bool is_causal, int32_t window_size_left,
                                       int32_t window_size_right) {
  const struct flash_arguments arguments = {PACKED_ARGUMENTS};
  return flash_forward(__func__, ctx, attention_out, softmax_lse, &arguments);
}

diopiError_t diopiFlashAttentionVarLenBackward(
    diopiContextHandle_t ctx, diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
    diopiConstTensorHandle_t grad_output, diopiGeneratorHandle_t gen, diopiConstTensorHandle_t q,
    diopiConstTensorHandle_t k, diopiConstTensorHandle_t v, diopiConstTensorHandle_t cum_seq_q,
    diopiConstTensorHandle_t cum_seq_kv, diopiConstTensorHandle_t alibi_slopes, diopiConstTensorHandle_t attention_out,
    diopiConstTensorHandle_t softmax_lse, int32_t max_seqlen_q, int32_t max_seqlen_kv, float p_dropout,
    float softmax_scale, bool is_causal, int32_t window_size_left, int32_t window_size_right) {
  const struct flash_arguments arguments = {PACKED_ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_output, attention_out, softmax_lse};
  return flash_backward(__func__, ctx, &gradients, &arguments);
}
