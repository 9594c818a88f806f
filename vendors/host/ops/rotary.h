/// The work of rotary embedding, after rotary.c has checked the arguments.
#ifndef DIT_HOST_OPS_ROTARY_H
#define DIT_HOST_OPS_ROTARY_H

#include "frame.h"

struct rotary_call {
  struct frame *frame;
  struct dit_tensor_view out, x, cosine, sine;
  bool conj, interleaved, full;  ///< full: cos and sin for every element
};

/// On the frame's stream; x is not empty.
diopiError_t rotary_run(struct rotary_call *call);

#endif
