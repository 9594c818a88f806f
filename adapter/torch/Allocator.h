// Memory as c10 sees it: the device allocator, pinned host memory, and the loan of device memory to CPU kernels.
#pragma once

#include <c10/core/Allocator.h>

#include "Common.h"

namespace ditorch {

c10::Allocator *deviceAllocator();
c10::Allocator *pinnedAllocator();

// While one of these lives, CPU tensors made by this thread take their memory from the device's caching allocator, so
// that results of a CPU kernel can become device tensors without a copy and are counted as device memory.
class LendMemory {
 public:
  explicit LendMemory(int device);
  ~LendMemory();
  LendMemory(const LendMemory &) = delete;
  LendMemory &operator=(const LendMemory &) = delete;

 private:
  int previous_;
};

// Is this the memory of a CPU tensor that was made under LendMemory?
bool isLent(const c10::DataPtr &data);
// Turn lent CPU memory into memory of the device.
c10::DataPtr adoptLent(c10::DataPtr &&data, int device);

}  // namespace ditorch
