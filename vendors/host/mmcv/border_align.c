/// Border align and rotated feature align of mmcv, with gradients.
///
/// border_align: boxes (B, K, 4) of corners; the largest of pool_size + 1 bilinear samples along each border, from
/// channels 0 .. C-1 for the top border, then left, bottom, right; top and left begin at (x1, y1), bottom and right at
/// (x2, y2). argmax_idx is the number of the sample, the first where several are equal.
/// rotated_feature_align: best_bboxes (N, H, W, 5) has a box (y, x, w, h, angle) for each place, times spatial_scale;
/// the result is the feature plus bilinear samples at the box's centre and, with points 5, its corners. Floating
/// dtypes, one for all.
#include <math.h>

#include "call.h"
#include "sample.h"

struct border_task {
  int64_t steps, channels;
};
struct feature_task {
  double scale;
  int64_t points;
};

/// A place on border 0 top, 1 left, 2 bottom, 3 right.
static void find_border(const double *box, int border, double part, double *y, double *x) {
  const double wide = box[2] - box[0], high = box[3] - box[1];
  const double sign = border < 2 ? part : -part;
  *x = box[border < 2 ? 0 : 2] + (border % 2 == 0 ? sign * wide : 0);
  *y = box[border < 2 ? 1 : 3] + (border % 2 == 1 ? sign * high : 0);
}

/// The centre, then the corners.
static void find_corners(const struct feature_task *task, const double *box, double *y, double *x) {
  static const int signs[4][2] = {{1, 1}, {-1, 1}, {-1, -1}, {1, -1}};
  y[0] = box[0] * task->scale;
  x[0] = box[1] * task->scale;
  for (int64_t i = 1; i < task->points; i++) {
    const double wide = signs[i - 1][0] * box[2] * task->scale / 2, high = signs[i - 1][1] * box[3] * task->scale / 2;
    x[i] = x[0] + cos(box[4]) * wide - sin(box[4]) * high;
    y[i] = y[0] + sin(box[4]) * wide + cos(box[4]) * high;
  }
}

#define LOOPS "border_align_loops.h"
#include "twice.h"

static int64_t count_channels(const struct call *call) {
  return call_size(call, 'b') * ((const struct border_task *)call->task)->channels;
}
static diopiError_t run_border(struct call *call) {
  const struct border_task *task = call->task;
  CALL_LOOP(call, count_channels(call), 64 * call_size(call, 'k') * (task->steps + 1), border_channels);
  return diopiSuccess;
}
static diopiError_t run_border_backward(struct call *call) {
  call_zero(call, 1);
  CALL_LOOP(call, count_channels(call), 64 * call_size(call, 'k'), border_backward_channels);
  return diopiSuccess;
}
static diopiError_t run_feature(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), 64 * call_size(call, 'h') * call_size(call, 'w'),
            feature_channels);
  return diopiSuccess;
}
static diopiError_t run_feature_backward(struct call *call) {
  call_zero(call, 2);
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), 64 * call_size(call, 'h') * call_size(call, 'w'),
            feature_backward_channels);
  return diopiSuccess;
}

/// The picture has four times the channels of the result.
static diopiError_t check_border(struct call *call, int64_t pool_size) {
  CALL_CHECK(call, call_size(call, 'q') == 4 * call_size(call, 'c'), "the picture has %lld channels; it must have %lld",
             (long long)call_size(call, 'q'), (long long)(4 * call_size(call, 'c')));
  call_limit(call, 3, 0, pool_size);
  return diopiSuccess;
}

diopiError_t diopiBorderAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiTensorHandle_t argmax_idx,
                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t boxes, int64_t pool_size) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pool_size, 'p');
  CALL_IN(&call, boxes, "d:bk4");
  CALL_IN(&call, input, "f:bqhw");
  CALL_OUT(&call, output, "f:bck4");
  CALL_OUT(&call, argmax_idx, "i:bck4");
  FRAME_TRY(check_border(&call, pool_size));
  call.tensors[3].limited = false;
  call.task = &(struct border_task){pool_size, call_size(&call, 'c')};
  return call_run(&call, run_border);
}

diopiError_t diopiBorderAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t boxes,
                                          diopiConstTensorHandle_t argmax_idx, int64_t pool_size) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pool_size, 'p');
  CALL_IN(&call, boxes, "d:bk4");
  CALL_OUT(&call, grad_input, "f:bqhw");
  CALL_IN(&call, grad_output, "f:bck4");
  CALL_IN(&call, argmax_idx, "i:bck4");
  FRAME_TRY(check_border(&call, pool_size));
  call.task = &(struct border_task){pool_size, call_size(&call, 'c')};
  return call_run(&call, run_border_backward);
}

diopiError_t diopiRotatedFeatureAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                          diopiConstTensorHandle_t features, diopiConstTensorHandle_t best_bboxes,
                                          float spatial_scale, int64_t points) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, points == 1 || points == 5, "'points' is %lld; valid: 1 and 5", (long long)points);
  CALL_IN(&call, best_bboxes, "d:nhw5");
  CALL_IN(&call, features, "f:nchw");
  CALL_OUT(&call, output, "f:nchw");
  call.task = &(struct feature_task){spatial_scale, points};
  return call_run(&call, run_feature);
}

diopiError_t diopiRotatedFeatureAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                  diopiConstTensorHandle_t top_grad,
                                                  diopiConstTensorHandle_t best_bboxes, float spatial_scale,
                                                  int64_t points) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, points == 1 || points == 5, "'points' is %lld; valid: 1 and 5", (long long)points);
  CALL_IN(&call, best_bboxes, "d:nhw5");
  CALL_IN(&call, top_grad, "f:nchw");
  CALL_OUT(&call, bottom_grad, "f:nchw");
  call.task = &(struct feature_task){spatial_scale, points};
  return call_run(&call, run_feature_backward);
}
