/// The work of pairwise distances, after cdist.c has checked the arguments.
#ifndef DIT_HOST_OPS_CDIST_H
#define DIT_HOST_OPS_CDIST_H

#include "frame.h"

struct cdist {
  struct frame *frame;
  struct dit_tensor_view out, a, b;   ///< forward: out; backward: grad_input
  struct dit_tensor_view grad, dist;  ///< backward
  double p;
  bool backward;
  int ndim;  ///< of the broadcast leading dimensions
  int64_t sizes[DIT_MAX_DIMS], count;
};

/// On the frame's stream.
diopiError_t cdist_run(struct cdist *call);

#endif
