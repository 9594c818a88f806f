/// Failures that are not just a wrong argument (frame_fail): they set the text of this thread's last error too.
#ifndef DIT_HOST_OPS_FAIL_H
#define DIT_HOST_OPS_FAIL_H

#include "frame.h"

/// An index, or another value that counts elements, is beyond its dimension.
diopiError_t frame_fail_range(struct frame *frame, const char *format, ...) DIT_PRINTF(2, 3);
/// No argument is to blame: memory, the stream.
diopiError_t frame_fail_device(struct frame *frame, const char *format, ...) DIT_PRINTF(2, 3);

#define FRAME_CHECK_RANGE(frame, condition, ...)   \
  do {                                             \
    if (!(condition)) {                            \
      return frame_fail_range(frame, __VA_ARGS__); \
    }                                              \
  } while (0)

#endif
