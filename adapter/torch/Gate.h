// What the schema of an operator with a row in C says about its arguments (dit/gate.h), found once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "dit/gate.h"

namespace ditorch {

struct Gate {
  dit_gate arguments;
  bool has_rest;  // PyTorch has a kernel for what C does not take: the CPU's, or one made of other operators
};

// Of the row with this address in the table.
const Gate &findGate(const dit_op *row);

}  // namespace ditorch
