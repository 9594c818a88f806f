/// RoI pooling of mmcv over whole bins: the largest pixel (roi_pool) and the exact integral (precise RoI pooling).
///
/// Boxes are (picture, x1, y1, x2, y2) times spatial_scale. roi_pool: x2 and y2 belong to the box (1 is added before
/// scaling); a bin takes every pixel that it touches; argmax is the pixel's number in its plane, -1 where there is
/// none, and the value is 0 then. Precise pooling: the mean of the bilinear surface, zero outside the picture, over
/// each bin. The surface is a sum of hats, so the integral over a bin is a sum over pixels of two integrals of hats;
/// its derivative by an edge is the integral along that edge. Floating dtypes, one for all.
#include <math.h>

#include "roi.h"

struct pool_task {
  int64_t pooled_h, pooled_w;
  double scale;
};

/// An interval of one axis, and the pixels whose hats reach into it.
struct span {
  double begin, end;
  int64_t first, last;
};

static int64_t hold(double value, int64_t most) {
  return !(value > 0) ? 0 : value < (double)most ? (int64_t)value : most;
}

static void find_pixels(const struct pool_task *task, const double *roi, int64_t bin, int64_t height, int64_t width,
                        int64_t *y1, int64_t *y2, int64_t *x1, int64_t *x2) {
  const double left = roi[1] * task->scale, top = roi[2] * task->scale;
  const double wide = (roi[3] + 1) * task->scale - left, high = (roi[4] + 1) * task->scale - top;
  const double bin_w = wide / (double)task->pooled_w, bin_h = high / (double)task->pooled_h;
  const double ph = (double)(bin / task->pooled_w), pw = (double)(bin % task->pooled_w);
  const bool valid = wide > 0 && high > 0;
  *y1 = hold(floor(ph * bin_h + top), height);
  *x1 = hold(floor(pw * bin_w + left), width);
  *y2 = valid ? hold(ceil((ph + 1) * bin_h + top), height) : *y1;
  *x2 = valid ? hold(ceil((pw + 1) * bin_w + left), width) : *x1;
}

/// Integral of the hat around 0 from minus infinity to `end`.
static double hat_integral(double end) {
  if (end <= -1 || end >= 1) {
    return end >= 1;
  }
  return end < 0 ? (end + 1) * (end + 1) / 2 : 1 - (1 - end) * (1 - end) / 2;
}
static double hat(double place) {
  return fabs(place) < 1 ? 1 - fabs(place) : 0;
}
static double span_integral(const struct span *span, int64_t pixel) {
  return hat_integral(span->end - (double)pixel) - hat_integral(span->begin - (double)pixel);
}
static double span_at_begin(const struct span *span, int64_t pixel) {
  return hat(span->begin - (double)pixel);
}
static double span_at_end(const struct span *span, int64_t pixel) {
  return hat(span->end - (double)pixel);
}

static void find_span(double begin, double size, int64_t count, int64_t number, int64_t pixels, struct span *span) {
  const double bin = (size > 0 ? size : 0) / (double)count;
  span->begin = begin + bin * (double)number;
  span->end = span->begin + bin;
  span->first = hold(floor(span->begin), pixels);
  span->last = span->end > -1 ? hold(ceil(span->end), pixels - 1) : -1;
}

static void find_spans(const struct pool_task *task, const double *roi, int64_t bin, int64_t height, int64_t width,
                       struct span *y, struct span *x) {
  const double scale = task->scale;
  find_span(roi[2] * scale, (roi[4] - roi[2]) * scale, task->pooled_h, bin / task->pooled_w, height, y);
  find_span(roi[1] * scale, (roi[3] - roi[1]) * scale, task->pooled_w, bin % task->pooled_w, width, x);
}

#define LOOPS "roi_pool_loops.h"
#include "twice.h"

static int64_t get_cost(const struct call *call) {
  return 64 * call_size(call, 'c') * call_size(call, 'y') * call_size(call, 'x');
}
static diopiError_t run_pool(struct call *call) {
  FRAME_TRY(roi_check(call, 0, call_size(call, 'n')));
  CALL_LOOP(call, call_size(call, 'k'), get_cost(call), pool_boxes);
  return diopiSuccess;
}
static diopiError_t run_pool_backward(struct call *call) {
  FRAME_TRY(roi_check(call, 0, call_size(call, 'n')));
  call_zero(call, 1);
  CALL_LOOP(call, call_size(call, 'c'), call_numel(call, 2), pool_backward_channels);
  return diopiSuccess;
}
static diopiError_t run_precise(struct call *call) {
  FRAME_TRY(roi_check(call, 0, call_size(call, 'n')));
  CALL_LOOP(call, call_size(call, 'k'), get_cost(call), precise_boxes);
  return diopiSuccess;
}
static diopiError_t run_precise_backward(struct call *call) {
  FRAME_TRY(roi_check(call, 0, call_size(call, 'n')));
  call_zero(call, 1);
  CALL_LOOP(call, call_size(call, 'c'), 16 * call_numel(call, 2), precise_backward_channels);
  return diopiSuccess;
}
static diopiError_t run_precise_coordinates(struct call *call) {
  FRAME_TRY(roi_check(call, 0, call_size(call, 'n')));
  CALL_LOOP(call, call_size(call, 'k'), 4 * get_cost(call), precise_coordinate_boxes);
  return diopiSuccess;
}

diopiError_t diopiRoiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiTensorHandle_t argmax,
                              diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois, int64_t pooled_height,
                              int64_t pooled_width, float spatial_scale) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_IN(&call, input, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  CALL_OUT(&call, argmax, "i:kcyx");
  call.task = &(struct pool_task){pooled_height, pooled_width, spatial_scale};
  return call_run(&call, run_pool);
}

diopiError_t diopiRoiPoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                      diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                      diopiConstTensorHandle_t argmax, int64_t pooled_height, int64_t pooled_width,
                                      float spatial_scale) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_OUT(&call, grad_input, "f:nchw");
  CALL_IN(&call, grad_output, "f:kcyx");
  CALL_IN(&call, argmax, "i:kcyx");
  call_limit(&call, 3, -1, call_size(&call, 'h') * call_size(&call, 'w') - 1);
  call.task = &(struct pool_task){pooled_height, pooled_width, spatial_scale};
  return call_run(&call, run_pool_backward);
}

diopiError_t diopiPrroiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t rois, int64_t pooled_height, int64_t pooled_width,
                                float spatial_scale) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_IN(&call, input, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  call.task = &(struct pool_task){pooled_height, pooled_width, spatial_scale};
  return call_run(&call, run_precise);
}

diopiError_t diopiPrroiPoolbackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                        diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                        int64_t pooled_height, int64_t pooled_width, float spatial_scale) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_OUT(&call, grad_input, "f:nchw");
  CALL_IN(&call, grad_output, "f:kcyx");
  call.task = &(struct pool_task){pooled_height, pooled_width, spatial_scale};
  return call_run(&call, run_precise_backward);
}

diopiError_t diopiPrroiPoolCoorBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_rois,
                                            diopiConstTensorHandle_t output, diopiConstTensorHandle_t grad_output,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                            int64_t pooled_height, int64_t pooled_width, float spatial_scale) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_IN(&call, input, "f:nchw");
  CALL_IN(&call, grad_output, "f:kcyx");
  CALL_IN(&call, output, "f:kcyx");
  CALL_OUT(&call, grad_rois, "f:k5");
  call.task = &(struct pool_task){pooled_height, pooled_width, spatial_scale};
  return call_run(&call, run_precise_coordinates);
}
