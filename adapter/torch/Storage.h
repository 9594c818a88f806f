// Storages of the device: views of them for CPU kernels, growth, adoption of CPU results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "Common.h"

namespace ditorch {

// Grow or shrink a device storage in stream order, keeping the common prefix.
void resizeStorage(c10::StorageImpl *storage, size_t size);

// A lazy copy (torch._lazy_clone) becomes a real one, because it will be written to. True: its memory has moved.
bool separateStorage(c10::StorageImpl *storage);

// A CPU storage, or tensor, over the same memory. The device's one must outlive it.
c10::Storage aliasAsCpu(c10::StorageImpl *storage);
at::Tensor aliasAsCpu(const at::Tensor &tensor);
// The same with a storage alias that exists already, so that tensors which share memory keep sharing it.
at::Tensor aliasAsCpu(const at::Tensor &tensor, c10::Storage storage);

// A tensor over `storage` that looks like `like`: sizes, strides, dtype, conjugate and negative bits.
at::Tensor viewStorage(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor &like, int64_t offset);
// The conjugate and negative bits of one tensor for another.
void copyBits(const at::Tensor &from, const at::Tensor &to);

// Wait until the work queued on the calling thread's current stream of the device is done (nothing to do on the default
// stream).
void synchronizeCurrentStream(c10::DeviceIndex device);

}  // namespace ditorch
