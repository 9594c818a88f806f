/// Overlaps of boxes in mmcv: upright, rotated, quadrilaterals, and boxes in space seen from above.
///
/// bbox_overlaps: (x1, y1, x2, y2), `offset` is added to widths and heights and is the least that is divided by.
/// box_iou_rotated: (x, y, w, h, angle); box_iou_quadri: four corners. mode 0 divides the common area by that of the
/// union, 1 by that of the first box; with `aligned` boxes of equal numbers meet, else every one meets every one. A
/// rotated box without area has no overlap. iou3d: the common area of (x, y, z, dx, dy, dz, heading) in x and y.
/// points_in_polygons: 1 where a point lies inside a quadrilateral, 0 outside and on its border. Floating dtypes,
/// computed in double.
#include <math.h>

#include "call.h"
#include "polygon.h"

struct iou_task {
  int64_t mode, offset;
  bool aligned;
};

static double overlap_upright(const double *a, const double *b, const struct iou_task *task) {
  const double offset = (double)task->offset;
  const double first = (a[2] - a[0] + offset) * (a[3] - a[1] + offset);
  const double second = (b[2] - b[0] + offset) * (b[3] - b[1] + offset);
  const double wide = fmax(fmin(a[2], b[2]) - fmax(a[0], b[0]) + offset, 0);
  const double high = fmax(fmin(a[3], b[3]) - fmax(a[1], b[1]) + offset, 0);
  const double common = wide * high, base = task->mode == 0 ? first + second - common : first;
  return common / fmax(base, offset);
}

static double overlap_polygons(const struct polygon *a, const struct polygon *b, int64_t mode) {
  const double first = polygon_area(a), second = polygon_area(b);
  if (first < 1e-14 || second < 1e-14) {
    return 0;
  }
  const double common = polygon_overlap(a, b);
  return common / (mode == 0 ? first + second - common : first);
}

static double overlap_rotated(const double *a, const double *b, const struct iou_task *task) {
  struct polygon first, second;
  polygon_from_box(&first, a[0], a[1], a[2], a[3], a[4]);
  polygon_from_box(&second, b[0], b[1], b[2], b[3], b[4]);
  return overlap_polygons(&first, &second, task->mode);
}

static double overlap_quadri(const double *a, const double *b, const struct iou_task *task) {
  struct polygon first, second;
  polygon_read(&first, a, 4);
  polygon_read(&second, b, 4);
  return overlap_polygons(&first, &second, task->mode);
}

static double overlap_above(const double *a, const double *b, const struct iou_task *task) {
  struct polygon first, second;
  (void)task;
  polygon_from_box(&first, a[0], a[1], a[3], a[4], a[6]);
  polygon_from_box(&second, b[0], b[1], b[3], b[4], b[6]);
  return polygon_overlap(&first, &second);
}

/// Is (x, y) strictly inside four corners, of any shape?
static double hold_point(const double *point, const double *corners, const struct iou_task *task) {
  bool inside = false;
  (void)task;
  for (int i = 0, k = 3; i < 4; k = i++) {
    const double sx = corners[2 * i] - point[0], sy = corners[2 * i + 1] - point[1];
    const double tx = corners[2 * k] - point[0], ty = corners[2 * k + 1] - point[1];
    const double side = sx * ty - tx * sy;
    if (side == 0 && sx * tx <= 0 && sy * ty <= 0) {
      return 0;  // on the border
    }
    inside ^= (sy < 0) != (ty < 0) && (side > 0) == (ty > sy);
  }
  return inside;
}

typedef double pair_function(const double *a, const double *b, const struct iou_task *task);

struct pair_call {
  struct call call;
  struct iou_task task;
  pair_function *function;
};

/// 0, 1 boxes; 2 result.
static void meet_boxes(void *argument, int64_t begin, int64_t end) {
  const struct pair_call *pair = argument;
  const struct call *call = &pair->call;
  const int64_t width = call->tensors[0].view.sizes[1], other = call->tensors[1].view.sizes[1];
  const int64_t many = call_size(call, 'm');
  const double *a = call_data(call, 0), *b = call_data(call, 1);
  double *out = call_data(call, 2);
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = pair->task.aligned ? i : i / many, second = pair->task.aligned ? i : i % many;
    out[i] = pair->function(a + first * width, b + second * other, &pair->task);
  }
}

static diopiError_t run_pairs(struct call *call) {
  call_loop(call, call_numel(call, 2), 200, meet_boxes);
  return diopiSuccess;
}

static diopiError_t start_pairs(struct pair_call *pair, diopiTensorHandle_t ious, diopiConstTensorHandle_t bboxes1,
                                diopiConstTensorHandle_t bboxes2, const char *first, const char *second) {
  struct call *call = &pair->call;
  CALL_CHECK(call, pair->task.mode == 0 || pair->task.mode == 1, "'mode' is %lld; valid: 0 and 1",
             (long long)pair->task.mode);
  CALL_IN(call, bboxes1, first);
  CALL_IN(call, bboxes2, second);
  if (pair->task.aligned) {
    CALL_CHECK(call, call_size(call, 'n') == call_size(call, 'm'), "'bboxes1' has %lld boxes, 'bboxes2' %lld",
               (long long)call_size(call, 'n'), (long long)call_size(call, 'm'));
    CALL_OUT(call, ious, "d:n");
  } else {
    CALL_OUT(call, ious, "d:nm");
  }
  return call_run(call, run_pairs);
}

diopiError_t diopiBboxOverlapsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious, diopiConstTensorHandle_t bboxes1,
                                   diopiConstTensorHandle_t bboxes2, int64_t mode, int64_t offset, bool aligned) {
  struct pair_call pair = {.function = overlap_upright};
  CALL_BEGIN(&pair.call, ctx);
  CALL_CHECK(&pair.call, offset == 0 || offset == 1, "'offset' is %lld; valid: 0 and 1", (long long)offset);
  pair.task = (struct iou_task){mode, offset, aligned};
  return start_pairs(&pair, ious, bboxes1, bboxes2, "d:n4", "d:m4");
}

diopiError_t diopiBoxIouRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious,
                                    diopiConstTensorHandle_t bboxes1, diopiConstTensorHandle_t bboxes2, int64_t mode,
                                    bool aligned) {
  struct pair_call pair = {.function = overlap_rotated};
  CALL_BEGIN(&pair.call, ctx);
  pair.task = (struct iou_task){mode, 0, aligned};
  return start_pairs(&pair, ious, bboxes1, bboxes2, "d:n5", "d:m5");
}

diopiError_t diopiBoxIouQuadriMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious, diopiConstTensorHandle_t bboxes1,
                                   diopiConstTensorHandle_t bboxes2, int64_t mode, bool aligned) {
  struct pair_call pair = {.function = overlap_quadri};
  CALL_BEGIN(&pair.call, ctx);
  pair.task = (struct iou_task){mode, 0, aligned};
  return start_pairs(&pair, ious, bboxes1, bboxes2, "d:n8", "d:m8");
}

diopiError_t diopiIou3dBoxesOverlapBevMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ans_overlap,
                                           diopiConstTensorHandle_t boxes_a, diopiConstTensorHandle_t boxes_b) {
  struct pair_call pair = {.function = overlap_above};
  CALL_BEGIN(&pair.call, ctx);
  CALL_IN(&pair.call, boxes_a, "d:n7");
  CALL_IN(&pair.call, boxes_b, "d:m7");
  CALL_OUT(&pair.call, ans_overlap, "d:nm");
  return call_run(&pair.call, run_pairs);
}

diopiError_t diopiPointsInPolygonsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                       diopiConstTensorHandle_t points, diopiConstTensorHandle_t polygons) {
  struct pair_call pair = {.function = hold_point};
  CALL_BEGIN(&pair.call, ctx);
  CALL_IN(&pair.call, points, "d:n2");
  CALL_IN(&pair.call, polygons, "d:m8");
  CALL_OUT(&pair.call, output, "d:nm");
  return call_run(&pair.call, run_pairs);
}
