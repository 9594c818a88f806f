/// The opaque device's operator library: the host library's functions over open addresses, in the device's queues.
#ifndef DIT_VENDORS_OPAQUE_OPERATORS_H
#define DIT_VENDORS_OPAQUE_OPERATORS_H

#include "dit/diopi.h"

/// Every forwarder comes here.
diopiError_t opaque_call(int function, const union dit_diopi_value *values);

#endif
