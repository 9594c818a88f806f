// The tensors of one call of the CPU fallback where the host cannot read the device's memory: they travel.
//
// What the arguments reach comes to pinned memory with one wait, the kernel works there and makes its results in pinned
// memory too, and what it wrote goes back in the order of the current stream without a wait. Tensors that share a
// storage share its copy, so overlap checks and views are as on the CPU. An argument that the operator does not write
// to, by its schema or by the table of operators (batch norm's running statistics), does not travel back.
#pragma once

#include "Operator.h"
#include "Staging.h"

namespace ditorch {

class StagedLoan {
 public:
  using Memory = PinMemory;
  static constexpr bool kCopies = true;

  StagedLoan(c10::DeviceIndex device, bool tells_autograd) : stage_(device), tells_autograd_(tells_autograd) {}

  void prepare(const Operator &op, const c10::OperatorHandle &handle, const c10::IValue *args);
  at::Tensor lend(const at::Tensor &tensor);
  at::Tensor takeBack(const at::Tensor &result);
  void writeBack();
  uint64_t countBytes() const { return stage_.bytes(); }

 private:
  struct Entry {
    at::Tensor device;
    at::Tensor cpu;  // undefined until it is lent
    bool written;
    bool sparse;
  };

  void note(const at::Tensor &tensor, bool written, bool reads);
  Entry *find(const at::Tensor &tensor);

  Stage stage_;
  bool tells_autograd_;
  c10::SmallVector<Entry, 6> entries_;
};

}  // namespace ditorch
