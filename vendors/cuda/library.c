/// What the CUDA operator library says about itself: name, version, and what each function takes (functions.inc).
#include "engine/list.h"
#include "ops/support.h"

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

#define IN_PLACE diopiExtInPlace
static const struct support_row rows[] = {
#define CUDA_FUNCTION(name, dtypes, flags) {#name, dtypes, flags},
#include "functions.inc"
#undef CUDA_FUNCTION
};

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  return support_get(rows, sizeof rows / sizeof rows[0], function, support);
}
