/// Boxes cut into bins of sampling points: what roi_align, its rotated forms and deformable pooling share.
///
/// A bin has grid_h by grid_w points, evenly placed; a result is their mean. Points of a box are turned by its angle
/// around its centre. The bins of deformable pooling are moved by `offset`.
#ifndef DIT_HOST_MMCV_ROI_H
#define DIT_HOST_MMCV_ROI_H

#include "call.h"

struct roi_task {
  int64_t pooled_h, pooled_w, ratio;
  double scale, shift;  ///< shift: subtracted from coordinates after scaling (0.5 with `aligned`)
  double gamma;         ///< of deformable pooling
  int64_t orientations;
  bool rotated, clockwise, at_least_one;  ///< at_least_one: boxes are at least one pixel wide and high
  bool largest;                           ///< the largest sample, not the mean
};

struct roi {
  int64_t picture, grid_h, grid_w;
  double start_y, start_x, bin_h, bin_w, width, height;
  double cosine, sine, centre_y, centre_x;
  int64_t turn;  ///< orientations that channels move by, and the part of the next one
  double part;
};

/// Box number `k` of (K, 5) or, rotated, (K, 6).
void roi_read(const struct roi_task *task, const double *rois, int64_t k, struct roi *roi);
/// Point (iy, ix) of bin (ph, pw), moved by (move_y, move_x).
static inline void roi_place(const struct roi *roi, int64_t ph, int64_t pw, int64_t point, double move_y, double move_x,
                             double *y, double *x) {
  const int64_t iy = point / roi->grid_w, ix = point % roi->grid_w;
  const double yy =
      roi->start_y + move_y + (double)ph * roi->bin_h + ((double)iy + 0.5) * roi->bin_h / (double)roi->grid_h;
  const double xx =
      roi->start_x + move_x + (double)pw * roi->bin_w + ((double)ix + 0.5) * roi->bin_w / (double)roi->grid_w;
  *y = yy * roi->cosine - xx * roi->sine + roi->centre_y;
  *x = yy * roi->sine + xx * roi->cosine + roi->centre_x;
}
/// Every box is of a picture that exists: the first number of each of `count` rows is 0 to pictures - 1.
diopiError_t roi_check(struct call *call, int number, int64_t pictures);

#endif
