/// Points in boxes of mmcv, and pooling of their features.
///
/// A box is (x, y, z, dx, dy, dz, heading): x and y its centre, z its bottom, turned by `heading` around the vertical.
/// A point belongs to it when it lies strictly inside the sides and between bottom and top. points_in_boxes_part: the
/// first box of each point, -1 for none. roiaware_pool3d: the box is cut into out_x by out_y by out_z voxels; up to M -
/// 1 points of each, in their order, stand in pts_idx_of_voxels after their number; their features give the largest
/// (pool_method 0; argmax tells which point, -1 for none) or the mean (1; argmax is not used); empty voxels give 0.
/// roipoint_pool3d: the first S points of each box with their features, repeated in turn when there are fewer, zeros
/// and the flag 1 when there is none. Floating dtypes, one for all; indices int32 or int64.
#include <math.h>

#include "call.h"

/// Is the point in the box? x, y: its place relative to the box's centre and sides.
static bool holds(const double *box, const double *point, double *x, double *y) {
  const double dx = point[0] - box[0], dy = point[1] - box[1], c = cos(box[6]), s = sin(box[6]);
  *x = dx * c + dy * s;
  *y = dy * c - dx * s;
  return fabs(point[2] - (box[2] + box[5] / 2)) <= box[5] / 2 && fabs(*x) < box[3] / 2 && fabs(*y) < box[4] / 2;
}

#define LOOPS "points_box_loops.h"
#include "twice.h"

/// 0 boxes (b, m, 7), 1 points (b, p, 3), 2 result. Loops over (b, p).
static void find_points(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t boxes = call_size(call, 'm'), count = call_size(call, 'p');
  int64_t *out = call_data(call, 2);
  for (int64_t i = begin; i < end; i++) {
    const double *box = (const double *)call_data(call, 0) + i / count * boxes * 7;
    const double *point = (const double *)call_data(call, 1) + i * 3;
    int64_t first = -1;
    for (int64_t k = 0; k < boxes && (call->task || first < 0); k++) {
      double x, y;
      const bool inside = holds(box + 7 * k, point, &x, &y);
      first = inside && first < 0 ? k : first;
      if (call->task) {
        out[i * boxes + k] = inside;
      }
    }
    if (!call->task) {
      out[i] = first;
    }
  }
}

static diopiError_t run_find(struct call *call) {
  call_loop(call, call_size(call, 'b') * call_size(call, 'p'), 60 * call_size(call, 'm'), find_points);
  return diopiSuccess;
}

diopiError_t diopiPointsInBoxesPartMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t box_idx_of_points,
                                        diopiConstTensorHandle_t boxes, diopiConstTensorHandle_t pts) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, boxes, "d:bm7");
  CALL_IN(&call, pts, "d:bp3");
  CALL_OUT(&call, box_idx_of_points, "i:bp");
  return call_run(&call, run_find);
}

diopiError_t diopiPointsInBoxesAllMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t box_idx_of_points,
                                       diopiConstTensorHandle_t boxes, diopiConstTensorHandle_t pts) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, boxes, "d:bm7");
  CALL_IN(&call, pts, "d:bp3");
  CALL_OUT(&call, box_idx_of_points, "i:bpm");
  call.task = "all";
  return call_run(&call, run_find);
}

static int64_t find_cell(double place, double size, int64_t cells) {
  const double cell = place / (size / (double)cells);
  return cell < 0 ? 0 : cell < (double)cells ? (int64_t)cell : cells - 1;
}

/// The points of each voxel of boxes begin to end - 1.
static void list_voxels(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t nx = call_size(call, 'x'), ny = call_size(call, 'y'), nz = call_size(call, 'z');
  const int64_t room = call_size(call, 'm');
  for (int64_t i = begin; i < end; i++) {
    const double *box = (const double *)call_data(call, 0) + i * 7;
    int64_t *lists = (int64_t *)call_data(call, 3) + i * nx * ny * nz * room;
    for (int64_t k = 0; k < call_size(call, 'p'); k++) {
      const double *point = (const double *)call_data(call, 1) + 3 * k;
      double x, y;
      if (!holds(box, point, &x, &y)) {
        continue;
      }
      const int64_t cell = (find_cell(x + box[3] / 2, box[3], nx) * ny + find_cell(y + box[4] / 2, box[4], ny)) * nz +
                           find_cell(point[2] - box[2], box[5], nz);
      int64_t *list = lists + cell * room;
      if (list[0] < room - 1) {
        list[++list[0]] = k;
      }
    }
  }
}

static diopiError_t run_aware(struct call *call) {
  call_zero(call, 3);
  call_loop(call, call_size(call, 'n'), 60 * call_size(call, 'p'), list_voxels);
  CALL_LOOP(call, call_size(call, 'n'), 8 * call_numel(call, 3), aware_boxes);
  return diopiSuccess;
}

diopiError_t diopiRoiawarePool3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t argmax,
                                     diopiTensorHandle_t pts_idx_of_voxels, diopiTensorHandle_t pooled_features,
                                     diopiConstTensorHandle_t rois, diopiConstTensorHandle_t pts,
                                     diopiConstTensorHandle_t pts_feature, int64_t pool_method) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, pool_method == 0 || pool_method == 1, "'pool_method' is %lld; valid: 0 and 1",
             (long long)pool_method);
  CALL_IN(&call, rois, "d:n7");
  CALL_IN(&call, pts, "d:p3");
  CALL_IN(&call, pts_feature, "f:pc");
  CALL_OUT(&call, pts_idx_of_voxels, "i:nxyzm");
  CALL_OUT(&call, pooled_features, "f:nxyzc");
  CALL_CHECK(&call, call_size(&call, 'm') > 0, "'pts_idx_of_voxels' has no place for the number of points");
  if (pool_method == 0) {
    CALL_OUT(&call, argmax, "i:nxyzc");
  } else {
    CALL_INOUT(&call, argmax, "i:nxyzc");
    call.task = "mean";
  }
  return call_run(&call, run_aware);
}

static diopiError_t run_aware_backward(struct call *call) {
  const int64_t room = call_size(call, 'm'), *lists = call_data(call, 1), points = call_size(call, 'p');
  for (int64_t i = 0; call->task && i < call_numel(call, 1); i++) {
    const int64_t count = lists[i / room * room], k = i % room;
    const bool right = k == 0 ? count >= 0 && count < room : k > count || (lists[i] >= 0 && lists[i] < points);
    FRAME_CHECK_RANGE(&call->frame, right, "'pts_idx_of_voxels' has the value %lld, which is no point",
                      (long long)lists[i]);
  }
  call_zero(call, 0);
  CALL_LOOP(call, call_size(call, 'c'), 4 * call_numel(call, 1), aware_backward_channels);
  return diopiSuccess;
}

diopiError_t diopiRoiawarePool3dBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_in,
                                             diopiConstTensorHandle_t pts_idx_of_voxels,
                                             diopiConstTensorHandle_t argmax, diopiConstTensorHandle_t grad_out,
                                             int64_t pool_method) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, pool_method == 0 || pool_method == 1, "'pool_method' is %lld; valid: 0 and 1",
             (long long)pool_method);
  CALL_OUT(&call, grad_in, "f:pc");
  CALL_IN(&call, pts_idx_of_voxels, "i:nxyzm");
  CALL_IN(&call, argmax, "i:nxyzc");
  CALL_IN(&call, grad_out, "f:nxyzc");
  if (pool_method == 0) {
    call_limit(&call, 2, -1, call_size(&call, 'p') - 1);
  } else {
    call.task = "mean";
  }
  return call_run(&call, run_aware_backward);
}

static diopiError_t run_pool(struct call *call) {
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'm'), 60 * call_size(call, 'n'), pool_boxes);
  return diopiSuccess;
}

diopiError_t diopiRoipointPool3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t pooled_features,
                                     diopiTensorHandle_t pooled_empty_flag, diopiConstTensorHandle_t xyz,
                                     diopiConstTensorHandle_t boxes3d, diopiConstTensorHandle_t pts_feature) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, boxes3d, "d:bm7");
  CALL_IN(&call, xyz, "d:bn3");
  CALL_IN(&call, pts_feature, "f:bnc");
  CALL_OUT(&call, pooled_features, "f:bmsq");
  CALL_OUT(&call, pooled_empty_flag, "i:bm");
  CALL_CHECK(&call, call_size(&call, 'q') == 3 + call_size(&call, 'c'),
             "'pooled_features' has %lld numbers per point; it must have %lld", (long long)call_size(&call, 'q'),
             (long long)(3 + call_size(&call, 'c')));
  return call_run(&call, run_pool);
}
