/// Pooling calls (see pool.h): shapes as PyTorch computes them.
///
/// x (N, C, spatial...) or without N; the result has the same dtype and spatial sizes (in + 2 padding - dilation
/// (kernel - 1) - 1) / stride + 1, rounded down or up (ceil_mode: the last window begins inside the input or the
/// padding before it). half types are computed in float, integers in int64. Indices are positions in a plane.
#include "pool.h"

#include "dit/window.h"
#include "engine/reduce.h"

static diopiError_t read_windows(struct pool_call *call, const struct pool_lists *lists) {
  static const int64_t none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
  struct frame *frame = call->frame;
  const int ndim = call->ndim;
  FRAME_TRY(window_read(frame, "kernel_size", lists->kernel, ndim, 1, 1, NULL, call->kernel));
  FRAME_TRY(window_read(frame, "stride", lists->stride, ndim, 1, 1, call->kernel, call->stride));
  FRAME_TRY(window_read(frame, "padding", lists->padding, ndim, 0, 0, none, call->padding));
  FRAME_TRY(window_read(frame, "dilation", lists->dilation, ndim, 1, 1, one, call->dilation));
  for (int i = 3 - ndim; i < 3; i++) {
    const int64_t reach = call->dilation[i] * (call->kernel[i] - 1) + 1;
    FRAME_CHECK(frame, call->padding[i] <= reach / 2, "'padding' has the entry %lld; valid: 0 to %lld, half the kernel",
                (long long)call->padding[i], (long long)(reach / 2));
    call->out_sizes[i] = dit_window_count(&(struct dit_window){call->in_sizes[i], call->kernel[i], call->stride[i],
                                                               call->padding[i], call->dilation[i], lists->ceil_mode});
    FRAME_CHECK(frame, call->out_sizes[i] > 0,
                "'input' has size %lld in spatial dimension %d; the kernel (%lld) leaves no result",
                (long long)call->in_sizes[i], i - 3 + ndim, (long long)call->kernel[i]);
  }
  return diopiSuccess;
}

static diopiError_t read_output_size(struct pool_call *call, const char *name, const struct pool_lists *lists) {
  struct frame *frame = call->frame;
  const int ndim = call->ndim;
  if (lists->output_size.data) {
    FRAME_TRY(window_read(frame, "output_size", lists->output_size, ndim, 0, 1, NULL, call->out_sizes));
  } else {
    int64_t batch, channels;
    FRAME_TRY(window_split(frame, name, &call->pooled, ndim, &batch, &channels, call->out_sizes));
  }
  for (int i = 3 - ndim; i < 3; i++) {
    FRAME_CHECK(frame, call->in_sizes[i] > 0, "'input' has size 0 in spatial dimension %d; valid: at least 1",
                i - 3 + ndim);
  }
  return diopiSuccess;
}

diopiError_t pool_check(struct pool_call *call, const char *name, const struct pool_lists *lists, uint64_t dtypes) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x;
  int64_t batch, channels;
  FRAME_TRY(window_split(frame, "input", x, call->ndim, &batch, &channels, call->in_sizes));
  for (int i = 0; i < 3; i++) {
    call->out_sizes[i] = 1;
    call->kernel[i] = call->stride[i] = call->dilation[i] = 1;
    call->padding[i] = 0;
  }
  FRAME_TRY(lists->adaptive ? read_output_size(call, name, lists) : read_windows(call, lists));
  FRAME_CHECK(frame, !lists->divisor || *lists->divisor != 0, "'divisor_override' is 0; valid: any other number");
  FRAME_TRY(window_check(frame, name, &call->pooled, call->ndim, x->ndim == call->ndim + 2, batch, channels,
                         call->out_sizes));
  FRAME_CHECK(frame, x->dtype == call->pooled.dtype, "'input' is %s and '%s' %s; they must have one dtype",
              dit_dtype_get_name(x->dtype), name, dit_dtype_get_name(call->pooled.dtype));
  if (!frame_has_dtype(dtypes, x->dtype)) {
    return frame_fail_dtype(frame, "input", x->dtype);
  }
  if (call->indices.handle) {
    FRAME_CHECK(frame, frame_is_same_shape(&call->indices, &call->pooled), "'indices' has another shape than '%s'",
                name);
    FRAME_CHECK(frame, call->indices.dtype == DIT_DTYPE_I64 || call->indices.dtype == DIT_DTYPE_I32,
                "'indices' is %s; valid: int64, int32", dit_dtype_get_name(call->indices.dtype));
  }
  if (call->grad_x.handle) {
    FRAME_CHECK(frame, frame_is_same_shape(&call->grad_x, x) && call->grad_x.dtype == x->dtype,
                "'grad_input' has another shape or dtype than 'input'");
    const struct dit_tensor_view *inputs[] = {&call->pooled, x, &call->indices};
    FRAME_TRY(frame_check_output(frame, "grad_input", &call->grad_x, inputs, 3, false));
  } else {
    const struct dit_tensor_view *inputs[] = {x, &call->indices};
    FRAME_TRY(frame_check_output(frame, name, &call->pooled, inputs, 2, false));
    FRAME_TRY(call->indices.handle ? frame_check_output(frame, "indices", &call->indices, inputs, 1, false)
                                   : diopiSuccess);
  }
  call->shape = (struct pool_shape){.planes = batch * channels, .divisor = lists->divisor ? *lists->divisor : 0};
  call->adaptive = lists->adaptive;
  call->count_padding = lists->count_padding;
  return diopiSuccess;
}

// Work

static bool has_work(const struct pool_call *call) {
  return call->x.numel > 0;
}

/// The mean of whole planes is a reduction, which takes any strides and dtypes as they are.
static diopiError_t reduce_planes(struct pool_call *call) {
  struct dit_error err = {.message = ""};
  const uint32_t mask = ((1u << call->ndim) - 1) << (call->x.ndim - call->ndim);
  const enum dit_status status =
      reduce_launch(call->frame->stream, REDUCE_MEAN, 0, &call->pooled, &call->x, mask, &err);
  return frame_get_code(call->frame, status, &err);
}

diopiError_t pool_run_max(struct pool_call *call) {
  return has_work(call) ? pool_work_max(call) : diopiSuccess;
}
diopiError_t pool_run_mean(struct pool_call *call) {
  const int64_t *out = call->out_sizes;
  if (call->adaptive && out[0] * out[1] * out[2] == 1 && call->x.numel > 0) {
    return reduce_planes(call);
  }
  return has_work(call) ? pool_work_mean(call) : diopiSuccess;
}
diopiError_t pool_run_max_backward(struct pool_call *call) {
  return has_work(call) ? pool_work_max_backward(call) : diopiSuccess;
}
diopiError_t pool_run_mean_backward(struct pool_call *call) {
  return has_work(call) ? pool_work_mean_backward(call) : diopiSuccess;
}
