// Storages that other processes see too, and storages that are theirs.
#pragma once

#include <c10/core/Allocator.h>

#include "Common.h"

namespace ditorch {

// Work queued on the stream uses this memory. Memory of another process needs no note: the device is drained before it
// is unmapped.
void recordStreamOf(const c10::DataPtr &data, int64_t stream);

}  // namespace ditorch
