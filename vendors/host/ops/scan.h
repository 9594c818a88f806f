/// The work of running sums, after scan.c has checked the arguments.
#ifndef DIT_HOST_OPS_SCAN_H
#define DIT_HOST_OPS_SCAN_H

#include "lines.h"

struct scan_task {
  struct frame *frame;
  const struct dit_tensor_view *v_out, *v_in;
  struct line_shape shape;
  int64_t blocks;  ///< of columns per outer index
  bool reverse;
  int work;
  const void *in;
  void *out;
};

diopiError_t scan_run(struct scan_task *task);

#endif
