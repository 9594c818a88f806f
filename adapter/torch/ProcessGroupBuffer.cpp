#include "ProcessGroupBuffer.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/COWDeleter.h>

#include "Common.h"
#include "Staging.h"
#include "Storage.h"
#include "dit/memory.h"

namespace ditorch {
namespace {

// What an alias owns: a share of the device's storage, and, where access is watched, leave to touch its memory.
struct Share {
  explicit Share(c10::Storage storage) : storage(std::move(storage)), opened(dit_memory_access_is_watched()) {
    if (opened) {
      dit_memory_access_begin();
    }
  }
  ~Share() {
    if (opened) {
      dit_memory_access_end();
    }
  }
  Share(const Share &) = delete;
  Share &operator=(const Share &) = delete;

  const c10::Storage storage;
  const bool opened;
};

// As aliasAsCpu (Storage.h), but for as long as the alias lives: a collective may outlive its tensors.
c10::Storage shareStorage(const c10::Storage &storage) {
  auto *impl = storage.unsafeGetStorageImpl();
  const bool lazy = impl->data_ptr().get_deleter() == c10::impl::cow::cow_deleter;
  void *data = lazy ? impl->mutable_data() : const_cast<void *>(impl->data());
  const auto release = [](void *share) { delete static_cast<Share *>(share); };
  return c10::Storage(c10::Storage::use_byte_size_t(), impl->nbytes(),
                      c10::DataPtr(data, new Share(storage), release, c10::Device(c10::kCPU)), nullptr,
                      /*resizable=*/false);
}

at::Tensor makeCpu(c10::Storage storage, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                  dtype);
}

bool isSideBySide(const at::Tensor &tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(tensor.suggest_memory_format());
}

}  // namespace

void Buffer::checkDevice(const at::Tensor &tensor, const char *what) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.device().type() == kDevice && tensor.layout() == c10::kStrided, what,
                    ": Tensors must be CUDA and dense, not ",
                    tensor.defined() ? c10::str(tensor.layout(), " on ", showDevice(tensor.device())) : "undefined");
}

void Buffer::checkContiguous(const at::Tensor &tensor, const char *what) {
  checkDevice(tensor, what);
  TORCH_CHECK_VALUE(isSideBySide(tensor) && !tensor.is_conj() && !tensor.is_neg(), what,
                    ": Tensors must be contiguous, but one has sizes ", tensor.sizes(), " and strides ",
                    tensor.strides(), "; pass tensor.contiguous()");
}

Buffer::Buffer(const at::Tensor &tensor)
    : numel_(tensor.numel()),
      element_size_(tensor.dtype().itemsize()),
      device_(tensor.device().index()),
      dtype_(tensor.scalar_type()) {
  if (!isHostAccessible()) {
    closed_ = tensor;
    return;
  }
  alias_ = aliasAsCpu(tensor, shareStorage(tensor.storage()));
  if (isSideBySide(tensor) && !tensor.is_conj() && !tensor.is_neg()) {
    flat_ = viewFlat(alias_, dtype_, 0, numel_);
  }
}

// Bring the device tensor to the host.
void Buffer::take() {
  Stage stage(closed_.device().index());
  stage.note(closed_, !discarded_ || !isSideBySide(closed_));
  stage.fetch();
  alias_ = stage.get(closed_);
  if (isSideBySide(alias_) && !alias_.is_conj() && !alias_.is_neg()) {
    flat_ = viewFlat(alias_, dtype_, 0, numel_);
  }
}

at::Tensor Buffer::elements() {
  if (closed_.defined() && !alias_.defined()) {
    take();
  }
  if (!flat_.defined()) {
    copied_ = true;
    flat_ = at::empty({numel_}, alias_.options());
    if (!discarded_) {
      flat_.view(alias_.sizes()).copy_(alias_);
    }
  }
  return flat_;
}

at::Tensor Buffer::bytes() {
  return viewFlat(elements(), at::kByte, 0, nbytes());
}

void *Buffer::deviceData() const {
  const at::Tensor &tensor = closed_.defined() ? closed_ : flat_;
  TORCH_INTERNAL_ASSERT(tensor.defined() && isSideBySide(tensor), "ditorch: a tensor with gaps");
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  const int64_t offset = tensor.storage_offset() * static_cast<int64_t>(element_size_);
  return static_cast<char *>(storage->mutable_data()) + offset;
}

void Buffer::store() {
  if (copied_) {
    alias_.copy_(flat_.view(alias_.sizes()));
  }
  if (closed_.defined() && alias_.defined()) {
    const c10::DeviceIndex device = closed_.device().index();
    Stage(device).send(alias_, closed_);
    synchronizeCurrentStream(device);
  }
}

std::vector<Buffer> makeBuffers(const Tensors &tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor &tensor : tensors) {
    buffers.emplace_back(tensor);
  }
  return buffers;
}

at::Tensor viewFlat(const at::Tensor &flat, at::ScalarType dtype, int64_t offset, int64_t numel) {
  const auto meta = c10::scalarTypeToTypeMeta(dtype);
  const int64_t start = flat.storage_offset() * static_cast<int64_t>(flat.dtype().itemsize()) + offset;
  const auto size = static_cast<int64_t>(meta.itemsize());
  TORCH_INTERNAL_ASSERT(start % size == 0, "ditorch: a view of ", dtype, " cannot begin at byte ", start);
  at::Tensor view = makeCpu(flat.storage(), meta);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef{numel}, c10::IntArrayRef{1}, start / size);
  return view;
}

}  // namespace ditorch
