/// The queries of a library that wraps another one, the same in each: its name and version, and what went wrong last.
///
/// LIBRARY_QUERIES(name) defines them, and `last_error` and `last_failure`, of the calling thread, for the library to
/// write.
#ifndef DIT_VENDORS_QUERIES_H
#define DIT_VENDORS_QUERIES_H

#include "diopi/extension.h"
#include "diopi/functions.h"

#define LIBRARY_QUERIES(name)                          \
  static _Thread_local char last_error[1200];          \
  static _Thread_local diopiExtFailure_t last_failure; \
  const char *diopiGetVendorName(void) {               \
    return name;                                       \
  }                                                    \
  const char *diopiGetImplVersion(void) {              \
    return DIT_VERSION_TEXT;                           \
  }                                                    \
  uint32_t diopiExtGetVersion(void) {                  \
    return DIOPI_EXT_VERSION;                          \
  }                                                    \
  const char *diopiGetLastErrorString(void) {          \
    return last_error;                                 \
  }                                                    \
  const char *diopiExtGetLastErrorString(void) {       \
    return last_error;                                 \
  }                                                    \
  diopiExtFailure_t diopiExtGetLastFailure(void) {     \
    return last_failure;                               \
  }

#endif
