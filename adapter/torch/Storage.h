// Storages of the device: views of them for CPU kernels, growth, adoption of CPU results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "Common.h"
#include "dit/tensor.h"

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

// Queue out[i] = in[i] on the device's current stream; strides and dtypes may differ. By the vendor's copy kernel, or
// by diopiCopyInp where a vendor has an operator library alone. DIT_ERR_UNSUPPORTED, with nothing done, for what they
// do not take, or without either.
bool canCopyElements();
dit_status copyElements(const dit_tensor_view &out, const dit_tensor_view &in, c10::DeviceIndex device, dit_error &err);

// Wait until the work queued on the calling thread's current stream of the device is done (nothing to do on the default
// stream).
void synchronizeCurrentStream(c10::DeviceIndex device);

}  // namespace ditorch
