/// The work of RoiAlign, after roi_align.c has checked the arguments.
#ifndef DIT_HOST_OPS_ROI_ALIGN_H
#define DIT_HOST_OPS_ROI_ALIGN_H

#include "frame.h"

#define ROI_MAX_SAMPLES (1 << 16)  ///< in one bin, along one side

struct roi_align {
  struct frame *frame;
  struct dit_tensor_view out, input, rois;  ///< backward: input is the gradient of the bins, out that of the images
  double scale;
  int64_t images, channels, height, width, bins_y, bins_x, samples;
  bool aligned, backward;
};

/// Waits for the stream: the numbers of the images are read first.
diopiError_t roi_align_run(struct roi_align *call);

#endif
