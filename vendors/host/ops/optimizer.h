/// What the optimizer steps need of the device.
#ifndef DIT_HOST_OPS_OPTIMIZER_H
#define DIT_HOST_OPS_OPTIMIZER_H

#include "frame.h"

/// The number in a one-element tensor on the device, now.
diopiError_t optimizer_read_number(struct frame *frame, const struct dit_tensor_view *view, double *out);

#endif
