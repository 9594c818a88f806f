// Keeps track of the autograd engine's threads, see Exit.cpp.
#pragma once

namespace ditorch {

// Called by the device guard when a thread chooses a device: cheap after the first time.
void noteThread();

}  // namespace ditorch
