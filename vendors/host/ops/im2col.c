/// Unfold and fold: sliding windows of an image as columns, and columns added back into an image.
///
/// Im2Col: input (N, C, H, W) or (C, H, W), out (N, C kh kw, L) with L the number of window positions. Col2Im: the way
/// back, out[...] is the sum of all elements that came from there. Floating dtypes; half types are added up in float.
/// Outputs overlap nothing.
#include "im2col.h"

#include "dit/window.h"
#include "window.h"

/// Window positions from the image's sizes in shape->in; every one must be at least 1.
static diopiError_t set_positions(struct frame *frame, struct conv_shape *s) {
  s->kernel[0] = s->stride[0] = s->dilation[0] = s->in[0] = s->out[0] = 1;
  for (int i = 1; i < 3; i++) {
    s->out[i] = dit_window_count(
        &(struct dit_window){s->in[i], s->kernel[i], s->stride[i], s->padding[i], s->dilation[i], false});
    FRAME_CHECK(frame, s->out[i] > 0, "an image of size %lld in dimension %d has no room for a window of %lld",
                (long long)s->in[i], i - 1, (long long)s->kernel[i]);
  }
  return diopiSuccess;
}

/// `columns` is (N, C kh kw, L), or without N.
static diopiError_t check_columns(struct frame *frame, const char *name, const struct dit_tensor_view *columns,
                                  bool has_batch, const struct conv_shape *s, int64_t channels) {
  const int64_t sizes[3] = {s->batch, channels * s->kernel[1] * s->kernel[2], s->out[1] * s->out[2]};
  FRAME_CHECK(frame, columns->ndim == 2 + has_batch, "'%s' has %d dimensions; valid: %d", name, (int)columns->ndim,
              2 + has_batch);
  for (int dim = 0; dim < columns->ndim; dim++) {
    const int64_t size = sizes[dim + !has_batch];
    FRAME_CHECK(frame, columns->sizes[dim] == size, "'%s' has size %lld in dimension %d; it must be %lld", name,
                (long long)columns->sizes[dim], dim, (long long)size);
  }
  return diopiSuccess;
}

struct column_lists {
  diopiSize_t kernel, dilation, padding, stride;
};

static diopiError_t read_lists(struct frame *frame, const struct column_lists *lists, struct conv_shape *s) {
  FRAME_TRY(window_read(frame, "kernel_size", lists->kernel, 2, 1, 1, NULL, s->kernel));
  FRAME_TRY(window_read(frame, "dilation", lists->dilation, 2, 1, 1, NULL, s->dilation));
  FRAME_TRY(window_read(frame, "padding", lists->padding, 2, 0, 0, NULL, s->padding));
  return window_read(frame, "stride", lists->stride, 2, 1, 1, NULL, s->stride);
}

static diopiError_t finish(struct column_call *call) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *inputs[] = {&call->x};
  FRAME_CHECK(frame, call->x.dtype == call->out.dtype, "'input' is %s and 'out' %s; they must have one dtype",
              dit_dtype_get_name(call->x.dtype), dit_dtype_get_name(call->out.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call->x.dtype)) {
    return frame_fail_dtype(frame, "input", call->x.dtype);
  }
  FRAME_TRY(frame_check_output(frame, "out", &call->out, inputs, 1, false));
  call->shape.wide = call->x.dtype == DIT_DTYPE_F64;
  return call->out.numel == 0 ? diopiSuccess : column_run(call);
}

diopiError_t diopiIm2Col(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         diopiSize_t kernel_size, diopiSize_t dilation, diopiSize_t padding, diopiSize_t stride) {
  struct frame frame;
  struct column_call call = {.frame = &frame};
  const struct column_lists lists = {kernel_size, dilation, padding, stride};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, input, &call.x);
  FRAME_TRY(read_lists(&frame, &lists, &call.shape));
  FRAME_TRY(window_split(&frame, "input", &call.x, 2, &call.shape.batch, &call.channels, call.shape.in));
  FRAME_TRY(set_positions(&frame, &call.shape));
  FRAME_TRY(check_columns(&frame, "out", &call.out, call.x.ndim == 4, &call.shape, call.channels));
  return finish(&call);
}

diopiError_t diopiCol2Im(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         diopiSize_t output_size, diopiSize_t kernel_size, diopiSize_t dilation, diopiSize_t padding,
                         diopiSize_t stride) {
  struct frame frame;
  struct column_call call = {.frame = &frame, .fold = true};
  const struct column_lists lists = {kernel_size, dilation, padding, stride};
  int64_t sizes[3];
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, input, &call.x);
  FRAME_TRY(read_lists(&frame, &lists, &call.shape));
  FRAME_TRY(window_read(&frame, "output_size", output_size, 2, 1, 1, NULL, sizes));
  FRAME_TRY(window_split(&frame, "out", &call.out, 2, &call.shape.batch, &call.channels, call.shape.in));
  FRAME_CHECK(&frame, call.shape.in[1] == sizes[1] && call.shape.in[2] == sizes[2],
              "'out' is %lld x %lld; 'output_size' is %lld x %lld", (long long)call.shape.in[1],
              (long long)call.shape.in[2], (long long)sizes[1], (long long)sizes[2]);
  FRAME_TRY(set_positions(&frame, &call.shape));
  FRAME_TRY(check_columns(&frame, "input", &call.x, call.out.ndim == 4, &call.shape, call.channels));
  return finish(&call);
}
