/// RoI align of mmcv: plain, rotated, rotation invariant (RiRoI) and deformable pooling, with gradients.
///
/// Boxes are scaled by spatial_scale, cut into pooled bins, and each bin gives the mean (or the largest, pool_mode 0)
/// of its bilinear samples: sampling_ratio^2 of them, or about one per pixel where that is 0. `aligned` moves
/// coordinates by half a pixel; without it boxes are at least one pixel large. Rotated boxes are (picture, x, y, w, h,
/// angle in radians), counterclockwise unless `clockwise`. RiRoI turns the num_orientations channels of each feature by
/// the angle and interpolates between neighbours. A sample at the border of the picture does not change with the
/// coordinate that is held there, and its gradient to an offset is 0. Floating dtypes, one for all.
#include <float.h>
#include <math.h>

#include "roi.h"
#include "sample.h"

#define LOOPS "roi_align_loops.h"
#include "twice.h"

enum { ROIS, INPUT, OUTPUT };

static int64_t get_cost(const struct call *call) {
  const struct roi_task *task = call->task;
  return 16 * call_size(call, 'c') * task->pooled_h * task->pooled_w;
}

static diopiError_t run_forward(struct call *call) {
  const struct roi_task *task = call->task;
  FRAME_TRY(roi_check(call, ROIS, call_size(call, 'n')));
  if (task->largest) {
    CALL_LOOP(call, call_size(call, 'k'), get_cost(call), largest_boxes);
  } else {
    call_zero(call, OUTPUT);
    CALL_LOOP(call, call_size(call, 'k'), get_cost(call), mean_boxes);
  }
  return diopiSuccess;
}

static diopiError_t run_backward(struct call *call) {
  const struct roi_task *task = call->task;
  const int64_t groups = call_size(call, 'c') / task->orientations;
  FRAME_TRY(roi_check(call, ROIS, call_size(call, 'n')));
  call_zero(call, INPUT);
  if (task->largest) {
    CALL_LOOP(call, groups, 16 * call_numel(call, OUTPUT) / (groups + 1), largest_backward_channels);
  } else {
    CALL_LOOP(call, groups, 32 * call_numel(call, OUTPUT) / (groups + 1), mean_backward_channels);
  }
  return diopiSuccess;
}

static diopiError_t run_deform_backward(struct call *call) {
  FRAME_TRY(run_backward(call));
  if (call_data(call, 4)) {
    CALL_LOOP(call, call_size(call, 'k'), get_cost(call), offset_boxes);
  }
  return diopiSuccess;
}

/// Checks of what all have in common, after the tensors were taken.
static diopiError_t start(struct call *call, struct roi_task *task) {
  call->task = task;
  task->orientations = task->orientations > 0 ? task->orientations : 1;
  CALL_CHECK(call, call_size(call, 'c') % task->orientations == 0,
             "'num_orientations' is %lld, which does not divide %lld channels", (long long)task->orientations,
             (long long)call_size(call, 'c'));
  return diopiSuccess;
}

diopiError_t diopiRoiAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiTensorHandle_t argmax_y,
                               diopiTensorHandle_t argmax_x, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t rois, int64_t aligned_height, int64_t aligned_width,
                               int64_t sampling_ratio, int64_t pool_mode, float spatial_scale, bool aligned) {
  struct call call;
  struct roi_task task = {.pooled_h = aligned_height,
                          .pooled_w = aligned_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = aligned ? 0.5 : 0,
                          .at_least_one = !aligned,
                          .largest = pool_mode == 0};
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, pool_mode == 0 || pool_mode == 1, "'pool_mode' is %lld; valid: 0 and 1", (long long)pool_mode);
  CALL_SET_POSITIVE(&call, aligned_height, 'y');
  CALL_SET_POSITIVE(&call, aligned_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_IN(&call, input, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  if (pool_mode == 0) {
    CALL_OUT(&call, argmax_y, "f:kcyx");
    CALL_OUT(&call, argmax_x, "f:kcyx");
  }
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiRoiAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                       diopiConstTensorHandle_t argmax_y, diopiConstTensorHandle_t argmax_x,
                                       int64_t aligned_height, int64_t aligned_width, int64_t sampling_ratio,
                                       int64_t pool_mode, float spatial_scale, bool aligned) {
  struct call call;
  struct roi_task task = {.pooled_h = aligned_height,
                          .pooled_w = aligned_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = aligned ? 0.5 : 0,
                          .at_least_one = !aligned,
                          .largest = pool_mode == 0};
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, pool_mode == 0 || pool_mode == 1, "'pool_mode' is %lld; valid: 0 and 1", (long long)pool_mode);
  CALL_SET_POSITIVE(&call, aligned_height, 'y');
  CALL_SET_POSITIVE(&call, aligned_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_OUT(&call, grad_input, "f:nchw");
  CALL_IN(&call, grad_output, "f:kcyx");
  if (pool_mode == 0) {
    CALL_IN(&call, argmax_y, "f:kcyx");
    CALL_IN(&call, argmax_x, "f:kcyx");
  }
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_backward);
}

diopiError_t diopiRoiAlignRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                      int64_t aligned_height, int64_t aligned_width, int64_t sampling_ratio,
                                      float spatial_scale, bool aligned, bool clockwise) {
  struct call call;
  struct roi_task task = {.pooled_h = aligned_height,
                          .pooled_w = aligned_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = aligned ? 0.5 : 0,
                          .at_least_one = !aligned,
                          .rotated = true,
                          .clockwise = clockwise};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, aligned_height, 'y');
  CALL_SET_POSITIVE(&call, aligned_width, 'x');
  CALL_IN(&call, rois, "d:k6");
  CALL_IN(&call, input, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiRoiAlignRotatedBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                              diopiConstTensorHandle_t top_grad, diopiConstTensorHandle_t rois,
                                              int64_t aligned_height, int64_t aligned_width, int64_t sampling_ratio,
                                              float spatial_scale, bool aligned, bool clockwise) {
  struct call call;
  struct roi_task task = {.pooled_h = aligned_height,
                          .pooled_w = aligned_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = aligned ? 0.5 : 0,
                          .at_least_one = !aligned,
                          .rotated = true,
                          .clockwise = clockwise};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, aligned_height, 'y');
  CALL_SET_POSITIVE(&call, aligned_width, 'x');
  CALL_IN(&call, rois, "d:k6");
  CALL_OUT(&call, bottom_grad, "f:nchw");
  CALL_IN(&call, top_grad, "f:kcyx");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_backward);
}

diopiError_t diopiRiroiAlignRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                        diopiConstTensorHandle_t features, diopiConstTensorHandle_t rois,
                                        int64_t pooled_height, int64_t pooled_width, int64_t num_samples,
                                        int64_t num_orientations, float spatial_scale, bool clockwise) {
  struct call call;
  struct roi_task task = {.pooled_h = pooled_height,
                          .pooled_w = pooled_width,
                          .ratio = num_samples,
                          .scale = spatial_scale,
                          .at_least_one = true,
                          .rotated = true,
                          .clockwise = clockwise,
                          .orientations = num_orientations};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_SET_POSITIVE(&call, num_orientations, 'o');
  CALL_IN(&call, rois, "d:k6");
  CALL_IN(&call, features, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiRiroiAlignRotatedBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                diopiConstTensorHandle_t top_grad, diopiConstTensorHandle_t rois,
                                                int64_t pooled_height, int64_t pooled_width, int64_t num_samples,
                                                int64_t num_orientations, float spatial_scale, bool clockwise) {
  struct call call;
  struct roi_task task = {.pooled_h = pooled_height,
                          .pooled_w = pooled_width,
                          .ratio = num_samples,
                          .scale = spatial_scale,
                          .at_least_one = true,
                          .rotated = true,
                          .clockwise = clockwise,
                          .orientations = num_orientations};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_SET_POSITIVE(&call, num_orientations, 'o');
  CALL_IN(&call, rois, "d:k6");
  CALL_OUT(&call, bottom_grad, "f:nchw");
  CALL_IN(&call, top_grad, "f:kcyx");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_backward);
}

diopiError_t diopiDeformRoiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                    diopiConstTensorHandle_t offset, int64_t pooled_height, int64_t pooled_width,
                                    int64_t sampling_ratio, float spatial_scale, float gamma) {
  struct call call;
  struct roi_task task = {.pooled_h = pooled_height,
                          .pooled_w = pooled_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = 0.5,
                          .gamma = gamma};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_IN(&call, input, "f:nchw");
  CALL_OUT(&call, output, "f:kcyx");
  CALL_OPTIONAL(&call, offset, "f:k2yx");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiDeformRoiPoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiTensorHandle_t grad_offset, diopiConstTensorHandle_t grad_output,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                            diopiConstTensorHandle_t offset, int64_t pooled_height,
                                            int64_t pooled_width, int64_t sampling_ratio, float spatial_scale,
                                            float gamma) {
  struct call call;
  struct roi_task task = {.pooled_h = pooled_height,
                          .pooled_w = pooled_width,
                          .ratio = sampling_ratio,
                          .scale = spatial_scale,
                          .shift = 0.5,
                          .gamma = gamma};
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, pooled_height, 'y');
  CALL_SET_POSITIVE(&call, pooled_width, 'x');
  CALL_IN(&call, rois, "d:k5");
  CALL_OUT(&call, grad_input, "f:nchw");
  CALL_IN(&call, grad_output, "f:kcyx");
  CALL_OPTIONAL(&call, offset, "f:k2yx");
  CALL_OUT_OPTIONAL(&call, grad_offset, "f:k2yx");
  CALL_IN(&call, input, "f:nchw");
  FRAME_TRY(start(&call, &task));
  return call_run(&call, run_deform_backward);
}
