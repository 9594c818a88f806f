// What CUDA has and the CPU's kernels refuse: done here, of other operators, before the fallback asks the CPU.
#pragma once

#include "Operator.h"

namespace ditorch {

// LU factorisation without pivoting, fused Adam whose states are of another dtype than the parameters. False: the call
// is none of these, and nothing happened.
bool runSupplement(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack);

}  // namespace ditorch
