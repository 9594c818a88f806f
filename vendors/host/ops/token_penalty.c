/// Penalties for tokens that a sequence has used, on its logits and in place.
///
/// logits (B, V), floating; the penalties (B) have its dtype or float32. ApplyPenalty: logits[b, id] -= frequency[b] *
/// count + presence[b]; ids and counts (T), int32 or int64, of all sequences one after another, cumsum (B + 1) tells
/// where each begins. ApplyPenaltyV2: ids and counts (B, L); the logit is divided by repetition[b] where it is
/// positive, else multiplied, before that; entries with a count of 0 fill up a row and change nothing. An id out of
/// range is an error. A token occurs once in a sequence. Half types are computed in float. The ids are checked first,
/// so the call waits for its stream.
#include "dense.h"
#include "fail.h"

struct penalty_call {
  struct frame *frame;
  struct dit_tensor_view logits, presence, frequency, repetition, ids, counts, ends;
};

struct penalty_data {
  struct dense logits, presence, frequency, repetition, ids, counts, ends;
};

static void get_range(const struct penalty_call *call, const struct penalty_data *data, int64_t row, int64_t *begin,
                      int64_t *end) {
  const int64_t *ends = data->ends.data;
  const int64_t length = ends ? 0 : call->ids.sizes[1];
  *begin = ends ? ends[row] : row * length;
  *end = ends ? ends[row + 1] : (row + 1) * length;
}

static diopiError_t check_values(struct penalty_call *call, const struct penalty_data *data) {
  const int64_t rows = call->logits.sizes[0], width = call->logits.sizes[1];
  const int64_t *ends = data->ends.data, *ids = data->ids.data;
  bool valid = true;
  for (int64_t row = 0; ends && row < rows; row++) {
    valid = valid && ends[row] <= ends[row + 1];
  }
  FRAME_CHECK(call->frame, !ends || (valid && ends[0] >= 0 && ends[rows] <= call->ids.numel),
              "'p_cumsum_seq_len' must grow within 0 to %lld", (long long)call->ids.numel);
  for (int64_t row = 0; row < rows; row++) {
    int64_t begin, end;
    get_range(call, data, row, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
      FRAME_CHECK_RANGE(call->frame, ids[i] >= 0 && ids[i] < width, "'p_token_ids' holds %lld; valid: 0 to %lld",
                        (long long)ids[i], (long long)width - 1);
    }
  }
  return diopiSuccess;
}

#define DEFINE_APPLY(type, name)                                                       \
  static void name(const struct penalty_call *call, const struct penalty_data *data) { \
    const type *presence = data->presence.data, *frequency = data->frequency.data;     \
    const type *repetition = data->repetition.data;                                    \
    const int64_t *ids = data->ids.data, *counts = data->counts.data;                  \
    for (int64_t row = 0; row < call->logits.sizes[0]; row++) {                        \
      type *logits = (type *)data->logits.data + row * call->logits.sizes[1];          \
      int64_t begin, end;                                                              \
      get_range(call, data, row, &begin, &end);                                        \
      for (int64_t i = begin; i < end; i++) {                                          \
        if (repetition && counts[i] == 0) {                                            \
          continue;                                                                    \
        }                                                                              \
        type x = logits[ids[i]];                                                       \
        if (repetition) {                                                              \
          x = x > 0 ? x / repetition[row] : x * repetition[row];                       \
        }                                                                              \
        logits[ids[i]] = x - (frequency[row] * (type)counts[i] + presence[row]);       \
      }                                                                                \
    }                                                                                  \
  }
DEFINE_APPLY(float, apply_f32)
DEFINE_APPLY(double, apply_f64)

static diopiError_t work(void *context) {
  struct penalty_call *call = context;
  const int type = dense_get_work(call->logits.dtype);
  struct penalty_data data = {0};
  diopiError_t code;
  if (dense_read(&data.logits, &call->logits, type) && dense_read(&data.presence, &call->presence, type) &&
      dense_read(&data.frequency, &call->frequency, type) && dense_read(&data.repetition, &call->repetition, type) &&
      dense_read(&data.ids, &call->ids, DIT_DTYPE_I64) && dense_read(&data.counts, &call->counts, DIT_DTYPE_I64) &&
      dense_read(&data.ends, &call->ends, DIT_DTYPE_I64)) {
    code = check_values(call, &data);
    if (code == diopiSuccess && call->logits.numel > 0) {
      if (type == DIT_DTYPE_F64) {
        apply_f64(call, &data);
      } else {
        apply_f32(call, &data);
      }
      dense_store(&data.logits);
    }
  } else {
    code = dense_fail(call->frame);
  }
  struct dense *const all[] = {&data.logits, &data.presence, &data.frequency, &data.repetition,
                               &data.ids,    &data.counts,   &data.ends};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    dense_close(all[i]);
  }
  return code;
}

static diopiError_t check_row(struct penalty_call *call, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(call->frame, view->ndim == 1 && view->sizes[0] == call->logits.sizes[0],
              "'%s' must have one number for each of the %lld sequences", name, (long long)call->logits.sizes[0]);
  FRAME_CHECK(call->frame, view->dtype == call->logits.dtype || view->dtype == DIT_DTYPE_F32,
              "'%s' is %s; valid: %s, float32", name, dit_dtype_get_name(view->dtype),
              dit_dtype_get_name(call->logits.dtype));
  return diopiSuccess;
}

static diopiError_t check_index(struct penalty_call *call, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(call->frame, view->dtype == DIT_DTYPE_I32 || view->dtype == DIT_DTYPE_I64,
              "'%s' is %s; valid: int32, int64", name, dit_dtype_get_name(view->dtype));
  return diopiSuccess;
}

static diopiError_t start(struct penalty_call *call, int ndim) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, call->logits.ndim == 2, "'logits' has %d dimensions; valid: 2", (int)call->logits.ndim);
  if (!frame_has_dtype(DTYPES_FLOAT, call->logits.dtype)) {
    return frame_fail_dtype(frame, "logits", call->logits.dtype);
  }
  FRAME_TRY(check_row(call, "presence_penalty", &call->presence));
  FRAME_TRY(check_row(call, "frequency_penalty", &call->frequency));
  FRAME_TRY(check_index(call, "p_token_ids", &call->ids));
  FRAME_TRY(check_index(call, "p_token_counts", &call->counts));
  FRAME_CHECK(frame, call->ids.ndim == ndim && frame_is_same_shape(&call->ids, &call->counts),
              "'p_token_ids' and 'p_token_counts' must have %d dimensions and one shape", ndim);
  const struct dit_tensor_view *inputs[] = {&call->presence, &call->frequency, &call->repetition,
                                            &call->ids,      &call->counts,    &call->ends};
  FRAME_TRY(frame_check_output(frame, "logits", &call->logits, inputs, 6, false));
  return frame_run(frame, work, call);
}

diopiError_t diopiApplyPenalty(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                               diopiConstTensorHandle_t presence_penalty, diopiConstTensorHandle_t frequency_penalty,
                               diopiConstTensorHandle_t p_token_ids, diopiConstTensorHandle_t p_token_counts,
                               diopiConstTensorHandle_t p_cumsum_seq_len, int p_max_len_in_batch) {
  struct frame frame;
  struct penalty_call call = {.frame = &frame};
  (void)p_max_len_in_batch;  // a hint for devices that launch a block per sequence
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, logits, &call.logits);
  FRAME_TAKE(&frame, presence_penalty, &call.presence);
  FRAME_TAKE(&frame, frequency_penalty, &call.frequency);
  FRAME_TAKE(&frame, p_token_ids, &call.ids);
  FRAME_TAKE(&frame, p_token_counts, &call.counts);
  FRAME_TAKE(&frame, p_cumsum_seq_len, &call.ends);
  FRAME_CHECK(&frame, call.logits.ndim == 2 && call.ends.ndim == 1 && call.ends.sizes[0] == call.logits.sizes[0] + 1,
              "'p_cumsum_seq_len' must have one number more than 'logits' has rows");
  FRAME_TRY(check_index(&call, "p_cumsum_seq_len", &call.ends));
  return start(&call, 1);
}

diopiError_t diopiApplyPenaltyV2(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                 diopiConstTensorHandle_t presence_penalty, diopiConstTensorHandle_t frequency_penalty,
                                 diopiConstTensorHandle_t repetition_penalty, diopiConstTensorHandle_t p_token_ids,
                                 diopiConstTensorHandle_t p_token_counts) {
  struct frame frame;
  struct penalty_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, logits, &call.logits);
  FRAME_TAKE(&frame, presence_penalty, &call.presence);
  FRAME_TAKE(&frame, frequency_penalty, &call.frequency);
  FRAME_TAKE(&frame, repetition_penalty, &call.repetition);
  FRAME_TAKE(&frame, p_token_ids, &call.ids);
  FRAME_TAKE(&frame, p_token_counts, &call.counts);
  FRAME_CHECK(&frame, call.logits.ndim == 2 && call.ids.ndim == 2 && call.ids.sizes[0] == call.logits.sizes[0],
              "'p_token_ids' must have a row for each row of 'logits'");
  FRAME_TRY(check_row(&call, "repetition_penalty", &call.repetition));
  return start(&call, 2);
}
