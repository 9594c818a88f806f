/// Numbers in steps: arange and linspace.
#ifndef DIT_HOST_ENGINE_RAMP_H
#define DIT_HOST_ENGINE_RAMP_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/error.h"

/// out[i] for i of a flat tensor of any stride: linear in i, in double or in wrapping int64.
struct ramp_task {
  char *data;
  int64_t stride, count, steps;
  int dtype;
  bool is_integer, is_linspace;
  int64_t istart, istep;
  double start, end, step;
};

/// On the stream; the task is copied.
enum dit_status ramp_launch(void *stream, const struct ramp_task *task, struct dit_error *err);

#endif
