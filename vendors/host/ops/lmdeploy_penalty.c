/// Penalties on the logits of a step (lmdeploy), in place: repetition and temperature.
///
/// logits (batch, vocab), floating; half types are computed in float. Repetition: output_ids (steps, batch) tells what
/// sequence b has used in steps 0 to `step`, without those between its input length and max_input_length, which are
/// padding; the logit of each such token changes once by p = penalties[b]: x - p (penalty_type 1), x / p or x * p where
/// x is negative (2), nothing (0). Ids out of range are an error. Temperature: (x + bias) / temperatures[b] in the
/// first vocab_size columns, the lowest finite number in the rest up to vocab_size_padd. Penalties and temperatures
/// have the logits' dtype or float32.
#include <float.h>
#include <string.h>

#include "dense.h"
#include "engine/scratch.h"
#include "fail.h"

struct repetition_call {
  struct frame *frame;
  struct dit_tensor_view logits, penalties, ids, lengths;
  int64_t batch, vocab, longest, step, kind;
};

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

static double change(double x, double penalty, int64_t kind) {
  return kind == 1 ? x - penalty : x < 0 ? x * penalty : x / penalty;
}

/// `used` marks tokens that were changed.
static void apply_row(const struct repetition_call *call, int64_t b, const int64_t *ids, int64_t length, void *row,
                      bool wide, double penalty, uint8_t *used) {
  memset(used, 0, (size_t)call->logits.sizes[1]);
  for (int64_t t = 0; t < call->step; t++) {
    const int64_t id = ids[t * call->batch + b];
    if ((t >= length && t < call->longest) || used[id]) {
      continue;
    }
    used[id] = 1;
    if (wide) {
      ((double *)row)[id] = change(((double *)row)[id], penalty, call->kind);
    } else {
      ((float *)row)[id] = (float)change((double)((float *)row)[id], penalty, call->kind);
    }
  }
}

static diopiError_t check_ids(struct repetition_call *call, const int64_t *ids, const int64_t *lengths) {
  for (int64_t b = 0; b < call->batch; b++) {
    for (int64_t t = 0; t < call->step; t++) {
      const int64_t id = ids[t * call->batch + b];
      const bool padding = t >= lengths[b] && t < call->longest;
      FRAME_CHECK_RANGE(call->frame, padding || (id >= 0 && id < call->vocab),
                        "'output_ids' holds %lld; valid: 0 to %lld", (long long)id, (long long)call->vocab - 1);
    }
  }
  return diopiSuccess;
}

static diopiError_t work_repetition(void *context) {
  struct repetition_call *call = context;
  const int type = dense_get_work(call->logits.dtype);
  struct dense logits = {0}, penalties = {0}, ids = {0}, lengths = {0};
  uint8_t *used = scratch_take((size_t)call->logits.sizes[1] + 1);
  diopiError_t code;
  if (used && dense_read(&logits, &call->logits, type) && dense_read(&penalties, &call->penalties, DIT_DTYPE_F64) &&
      dense_read(&ids, &call->ids, DIT_DTYPE_I64) && dense_read(&lengths, &call->lengths, DIT_DTYPE_I64)) {
    code = check_ids(call, ids.data, lengths.data);
    for (int64_t b = 0; code == diopiSuccess && call->kind != 0 && b < call->batch; b++) {
      char *row = (char *)logits.data + (size_t)(b * call->logits.sizes[1]) * dit_dtype_get_size(type);
      apply_row(call, b, ids.data, ((const int64_t *)lengths.data)[b], row, type == DIT_DTYPE_F64,
                ((const double *)penalties.data)[b], used);
    }
    if (code == diopiSuccess) {
      dense_store(&logits);
    }
  } else {
    code = dense_fail(call->frame);
  }
  dense_close(&logits);
  dense_close(&penalties);
  dense_close(&ids);
  dense_close(&lengths);
  scratch_give(used);
  return code;
}

/// logits (batch, at least `width`), and a number per sequence.
static diopiError_t check_logits(struct frame *frame, const struct dit_tensor_view *logits, int64_t batch,
                                 int64_t width, const char *name, const struct dit_tensor_view *numbers) {
  FRAME_CHECK(frame, logits->ndim == 2 && logits->sizes[0] == batch && width >= 0 && logits->sizes[1] >= width,
              "'logits' must have %lld rows of at least %lld elements", (long long)batch, (long long)width);
  if (!frame_has_dtype(DTYPES_FLOAT, logits->dtype)) {
    return frame_fail_dtype(frame, "logits", logits->dtype);
  }
  FRAME_CHECK(frame,
              numbers->ndim == 1 && numbers->sizes[0] == batch &&
                  (numbers->dtype == logits->dtype || numbers->dtype == DIT_DTYPE_F32),
              "'%s' must have %lld numbers, float32 or of the dtype of 'logits'", name, (long long)batch);
  return diopiSuccess;
}

diopiError_t diopiBatchApplyRepetitionPenaltyInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                                 diopiConstTensorHandle_t penalties,
                                                 diopiConstTensorHandle_t output_ids, const int64_t batch_size,
                                                 const int64_t vocab_size, diopiConstTensorHandle_t input_lengths,
                                                 const int64_t max_input_length, const int64_t step,
                                                 const int64_t penalty_type) {
  struct frame frame;
  struct repetition_call call = {.frame = &frame,
                                 .batch = batch_size,
                                 .vocab = vocab_size,
                                 .longest = max_input_length,
                                 .step = step,
                                 .kind = penalty_type};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, logits, &call.logits);
  FRAME_TAKE(&frame, penalties, &call.penalties);
  FRAME_TAKE(&frame, output_ids, &call.ids);
  FRAME_TAKE(&frame, input_lengths, &call.lengths);
  FRAME_TRY(check_logits(&frame, &call.logits, batch_size, vocab_size, "penalties", &call.penalties));
  FRAME_CHECK(&frame, penalty_type >= 0 && penalty_type <= 2, "'penalty_type' is %lld; valid: 0, 1, 2",
              (long long)penalty_type);
  FRAME_CHECK(&frame,
              call.ids.ndim == 2 && call.ids.sizes[1] == batch_size && step >= 0 && call.ids.sizes[0] >= step &&
                  is_index(call.ids.dtype),
              "'output_ids' must have %lld columns and at least %lld rows, int32 or int64", (long long)batch_size,
              (long long)step);
  FRAME_CHECK(&frame, call.lengths.ndim == 1 && call.lengths.sizes[0] == batch_size && is_index(call.lengths.dtype),
              "'input_lengths' must have %lld numbers, int32 or int64", (long long)batch_size);
  const struct dit_tensor_view *inputs[] = {&call.penalties, &call.ids, &call.lengths};
  FRAME_TRY(frame_check_output(&frame, "logits", &call.logits, inputs, 3, false));
  return call.logits.numel == 0 ? diopiSuccess : frame_run(&frame, work_repetition, &call);
}

// Temperature

struct temperature_call {
  struct frame *frame;
  struct dit_tensor_view logits, bias, temperatures;
  int64_t vocab, padded;
};

static double get_lowest(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
      return -65504;
    case DIT_DTYPE_BF16:
      return -0x1.FEp127;
    case DIT_DTYPE_F32:
      return -(double)FLT_MAX;
    default:
      return -DBL_MAX;
  }
}

#define DEFINE_TEMPERATURE(type, name)                                                              \
  static void name(const struct temperature_call *call, type *x, const type *bias, const type *t) { \
    const type lowest = (type)get_lowest(call->logits.dtype);                                       \
    for (int64_t b = 0; b < call->logits.sizes[0]; b++) {                                           \
      type *row = x + b * call->logits.sizes[1];                                                    \
      for (int64_t i = 0; i < call->vocab; i++) {                                                   \
        row[i] = (bias ? row[i] + bias[i] : row[i]) / t[b];                                         \
      }                                                                                             \
      for (int64_t i = call->vocab; i < call->padded; i++) {                                        \
        row[i] = lowest;                                                                            \
      }                                                                                             \
    }                                                                                               \
  }
DEFINE_TEMPERATURE(float, heat_f32)
DEFINE_TEMPERATURE(double, heat_f64)

static diopiError_t work_temperature(void *context) {
  struct temperature_call *call = context;
  const int type = dense_get_work(call->logits.dtype);
  struct dense logits = {0}, bias = {0}, temperatures = {0};
  const bool done = dense_read(&logits, &call->logits, type) && dense_read(&bias, &call->bias, type) &&
                    dense_read(&temperatures, &call->temperatures, type);
  if (done) {
    if (type == DIT_DTYPE_F64) {
      heat_f64(call, logits.data, bias.data, temperatures.data);
    } else {
      heat_f32(call, logits.data, bias.data, temperatures.data);
    }
    dense_store(&logits);
  }
  dense_close(&logits);
  dense_close(&bias);
  dense_close(&temperatures);
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t diopiBatchApplyTemperaturePenaltyInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                                  diopiConstTensorHandle_t bias, diopiConstTensorHandle_t temperatures,
                                                  const int64_t batch_size, const int64_t vocab_size,
                                                  const int64_t vocab_size_padd) {
  struct frame frame;
  struct temperature_call call = {.frame = &frame, .vocab = vocab_size, .padded = vocab_size_padd};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, logits, &call.logits);
  FRAME_TAKE_OPTIONAL(&frame, bias, &call.bias);
  FRAME_TAKE(&frame, temperatures, &call.temperatures);
  FRAME_TRY(check_logits(&frame, &call.logits, batch_size, vocab_size_padd, "temperatures", &call.temperatures));
  FRAME_CHECK(&frame, vocab_size >= 0 && vocab_size <= vocab_size_padd, "'vocab_size' is %lld; valid: 0 to %lld",
              (long long)vocab_size, (long long)vocab_size_padd);
  FRAME_CHECK(&frame,
              !call.bias.handle ||
                  (call.bias.ndim == 1 && call.bias.sizes[0] >= vocab_size && call.bias.dtype == call.logits.dtype),
              "'bias' must have at least %lld elements of the dtype of 'logits'", (long long)vocab_size);
  const struct dit_tensor_view *inputs[] = {&call.bias, &call.temperatures};
  FRAME_TRY(frame_check_output(&frame, "logits", &call.logits, inputs, 2, false));
  return call.logits.numel == 0
             ? diopiSuccess
             : FRAME_QUEUE(&frame, work_temperature, &call, &call.frame, &call.logits, &call.bias, &call.temperatures);
}
