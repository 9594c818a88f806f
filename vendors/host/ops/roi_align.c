/// Regions of images at a fixed size (RoiAlign), and the gradient of the images.
///
/// rois (K, 5): number of the image, x1, y1, x2, y2. With s = spatial_scale and h = 0.5 when `aligned`, else 0, a
/// region begins at s x1 - h and is s (x2 - x1) wide (at least 1 when not `aligned`), cut into pooled_width bins; the
/// same for y. A bin is the mean of samples in a regular grid inside of it, sampling_ratio along each side, or as many
/// as fit (ceil(bin's size)) when that is not positive. A sample between pixels is their bilinear mix; one more than a
/// pixel outside the image is 0, nearer ones take the edge. Floating dtypes, one for all; half types in float. A number
/// of an image that does not exist, and a region that is not finite, are errors. out overlaps nothing.
#include "roi_align.h"

static bool is_shape(const struct dit_tensor_view *view, int64_t a, int64_t b, int64_t c, int64_t d) {
  return view->ndim == 4 && view->sizes[0] == a && view->sizes[1] == b && view->sizes[2] == c && view->sizes[3] == d;
}

static diopiError_t start(struct roi_align *call, const char *name) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *rois = &call->rois, *input = &call->input, *out = &call->out;
  FRAME_CHECK(frame, rois->ndim == 2 && rois->sizes[1] == 5, "'rois' must have 5 columns: image, x1, y1, x2, y2");
  FRAME_CHECK(frame, call->bins_y > 0 && call->bins_x > 0,
              "'pooled_height' is %lld and 'pooled_width' %lld; valid: from 1", (long long)call->bins_y,
              (long long)call->bins_x);
  FRAME_CHECK(frame, call->samples <= ROI_MAX_SAMPLES, "'sampling_ratio' is %lld; valid: up to %d",
              (long long)call->samples, ROI_MAX_SAMPLES);
  const struct dit_tensor_view *bins = call->backward ? input : out, *images = call->backward ? out : input;
  FRAME_CHECK(frame, is_shape(bins, rois->sizes[0], call->channels, call->bins_y, call->bins_x),
              "'%s' must be %lld x %lld x %lld x %lld", call->backward ? name : "out", (long long)rois->sizes[0],
              (long long)call->channels, (long long)call->bins_y, (long long)call->bins_x);
  FRAME_CHECK(frame, is_shape(images, call->images, call->channels, call->height, call->width),
              "'out' must be %lld x %lld x %lld x %lld", (long long)call->images, (long long)call->channels,
              (long long)call->height, (long long)call->width);
  FRAME_CHECK(frame, input->dtype == rois->dtype && input->dtype == out->dtype,
              "'%s' is %s, 'rois' %s, 'out' %s; valid: one dtype", name, dit_dtype_get_name(input->dtype),
              dit_dtype_get_name(rois->dtype), dit_dtype_get_name(out->dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, input->dtype)) {
    return frame_fail_dtype(frame, name, input->dtype);
  }
  const struct dit_tensor_view *inputs[] = {input, rois};
  FRAME_TRY(frame_check_output(frame, "out", out, inputs, 2, false));
  return roi_align_run(call);
}

diopiError_t diopiRoiAlign(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                           diopiConstTensorHandle_t rois, double spatial_scale, int64_t pooled_height,
                           int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  struct frame frame;
  struct roi_align call = {.frame = &frame,
                           .scale = spatial_scale,
                           .bins_y = pooled_height,
                           .bins_x = pooled_width,
                           .samples = sampling_ratio,
                           .aligned = aligned};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, input, &call.input);
  FRAME_TAKE(&frame, rois, &call.rois);
  FRAME_CHECK(&frame, call.input.ndim == 4, "'input' has %d dimensions; valid: 4", (int)call.input.ndim);
  call.images = call.input.sizes[0];
  call.channels = call.input.sizes[1];
  call.height = call.input.sizes[2];
  call.width = call.input.sizes[3];
  return start(&call, "input");
}

diopiError_t diopiRoiAlignBackward(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t grad,
                                   diopiConstTensorHandle_t rois, double spatial_scale, int64_t pooled_height,
                                   int64_t pooled_width, int64_t batch_size, int64_t channels, int64_t height,
                                   int64_t width, int64_t sampling_ratio, bool aligned) {
  struct frame frame;
  struct roi_align call = {.frame = &frame,
                           .scale = spatial_scale,
                           .bins_y = pooled_height,
                           .bins_x = pooled_width,
                           .samples = sampling_ratio,
                           .aligned = aligned,
                           .images = batch_size,
                           .channels = channels,
                           .height = height,
                           .width = width,
                           .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, grad, &call.input);
  FRAME_TAKE(&frame, rois, &call.rois);
  return start(&call, "grad");
}
