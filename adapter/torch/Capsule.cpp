// Device memory that comes back as the CPU's: DLPack exports it so, because every consumer can read it.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "Allocator.h"
#include "Common.h"
#include "dit/memory.h"
#include "dit/share.h"

namespace ditorch {
namespace {

// A CPU tensor over memory of the device, as a tensor of the device over the same memory. Others stay what they are.
at::Tensor bringHome(const at::Tensor &tensor) {
  if (!tensor.device().is_cpu() || !tensor.has_storage() || tensor.storage().nbytes() == 0) {
    return tensor;
  }
  const c10::Storage &storage = tensor.storage();
  void *memory = const_cast<void *>(storage.data());
  void *base = nullptr;
  size_t size = 0;
  int device = 0;
  if (!dit_memory_find(memory, &base, &size, &device) && !dit_share_find(memory, &device)) {
    return tensor;
  }
  c10::DataPtr data(
      memory, new c10::Storage(storage), [](void *owner) { delete static_cast<c10::Storage *>(owner); },
      c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
  c10::Storage home(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), deviceAllocator(),
                    /*resizable=*/false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(home), kDeviceKeys, tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return result;
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("bring_home(Tensor tensor) -> Tensor", &bringHome);
}

}  // namespace
}  // namespace ditorch
