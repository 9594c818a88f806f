/// The message that goes with a status: a caller-owned fixed buffer. Setting it never allocates and never fails.
#ifndef DIT_ERROR_H
#define DIT_ERROR_H

#include "dit/status.h"

DIT_EXTERN_C_BEGIN

#define DIT_ERROR_MESSAGE_SIZE 1024

/// Zero-initialise before use: `struct dit_error err = {0};`. Every function that takes one accepts NULL.
struct dit_error {
  enum dit_status status;
  char message[DIT_ERROR_MESSAGE_SIZE];  ///< NUL-terminated UTF-8; a longer text is cut at a character border
};

/// Write a formatted message (when `err` is not NULL) and return `status`, so that `return dit_error_set(...)` reads
/// well.
DIT_API enum dit_status dit_error_set(struct dit_error *err, enum dit_status status, const char *format, ...)
    DIT_PRINTF(3, 4);

/// Put a prefix in front of a message that is already there: "loading vendor 'x': <old message>"; ": " is added unless
/// the prefix ends with a blank. Returns err->status (DIT_ERR_INTERNAL when `err` is NULL).
DIT_API enum dit_status dit_error_prefix(struct dit_error *err, const char *format, ...) DIT_PRINTF(2, 3);

DIT_EXTERN_C_END

#endif
