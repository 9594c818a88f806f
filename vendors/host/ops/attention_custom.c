/// Flash attention with tensors kept for its gradient: CustomizedFlashAttention and its VarLen form.
///
/// As diopiFlashAttention (attention.c), with layouts ("BSH", "SBH", "BSND", "BNSD"; VarLen: (T, N, D)), an
/// attention_mask (bool or uint8, not 0 hides; broadcasts to batch, heads, queries, keys) and ends of sequences as
/// lists on the host. What is kept: softmax_max and softmax_sum (batch, heads, queries), in the type of the work, with
/// max + log(sum) the logarithm of a query's sum of exponentials; dropout_mask is the generator's seed and offset as
/// two int64 numbers, because the mask follows from them, and empty without dropout; softmax_out is empty. The gradient
/// needs no more.
#include <string.h>

#include "flash.h"

static const struct flash_names names = {"attention_out", "grad_output", "cum_seq_kv"};

struct kept {
  diopiTensorHandle_t *mask, *max, *sum, *out;
};

static diopiError_t require(struct frame *frame, int ndim, const int64_t *sizes, diopiDtype_t dtype,
                            diopiTensorHandle_t *out) {
  const diopiSize_t size = {sizes, ndim};
  return diopiRequireTensor(frame->context, out, &size, NULL, dtype, diopi_device) == diopiSuccess
             ? diopiSuccess
             : frame_fail(frame, diopiErrorOccurred, "no memory for what the gradient needs");
}

/// (batch, heads, queries) as far as q can tell; what is wrong with it is found later.
static void get_shape(const struct flash_arguments *a, const struct dit_tensor_view *q, int64_t *sizes) {
  const bool joined = a->layout && strlen(a->layout) == 3;
  memset(sizes, 0, 3 * sizeof *sizes);
  if (a->packed && q->ndim == 3) {
    sizes[0] = a->list_q.len > 0 ? a->list_q.len - 1 : 0;
    sizes[1] = q->sizes[1];
    sizes[2] = a->max_q > 0 ? a->max_q : 0;
  } else if (!a->packed && q->ndim == (joined ? 3 : 4)) {
    const bool heads_first = a->layout && strcmp(a->layout, "BNSD") == 0, rows_first = joined && a->layout[0] == 'S';
    sizes[0] = q->sizes[rows_first ? 1 : 0];
    sizes[1] = joined ? (a->heads > 0 ? a->heads : 0) : q->sizes[heads_first ? 1 : 2];
    sizes[2] = q->sizes[rows_first ? 0 : heads_first ? 2 : 1];
  }
}

struct numbers {
  void *data;
  int64_t values[2];
  bool write;
};

static diopiError_t move_numbers(void *context) {
  struct numbers *n = context;
  if (n->write) {
    memcpy(n->data, n->values, sizeof n->values);
  } else {
    memcpy(n->values, n->data, sizeof n->values);
  }
  return diopiSuccess;
}

static diopiError_t keep_seed(struct frame *frame, uint64_t seed, uint64_t offset, diopiTensorHandle_t handle) {
  struct dit_tensor_view view;
  FRAME_TRY(frame_take(frame, "dropout_mask", handle, &view));
  struct numbers n = {view.data, {(int64_t)seed, (int64_t)offset}, true};
  return frame_run(frame, move_numbers, &n);
}

static diopiError_t run_forward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                const struct kept *kept, const struct flash_arguments *a) {
  struct frame frame;
  struct dit_tensor_view q;
  diopiTensorHandle_t made[4] = {NULL};
  int64_t sizes[3], none[1] = {0}, two[1] = {2};
  uint64_t seed = 0, offset = 0;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_CHECK(&frame, kept->mask && kept->max && kept->sum && kept->out,
              "'dropout_mask', 'softmax_max', 'softmax_sum' and 'softmax_out' must be places for handles");
  FRAME_TRY(frame_take(&frame, "q", a->q, &q));
  get_shape(a, &q, sizes);
  const bool drops = a->dropout > 0 && a->dropout < 1 && a->generator;
  const diopiDtype_t work = q.dtype == DIT_DTYPE_F64 ? diopi_dtype_float64 : diopi_dtype_float32;
  FRAME_TRY(require(&frame, 3, sizes, work, &made[0]));
  FRAME_TRY(require(&frame, 3, sizes, work, &made[1]));
  FRAME_TRY(require(&frame, 1, none, dit_diopi_get_dtype(q.dtype), &made[2]));
  FRAME_TRY(require(&frame, 1, drops ? two : none, drops ? diopi_dtype_int64 : diopi_dtype_uint8, &made[3]));
  if (drops) {
    FRAME_CHECK(&frame, diopiGeneratorGetSeedAndOffset(a->generator, &seed, &offset) == diopiSuccess,
                "'gen' has no seed and offset");
  }
  FRAME_TRY(flash_forward(function, ctx, out, made[0], a));
  FRAME_TRY(diopiOnes(ctx, made[1], (diopiSize_t){sizes, 3}));
  if (drops) {
    FRAME_TRY(keep_seed(&frame, seed, offset, made[3]));
  }
  *kept->max = made[0];
  *kept->sum = made[1];
  *kept->out = made[2];
  *kept->mask = made[3];
  return diopiSuccess;
}

static diopiError_t run_backward(const char *function, diopiContextHandle_t ctx, const struct flash_gradients *given,
                                 diopiConstTensorHandle_t max, diopiConstTensorHandle_t sum,
                                 diopiConstTensorHandle_t dropout_mask, struct flash_arguments *a) {
  struct frame frame;
  struct dit_tensor_view m, n;
  struct flash_gradients gradients = *given;
  struct numbers numbers = {0};
  uint64_t seed[2];
  diopiTensorHandle_t lse = NULL;
  const diopiScalar_t one = {.stype = diopi_dtype_float64, .fval = 1};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, "softmax_max", max, &m));
  FRAME_TRY(frame_take(&frame, "softmax_sum", sum, &n));
  FRAME_CHECK(&frame, frame_is_same_shape(&m, &n) && m.dtype == n.dtype && frame_has_dtype(DTYPES_FLOAT, m.dtype),
              "'softmax_max' and 'softmax_sum' must have one shape and one floating dtype");
  if (a->dropout > 0) {
    struct dit_tensor_view mask;
    FRAME_TRY(frame_take(&frame, "dropout_mask", dropout_mask, &mask));
    FRAME_CHECK(&frame, mask.dtype == DIT_DTYPE_I64 && mask.numel == 2 && mask.flags & DIT_TENSOR_CONTIGUOUS,
                "'dropout_mask' is not what the forward call gave");
    numbers.data = mask.data;
    FRAME_TRY(frame_run(&frame, move_numbers, &numbers));
    seed[0] = (uint64_t)numbers.values[0];
    seed[1] = (uint64_t)numbers.values[1];
    a->seed = seed;
  }
  FRAME_TRY(require(&frame, m.ndim, m.sizes, dit_diopi_get_dtype(m.dtype), &lse));
  FRAME_TRY(diopiLog(ctx, lse, sum));
  FRAME_TRY(diopiAdd(ctx, lse, max, lse, &one));
  gradients.lse = lse;
  return flash_backward(function, ctx, &gradients, a);
}

// Parameters that have one name in all functions of the family.
#define ARGUMENTS                                                                                            \
  .names = &names, .q = q, .k = k, .v = v, .alibi_slopes = alibi_slopes, .dropout = (double)p_dropout,       \
  .scale = (double)softmax_scale, .causal = is_causal, .left = window_size_left, .right = window_size_right, \
  .mask = attention_mask, .customized = true
#define FLAT_ARGUMENTS ARGUMENTS, .layout = input_layout, .heads = head_num
#define PACKED_ARGUMENTS \
  ARGUMENTS, .packed = true, .list_q = cum_seq_q, .list_k = cum_seq_kv, .max_q = max_seqlen_q, .max_k = max_seqlen_kv

diopiError_t diopiCustomizedFlashAttention(diopiContextHandle_t ctx, diopiTensorHandle_t attention_out,
                                           diopiTensorHandle_t *dropout_mask, diopiTensorHandle_t *softmax_max,
                                           diopiTensorHandle_t *softmax_sum, diopiTensorHandle_t *softmax_out,
                                           diopiGeneratorHandle_t gen, diopiConstTensorHandle_t q,
                                           diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
                                           diopiConstTensorHandle_t alibi_slopes,
                                           diopiConstTensorHandle_t attention_mask, float p_dropout,
                                           float softmax_scale, bool is_causal, int32_t window_size_left,
                                           int32_t window_size_right, int32_t head_num, const char *input_layout) {
  const struct flash_arguments arguments = {FLAT_ARGUMENTS, .generator = gen};
  const struct kept kept = {dropout_mask, softmax_max, softmax_sum, softmax_out};
  return run_forward(__func__, ctx, attention_out, &kept, &arguments);
}

diopiError_t diopiCustomizedFlashAttentionBackward(
    diopiContextHandle_t ctx, diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
    diopiConstTensorHandle_t v, diopiConstTensorHandle_t alibi_slopes, diopiConstTensorHandle_t attention_out,
    diopiConstTensorHandle_t attention_mask, diopiConstTensorHandle_t dropout_mask,
    diopiConstTensorHandle_t softmax_max, diopiConstTensorHandle_t softmax_sum, diopiConstTensorHandle_t softmax_out,
    float p_dropout, float softmax_scale, bool is_causal, int32_t window_size_left, int32_t window_size_right,
    int32_t head_num, const char *input_layout) {
  struct flash_arguments arguments = {FLAT_ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_output, attention_out, NULL};
  (void)softmax_out;
  return run_backward(__func__, ctx, &gradients, softmax_max, softmax_sum, dropout_mask, &arguments);
}

diopiError_t diopiCustomizedFlashAttentionVarLen(
    diopiContextHandle_t ctx, diopiTensorHandle_t attention_out, diopiTensorHandle_t *dropout_mask,
    diopiTensorHandle_t *softmax_max, diopiTensorHandle_t *softmax_sum, diopiTensorHandle_t *softmax_out,
    diopiGeneratorHandle_t gen, diopiConstTensorHandle_t q, diopiConstTensorHandle_t k, diopiConstTensorHandle_t v,
    diopiSize_t cum_seq_q, diopiSize_t cum_seq_kv, diopiConstTensorHandle_t alibi_slopes,
    diopiConstTensorHandle_t attention_mask, int32_t max_seqlen_q, int32_t max_seqlen_kv, float p_dropout,
    float softmax_scale, bool is_causal, int32_t window_size_left, int32_t window_size_right) {
  const struct flash_arguments arguments = {PACKED_ARGUMENTS, .generator = gen};
  const struct kept kept = {dropout_mask, softmax_max, softmax_sum, softmax_out};
  return run_forward(__func__, ctx, attention_out, &kept, &arguments);
}

diopiError_t diopiCustomizedFlashAttentionVarLenBackward(
    diopiContextHandle_t ctx, diopiTensorHandle_t grad_q, diopiTensorHandle_t grad_k, diopiTensorHandle_t grad_v,
    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t q, diopiConstTensorHandle_t k,
    diopiConstTensorHandle_t v, diopiSize_t cum_seq_q, diopiSize_t cum_seq_kv, diopiConstTensorHandle_t alibi_slopes,
    diopiConstTensorHandle_t attention_out, diopiConstTensorHandle_t attention_mask,
    diopiConstTensorHandle_t dropout_mask, diopiConstTensorHandle_t softmax_max, diopiConstTensorHandle_t softmax_sum,
    diopiConstTensorHandle_t softmax_out, int32_t max_seqlen_q, int32_t max_seqlen_kv, float p_dropout,
    float softmax_scale, bool is_causal, int32_t window_size_left, int32_t window_size_right) {
  struct flash_arguments arguments = {PACKED_ARGUMENTS};
  const struct flash_gradients gradients = {grad_q, grad_k, grad_v, grad_output, attention_out, NULL};
  (void)softmax_out;
  return run_backward(__func__, ctx, &gradients, softmax_max, softmax_sum, dropout_mask, &arguments);
}
