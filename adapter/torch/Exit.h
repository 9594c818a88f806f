// A clean end of the process, see Exit.cpp.
#pragma once

#include <memory>

namespace ditorch {

// Called by the device guard when a thread chooses a device: cheap after the first time.
void noteThread();

// A thread of ours that will release tensors holds one from before Python can lose sight of them until they are gone.
using Owner = std::shared_ptr<void>;
Owner makeOwner();

}  // namespace ditorch
