/// What a library takes, as rows of its list of functions say (diopiExtGetSupport).
#ifndef DIT_HOST_OPS_SUPPORT_H
#define DIT_HOST_OPS_SUPPORT_H

#include "frame.h"

struct support_row {
  const char *name;
  uint64_t dtypes;  ///< of the first input: 1 << enum dit_dtype
  uint32_t flags;
};

/// The answer for a library that takes tensors of every layout and gives the same numbers each time.
diopiError_t support_get(const struct support_row *rows, size_t count, const char *function,
                         diopiExtSupport_t *support);

#endif
