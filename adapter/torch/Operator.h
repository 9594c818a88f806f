// What the door knows about one operator, found once when it is registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "Common.h"
#include "dit/ledger.h"
#include "dit/op.h"

namespace ditorch {

struct Operator {
  explicit Operator(const c10::OperatorHandle &handle);

  std::string name;    // "aten::add.Tensor"
  const dit_op *c_op;  // its row in the table of C operators, or null
  dit_ledger_entry *ledger;
  size_t nargs, nrets;
  int generator_arg = -1;  // position of `Generator? generator`
  int device_arg = -1;     // position of `Device? device`
  bool writes = false;     // some argument is written to (in-place, out=)
  int written_list = -1;   // position of the list that a _foreach_ operator writes to: its kernel counts the versions
  bool takes_cpu_indices;  // index tensors may live on the CPU, as on CUDA
  bool hidden_randomness;  // draws random numbers without taking a generator
  bool composite;          // has no kernel of the CPU's own but one made of other operators
};

// All tensors of a call must live on one device; 0-d CPU tensors (and CPU indices where CUDA takes them) may join.
// Returns that device's index, or -1 when no argument is on the device. Throws in PyTorch's words.
c10::DeviceIndex findCommonDevice(const Operator &op, const c10::IValue *args);

// Run the operator's CPU kernel over the same memory and hand the results back as device tensors.
void runFallback(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack);

// Operators of which the CPU's composite kernel runs as one call: those that refuse unknown devices, and those that do
// better so.
bool isWholesale(const std::string &name);

// Run the operator's composite kernel: the operators it consists of come through the door one by one.
void runComposite(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack);

// Run the operator's C implementation; false (and an untouched stack) when it does not take this call.
bool runC(const Operator &op, torch::jit::Stack *stack);

// Does this operator of PyTorch come through the door? Those that are made of other operators, and a few that are
// written by hand, do not.
bool hasDoor(const std::string &name);

// Fill a C view of a tensor. The tensor must outlive the view.
void fillView(dit_tensor_view &view, const at::TensorBase &tensor);

}  // namespace ditorch
