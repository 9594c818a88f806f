/// The work of unfold and fold, after im2col.c has checked the arguments.
#ifndef DIT_HOST_OPS_IM2COL_H
#define DIT_HOST_OPS_IM2COL_H

#include "engine/conv.h"
#include "frame.h"

/// One of `out` and `x` is the images, the other, by `fold`, the columns.
struct column_call {
  struct frame *frame;
  struct conv_shape shape;
  struct dit_tensor_view out, x;
  int64_t channels;
  bool fold;
};

/// On the frame's stream; there is at least one element.
diopiError_t column_run(struct column_call *call);

#endif
