// Device memory that the host cannot read, on the host: copies in pinned memory, and the way back.
//
// Everything here is for devices that are not host accessible; the others lend their memory itself (Storage.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "Common.h"

namespace ditorch {

// May the host read the device's memory? Found once, when a vendor is active: a process has one.
bool isHostAccessible();

// While one of these lives, CPU tensors made by this thread take pinned memory, so that results of a CPU kernel travel
// to the device without a wait.
class PinMemory {
 public:
  explicit PinMemory(int device);
  ~PinMemory();
  PinMemory(const PinMemory &) = delete;
  PinMemory &operator=(const PinMemory &) = delete;

 private:
  int previous_;
};

// The bytes of several tensors of one device on the host. Tensors that share a storage share its copy, of which only
// the part that they reach is there.
class Stage {
 public:
  explicit Stage(c10::DeviceIndex device) : device_(device) {}

  // The tensor will be asked for. `reads`: what it holds now is wanted.
  void note(const at::Tensor &tensor, bool reads);
  // Bring what was noted, with one wait.
  void fetch();
  // A CPU tensor with the same sizes and strides over the copy. It was noted.
  at::Tensor get(const at::Tensor &tensor) const;
  // Send what a CPU tensor holds to the tensor it was got for, in the order of the current stream: a resized one
  // resizes the device's. Bytes between the elements of a tensor with gaps stay as they are, or, where the vendor has
  // no kernel for copies, travel with them.
  void send(const at::Tensor &cpu, const at::Tensor &tensor);
  // A tensor of the device for a CPU tensor: over the storage whose copy it shows, else over a storage of its own.
  at::Tensor adopt(const at::Tensor &cpu);

  // Bytes that travelled so far.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Block {
    c10::StorageImpl *device;
    size_t low, high;  // bytes of the device's storage that are here
    bool reads;
    c10::Storage cpu;
  };
  struct Adopted {
    c10::Storage cpu, device;
  };

  const Block *find(const c10::StorageImpl *device) const;
  c10::Storage sendStorage(const c10::Storage &cpu);

  c10::DeviceIndex device_;
  uint64_t bytes_ = 0;
  c10::SmallVector<Block, 6> blocks_;
  c10::SmallVector<Adopted, 2> adopted_;
};

// One tensor: a CPU tensor over a copy of what it reaches, with its sizes and strides. Waits.
at::Tensor fetchTensor(const at::Tensor &tensor);
// The one number of a tensor, as a CPU tensor without dimensions would have it.
at::Scalar fetchNumber(const at::Tensor &tensor);

// Are the elements of both in the same places, with the same bytes?
bool isOneBlock(const at::Tensor &a, const at::Tensor &b);

// What no single copy of the vendor's can do: between CPU and device, on a device without a kernel for it, and between
// devices.
void copyAcrossClosed(const at::Tensor &from, const at::Tensor &to);
void copyOnHost(const at::Tensor &from, const at::Tensor &to);
void copyBetweenClosed(const at::Tensor &from, const at::Tensor &to);

}  // namespace ditorch
