/// What the CUDA operator library says about itself: name, version, and what each function takes (functions.inc).
#include <string.h>

#include "engine/list.h"
#include "ops/frame.h"

const char *diopiGetVendorName(void) {
  return "cuda";
}

const char *diopiGetImplVersion(void) {
  return DIT_VERSION_TEXT;
}

uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

diopiError_t diopiExtListBegin(diopiContextHandle_t ctx) {
  (void)ctx;
  list_begin();
  return diopiSuccess;
}

diopiError_t diopiExtListEnd(diopiContextHandle_t ctx) {
  struct frame frame;
  struct dit_error err = {.message = ""};
  const enum dit_status status = list_end(&err);
  FRAME_BEGIN(&frame, ctx);
  return frame_get_code(&frame, status, &err);
}

static const struct support_row {
  const char *name;
  uint64_t dtypes;  ///< 1 << enum dit_dtype
  uint32_t flags;
} rows[] = {
#define IN_PLACE diopiExtInPlace
#define CUDA_FUNCTION(name, dtypes, flags) {#name, dtypes, flags},
#include "functions.inc"
#undef CUDA_FUNCTION
};

static uint32_t get_dtypes(uint64_t own) {
  uint32_t dtypes = 0;
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    if (dtype < 64 && own >> dtype & 1 && dit_diopi_get_dtype(dtype) != diopi_dtype_unsupported) {
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
