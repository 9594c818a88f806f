/// Joining contiguous tensors row by row, for cat.c.
#ifndef DIT_HOST_OPS_CAT_H
#define DIT_HOST_OPS_CAT_H

#include "frame.h"

#define JOIN_PARTS 16

/// Row r of the whole is row r of every part, one after another.
struct join_task {
  char *whole;
  int64_t rows, bytes;  ///< of the whole
  int64_t width;        ///< of an element
  int64_t count;
  bool split;  ///< from the whole to the parts
  struct {
    char *data;
    int64_t bytes;  ///< of a row
  } part[JOIN_PARTS];
};

/// On the frame's stream; the whole is not empty.
diopiError_t join_run(struct frame *frame, const struct join_task *task);

#endif
