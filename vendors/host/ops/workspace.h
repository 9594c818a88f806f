/// Scratch that callers of lmdeploy's functions bring. The host takes its own, so it needs none: a question for the
/// size (a negative number) is answered with 0, and what is given is not touched.
#ifndef DIT_HOST_OPS_WORKSPACE_H
#define DIT_HOST_OPS_WORKSPACE_H

#include "frame.h"

/// True when the call only asks for the size, which is stored. `size` may be NULL: no question.
static inline bool workspace_is_question(int64_t *size) {
  if (size && *size < 0) {
    *size = 0;
    return true;
  }
  return false;
}

#endif
