/// Operator libraries for tests of the loader. Compiled once per kind; SMALL_<kind> selects it (see
/// tests/c/CMakeLists.txt): nothing (exports no function of the standard), plain (an old library without extension),
/// other_version (an extension of a later major version), newer_minor (a later minor version), whole (everything).
#include <stddef.h>

#include "diopi/extension.h"
#include "diopi/functions.h"

#if defined(SMALL_nothing)
DIOPI_API int diopiSmallHelper(void);
int diopiSmallHelper(void) {
  return 1;
}
#else
const char *diopiGetVendorName(void) {
  return "small";
}

const char *diopiGetLastErrorString(void) {
#if defined(SMALL_plain)
  return "the library's own text";
#else
  return NULL;
#endif
}

/// Doubles a contiguous float tensor; asks the runtime for everything it needs.
diopiError_t diopiAbs(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  const void *from;
  void *to;
  int64_t numel;
  diopiStreamHandle_t stream;
  if (diopiGetStream(ctx, &stream) != diopiSuccess || diopiGetTensorData(out, &to) != diopiSuccess ||
      diopiGetTensorDataConst(input, &from) != diopiSuccess || diopiGetTensorNumel(input, &numel) != diopiSuccess) {
    return diopiErrorOccurred;
  }
  for (int64_t i = 0; i < numel; i++) {
    ((float *)to)[i] = 2 * ((const float *)from)[i];
  }
  return diopiSuccess;
}
#endif

#if defined(SMALL_other_version) || defined(SMALL_newer_minor) || defined(SMALL_whole)
uint32_t diopiExtGetVersion(void) {
#if defined(SMALL_other_version)
  return (DIOPI_EXT_MAJOR + 6) * 65536 + 5;
#elif defined(SMALL_newer_minor)
  return DIOPI_EXT_VERSION + 9;
#else
  return DIOPI_EXT_VERSION;
#endif
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  (void)function;
  support->dtypes = 1u << diopi_dtype_float32;
  return diopiSuccess;
}

const char *diopiExtGetLastErrorString(void) {
  return "the extension's text";
}
#endif
