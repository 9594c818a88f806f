/// What the host library says about itself: name, version, and what each function takes.
///
/// One row per function in the .inc files beside this one: HOST_FUNCTION(name, dtypes of the first input, flags).
#include <string.h>

#include "frame.h"

const char *diopiGetVendorName(void) {
  return "host";
}

const char *diopiGetImplVersion(void) {
  return DIT_VERSION_TEXT;
}

uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

struct support_row {
  const char *name;
  uint64_t dtypes;  ///< 1 << enum dit_dtype
  uint32_t flags;
};

#define IN_PLACE diopiExtInPlace
static const struct support_row rows[] = {
#define HOST_FUNCTION(name, dtypes, flags) {#name, dtypes, flags},
#include "support_index.inc"
#include "support_linalg.inc"
#include "support_llm.inc"
#include "support_matrix.inc"
#include "support_mmcv.inc"
#include "support_pointwise.inc"
#include "support_reduce.inc"
#undef HOST_FUNCTION
};

static uint32_t get_dtypes(uint64_t own) {
  uint32_t dtypes = 0;
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    if (own >> dtype & 1 && dit_diopi_get_dtype(dtype) != diopi_dtype_unsupported) {
      dtypes |= 1u << dit_diopi_get_dtype(dtype);
    }
  }
  return dtypes;
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  if (!function || !support || support->struct_size < sizeof *support) {
    return diopiErrorOccurred;
  }
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (strcmp(rows[i].name, function) == 0) {
      support->dtypes = get_dtypes(rows[i].dtypes);
      support->layouts = diopiExtContiguous | diopiExtChannelsLast | diopiExtStrided;
      support->flags = rows[i].flags | diopiExtDeterministic;
      return diopiSuccess;
    }
  }
  return diopiNoImplement;
}
