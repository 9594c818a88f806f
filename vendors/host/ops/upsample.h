/// The work of resizing images, after upsample.c has checked the arguments.
#ifndef DIT_HOST_OPS_UPSAMPLE_H
#define DIT_HOST_OPS_UPSAMPLE_H

#include "frame.h"

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

struct resize_call {
  struct frame *frame;
  struct dit_tensor_view large, small;  ///< the resized tensor (or its gradient), and the input (or its gradient)
  enum resize_mode mode;
  bool align, backward, wide;
  int ndim;  ///< dimensions that are resized, the last ones of three
  int64_t planes;
  int64_t in[3], out[3];
};

/// On the frame's stream; there is at least one element.
diopiError_t resize_run(struct resize_call *call);

#endif
