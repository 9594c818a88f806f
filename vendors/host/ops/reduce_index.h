/// The work of argmax over all elements and of the standard deviation, after reduce_index.c has checked the arguments.
#ifndef DIT_HOST_OPS_REDUCE_INDEX_H
#define DIT_HOST_OPS_REDUCE_INDEX_H

#include "frame.h"

/// Where the largest (smallest) of all elements lies in row-major order; `out` has one element.
diopiError_t arg_run_flat(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          bool largest);

struct std_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *in;  ///< out: kept dimensions only; in: those, then the reduced ones
  double correction;
  int work;
  int64_t kept, reduced;
  const void *data;
  void *result;
};

diopiError_t std_run(struct std_task *task);

#endif
