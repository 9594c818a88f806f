/// Rows of a library's list of functions as answers (see support.h).
#include "support.h"

#include <string.h>

static uint32_t get_dtypes(uint64_t own) {
  uint32_t dtypes = 0;
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    if (own >> dtype & 1 && dit_diopi_get_dtype(dtype) != diopi_dtype_unsupported) {
      dtypes |= 1u << dit_diopi_get_dtype(dtype);
    }
  }
  return dtypes;
}

diopiError_t support_get(const struct support_row *rows, size_t count, const char *function,
                         diopiExtSupport_t *support) {
  if (!function || !support || support->struct_size < sizeof *support) {
    return diopiErrorOccurred;
  }
  for (size_t i = 0; i < count; i++) {
    if (strcmp(rows[i].name, function) == 0) {
      support->dtypes = get_dtypes(rows[i].dtypes);
      support->layouts = diopiExtContiguous | diopiExtChannelsLast | diopiExtStrided;
      support->flags = rows[i].flags | diopiExtDeterministic;
      return diopiSuccess;
    }
  }
  return diopiNoImplement;
}
