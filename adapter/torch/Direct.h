// The short way in: hot operators take their arguments as C++ values instead of a stack of boxed ones.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace ditorch {

// Is the operator one of hot_operators.inc?
bool isDirect(const std::string &name);

// Register such an operator. `whole` is the door for it, `rest` what the door does once C has declined.
void registerDirect(const c10::OperatorHandle &handle, const std::string &name, const c10::BoxedKernel &whole,
                    const c10::BoxedKernel &rest);

}  // namespace ditorch
