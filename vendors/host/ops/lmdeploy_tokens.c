/// Tokens of a batch on their way in and out (lmdeploy): embeddings of prompts and steps, padding, results.
///
/// Ids and lengths are int32 or int64. Values that lead to rows (ids, lengths) are checked before anything is written,
/// so those calls wait for their stream. Outputs overlap no input.
#include <string.h>

#include "dense.h"
#include "engine/kernels.h"
#include "fail.h"

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

static diopiError_t check_index(struct frame *frame, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(frame, is_index(view->dtype), "'%s' is %s; valid: int32, int64", name, dit_dtype_get_name(view->dtype));
  return diopiSuccess;
}

/// The first `size` elements of inoutput grow by `val`: integers that wrap.
struct plus_call {
  struct frame *frame;
  struct dit_tensor_view x;
  int64_t value, size;
};

static diopiError_t work_plus(void *context) {
  struct plus_call *call = context;
  struct dense x = {0};
  if (!dense_read(&x, &call->x, DIT_DTYPE_I64)) {
    return dense_fail(call->frame);
  }
  for (int64_t i = 0; i < call->size; i++) {
    int64_t *element = (int64_t *)x.data + i;
    *element = (int64_t)((uint64_t)*element + (uint64_t)call->value);
  }
  dense_store(&x);
  dense_close(&x);
  return diopiSuccess;
}

diopiError_t diopiPlusScalarInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput, const int64_t val,
                                const int64_t size) {
  struct frame frame;
  struct plus_call call = {.frame = &frame, .value = val, .size = size};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, inoutput, &call.x);
  if (!frame_has_dtype(DTYPES_INT, call.x.dtype)) {
    return frame_fail_dtype(&frame, "inoutput", call.x.dtype);
  }
  FRAME_CHECK(&frame, size >= 0 && size <= call.x.numel, "'size' is %lld; valid: 0 to %lld", (long long)size,
              (long long)call.x.numel);
  FRAME_TRY(frame_check_output(&frame, "inoutput", &call.x, NULL, 0, false));
  return FRAME_QUEUE(&frame, work_plus, &call, &call.frame, &call.x);
}

/// total_padding_count[b] += max_input_length - input_lengths[b].
struct padding_call {
  struct frame *frame;
  struct dit_tensor_view count, lengths;
  int64_t longest, batch;
};

static diopiError_t work_padding(void *context) {
  struct padding_call *call = context;
  struct dense count = {0}, lengths = {0};
  const bool done =
      dense_read(&count, &call->count, DIT_DTYPE_I64) && dense_read(&lengths, &call->lengths, DIT_DTYPE_I64);
  for (int64_t i = 0; done && i < call->batch; i++) {
    ((int64_t *)count.data)[i] += call->longest - ((const int64_t *)lengths.data)[i];
  }
  if (done) {
    dense_store(&count);
  }
  dense_close(&count);
  dense_close(&lengths);
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t diopiUpdatePaddingCount(diopiContextHandle_t ctx, diopiTensorHandle_t total_padding_count,
                                     diopiConstTensorHandle_t input_lengths, int64_t max_input_length,
                                     int64_t batch_size) {
  struct frame frame;
  struct padding_call call = {.frame = &frame, .longest = max_input_length, .batch = batch_size};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, total_padding_count, &call.count);
  FRAME_TAKE(&frame, input_lengths, &call.lengths);
  FRAME_TRY(check_index(&frame, "total_padding_count", &call.count));
  FRAME_TRY(check_index(&frame, "input_lengths", &call.lengths));
  FRAME_CHECK(&frame,
              batch_size >= 0 && call.count.ndim == 1 && call.lengths.ndim == 1 && call.count.numel >= batch_size &&
                  call.lengths.numel >= batch_size,
              "'total_padding_count' and 'input_lengths' must have 'batch_size' = %lld numbers", (long long)batch_size);
  const struct dit_tensor_view *inputs[] = {&call.lengths};
  FRAME_TRY(frame_check_output(&frame, "total_padding_count", &call.count, inputs, 1, false));
  return FRAME_QUEUE(&frame, work_padding, &call, &call.frame, &call.count, &call.lengths);
}

/// output (dim1, dim0, dim2) = input (dim0, dim1, dim2): every dtype.
diopiError_t diopiTransposeAxis01(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                                  const int64_t dim0, const int64_t dim1, const int64_t dim2) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct dit_error err = {.message = ""};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, output, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_CHECK(&frame, x.ndim == 3 && x.sizes[0] == dim0 && x.sizes[1] == dim1 && x.sizes[2] == dim2,
              "'input' must be %lld x %lld x %lld", (long long)dim0, (long long)dim1, (long long)dim2);
  FRAME_CHECK(
      &frame, o.ndim == 3 && o.sizes[0] == dim1 && o.sizes[1] == dim0 && o.sizes[2] == dim2 && o.dtype == x.dtype,
      "'output' must be %lld x %lld x %lld of the dtype of 'input'", (long long)dim1, (long long)dim0, (long long)dim2);
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_TRY(frame_check_output(&frame, "output", &o, inputs, 1, false));
  const int64_t sizes[3] = {dim1, dim0, dim2}, strides[3] = {x.strides[1], x.strides[0], x.strides[2]};
  x.sizes = sizes;
  x.strides = strides;
  x.flags = DIT_TENSOR_ON_DEVICE;
  x.flags |= dit_shape_is_contiguous(3, sizes, strides) ? DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE : 0;
  return frame_get_code(&frame, o.numel > 0 ? kernel_copy(frame.stream, &o, &x, &err) : DIT_OK, &err);
}

// Embeddings

struct lookup_call {
  struct frame *frame;
  struct dit_tensor_view out, table, ids;
  int64_t count, first;  ///< ids that are looked up, from this place on
};

static diopiError_t work_lookup(void *context) {
  struct lookup_call *call = context;
  const size_t row = (size_t)call->table.sizes[1] * dit_dtype_get_size(call->table.dtype);
  struct dense out = {0}, table = {0}, ids = {0};
  diopiError_t code = diopiSuccess;
  if (!dense_read(&ids, &call->ids, DIT_DTYPE_I64) || !dense_read(&table, &call->table, call->table.dtype) ||
      !dense_reserve(&out, &call->out, call->out.dtype)) {
    code = dense_fail(call->frame);
  }
  const int64_t *numbers = code == diopiSuccess ? (const int64_t *)ids.data + call->first : NULL;
  for (int64_t i = 0; code == diopiSuccess && i < call->count; i++) {
    if (numbers[i] < 0 || numbers[i] >= call->table.sizes[0]) {
      code = frame_fail_range(call->frame, "an id is %lld; valid: 0 to %lld", (long long)numbers[i],
                              (long long)call->table.sizes[0] - 1);
    }
  }
  for (int64_t i = 0; code == diopiSuccess && row > 0 && i < call->count; i++) {
    memcpy((char *)out.data + (size_t)i * row, (const char *)table.data + (size_t)numbers[i] * row, row);
  }
  if (code == diopiSuccess) {
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&table);
  dense_close(&ids);
  return code;
}

static diopiError_t lookup(struct lookup_call *call, const char *ids, int64_t width) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, call->table.ndim == 2 && call->table.sizes[1] == width,
              "'embedding_table' must have %lld columns ('hidden_units')", (long long)width);
  FRAME_CHECK(frame,
              call->out.ndim == 2 && call->out.sizes[0] == call->count && call->out.sizes[1] == width &&
                  call->out.dtype == call->table.dtype,
              "'from_tensor' must be %lld x %lld of the dtype of 'embedding_table'", (long long)call->count,
              (long long)width);
  FRAME_TRY(check_index(frame, ids, &call->ids));
  const struct dit_tensor_view *inputs[] = {&call->table, &call->ids};
  FRAME_TRY(frame_check_output(frame, "from_tensor", &call->out, inputs, 2, false));
  return frame_run(frame, work_lookup, call);
}

/// from_tensor (batch, hidden) = rows of the table for the ids (steps, batch) of one step.
diopiError_t diopiEmbeddingLookupPosEncoding(diopiContextHandle_t ctx, diopiTensorHandle_t from_tensor,
                                             diopiConstTensorHandle_t embedding_table, diopiConstTensorHandle_t all_ids,
                                             const int64_t batch_size, const int64_t hidden_units, const int64_t step) {
  struct frame frame;
  struct lookup_call call = {.frame = &frame, .count = batch_size, .first = step * batch_size};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, from_tensor, &call.out);
  FRAME_TAKE(&frame, embedding_table, &call.table);
  FRAME_TAKE(&frame, all_ids, &call.ids);
  FRAME_CHECK(&frame, batch_size >= 0 && call.ids.ndim == 2 && call.ids.sizes[1] == batch_size,
              "'all_ids' must have %lld columns ('batch_size')", (long long)batch_size);
  FRAME_CHECK(&frame, step >= 0 && step < call.ids.sizes[0], "'step' is %lld; valid: 0 to %lld", (long long)step,
              (long long)call.ids.sizes[0] - 1);
  return lookup(&call, "all_ids", hidden_units);
}

/// from_tensor (tokens, hidden) = rows of the table for the first input_lengths ids.
diopiError_t diopiInputIdsEmbeddingLookupPosEncoding(diopiContextHandle_t ctx, diopiTensorHandle_t from_tensor,
                                                     diopiConstTensorHandle_t input_ids,
                                                     diopiConstTensorHandle_t embedding_table,
                                                     const int64_t input_lengths, const int64_t hidden_units) {
  struct frame frame;
  struct lookup_call call = {.frame = &frame, .count = input_lengths};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, from_tensor, &call.out);
  FRAME_TAKE(&frame, input_ids, &call.ids);
  FRAME_TAKE(&frame, embedding_table, &call.table);
  FRAME_CHECK(&frame, input_lengths >= 0 && call.ids.numel >= input_lengths,
              "'input_lengths' is %lld; valid: 0 to %lld", (long long)input_lengths, (long long)call.ids.numel);
  return lookup(&call, "input_ids", hidden_units);
}

// Results

/// output_ids (batch, max_output_len) = ids (steps, batch) of the first max_gen_step steps, without those between a
/// prompt's own length and max_context_len; places for which there are none stay as they are.
struct output_call {
  struct frame *frame;
  struct dit_tensor_view out, ids, lengths;
  int64_t longest, steps, width, batch;
};

static diopiError_t work_output(void *context) {
  struct output_call *call = context;
  struct dense out = {0}, ids = {0}, lengths = {0};
  diopiError_t code = diopiSuccess;
  if (!dense_read(&out, &call->out, DIT_DTYPE_I64) || !dense_read(&ids, &call->ids, DIT_DTYPE_I64) ||
      !dense_read(&lengths, &call->lengths, DIT_DTYPE_I64)) {
    code = dense_fail(call->frame);
  }
  for (int64_t b = 0; code == diopiSuccess && b < call->batch; b++) {
    const int64_t length = ((const int64_t *)lengths.data)[b];
    if (length < 0 || length > call->longest) {
      code = frame_fail_range(call->frame, "'context_length' holds %lld; valid: 0 to %lld", (long long)length,
                              (long long)call->longest);
    }
  }
  for (int64_t b = 0; code == diopiSuccess && b < call->batch; b++) {
    const int64_t length = ((const int64_t *)lengths.data)[b];
    for (int64_t t = 0; t < call->steps; t++) {
      const int64_t to = t < length ? t : t - (call->longest - length);
      if ((t < length || t >= call->longest) && to < call->width) {
        ((int64_t *)out.data)[b * call->width + to] = ((const int64_t *)ids.data)[t * call->batch + b];
      }
    }
  }
  if (code == diopiSuccess) {
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&ids);
  dense_close(&lengths);
  return code;
}

diopiError_t diopiGatherOutput(diopiContextHandle_t ctx, diopiTensorHandle_t output_ids, diopiConstTensorHandle_t ids,
                               diopiConstTensorHandle_t context_length, int64_t max_context_len, int64_t max_gen_step,
                               int64_t max_output_len, int64_t batch_size) {
  struct frame frame;
  struct output_call call = {
      .frame = &frame, .longest = max_context_len, .steps = max_gen_step, .width = max_output_len, .batch = batch_size};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, output_ids, &call.out);
  FRAME_TAKE(&frame, ids, &call.ids);
  FRAME_TAKE(&frame, context_length, &call.lengths);
  FRAME_TRY(check_index(&frame, "output_ids", &call.out));
  FRAME_TRY(check_index(&frame, "ids", &call.ids));
  FRAME_TRY(check_index(&frame, "context_length", &call.lengths));
  FRAME_CHECK(&frame, call.out.ndim == 2 && call.out.sizes[0] == batch_size && call.out.sizes[1] == max_output_len,
              "'output_ids' must be %lld x %lld", (long long)batch_size, (long long)max_output_len);
  FRAME_CHECK(
      &frame,
      call.ids.ndim == 2 && call.ids.sizes[1] == batch_size && max_gen_step >= 0 && call.ids.sizes[0] >= max_gen_step,
      "'ids' must have %lld columns and at least %lld rows", (long long)batch_size, (long long)max_gen_step);
  FRAME_CHECK(&frame, call.lengths.ndim == 1 && call.lengths.sizes[0] == batch_size && max_context_len >= 0,
              "'context_length' must have %lld numbers", (long long)batch_size);
  const struct dit_tensor_view *inputs[] = {&call.ids, &call.lengths};
  FRAME_TRY(frame_check_output(&frame, "output_ids", &call.out, inputs, 2, false));
  return frame_run(&frame, work_output, &call);
}
