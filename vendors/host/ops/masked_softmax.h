/// The work of the scaled masked softmax, after masked_softmax.c has checked the arguments.
#ifndef DIT_HOST_OPS_MASKED_SOFTMAX_H
#define DIT_HOST_OPS_MASKED_SOFTMAX_H

#include "frame.h"

#define MASKED_SCORE (-10000)

struct masked_softmax {
  struct frame *frame;
  struct dit_tensor_view out, x, y, mask;  ///< y: the softmax, in a backward call; no mask with `triangle`
  int64_t mask_strides[DIT_MAX_DIMS];      ///< of a contiguous copy, broadcast to x
  double scale;
  bool triangle, backward;
};

/// On the frame's stream; x is not empty.
diopiError_t masked_softmax_run(struct masked_softmax *call);

#endif
