/// When a sequence ends, and which tokens it may not take (lmdeploy).
///
/// output_ids holds a column per sequence: token t of sequence b is element t * batch_size + id_offset + b. Words are
/// two rows of `len` numbers, tokens and ends: word i has the tokens from ends[i - 1] (0 for the first) to ends[i]; a
/// negative end is no word. StopWordsCriterion: (batch, 2, len); finished[b] becomes true when the tokens up to and
/// with `step` end with one of its words. BanBadWordsInp: the same, or (2, len) with share_words; logits[b, last token
/// of a word] becomes -inf when the word's other tokens are those before `step`. LengthCriterion: finished[b] becomes
/// true when step >= sequence_limit_length[b]; finished_sum (1) counts them, should_stop (1) tells whether all are. Ids
/// are int32 or int64, finished and should_stop bool, logits (batch, vocab or more) floating. Values are read first, so
/// the calls wait for their stream.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "fail.h"

struct word_call {
  struct frame *frame;
  struct dit_tensor_view out, ids, words;  ///< out: logits or finished
  int64_t offset, length, batch, vocab, step;
  bool shared, ban;
};

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

/// Are tokens [from, from + count) of sequence b these?
static bool is_tail(const struct word_call *call, const int64_t *ids, int64_t b, const int64_t *tokens, int64_t count,
                    int64_t from) {
  bool same = from >= 0;
  for (int64_t i = 0; same && i < count; i++) {
    same = ids[(from + i) * call->batch + call->offset + b] == tokens[i];
  }
  return same;
}

/// Token that sequence b must not take by word i, or whether it has it (0); -1: neither.
static int64_t test_word(const struct word_call *call, const int64_t *ids, const int64_t *words, int64_t b, int64_t i) {
  const int64_t *ends = words + call->length, begin = i > 0 ? ends[i - 1] : 0, count = ends[i] - begin;
  if (ends[i] < 0 || begin < 0 || count <= 0) {
    return -1;
  }
  const int64_t *tokens = words + begin, rest = call->ban ? count - 1 : count;
  const int64_t from = call->ban ? call->step - rest : call->step + 1 - rest;
  if (!is_tail(call, ids, b, tokens, rest, from)) {
    return -1;
  }
  const int64_t last = tokens[count - 1];
  return call->ban ? (last >= 0 && last < call->vocab ? last : -1) : 0;
}

static void set_lowest(const struct dense *out, int64_t at) {
  if (out->dtype == DIT_DTYPE_F64) {
    ((double *)out->data)[at] = -(double)INFINITY;
  } else {
    ((float *)out->data)[at] = -INFINITY;
  }
}

static diopiError_t test_words(struct word_call *call, const int64_t *ids, const int64_t *words, struct dense *out) {
  for (int64_t b = 0; b < (call->shared ? 1 : call->batch); b++) {
    const int64_t *ends = words + (2 * b + 1) * call->length;
    for (int64_t i = 0; i < call->length; i++) {
      FRAME_CHECK_RANGE(call->frame, ends[i] <= call->length, "a word ends at %lld; there are %lld tokens",
                        (long long)ends[i], (long long)call->length);
    }
  }
  for (int64_t b = 0; b < call->batch; b++) {
    const int64_t *own = words + (call->shared ? 0 : 2 * b * call->length);
    for (int64_t i = 0; i < call->length; i++) {
      const int64_t found = test_word(call, ids, own, b, i);
      if (found >= 0 && call->ban) {
        set_lowest(out, b * call->out.sizes[1] + found);
      } else if (found >= 0) {
        ((uint8_t *)out->data)[b] = 1;
      }
    }
  }
  return diopiSuccess;
}

static diopiError_t work_words(void *context) {
  struct word_call *call = context;
  struct dense out = {0}, ids = {0}, words = {0};
  diopiError_t code;
  if (dense_read(&out, &call->out, call->ban ? dense_get_work(call->out.dtype) : DIT_DTYPE_BOOL) &&
      dense_read(&ids, &call->ids, DIT_DTYPE_I64) && dense_read(&words, &call->words, DIT_DTYPE_I64)) {
    code = test_words(call, ids.data, words.data, &out);
    if (code == diopiSuccess) {
      dense_store(&out);
    }
  } else {
    code = dense_fail(call->frame);
  }
  dense_close(&out);
  dense_close(&ids);
  dense_close(&words);
  return code;
}

static diopiError_t start_words(struct word_call *call, const char *out, const char *words) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, is_index(call->ids.dtype) && is_index(call->words.dtype),
              "'output_ids' and '%s' must be int32 or int64", words);
  FRAME_CHECK(frame, call->batch >= 0 && call->step >= 0 && call->offset >= 0 && call->length >= 0,
              "'batch_size', 'step', 'id_offset' and the length of '%s' must not be negative", words);
  const int64_t last = (call->ban ? call->step : call->step + 1) * call->batch + call->offset;
  FRAME_CHECK(frame, last <= call->ids.numel || call->batch == 0,
              "'output_ids' has %lld elements; step %lld needs %lld", (long long)call->ids.numel, (long long)call->step,
              (long long)last);
  const int ndim = call->shared ? 2 : 3;
  FRAME_CHECK(frame,
              call->words.ndim == ndim && call->words.sizes[ndim - 2] == 2 &&
                  call->words.sizes[ndim - 1] == call->length && (call->shared || call->words.sizes[0] == call->batch),
              "'%s' must hold tokens and ends, 2 x %lld%s", words, (long long)call->length,
              call->shared ? "" : ", for each sequence");
  const struct dit_tensor_view *inputs[] = {&call->ids, &call->words};
  FRAME_TRY(frame_check_output(frame, out, &call->out, inputs, 2, false));
  return frame_run(frame, work_words, call);
}

diopiError_t diopiBanBadWordsInp(diopiContextHandle_t ctx, diopiTensorHandle_t logits,
                                 diopiConstTensorHandle_t output_ids, diopiConstTensorHandle_t bad_words,
                                 int64_t id_offset, int64_t bad_words_len, bool share_words, int64_t batch_size,
                                 int64_t vocab_size, int64_t step) {
  struct frame frame;
  struct word_call call = {.frame = &frame,
                           .offset = id_offset,
                           .length = bad_words_len,
                           .batch = batch_size,
                           .vocab = vocab_size,
                           .step = step,
                           .shared = share_words,
                           .ban = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, logits, &call.out);
  FRAME_TAKE(&frame, output_ids, &call.ids);
  FRAME_TAKE(&frame, bad_words, &call.words);
  FRAME_CHECK(&frame, call.out.ndim == 2 && call.out.sizes[0] == batch_size && call.out.sizes[1] >= vocab_size,
              "'logits' must have %lld rows of at least %lld elements", (long long)batch_size, (long long)vocab_size);
  if (!frame_has_dtype(DTYPES_FLOAT, call.out.dtype)) {
    return frame_fail_dtype(&frame, "logits", call.out.dtype);
  }
  return start_words(&call, "logits", "bad_words");
}

diopiError_t diopiStopWordsCriterion(diopiContextHandle_t ctx, diopiConstTensorHandle_t output_ids,
                                     diopiConstTensorHandle_t stop_words, diopiTensorHandle_t finished,
                                     int64_t id_offset, int64_t stop_words_len, int64_t batch_size, int64_t step) {
  struct frame frame;
  struct word_call call = {
      .frame = &frame, .offset = id_offset, .length = stop_words_len, .batch = batch_size, .step = step};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, output_ids, &call.ids);
  FRAME_TAKE(&frame, stop_words, &call.words);
  FRAME_TAKE(&frame, finished, &call.out);
  FRAME_CHECK(&frame, call.out.ndim == 1 && call.out.sizes[0] == batch_size && call.out.dtype == DIT_DTYPE_BOOL,
              "'finished' must be %lld bools", (long long)batch_size);
  return start_words(&call, "finished", "stop_words");
}

// Length

struct length_call {
  struct frame *frame;
  struct dit_tensor_view finished, stop, sum, limits;
  int64_t batch, step;
};

static diopiError_t work_length(void *context) {
  struct length_call *call = context;
  struct dense finished = {0}, stop = {0}, sum = {0}, limits = {0};
  const bool done = dense_read(&finished, &call->finished, DIT_DTYPE_BOOL) &&
                    dense_reserve(&stop, &call->stop, DIT_DTYPE_BOOL) &&
                    dense_reserve(&sum, &call->sum, DIT_DTYPE_I64) && dense_read(&limits, &call->limits, DIT_DTYPE_I64);
  if (done) {
    int64_t count = 0;
    for (int64_t b = 0; b < call->batch; b++) {
      uint8_t *own = (uint8_t *)finished.data + b;
      *own = *own || call->step >= ((const int64_t *)limits.data)[b];
      count += *own;
    }
    *(int64_t *)sum.data = count;
    *(uint8_t *)stop.data = count == call->batch;
    dense_store(&finished);
    dense_store(&sum);
    dense_store(&stop);
  }
  dense_close(&finished);
  dense_close(&stop);
  dense_close(&sum);
  dense_close(&limits);
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t diopiLengthCriterion(diopiContextHandle_t ctx, diopiTensorHandle_t finished,
                                  diopiTensorHandle_t should_stop, diopiTensorHandle_t finished_sum,
                                  diopiConstTensorHandle_t sequence_limit_length, int64_t batch_size, int64_t step) {
  struct frame frame;
  struct length_call call = {.frame = &frame, .batch = batch_size, .step = step};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, finished, &call.finished);
  FRAME_TAKE(&frame, should_stop, &call.stop);
  FRAME_TAKE(&frame, finished_sum, &call.sum);
  FRAME_TAKE(&frame, sequence_limit_length, &call.limits);
  FRAME_CHECK(&frame,
              call.finished.ndim == 1 && call.finished.sizes[0] == batch_size && call.finished.dtype == DIT_DTYPE_BOOL,
              "'finished' must be %lld bools", (long long)batch_size);
  FRAME_CHECK(&frame, call.stop.numel == 1 && call.stop.ndim <= 1 && call.stop.dtype == DIT_DTYPE_BOOL,
              "'should_stop' must be one bool");
  FRAME_CHECK(&frame, call.sum.numel == 1 && call.sum.ndim <= 1 && is_index(call.sum.dtype),
              "'finished_sum' must be one number, int32 or int64");
  FRAME_CHECK(&frame, call.limits.ndim == 1 && call.limits.sizes[0] == batch_size && is_index(call.limits.dtype),
              "'sequence_limit_length' must have %lld numbers, int32 or int64", (long long)batch_size);
  const struct dit_tensor_view *inputs[] = {&call.limits, &call.stop, &call.sum};
  FRAME_TRY(frame_check_output(&frame, "finished", &call.finished, inputs, 3, false));
  FRAME_TRY(frame_check_output(&frame, "should_stop", &call.stop, inputs, 1, false));
  FRAME_TRY(frame_check_output(&frame, "finished_sum", &call.sum, inputs, 2, false));
  return frame_run(&frame, work_length, &call);
}
