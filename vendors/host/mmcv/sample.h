/// One bilinear sample of a picture, as mmcv's RoI operators take it.
///
/// A place farther than one pixel outside the picture is nothing; others are moved to the nearest place inside.
#ifndef DIT_HOST_MMCV_SAMPLE_H
#define DIT_HOST_MMCV_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

struct sample {
  int64_t at[4];                ///< elements of the plane: top left, top right, bottom left, bottom right
  double weight[4];             ///< 0 for all: outside
  double y, x;                  ///< distances from the top left element, 0 to 1
  bool inside, free_y, free_x;  ///< free: not held at the border, so that the value depends on the coordinate
};

static inline void sample_axis(double place, int64_t size, int64_t *low, int64_t *high, double *part, bool *is_free) {
  const double last = (double)(size - 1), held = place < 0 ? 0 : place > last ? last : place;
  *low = (int64_t)held;
  *high = *low + 1 < size ? *low + 1 : *low;
  *part = held - (double)*low;
  *is_free = place > 0 && place < last;
}

static inline void sample_find(struct sample *sample, int64_t height, int64_t width, double y, double x) {
  int64_t top, bottom, left, right;
  sample->inside = y >= -1 && y <= (double)height && x >= -1 && x <= (double)width && height > 0 && width > 0;
  if (!sample->inside) {  // also places that are no number
    *sample = (struct sample){.inside = false};
    return;
  }
  sample_axis(y, height, &top, &bottom, &sample->y, &sample->free_y);
  sample_axis(x, width, &left, &right, &sample->x, &sample->free_x);
  sample->at[0] = top * width + left;
  sample->at[1] = top * width + right;
  sample->at[2] = bottom * width + left;
  sample->at[3] = bottom * width + right;
  sample->weight[0] = (1 - sample->y) * (1 - sample->x);
  sample->weight[1] = (1 - sample->y) * sample->x;
  sample->weight[2] = sample->y * (1 - sample->x);
  sample->weight[3] = sample->y * sample->x;
}

#endif
