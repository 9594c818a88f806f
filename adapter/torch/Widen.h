// Half types in float32: operators whose CPU kernel lacks them or loses too much in them, where CUDA has both.
#pragma once

#include "Operator.h"

namespace ditorch {

// Is one of the device tensors among the arguments of a half type (float16, bfloat16, complex32)?
bool hasHalf(const Operator &op, const c10::IValue *args);

// Does the CPU compute this operator in the half type itself, too roughly or not at all?
bool isRoughInHalf(const Operator &op);

// Run the operator on float32 copies; results and written arguments are rounded back.
void runWidened(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack);

}  // namespace ditorch
