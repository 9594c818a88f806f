/// Keys and values into their places of a token pool: out[dest_loc[t]] = k[t].
///
/// out (pool, ...), k (T, ...) with the same trailing sizes and dtype; dest_loc (T), int32 or int64, each within the
/// pool (else an error and nothing is written); of equal places the last one stays. Other rows of out keep what they
/// hold. Every dtype. The places are checked first, so the call waits for its stream.
#include "dense.h"
#include "engine/kernels.h"
#include "fail.h"

struct pool_call {
  struct frame *frame;
  struct dit_tensor_view out, k, places;
};

/// Row `row` of a tensor as a view without its first dimension.
static struct dit_tensor_view get_row(const struct dit_tensor_view *view, int64_t row) {
  struct dit_tensor_view part = *view;
  part.data = (char *)view->data + (size_t)(row * view->strides[0]) * dit_dtype_get_size(view->dtype);
  part.sizes++;
  part.strides++;
  part.ndim--;
  part.numel = view->numel / view->sizes[0];
  part.flags = (uint8_t)(DIT_TENSOR_ON_DEVICE | (dit_shape_is_contiguous(part.ndim, part.sizes, part.strides)
                                                     ? DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE
                                                     : 0));
  return part;
}

static diopiError_t copy_rows(struct pool_call *call, const int64_t *places) {
  struct dit_error err = {.message = ""};
  for (int64_t i = 0; i < call->places.numel; i++) {
    FRAME_CHECK_RANGE(call->frame, places[i] >= 0 && places[i] < call->out.sizes[0],
                      "'dest_loc' holds %lld; valid: 0 to %lld", (long long)places[i],
                      (long long)call->out.sizes[0] - 1);
  }
  for (int64_t i = 0; i < call->places.numel && call->k.numel > 0; i++) {
    const struct dit_tensor_view to = get_row(&call->out, places[i]), from = get_row(&call->k, i);
    FRAME_TRY(frame_get_code(call->frame, kernel_copy(NULL, &to, &from, &err), &err));
  }
  return diopiSuccess;
}

static diopiError_t work(void *context) {
  struct pool_call *call = context;
  struct dense places = {0};
  const diopiError_t code =
      dense_read(&places, &call->places, DIT_DTYPE_I64) ? copy_rows(call, places.data) : dense_fail(call->frame);
  dense_close(&places);
  return code;
}

diopiError_t diopiDestIndexCopyKV(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t k,
                                  diopiConstTensorHandle_t dest_loc) {
  struct frame frame;
  struct pool_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, k, &call.k);
  FRAME_TAKE(&frame, dest_loc, &call.places);
  bool fits = call.out.ndim == call.k.ndim && call.k.ndim >= 1 && call.out.dtype == call.k.dtype;
  for (int dim = 1; fits && dim < call.k.ndim; dim++) {
    fits = call.out.sizes[dim] == call.k.sizes[dim];
  }
  FRAME_CHECK(&frame, fits, "'out' and 'k' must have one dtype and the same sizes behind the first dimension");
  FRAME_CHECK(&frame, call.places.ndim == 1 && call.places.sizes[0] == call.k.sizes[0],
              "'dest_loc' must have one dimension of size %lld", (long long)call.k.sizes[0]);
  FRAME_CHECK(&frame, call.places.dtype == DIT_DTYPE_I32 || call.places.dtype == DIT_DTYPE_I64,
              "'dest_loc' is %s; valid: int32, int64", dit_dtype_get_name(call.places.dtype));
  const struct dit_tensor_view *inputs[] = {&call.k, &call.places};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 2, false));
  return frame_run(&frame, work, &call);
}
