/// What the host library says about itself: name, version, and what each function takes (functions.inc).
#include "support.h"

const char *diopiGetVendorName(void) {
  return "host";
}

const char *diopiGetImplVersion(void) {
  return DIT_VERSION_TEXT;
}

uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

#define IN_PLACE diopiExtInPlace
static const struct support_row rows[] = {
#define HOST_FUNCTION(name, dtypes, flags, ...) {#name, dtypes, flags},
#include "functions.inc"
#undef HOST_FUNCTION
};

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  return support_get(rows, sizeof rows / sizeof rows[0], function, support);
}
