// Tensors of ditorch's own device where the host cannot read its memory: copies for src/numerics.
#ifndef DITORCH_TOOLS_CLOSED_H
#define DITORCH_TOOLS_CLOSED_H

#include "dit/tensor.h"
#include "engine/engine.h"

/// A view over a copy of what the tensor holds now, after the work queued on the current stream. False when the tensor
/// is not such a one, or cannot be read; never raises. `memory` is given back by tools_closed_release.
bool tools_closed_fetch(const struct engine_tensor *tensor, struct dit_tensor_view *view, void **memory);
void tools_closed_release(void *memory);

#endif
