/// Divisors of integers: a zero is refused before anything is written (see elementwise.h).
#include <string.h>

#include "elementwise.h"
#include "engine/nest.h"

/// Is the k-th parameter 0 in the type that the loop reads?
static bool is_zero_number(const struct elementwise *e, int index, int dtype) {
  static const char zeros[16];
  return memcmp(e->run.parameters + 16 * index, zeros, (size_t)dit_dtype_get_size(dtype)) == 0;
}

struct zero_scan {
  int width;
  int64_t stride;
  bool found;
};

/// Is one of `count` elements 0?
#define SCAN(type)                                             \
  for (int64_t i = 0; i < count; i++) {                        \
    type value;                                                \
    memcpy(&value, data[0] + i * scan->stride, sizeof(value)); \
    found |= value == 0;                                       \
  }                                                            \
  break;
static void scan_run(void *context, char *const *data, int64_t count) {
  struct zero_scan *scan = context;
  int found = 0;
  switch (scan->width) {
    case 1:
      SCAN(uint8_t)
    case 2:
      SCAN(uint16_t)
    case 4:
      SCAN(uint32_t)
    default:
      SCAN(uint64_t)
  }
  scan->found = scan->found || found;
}

static diopiError_t scan_zero(void *argument) {
  struct elementwise *e = argument;
  const struct dit_tensor_view *view = &e->views[e->outputs + e->inputs - 1];
  struct nest nest;
  if (view->numel == 0 || e->views[0].numel == 0) {
    return diopiSuccess;
  }
  nest_init(&nest, 1, &view);
  // what counts is the divisor as the loop reads it: 256 is 0 in uint8. The low bytes come first.
  const int own = (int)dit_dtype_get_size(view->dtype), work = (int)dit_dtype_get_size(e->run.work[0]);
  struct zero_scan scan = {own < work ? own : work, nest.strides[0][0], false};
  nest_walk(&nest, 0, nest.numel, scan_run, &scan);
  FRAME_CHECK(&e->frame, !scan.found, "'%s' holds a zero (as %s): integer division by zero",
              e->names[e->outputs + e->inputs - 1], dit_dtype_get_name(e->run.work[0]));
  return diopiSuccess;
}

diopiError_t elementwise_check_divisor(struct elementwise *e) {
  const int last = e->outputs + e->inputs - 1;
  if (e->views[last].handle) {
    return frame_run(&e->frame, scan_zero, e);
  }
  FRAME_CHECK(&e->frame, !is_zero_number(e, e->numbers - 1, e->run.work[last]),
              "'%s' is 0 (as %s): integer division by zero", e->names[last], dit_dtype_get_name(e->run.work[last]));
  return diopiSuccess;
}
