/// The work of tril and triu, after triangle.c has checked the arguments.
#ifndef DIT_HOST_OPS_TRIANGLE_H
#define DIT_HOST_OPS_TRIANGLE_H

#include "engine/nest.h"
#include "frame.h"

struct triangle_task {
  struct nest rest;  ///< the dimensions before the matrix: out, input
  int64_t rows, columns, diagonal;
  int64_t row_step[2], step[2];  ///< in bytes: out, input
  int width;
  bool upper, in_place;
};

/// On the frame's stream; not empty.
diopiError_t triangle_run(struct frame *frame, const struct triangle_task *task);

#endif
