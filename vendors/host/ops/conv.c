/// Convolution and transposed convolution over two and three dimensions, and their gradients.
///
/// input (N, C, spatial...) or without N; weight (O, C / groups, kernel...), of a transposed one (C, O / groups,
/// kernel...); bias (O) or NULL. out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1 in every dimension,
/// transposed (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. Floating dtypes, one for all;
/// half types are computed in float. Gradients that are not wanted are NULL. Outputs overlap nothing.
#include "conv.h"

#include "dit/window.h"
#include "window.h"

/// The lists of one call. output_padding is read for transposed ones alone.
struct conv_lists {
  diopiSize_t stride, padding, dilation, output_padding;
  int64_t groups;
  int ndim;
  bool transposed;
};

/// Sizes of out from those of x in one dimension; at least 0.
static int64_t get_out_size(const struct conv_shape *s, int dim, bool transposed, int64_t x, int64_t extra) {
  const struct dit_window window = {x, s->kernel[dim], s->stride[dim], s->padding[dim], s->dilation[dim], false};
  return transposed ? dit_window_get_transposed(&window, extra) : dit_window_count(&window);
}

static diopiError_t set_windows(struct frame *frame, const struct conv_lists *lists, struct conv_shape *s,
                                int64_t extra[3]) {
  FRAME_TRY(window_read(frame, "stride", lists->stride, lists->ndim, 1, 1, NULL, s->stride));
  FRAME_TRY(window_read(frame, "padding", lists->padding, lists->ndim, 0, 0, NULL, s->padding));
  FRAME_TRY(window_read(frame, "dilation", lists->dilation, lists->ndim, 1, 1, NULL, s->dilation));
  if (!lists->transposed) {
    return diopiSuccess;
  }
  FRAME_TRY(window_read(frame, "output_padding", lists->output_padding, lists->ndim, 0, 0, NULL, extra));
  for (int i = 3 - lists->ndim; i < 3; i++) {
    FRAME_CHECK(frame, extra[i] < s->stride[i] || extra[i] < s->dilation[i],
                "'output_padding' has the entry %lld; it must be smaller than stride (%lld) or dilation (%lld)",
                (long long)extra[i], (long long)s->stride[i], (long long)s->dilation[i]);
  }
  return diopiSuccess;
}

/// Shapes, dtypes and lists; fills call->shape.
static diopiError_t check_call(struct conv_call *call, const char *out_name, const struct conv_lists *lists) {
  struct frame *frame = call->frame;
  struct conv_shape *s = &call->shape;
  const struct dit_tensor_view *x = &call->x, *w = &call->weight;
  const int ndim = lists->ndim;
  int64_t channels, sizes[3], result[3], extra[3] = {0};
  *s = (struct conv_shape){.groups = lists->groups, .wide = x->dtype == DIT_DTYPE_F64};
  call->transposed = lists->transposed;
  FRAME_TRY(window_split(frame, "input", x, ndim, &s->batch, &channels, sizes));
  FRAME_CHECK(frame, w->ndim == ndim + 2, "'weight' has %d dimensions; valid: %d", (int)w->ndim, ndim + 2);
  for (int i = 0; i < 3; i++) {
    s->kernel[i] = i < 3 - ndim ? 1 : w->sizes[2 + i - 3 + ndim];
    FRAME_CHECK(frame, s->kernel[i] > 0 && s->kernel[i] <= INT32_MAX,
                "'weight' has a kernel of size %lld; valid: at least 1", (long long)s->kernel[i]);
  }
  FRAME_TRY(set_windows(frame, lists, s, extra));
  const int64_t groups = s->groups;
  FRAME_CHECK(frame, groups > 0, "'groups' is %lld; valid: at least 1", (long long)groups);
  const int64_t want = lists->transposed ? w->sizes[0] : w->sizes[1] * groups;
  FRAME_CHECK(frame, channels == want && channels % groups == 0 && w->sizes[0] % groups == 0,
              "'input' has %lld channels, 'weight' is %lld x %lld and 'groups' is %lld; they do not fit",
              (long long)channels, (long long)w->sizes[0], (long long)w->sizes[1], (long long)groups);
  const int64_t made = lists->transposed ? w->sizes[1] * groups : w->sizes[0];
  for (int i = 0; i < 3; i++) {
    result[i] = get_out_size(s, i, lists->transposed, sizes[i], extra[i]);
    FRAME_CHECK(frame, i < 3 - ndim || result[i] > 0,
                "'input' has size %lld in spatial dimension %d; the padded kernel leaves no result",
                (long long)sizes[i], i - 3 + ndim);
    s->in[i] = lists->transposed ? result[i] : sizes[i];
    s->out[i] = lists->transposed ? sizes[i] : result[i];
  }
  s->in_channels = lists->transposed ? made : channels;
  s->out_channels = lists->transposed ? channels : made;
  FRAME_TRY(window_check(frame, out_name, &call->out, ndim, x->ndim == ndim + 2, s->batch, made, result));
  FRAME_CHECK(frame, x->dtype == w->dtype && x->dtype == call->out.dtype,
              "'input' is %s, 'weight' %s and '%s' %s; they must have one dtype", dit_dtype_get_name(x->dtype),
              dit_dtype_get_name(w->dtype), out_name, dit_dtype_get_name(call->out.dtype));
  return frame_has_dtype(DTYPES_FLOAT, x->dtype) ? diopiSuccess : frame_fail_dtype(frame, "input", x->dtype);
}

// Forward

static diopiError_t start_forward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                  diopiConstTensorHandle_t bias, const struct conv_lists *lists) {
  struct frame frame;
  struct conv_call call = {.frame = &frame};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, input, &call.x);
  FRAME_TAKE(&frame, weight, &call.weight);
  FRAME_TAKE_OPTIONAL(&frame, bias, &call.bias);
  FRAME_TRY(check_call(&call, "out", lists));
  const int64_t made = call.transposed ? call.shape.in_channels : call.shape.out_channels;
  FRAME_CHECK(&frame, !call.bias.handle || (call.bias.ndim == 1 && call.bias.sizes[0] == made),
              "'bias' must have one dimension of size %lld", (long long)made);
  FRAME_CHECK(&frame, !call.bias.handle || call.bias.dtype == call.x.dtype, "'bias' is %s; it must be %s like 'input'",
              dit_dtype_get_name(call.bias.dtype), dit_dtype_get_name(call.x.dtype));
  const struct dit_tensor_view *inputs[] = {&call.x, &call.weight, &call.bias};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 3, false));
  return conv_run_forward(&call);
}

diopiError_t diopiConvolution2d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, diopiSize_t stride,
                                diopiSize_t padding, diopiSize_t dilation, int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, {NULL, 0}, groups, 2, false};
  return start_forward(__func__, ctx, out, input, weight, bias, &lists);
}

diopiError_t diopiConvolution3d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, diopiSize_t stride,
                                diopiSize_t padding, diopiSize_t dilation, int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, {NULL, 0}, groups, 3, false};
  return start_forward(__func__, ctx, out, input, weight, bias, &lists);
}

diopiError_t diopiConvTranspose2d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, diopiSize_t stride,
                                  diopiSize_t padding, diopiSize_t output_padding, int64_t groups,
                                  diopiSize_t dilation) {
  const struct conv_lists lists = {stride, padding, dilation, output_padding, groups, 2, true};
  return start_forward(__func__, ctx, out, input, weight, bias, &lists);
}

diopiError_t diopiConvTranspose3d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, diopiSize_t stride,
                                  diopiSize_t padding, diopiSize_t output_padding, int64_t groups,
                                  diopiSize_t dilation) {
  const struct conv_lists lists = {stride, padding, dilation, output_padding, groups, 3, true};
  return start_forward(__func__, ctx, out, input, weight, bias, &lists);
}

// Backward

static diopiError_t check_gradients(struct conv_call *call) {
  struct frame *frame = call->frame;
  const int64_t made = call->transposed ? call->shape.in_channels : call->shape.out_channels;
  FRAME_CHECK(frame, !call->grad_x.handle || frame_is_same_shape(&call->grad_x, &call->x),
              "'grad_input' has another shape than 'input'");
  FRAME_CHECK(frame, !call->grad_weight.handle || frame_is_same_shape(&call->grad_weight, &call->weight),
              "'grad_weight' has another shape than 'weight'");
  FRAME_CHECK(frame, !call->grad_bias.handle || (call->grad_bias.ndim == 1 && call->grad_bias.sizes[0] == made),
              "'grad_bias' must have one dimension of size %lld", (long long)made);
  static const char *const names[] = {"grad_input", "grad_weight", "grad_bias"};
  const struct dit_tensor_view *const results[] = {&call->grad_x, &call->grad_weight, &call->grad_bias};
  const struct dit_tensor_view *inputs[] = {&call->out, &call->x, &call->weight, &call->grad_x, &call->grad_weight};
  for (int i = 0; i < 3; i++) {
    if (results[i]->handle) {
      FRAME_CHECK(frame, results[i]->dtype == call->x.dtype, "'%s' is %s; it must be %s like 'input'", names[i],
                  dit_dtype_get_name(results[i]->dtype), dit_dtype_get_name(call->x.dtype));
      FRAME_TRY(frame_check_output(frame, names[i], results[i], inputs, 3 + i, false));
    }
  }
  return diopiSuccess;
}

struct conv_handles {
  diopiTensorHandle_t grad_input, grad_weight, grad_bias;
  diopiConstTensorHandle_t grad_output, input, weight;
};

static diopiError_t start_backward(const char *function, diopiContextHandle_t ctx, const struct conv_handles *handles,
                                   const struct conv_lists *lists) {
  struct frame frame;
  struct conv_call call = {.frame = &frame};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take_optional(&frame, "grad_input", handles->grad_input, &call.grad_x));
  FRAME_TRY(frame_take_optional(&frame, "grad_weight", handles->grad_weight, &call.grad_weight));
  FRAME_TRY(frame_take_optional(&frame, "grad_bias", handles->grad_bias, &call.grad_bias));
  FRAME_TRY(frame_take(&frame, "grad_output", handles->grad_output, &call.out));
  FRAME_TRY(frame_take(&frame, "input", handles->input, &call.x));
  FRAME_TRY(frame_take(&frame, "weight", handles->weight, &call.weight));
  FRAME_TRY(check_call(&call, "grad_output", lists));
  FRAME_TRY(check_gradients(&call));
  return conv_run_backward(&call);
}

diopiError_t diopiConvolution2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                        diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                        diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                        diopiConstTensorHandle_t weight, diopiSize_t *bias_sizes, diopiSize_t stride,
                                        diopiSize_t padding, diopiSize_t dilation, int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, {NULL, 0}, groups, 2, false};
  const struct conv_handles handles = {grad_input, grad_weight, grad_bias, grad_output, input, weight};
  (void)bias_sizes;  // grad_bias says it
  return start_backward(__func__, ctx, &handles, &lists);
}

diopiError_t diopiConvolution3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                        diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                        diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                        diopiConstTensorHandle_t weight, diopiSize_t *bias_sizes, diopiSize_t stride,
                                        diopiSize_t padding, diopiSize_t dilation, int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, {NULL, 0}, groups, 3, false};
  const struct conv_handles handles = {grad_input, grad_weight, grad_bias, grad_output, input, weight};
  (void)bias_sizes;
  return start_backward(__func__, ctx, &handles, &lists);
}

diopiError_t diopiConvTranspose2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                          diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                          diopiConstTensorHandle_t weight, diopiSize_t *bias_sizes, diopiSize_t stride,
                                          diopiSize_t padding, diopiSize_t dilation, diopiSize_t output_padding,
                                          int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, output_padding, groups, 2, true};
  const struct conv_handles handles = {grad_input, grad_weight, grad_bias, grad_output, input, weight};
  (void)bias_sizes;
  return start_backward(__func__, ctx, &handles, &lists);
}

diopiError_t diopiConvTranspose3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                          diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                          diopiConstTensorHandle_t weight, diopiSize_t *bias_sizes, diopiSize_t stride,
                                          diopiSize_t padding, diopiSize_t dilation, diopiSize_t output_padding,
                                          int64_t groups) {
  const struct conv_lists lists = {stride, padding, dilation, output_padding, groups, 3, true};
  const struct conv_handles handles = {grad_input, grad_weight, grad_bias, grad_output, input, weight};
  (void)bias_sizes;
  return start_backward(__func__, ctx, &handles, &lists);
}
