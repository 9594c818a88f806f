// Keeps track of threads that may need Python at the end of the process, see Exit.cpp.
#pragma once

namespace ditorch {

// Called by the device guard when a thread chooses a device: cheap after the first time.
void noteThread();

// Around what another thread of ours has to do and may release Python objects after: the process waits, before the
// interpreter goes away, until there is an end for every beginning.
void beginRelease();
void endRelease();

}  // namespace ditorch
