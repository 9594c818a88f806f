#include "Storage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COWDeleter.h>

#include <algorithm>

#include "Allocator.h"
#include "Profiler.h"
#include "Staging.h"
#include "dit/diopi.h"
#include "dit/kernel.h"
#include "dit/memory.h"
#include "dit/runtime.h"

namespace ditorch {

void resizeStorage(c10::StorageImpl *storage, size_t size) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage->device());
  c10::DataPtr grown = deviceAllocator()->allocate(size);
  const size_t common = std::min(size, storage->nbytes());
  if (common > 0 && storage->data() != nullptr) {
    deviceAllocator()->copy_data(grown.get(), storage->data(), common);
  }
  storage->set_data_ptr_noswap(std::move(grown));
  storage->set_nbytes(size);
}

bool separateStorage(c10::StorageImpl *storage) {
  if (C10_LIKELY(storage->data_ptr().get_deleter() != c10::impl::cow::cow_deleter)) {
    return false;
  }
  const c10::DeviceGuard guard(storage->device());
  return storage->mutable_data() != nullptr;
}

c10::Storage aliasAsCpu(c10::StorageImpl *storage) {
  separateStorage(storage);  // the alias may be written to
  void *data = const_cast<void *>(storage->data());
  c10::DataPtr alias(data, c10::Device(c10::kCPU));
  if (C10_UNLIKELY(dit_memory_access_is_watched())) {  // the pages are open as long as the alias lives
    static char context;  // never NULL, unlike the data of an empty tensor: else nobody would call the deleter
    dit_memory_access_begin();
    alias = c10::DataPtr(data, &context, [](void *) { dit_memory_access_end(); }, c10::Device(c10::kCPU));
  }
  return c10::Storage(c10::Storage::use_byte_size_t(), storage->nbytes(), std::move(alias), c10::GetCPUAllocator(),
                      /*resizable=*/true);
}

namespace {

using CopyFunction = decltype(dit_diopi_vtable::diopiCopyInp);

CopyFunction findCopyFunction() {
  const auto *library = dit_diopi_get_active();
  return library == nullptr ? nullptr : library->functions.diopiCopyInp;
}

}  // namespace

bool canCopyElements() {
  const auto *kernels = dit_runtime_get_kernels();
  return (kernels != nullptr && kernels->copy != nullptr) || findCopyFunction() != nullptr;
}

dit_status copyElements(const dit_tensor_view &out, const dit_tensor_view &in, c10::DeviceIndex device,
                        dit_error &err) {
  const auto *kernels =
      profiler::isTracing() ? profiler::traceKernels("aten::copy_", device) : dit_runtime_get_kernels();
  void *stream = dit_stream_get_current_raw(device);
  dit_status status = DIT_ERR_UNSUPPORTED;
  if (kernels != nullptr && kernels->copy != nullptr) {
    status = kernels->copy(stream, &out, &in, &err);
  }
  const CopyFunction copy = status == DIT_ERR_UNSUPPORTED ? findCopyFunction() : nullptr;
  if (copy == nullptr) {
    return status;
  }
  diopiContext context;
  diopiTensor from, to;
  dit_diopi_context_init(&context, device, stream);
  dit_diopi_tensor_init(&from, &in);
  dit_diopi_tensor_init(&to, &out);
  const diopiError_t code = copy(&context, &from, &to);
  dit_diopi_context_reset(&context);
  return dit_diopi_library_check(dit_diopi_get_active(), "diopiCopyInp", code, &err);
}

void copyBits(const at::Tensor &from, const at::Tensor &to) {
  if (from.is_conj() != to.is_conj()) {
    to.unsafeGetTensorImpl()->_set_conj(from.is_conj());
  }
  if (from.is_neg() != to.is_neg()) {
    to.unsafeGetTensorImpl()->_set_neg(from.is_neg());
  }
}

at::Tensor viewStorage(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor &like, int64_t offset) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  copyBits(like, made);
  return made;
}

at::Tensor aliasAsCpu(const at::Tensor &tensor, c10::Storage storage) {
  return viewStorage(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor, tensor.storage_offset());
}

at::Tensor aliasAsCpu(const at::Tensor &tensor) {
  return aliasAsCpu(tensor, aliasAsCpu(tensor.storage().unsafeGetStorageImpl()));
}

void synchronizeCurrentStream(c10::DeviceIndex device) {
  // The default stream of a device that is made of host memory runs inline; any other is a queue.
  if (C10_UNLIKELY(dit_stream_get_current_raw(device) != nullptr || !isHostAccessible())) {
    DIT_CHECK(dit_stream_synchronize(device, dit_stream_get_current(device), &err));
  }
}

}  // namespace ditorch
