/// Elements of a few dtypes as numbers, for checks that compare what a device computed.
#include "element.h"

#include <string.h>

#include "dit/dtype.h"

#define ELEMENTS(X)         \
  X(DIT_DTYPE_U8, uint8_t)  \
  X(DIT_DTYPE_I16, int16_t) \
  X(DIT_DTYPE_I32, int32_t) \
  X(DIT_DTYPE_I64, int64_t) \
  X(DIT_DTYPE_F32, float)   \
  X(DIT_DTYPE_F64, double)

void element_put(void *at, int dtype, double value) {
  switch (dtype) {
#define PUT(name, type)                   \
  case name: {                            \
    const type element = (type)value;     \
    memcpy(at, &element, sizeof element); \
    break;                                \
  }
    ELEMENTS(PUT)
#undef PUT
    case DIT_DTYPE_BOOL:
      *(uint8_t *)at = value != 0;
      break;
    case DIT_DTYPE_BF16: {
      const float wide = (float)value;
      memcpy(at, (const char *)&wide + 2, 2);
      break;
    }
    default:
      break;
  }
}

double element_get(const void *at, int dtype) {
  switch (dtype) {
#define GET(name, type)                   \
  case name: {                            \
    type element;                         \
    memcpy(&element, at, sizeof element); \
    return (double)element;               \
  }
    ELEMENTS(GET)
#undef GET
    case DIT_DTYPE_BF16: {
      float wide = 0;
      memcpy((char *)&wide + 2, at, 2);
      return (double)wide;
    }
    default:
      return *(const uint8_t *)at;
  }
}
