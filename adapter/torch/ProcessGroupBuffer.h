// Device memory as the collectives see it: CPU tensors over the same bytes that keep the device's storage alive, or,
// where the host cannot read those, over copies.
//
// Nothing here dispatches an operator: the program's modes and tools do not see how a collective looks at its tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ditorch {

using Tensors = std::vector<at::Tensor>;

// A tensor of the device for a collective. `what` names the collective in errors.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(const at::Tensor &tensor);

  // Throws unless the tensor is dense on the device.
  static void checkDevice(const at::Tensor &tensor, const char *what);
  // Throws as well unless its elements lie side by side (in the memory format it suggests), as NCCL demands.
  static void checkContiguous(const at::Tensor &tensor, const char *what);

  // The elements in order: of the tensor itself, or, when it has gaps or lazy bits, of a copy made by the first call,
  // when the work that the tensor waits for is done.
  at::Tensor elements();
  at::Tensor bytes();
  // After a collective wrote to elements(): bring a copy back to the tensor. It is there when this returns.
  void store();
  // The same for a tensor that will be overwritten: its old contents are not copied.
  void discard() { discarded_ = true; }

  // Where the elements of a tensor without gaps lie in the device's memory.
  void *deviceData() const;
  c10::DeviceIndex device() const { return device_; }

  int64_t numel() const { return numel_; }
  int64_t nbytes() const { return numel_ * static_cast<int64_t>(element_size_); }
  at::ScalarType dtype() const { return dtype_; }

 private:
  void take();

  at::Tensor closed_;  // the device tensor, where the host cannot read it
  at::Tensor alias_;   // sizes and strides of the device tensor
  at::Tensor flat_;    // one dimension, no gaps
  int64_t numel_ = 0;
  size_t element_size_ = 0;
  c10::DeviceIndex device_ = 0;
  at::ScalarType dtype_ = at::kFloat;
  bool copied_ = false;
  bool discarded_ = false;
};

std::vector<Buffer> makeBuffers(const Tensors &tensors);

// `numel` elements of a CPU tensor without gaps, seen as another dtype, from byte `offset` on.
at::Tensor viewFlat(const at::Tensor &flat, at::ScalarType dtype, int64_t offset, int64_t numel);

}  // namespace ditorch
