/// Boxes as bins of sampling points (see roi.h).
#include "roi.h"

#include <math.h>

#define MOST_POINTS (1 << 20)

/// Points along one side of a bin: the ratio, or one per pixel.
static int64_t count_points(int64_t ratio, double size, int64_t bins) {
  const double points = ceil(size / (double)bins);
  if (ratio > 0) {
    return ratio;
  }
  return points >= 1 ? (points < MOST_POINTS ? (int64_t)points : MOST_POINTS) : 0;
}

static void read_rotated(const struct roi_task *task, const double *box, struct roi *roi) {
  const double angle = task->clockwise ? -box[5] : box[5];
  roi->centre_x = box[1] * task->scale - task->shift;
  roi->centre_y = box[2] * task->scale - task->shift;
  roi->width = box[3] * task->scale;
  roi->height = box[4] * task->scale;
  roi->cosine = cos(angle);
  roi->sine = sin(angle);
  if (task->orientations > 1) {
    const double turn = box[5] * (double)task->orientations / (2 * M_PI), whole = floor(turn);
    roi->part = turn - whole;
    roi->turn =
        (int64_t)fmod(fmod(whole, (double)task->orientations) + (double)task->orientations, (double)task->orientations);
  }
}

void roi_read(const struct roi_task *task, const double *rois, int64_t k, struct roi *roi) {
  const double *box = rois + k * (task->rotated ? 6 : 5);
  *roi = (struct roi){.picture = (int64_t)box[0], .cosine = 1};
  if (task->rotated) {
    read_rotated(task, box, roi);
  } else {
    roi->start_x = box[1] * task->scale - task->shift;
    roi->start_y = box[2] * task->scale - task->shift;
    roi->width = box[3] * task->scale - task->shift - roi->start_x;
    roi->height = box[4] * task->scale - task->shift - roi->start_y;
  }
  if (task->at_least_one) {
    roi->width = roi->width > 1 ? roi->width : 1;
    roi->height = roi->height > 1 ? roi->height : 1;
  }
  if (task->rotated) {
    roi->start_x = -roi->width / 2;
    roi->start_y = -roi->height / 2;
  }
  roi->bin_h = roi->height / (double)task->pooled_h;
  roi->bin_w = roi->width / (double)task->pooled_w;
  roi->grid_h = count_points(task->ratio, roi->height, task->pooled_h);
  roi->grid_w = count_points(task->ratio, roi->width, task->pooled_w);
}

diopiError_t roi_check(struct call *call, int number, int64_t pictures) {
  const struct call_tensor *tensor = &call->tensors[number];
  const double *rois = tensor->dense.data;
  const int64_t width = tensor->view.sizes[1];
  for (int64_t k = 0; k < tensor->view.sizes[0]; k++) {
    FRAME_CHECK_RANGE(&call->frame, rois[k * width] >= 0 && rois[k * width] < (double)pictures,
                      "'%s' has a box of picture %g; valid: 0 to %lld", tensor->name, rois[k * width],
                      (long long)pictures - 1);
  }
  return diopiSuccess;
}
