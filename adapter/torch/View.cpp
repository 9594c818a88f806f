// Views: PyTorch's own CPU code only touches metadata here and serves any device.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "Common.h"
#include "Storage.h"

namespace ditorch {
namespace {

void setMetadata(at::Tensor &self, c10::IntArrayRef size, c10::IntArrayRef stride, int64_t offset) {
  auto *impl = self.unsafeGetTensorImpl();
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    TORCH_CHECK(size.size() == stride.size(), "unequal size length (", size.size(), ") and stride length (",
                stride.size(), ")");
    impl->set_sizes_and_strides(size, stride, offset);
  }
}

at::Tensor &setStorage(at::Tensor &self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                       c10::IntArrayRef stride) {
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"",
              showDevice(self.device()), "\" to a storage on different device \"", showDevice(source.device()),
              "\".  This is no longer allowed; the devices must match.");
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  setMetadata(self, size, stride, offset);
  return self;
}

at::Tensor &setWholeStorage(at::Tensor &self, at::Storage source) {
  const int64_t count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return setStorage(self, std::move(source), 0, {count}, {});
}

at::Tensor &setTensor(at::Tensor &self, const at::Tensor &source) {
  if (!self.is_same(source)) {
    setStorage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

at::Tensor &setEmpty(at::Tensor &self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(kDevice), /*resizable=*/true);
  return setStorage(self, std::move(storage), 0, {0}, {});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("set_.source_Storage_storage_offset", &setStorage);
  m.impl("set_.source_Storage", &setWholeStorage);
  m.impl("set_.source_Tensor", &setTensor);
  m.impl("set_", &setEmpty);
}

}  // namespace
}  // namespace ditorch
