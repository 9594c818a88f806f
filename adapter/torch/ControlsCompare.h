// One call compared with the CPU: see ControlsCompare.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "Operator.h"

namespace ditorch::controls {

// An argument as lines of text, "\t[aten::add.Tensor]: self: ..."; with the values if wanted.
std::string describe(const std::string &op, const std::string &name, const c10::IValue &value, bool values);

// Copies the arguments to the CPU before the call, runs the CPU's kernel on them after it, and compares.
class Comparison {
 public:
  Comparison(const Operator &op, const c10::OperatorHandle &handle, const c10::IValue *args);
  // Blocks of text about results and arguments.
  std::string finish(const c10::IValue *rets);

 private:
  const Operator &op_;
  const c10::OperatorHandle &handle_;
  std::vector<c10::IValue> device_args_;
  std::vector<c10::IValue> cpu_args_;
};

}  // namespace ditorch::controls
