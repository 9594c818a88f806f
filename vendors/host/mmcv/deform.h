/// Bilinear samples with zeros around the picture, as deformable convolution and attention take them.
#ifndef DIT_HOST_MMCV_DEFORM_H
#define DIT_HOST_MMCV_DEFORM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct tap {
  int64_t at[4];            ///< elements of the plane, 0 where there is none
  double weight[4];         ///< 0 where there is none
  double by_y[4], by_x[4];  ///< derivatives of the weights
};

/// False, and no tap, when the place is a pixel or more outside.
static inline bool tap_find(struct tap *tap, int64_t height, int64_t width, double y, double x) {
  if (!(y > -1 && x > -1 && y < (double)height && x < (double)width)) {
    return false;
  }
  const int64_t top = (int64_t)floor(y), left = (int64_t)floor(x);
  const double dy = y - (double)top, dx = x - (double)left;
  for (int i = 0; i < 4; i++) {
    const int64_t row = top + i / 2, column = left + i % 2;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    const double wy = i / 2 ? dy : 1 - dy, wx = i % 2 ? dx : 1 - dx;
    tap->at[i] = inside ? row * width + column : 0;
    tap->weight[i] = inside ? wy * wx : 0;
    tap->by_y[i] = inside ? (i / 2 ? wx : -wx) : 0;
    tap->by_x[i] = inside ? (i % 2 ? wy : -wy) : 0;
  }
  return true;
}

#endif
