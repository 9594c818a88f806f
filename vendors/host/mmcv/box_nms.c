/// Non-maximum suppression in mmcv: upright boxes, rotated boxes, boxes in space seen from above.
///
/// Boxes are taken by falling score (of equal ones the first); one goes when its overlap with one that stays exceeds
/// the threshold. nms: (x1, y1, x2, y2), `offset` is added to widths and heights. nms_rotated: (x, y, w, h, angle) and
/// perhaps a label as sixth number; `order` sorts the scores, dets_sorted are the boxes so sorted; with multi_label
/// boxes of different labels (the sixth number, else `labels`) do not meet. iou3d: the boxes are sorted already; keep
/// has the positions, then zeros. Positions are int64; floating dtypes, computed in double.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "engine/scratch.h"
#include "polygon.h"

struct nms_task {
  double threshold, offset;
  int64_t width;         ///< numbers of a box
  const double *boxes;   ///< by falling score
  const int64_t *label;  ///< of each box; NULL: all may meet
  bool by_column;        ///< the sixth number is the label
};

typedef bool meets_function(const struct nms_task *task, int64_t a, int64_t b);

static bool exceeds(double common, double first, double second, double least, double threshold) {
  return common / fmax(first + second - common, least) > threshold;
}

static bool meets_upright(const struct nms_task *task, int64_t i, int64_t k) {
  const double *a = task->boxes + i * 4, *b = task->boxes + k * 4, offset = task->offset;
  const double wide = fmax(fmin(a[2], b[2]) - fmax(a[0], b[0]) + offset, 0);
  const double high = fmax(fmin(a[3], b[3]) - fmax(a[1], b[1]) + offset, 0);
  return exceeds(wide * high, (a[2] - a[0] + offset) * (a[3] - a[1] + offset),
                 (b[2] - b[0] + offset) * (b[3] - b[1] + offset), 0, task->threshold);
}

static bool meets_rotated(const struct nms_task *task, int64_t i, int64_t k) {
  const double *a = task->boxes + i * task->width, *b = task->boxes + k * task->width;
  struct polygon first, second;
  if ((task->label && task->label[i] != task->label[k]) || (task->by_column && a[5] != b[5])) {
    return false;
  }
  polygon_from_box(&first, a[0], a[1], a[2], a[3], a[4]);
  polygon_from_box(&second, b[0], b[1], b[2], b[3], b[4]);
  return exceeds(polygon_overlap(&first, &second), polygon_area(&first), polygon_area(&second), 1e-14, task->threshold);
}

static bool meets_above(const struct nms_task *task, int64_t i, int64_t k) {
  const double *a = task->boxes + i * 7, *b = task->boxes + k * 7;
  struct polygon first, second;
  polygon_from_box(&first, a[0], a[1], a[3], a[4], a[6]);
  polygon_from_box(&second, b[0], b[1], b[3], b[4], b[6]);
  return exceeds(polygon_overlap(&first, &second), a[3] * a[4], b[3] * b[4], 1e-8, task->threshold);
}

static bool meets_above_upright(const struct nms_task *task, int64_t i, int64_t k) {
  const double *a = task->boxes + i * 7, *b = task->boxes + k * 7;
  const double wide = fmax(fmin(a[0] + a[3] / 2, b[0] + b[3] / 2) - fmax(a[0] - a[3] / 2, b[0] - b[3] / 2), 0);
  const double high = fmax(fmin(a[1] + a[4] / 2, b[1] + b[4] / 2) - fmax(a[1] - a[4] / 2, b[1] - b[4] / 2), 0);
  return exceeds(wide * high, a[3] * a[4], b[3] * b[4], 1e-8, task->threshold);
}

/// The boxes that stay, of `count`: their number.
static int64_t suppress(const struct nms_task *task, int64_t count, meets_function *meets, int64_t *keep) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    bool stays = true;
    for (int64_t k = 0; k < kept && stays; k++) {
      stays = !meets(task, keep[k], i);
    }
    if (stays) {
      keep[kept++] = i;
    }
  }
  return kept;
}

struct nms_call {
  struct call call;
  diopiTensorHandle_t *out;
  struct nms_task task;
};

/// Positions `order` of those that stay, as the result.
static diopiError_t store_kept(struct nms_call *nms, const int64_t *keep, int64_t kept, const int64_t *order) {
  diopiTensorHandle_t made = NULL;
  int64_t *out = call_make_result(&nms->call, &made, DIT_DTYPE_I64, 1, &kept);
  if (!out) {
    return diopiErrorOccurred;
  }
  for (int64_t i = 0; i < kept; i++) {
    out[i] = order[keep[i]];
  }
  *nms->out = made;
  return diopiSuccess;
}

struct ranked {
  double score;
  int64_t number;
};

static int compare_scores(const void *left, const void *right) {
  const struct ranked *a = left, *b = right;
  if (a->score != b->score) {
    return a->score > b->score ? -1 : 1;
  }
  return a->number < b->number ? -1 : 1;
}

/// 0 boxes (n, 4), 1 scores (n).
static diopiError_t run_nms(struct call *call) {
  struct nms_call *nms = (struct nms_call *)(void *)call;
  const int64_t count = call_size(call, 'n');
  const size_t room = (size_t)count + 1;
  const double *boxes = call_data(call, 0), *scores = call_data(call, 1);
  struct ranked *ranks = scratch_take(room * sizeof *ranks);
  double *sorted = scratch_take(4 * room * sizeof *sorted);
  int64_t *order = scratch_take(2 * room * sizeof *order);
  diopiError_t code = ranks && sorted && order ? diopiSuccess : dense_fail(&call->frame);
  if (code == diopiSuccess) {
    for (int64_t i = 0; i < count; i++) {
      ranks[i] = (struct ranked){scores[i], i};
    }
    qsort(ranks, (size_t)count, sizeof *ranks, compare_scores);
    for (int64_t i = 0; i < count; i++) {
      order[i] = ranks[i].number;
      memcpy(sorted + 4 * i, boxes + 4 * order[i], 4 * sizeof *sorted);
    }
    nms->task.boxes = sorted;
    int64_t *keep = order + room;
    code = store_kept(nms, keep, suppress(&nms->task, count, meets_upright, keep), order);
  }
  scratch_give(order);
  scratch_give(sorted);
  scratch_give(ranks);
  return code;
}

diopiError_t diopiNmsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t dets,
                          diopiConstTensorHandle_t scores, double iou_threshold, int64_t offset) {
  struct nms_call nms = {.out = out, .task = {.threshold = iou_threshold, .offset = (double)offset, .width = 4}};
  struct call *call = &nms.call;
  CALL_BEGIN(call, ctx);
  CALL_CHECK(call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_CHECK(call, offset == 0 || offset == 1, "'offset' is %lld; valid: 0 and 1", (long long)offset);
  CALL_IN(call, dets, "d:n4");
  CALL_IN(call, scores, "d:n");
  return call_run(call, run_nms);
}

/// 0 sorted boxes (n, w), 1 order, 2 labels, then those that are only checked.
static diopiError_t run_nms_rotated(struct call *call) {
  struct nms_call *nms = (struct nms_call *)(void *)call;
  const int64_t count = call_size(call, 'n'), *order = call_data(call, 1), *labels = call_data(call, 2);
  int64_t *keep = scratch_take(2 * sizeof *keep * ((size_t)count + 1)), *sorted = keep + count + 1;
  if (!keep) {
    return dense_fail(&call->frame);
  }
  nms->task.boxes = call_data(call, 0);
  if (nms->task.label && !nms->task.by_column) {
    for (int64_t i = 0; i < count; i++) {
      sorted[i] = labels[order[i]];
    }
  }
  nms->task.label = nms->task.label && !nms->task.by_column ? sorted : NULL;
  const diopiError_t code = store_kept(nms, keep, suppress(&nms->task, count, meets_rotated, keep), order);
  scratch_give(keep);
  return code;
}

diopiError_t diopiNmsRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t dets,
                                 diopiConstTensorHandle_t scores, diopiConstTensorHandle_t order,
                                 diopiConstTensorHandle_t dets_sorted, diopiConstTensorHandle_t labels,
                                 float iou_threshold, bool multi_label) {
  static const int64_t some = 1;
  struct nms_call nms = {.out = out, .task = {.threshold = iou_threshold, .label = multi_label ? &some : NULL}};
  struct call *call = &nms.call;
  CALL_BEGIN(call, ctx);
  CALL_CHECK(call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_IN(call, dets_sorted, "d:nw");
  CALL_IN(call, order, "i:n");
  CALL_OPTIONAL(call, labels, "i:n");
  CALL_IN(call, dets, "d:nw");
  CALL_IN(call, scores, "d:n");
  nms.task.width = call_size(call, 'w');
  nms.task.by_column = multi_label && nms.task.width == 6;
  CALL_CHECK(call, nms.task.width == 5 || nms.task.width == 6, "'dets' has %lld numbers per box; valid: 5 and 6",
             (long long)nms.task.width);
  CALL_CHECK(call, !multi_label || nms.task.by_column || call->tensors[2].view.handle || call_size(call, 'n') == 0,
             "'labels' is absent although 'multi_label' is set");
  call_limit(call, 1, 0, call_size(call, 'n') - 1);
  return call_run(call, run_nms_rotated);
}

/// 0 boxes (n, 7), 1 keep, 2 keep_num.
static diopiError_t run_above(struct call *call) {
  struct nms_call *nms = (struct nms_call *)(void *)call;
  const int64_t count = call_size(call, 'n');
  int64_t *keep = call_data(call, 1), *number = call_data(call, 2);
  nms->task.boxes = call_data(call, 0);
  *number = suppress(&nms->task, count, nms->task.offset != 0 ? meets_above_upright : meets_above, keep);
  for (int64_t i = *number; i < count; i++) {
    keep[i] = 0;
  }
  return diopiSuccess;
}

static diopiError_t start_above(struct nms_call *nms, diopiTensorHandle_t keep, diopiTensorHandle_t keep_num,
                                diopiConstTensorHandle_t boxes) {
  struct call *call = &nms->call;
  CALL_IN(call, boxes, "d:n7");
  CALL_OUT(call, keep, "i:n");
  CALL_OUT(call, keep_num, "i:*");
  CALL_CHECK(call, call_numel(call, 2) == 1, "'keep_num' has %lld elements; it must have 1",
             (long long)call_numel(call, 2));
  return call_run(call, run_above);
}

diopiError_t diopiIou3dNms3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t keep, diopiTensorHandle_t keep_num,
                                 diopiConstTensorHandle_t boxes, float nms_overlap_thresh) {
  struct nms_call nms = {.task = {.threshold = nms_overlap_thresh}};
  CALL_BEGIN(&nms.call, ctx);
  return start_above(&nms, keep, keep_num, boxes);
}

diopiError_t diopiIou3dNms3dNormalMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t keep, diopiTensorHandle_t keep_num,
                                       diopiConstTensorHandle_t boxes, float nms_overlap_thresh) {
  struct nms_call nms = {.task = {.threshold = nms_overlap_thresh, .offset = 1}};
  CALL_BEGIN(&nms.call, ctx);
  return start_above(&nms, keep, keep_num, boxes);
}
