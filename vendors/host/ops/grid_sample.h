/// The work of sampling images, after grid_sample.c has checked the arguments.
#ifndef DIT_HOST_OPS_GRID_SAMPLE_H
#define DIT_HOST_OPS_GRID_SAMPLE_H

#include "frame.h"

enum sample_mode { SAMPLE_BILINEAR, SAMPLE_NEAREST, SAMPLE_BICUBIC };

struct sample_call {
  struct frame frame;
  struct dit_tensor_view out, input, grid;
  enum sample_mode mode;
  int64_t channels, height, width, points;  ///< points: of one image's grid
};

/// On the frame's stream; there is at least one element.
diopiError_t sample_grid(struct sample_call *call);

#endif
