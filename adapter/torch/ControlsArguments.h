// The arguments of one call on the CPU, as they were before it, for as many runs as are needed: see
// ControlsArguments.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>
#include <vector>

#include "Operator.h"
#include "dit/verdict.h"

namespace ditorch::controls {

// Storages of the device as storages of the CPU, each copied once, so that tensors that share memory go on sharing it.
class Copier {
 public:
  // A tensor of the CPU is returned as it is.
  at::Tensor copy(const at::Tensor &tensor);
  c10::IValue copy(const c10::IValue &value);

 private:
  const c10::Storage &copyStorage(const c10::Storage &storage, c10::DeviceIndex device);

  std::vector<std::pair<const c10::StorageImpl *, c10::Storage>> copied_;
};

class Arguments {
 public:
  Arguments(const Operator &op, const c10::FunctionSchema &schema, const c10::IValue *args);

  // Arguments for one run of this kind. Throws when there is no such run.
  std::vector<c10::IValue> make(const dit_verdict_request &request) const;
  // The tensors in order, as before the call. Undefined ones count.
  const std::vector<at::Tensor> &tensors() const { return tensors_; }
  const std::vector<c10::IValue> &saved() const { return saved_; }
  // Dtypes and sizes as one number.
  uint64_t hash() const;

 private:
  at::Tensor makeTensor(const dit_verdict_request &request, size_t i) const;
  c10::IValue makeNumber(const dit_verdict_request &request, size_t i, double size, uint64_t *state) const;
  void findSharing();

  const c10::FunctionSchema &schema_;
  std::vector<c10::IValue> saved_;
  std::vector<at::Tensor> tensors_;
  std::vector<bool> written_;  // by tensor
  std::vector<bool>
      together_;  // by tensor: its storage is copied in one piece, because others of it see what is written
  std::vector<size_t> first_;  // by tensor: the first one that is the same view of the same memory
};

}  // namespace ditorch::controls
