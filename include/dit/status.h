/// Status codes: what every fallible function of libdit returns.
///
/// DIT_ERR_UNSUPPORTED alone means "try the next provider" (the door then runs the CPU fallback); every other error
/// stops the operation and is reported to the user.
#ifndef DIT_STATUS_H
#define DIT_STATUS_H

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

enum dit_status {
  DIT_OK = 0,
  DIT_ERR_INVALID = 1,      ///< the caller passed something that is not allowed
  DIT_ERR_UNSUPPORTED = 2,  ///< valid, but not implemented by this provider
  DIT_ERR_NOMEM = 3,        ///< host or device memory is exhausted
  DIT_ERR_DEVICE = 4,       ///< the device or its vendor library failed
  DIT_ERR_IO = 5,           ///< the operating system refused a file or library operation
  DIT_ERR_CORRUPT = 6,      ///< data read from outside does not have the promised form
  DIT_ERR_INTERNAL = 7,     ///< a bug in ditorch
  DIT_ERR_RANGE = 8,        ///< an index, or another value that counts elements, is beyond its dimension
  DIT_ERR_ORDINAL = 9,      ///< there is no device of this number
  DIT_STATUS_COUNT
};

/// The name of a status ("DIT_ERR_NOMEM"); "DIT_ERR_?" for a value outside the enum. Never NULL.
DIT_API const char *dit_status_get_name(enum dit_status status);

/// Return early from a function that returns enum dit_status.
#define DIT_RETURN_IF_NOT_OK(expr)                    \
  do {                                                \
    enum dit_status dit_return_status_ = (expr);      \
    if (DIT_UNLIKELY(dit_return_status_ != DIT_OK)) { \
      return dit_return_status_;                      \
    }                                                 \
  } while (0)

DIT_EXTERN_C_END

#endif
