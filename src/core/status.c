/// Names of the status codes. Invariant: every value of enum dit_status has its own spelling. Depends on nothing.
#include "dit/status.h"

const char *dit_status_get_name(enum dit_status status) {
  switch (status) {
    case DIT_OK:
      return "DIT_OK";
    case DIT_ERR_INVALID:
      return "DIT_ERR_INVALID";
    case DIT_ERR_UNSUPPORTED:
      return "DIT_ERR_UNSUPPORTED";
    case DIT_ERR_NOMEM:
      return "DIT_ERR_NOMEM";
    case DIT_ERR_DEVICE:
      return "DIT_ERR_DEVICE";
    case DIT_ERR_IO:
      return "DIT_ERR_IO";
    case DIT_ERR_CORRUPT:
      return "DIT_ERR_CORRUPT";
    case DIT_ERR_INTERNAL:
      return "DIT_ERR_INTERNAL";
    case DIT_ERR_RANGE:
      return "DIT_ERR_RANGE";
    case DIT_ERR_ORDINAL:
      return "DIT_ERR_ORDINAL";
    case DIT_STATUS_COUNT:
      break;
  }
  return "DIT_ERR_?";
}
