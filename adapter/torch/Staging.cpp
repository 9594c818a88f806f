#include "Staging.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <atomic>

#include "Allocator.h"
#include "Operator.h"
#include "Storage.h"
#include "dit/kernel.h"
#include "dit/runtime.h"
#include "dit/stage.h"

namespace ditorch {
namespace {

// Copies begin at a multiple of this in their storage: every dtype can be counted from there, and kernels find the
// alignment that they would find on the device.
constexpr size_t kAlignment = 64;

// The bytes of its storage that a tensor reaches; both equal when it has no elements.
std::pair<size_t, size_t> getSpan(const at::Tensor &tensor) {
  const size_t size = tensor.dtype().itemsize();
  const size_t first = static_cast<size_t>(tensor.storage_offset()) * size;
  if (tensor.numel() == 0) {
    return {first, first};
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); dim++) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {first, first + (static_cast<size_t>(last) + 1) * size};
}

// A CPU tensor that looks like the device's, `low` bytes into whose storage the copy begins.
at::Tensor viewAs(const at::Tensor &tensor, const c10::Storage &storage, size_t low) {
  const auto shift = static_cast<int64_t>(low / tensor.dtype().itemsize());
  return viewStorage(storage, c10::DispatchKeySet(c10::DispatchKey::CPU), tensor, tensor.storage_offset() - shift);
}

c10::Storage makePinned(size_t size) {
  return c10::Storage(c10::Storage::use_byte_size_t(), size, pinnedAllocator()->allocate(size), c10::GetCPUAllocator(),
                      /*resizable=*/true);
}

void sendBytes(void *to, const void *from, size_t size, c10::DeviceIndex device) {
  if (size > 0) {
    DIT_CHECK(
        dit_memory_copy(to, device, from, -1, size, device, dit_stream_get_current(device), /*async=*/true, &err));
  }
}

// The elements of a CPU tensor into a tensor of the device that looks like it, and nothing between them: packed, and
// spread by the vendor's kernel. False, with nothing done, when the vendor cannot.
bool sendElements(const at::Tensor &cpu, const at::Tensor &tensor) {
  dit_tensor_view from{}, to{};
  fillView(from, cpu);
  fillView(to, tensor);
  if (!canCopyElements() || to.ndim > DIT_MAX_DIMS || dit_tensor_get_internal_overlap(&to) == DIT_OVERLAP_YES) {
    return false;
  }
  const c10::DeviceIndex device = tensor.device().index();
  const c10::DeviceGuard guard(tensor.device());
  const auto size = static_cast<size_t>(tensor.nbytes());
  const c10::DataPtr packed = pinnedAllocator()->allocate(size), room = deviceAllocator()->allocate(size);
  dit_tensor_gather(&from, packed.get());
  sendBytes(room.get(), packed.get(), size, device);
  int64_t strides[DIT_MAX_DIMS];
  dit_tensor_view in = to;
  dit_shape_set_contiguous(in.ndim, in.sizes, strides);
  in.strides = strides;
  in.data = room.get();
  in.storage = room.get();
  in.flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  dit_error err;
  err.message[0] = '\0';
  const dit_status status = copyElements(to, in, device, err);
  if (status != DIT_ERR_UNSUPPORTED) {
    check(status, err);
  }
  return status == DIT_OK;
}

void growStorage(const at::Tensor &tensor) {
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  const size_t needed = getSpan(tensor).second;
  if (tensor.numel() > 0 && needed > storage->nbytes()) {
    resizeStorage(storage, needed);
  }
}

}  // namespace

bool isHostAccessible() {
  static std::atomic<int> known{-1};
  const int value = known.load(std::memory_order_relaxed);
  if (C10_LIKELY(value >= 0)) {
    return value != 0;
  }
  const bool yes = dit_stage_is_host_accessible();
  if (dit_runtime_is_active()) {
    known.store(yes ? 1 : 0, std::memory_order_relaxed);
  }
  return yes;
}

void Stage::note(const at::Tensor &tensor, bool reads) {
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  const auto [first, end] = getSpan(tensor);
  const size_t low = first / kAlignment * kAlignment;
  const size_t high = std::max(low, std::min(end, storage->nbytes()));
  for (Block &block : blocks_) {
    if (block.device == storage) {
      block.low = std::min(block.low, low);
      block.high = std::max(block.high, high);
      block.reads = block.reads || reads;
      return;
    }
  }
  blocks_.push_back({storage, low, high, reads, c10::Storage()});
}

void Stage::fetch() {
  c10::SmallVector<dit_stage_piece, 6> pieces;
  for (Block &block : blocks_) {
    const size_t size = block.high - block.low;
    block.cpu = makePinned(size);
    if (block.reads && size > 0) {
      auto *from = static_cast<char *>(const_cast<void *>(block.device->data())) + block.low;
      pieces.push_back({block.cpu.mutable_data(), from, size});
      bytes_ += size;
    }
  }
  DIT_CHECK(dit_stage_fetch(device_, dit_stream_get_current(device_), pieces.data(), pieces.size(), &err));
}

const Stage::Block *Stage::find(const c10::StorageImpl *device) const {
  for (const Block &block : blocks_) {
    if (block.device == device) {
      return &block;
    }
  }
  return nullptr;
}

at::Tensor Stage::get(const at::Tensor &tensor) const {
  const Block *block = find(tensor.storage().unsafeGetStorageImpl());
  TORCH_INTERNAL_ASSERT(block != nullptr, "ditorch: a tensor was not brought to the host");
  return viewAs(tensor, block->cpu, block->low);
}

void Stage::send(const at::Tensor &cpu, const at::Tensor &tensor) {
  if (cpu.sizes() != tensor.sizes() || cpu.strides() != tensor.strides()) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), tensor.storage_offset());
    growStorage(tensor);
  }
  auto *storage = tensor.storage().unsafeGetStorageImpl();
  separateStorage(storage);
  if (tensor.numel() > 0 && !tensor.is_non_overlapping_and_dense() && sendElements(cpu, tensor)) {
    bytes_ += tensor.nbytes();
    return;
  }
  const auto [first, end] = getSpan(tensor);
  const size_t size = end - first;
  const auto *from = static_cast<const char *>(cpu.storage().data()) + getSpan(cpu).first;
  sendBytes(static_cast<char *>(storage->mutable_data()) + first, from, size, device_);
  bytes_ += size;
}

c10::Storage Stage::sendStorage(const c10::Storage &cpu) {
  const size_t size = cpu.nbytes();
  const c10::DeviceGuard guard(c10::Device(kDevice, device_));
  c10::Storage device(c10::Storage::use_byte_size_t(), size, deviceAllocator()->allocate(size), deviceAllocator(),
                      /*resizable=*/true);
  sendBytes(device.mutable_data(), cpu.data(), size, device_);
  bytes_ += size;
  adopted_.push_back({cpu, device});
  return device;
}

at::Tensor Stage::adopt(const at::Tensor &cpu) {
  c10::Storage storage;
  size_t low = 0;
  for (const Block &block : blocks_) {
    if (block.cpu.unsafeGetStorageImpl() == cpu.storage().unsafeGetStorageImpl()) {
      storage = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(block.device));
      low = block.low;
    }
  }
  for (const Adopted &entry : adopted_) {
    if (entry.cpu.unsafeGetStorageImpl() == cpu.storage().unsafeGetStorageImpl()) {
      storage = entry.device;
    }
  }
  if (!storage) {
    storage = sendStorage(cpu.storage());
  }
  const auto shift = static_cast<int64_t>(low / cpu.dtype().itemsize());
  return viewStorage(std::move(storage), kDeviceKeys, cpu, cpu.storage_offset() + shift);
}

at::Tensor fetchTensor(const at::Tensor &tensor) {
  Stage stage(tensor.device().index());
  stage.note(tensor, /*reads=*/true);
  stage.fetch();
  return stage.get(tensor);
}

at::Scalar fetchNumber(const at::Tensor &tensor) {
  alignas(16) char bytes[16];
  const c10::DeviceIndex device = tensor.device().index();
  DIT_CHECK(dit_memory_copy(bytes, -1, tensor.const_data_ptr(), device, tensor.dtype().itemsize(), device,
                            dit_stream_get_current(device), /*async=*/false, &err));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), sizeof bytes, c10::DataPtr(bytes, c10::Device(c10::kCPU)),
                             nullptr, /*resizable=*/false);
  auto number = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  number.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef{}, c10::IntArrayRef{}, 0);
  copyBits(tensor, number);
  return number.item();
}

}  // namespace ditorch
