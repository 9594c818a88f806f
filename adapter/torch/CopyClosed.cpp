// Copies that a vendor's contiguous copy cannot do, on devices whose memory the host cannot read.
//
// Where the vendor has a kernel for copies on the device, strides and dtypes change there; else on the host, in pinned
// memory. `copy_` below is PyTorch's: it comes back to Factory.cpp's _copy_from with simpler tensors each time.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include "Staging.h"
#include "Storage.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

// A tensor with the strides of a dense one, elsewhere.
at::Tensor makeLike(const at::Tensor &dense, c10::Device device) {
  at::Tensor made = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device));
  copyBits(dense, made);
  return made;
}

at::Tensor makePinnedLike(const at::Tensor &dense) {
  const PinMemory pin(dense.device().index());
  return makeLike(dense, c10::kCPU);
}

at::Tensor makeDense(const at::Tensor &tensor, at::ScalarType dtype, c10::Device device) {
  return at::empty(tensor.sizes(), tensor.options().dtype(dtype).device(device).pinned_memory(false));
}

void copyBlock(const at::Tensor &from, const at::Tensor &to, bool async) {
  const c10::DeviceIndex from_device = from.device().is_cpu() ? c10::DeviceIndex(-1) : from.device().index();
  const c10::DeviceIndex to_device = to.device().is_cpu() ? c10::DeviceIndex(-1) : to.device().index();
  const c10::DeviceIndex device = to_device >= 0 ? to_device : from_device;
  DIT_CHECK(dit_memory_copy(to.mutable_data_ptr(), to_device, from.const_data_ptr(), from_device, to.nbytes(), device,
                            dit_stream_get_current(device), async, &err));
}

void copyToDevice(const at::Tensor &from, const at::Tensor &to) {
  if (to.is_non_overlapping_and_dense()) {
    const at::Tensor staged = makePinnedLike(to);
    staged.copy_(from);
    copyBlock(staged, to, /*async=*/true);
    return;
  }
  const at::Tensor dense = makeDense(to, to.scalar_type(), to.device());
  copyToDevice(from, dense);
  to.copy_(dense);
}

// Elements far apart are packed on the device, so that what lies between them need not travel.
bool isSparseSpan(const at::Tensor &tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); dim++) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return last / 2 > tensor.numel();
}

void copyToCpu(const at::Tensor &from, const at::Tensor &to) {
  if (from.is_non_overlapping_and_dense()) {
    const at::Tensor staged = makePinnedLike(from);
    copyBlock(from, staged, /*async=*/false);
    to.copy_(staged);
  } else if (isSparseSpan(from)) {
    const at::Tensor dense = makeDense(from, from.scalar_type(), from.device());
    dense.copy_(from);
    copyToCpu(dense, to);
  } else {
    to.copy_(fetchTensor(from));
  }
}

}  // namespace

bool isOneBlock(const at::Tensor &a, const at::Tensor &b) {
  return a.scalar_type() == b.scalar_type() && a.strides() == b.strides() && a.is_non_overlapping_and_dense() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void copyAcrossClosed(const at::Tensor &from, const at::Tensor &to) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (to.device().type() == kDevice) {
    copyToDevice(from, to);
  } else {
    copyToCpu(from, to);
  }
}

void copyOnHost(const at::Tensor &from, const at::Tensor &to) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Stage stage(to.device().index());
  stage.note(from, /*reads=*/true);
  stage.note(to, !to.is_non_overlapping_and_dense());
  stage.fetch();
  const at::Tensor staged = stage.get(to);
  staged.copy_(stage.get(from));
  stage.send(staged, to);
}

void copyBetweenClosed(const at::Tensor &from, const at::Tensor &to) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  synchronizeCurrentStream(from.device().index());
  if (isOneBlock(from, to)) {
    copyBlock(from, to, /*async=*/true);
  } else if (from.is_non_overlapping_and_dense()) {
    const at::Tensor moved = makeLike(from, to.device());
    copyBlock(from, moved, /*async=*/true);
    to.copy_(moved);
  } else {
    const at::Tensor dense = makeDense(from, from.scalar_type(), from.device());
    {
      const c10::DeviceGuard guard(from.device());
      dense.copy_(from);
    }
    copyBetweenClosed(dense, to);
  }
  // The source may be freed, and used again by its own stream, as soon as this returns.
  synchronizeCurrentStream(to.device().index());
}

}  // namespace ditorch
