/// Every function of the standard as a call of observe_call, from the list alone.
#include "observe.h"

#define PACK(...) __VA_ARGS__
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) \
  diopiError_t name parameters {                                                       \
    const union dit_diopi_value arguments[] = {packed};                                \
    return observe_call(DIT_DIOPI_##name, arguments);                                  \
  }
#include "diopi/functions.inc"
