// What the door knows about one operator, found once when it is registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "Common.h"
#include "dit/ledger.h"
#include "dit/op.h"

namespace ditorch {

struct Operator {
  // `cpu_key` SparseCPU or SparseCsrCPU: the operator as it is called with sparse tensors, which only the CPU computes.
  explicit Operator(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key = c10::DispatchKey::CPU);

  bool isForSparse() const { return cpu_key != c10::DispatchKey::CPU; }

  bool isWritten(size_t argument) const { return argument < 64 && (written >> argument & 1) != 0; }

  std::string name;          // "aten::add.Tensor"
  c10::DispatchKey cpu_key;  // of the CPU kernel to fall back to
  const dit_op *c_op;        // its row in the table of C operators, or null
  dit_ledger_entry *ledger;
  size_t nargs, nrets;
  int generator_arg = -1;  // position of `Generator? generator`
  int device_arg = -1;     // position of `Device? device`
  bool writes = false;     // some argument is written to (in-place, out=)
  int written_list = -1;   // position of the list that a _foreach_ operator writes to: its kernel counts the versions
  bool takes_cpu_indices;  // index tensors may live on the CPU, as on CUDA
  bool takes_cpu_lengths;  // dlinfer's: lengths and slots may live on the CPU, and C alone knows what is right
  bool hidden_randomness;  // draws random numbers without taking a generator
  bool composite;          // has no kernel of the CPU's own but one made of other operators
  bool is_foreach = false;
  bool takes_cpu_outputs = false;  // fill_: a 0-d CPU tensor takes a number from the device
  int rate_arg = -1;               // position of `Tensor lr`: one number, which may live on the CPU whatever its shape
  uint64_t written = 0;            // the arguments that are written to, a bit each; one behind the 64th has none
};

// All tensors of a call must live on one device; 0-d CPU tensors (and CPU indices where CUDA takes them) may join, but
// not where the operator writes.
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

// What the door knows about an operator of the device; lives as long as the program.
const Operator &findOperator(const c10::OperatorHandle &handle);

// Does this operator of PyTorch come through the door? Those that are made of other operators, and a few that are
// written by hand, do not.
bool hasDoor(const std::string &name);

// The kernel of an operator for sparse tensors of the device: the CPU's one, of key SparseCPU or SparseCsrCPU.
c10::BoxedKernel makeSparseDoor(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key);

// The same for an operator that has no door, such as one of another library.
void enterSparse(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key, torch::jit::Stack *stack);

// Fill a C view of a tensor. The tensor must outlive the view.
void fillView(dit_tensor_view &view, const at::TensorBase &tensor);

}  // namespace ditorch
