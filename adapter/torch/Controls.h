// Controls over the operators of the device, changeable while a program runs: operators to run on the CPU, operators to
// compare with the CPU, lines about every call, waiting for every call. See Controls.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>

#include "Operator.h"
#include "dit/op.h"

namespace ditorch::controls {

enum Flag : unsigned { kFallback = 1, kCompare = 2, kDump = 4, kSync = 8 };

// The controls that are on. One relaxed load is all that a call pays while none is.
extern std::atomic<unsigned> active;

inline bool isActive() {
  return C10_UNLIKELY(active.load(std::memory_order_relaxed) != 0);
}

// How an operator runs without controls.
using Runner = void (*)(const Operator &, const c10::OperatorHandle &, torch::jit::Stack *);

// Run an operator under the controls that are on.
void run(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack, Runner plain);

// Sees the DIOPI functions of a call, for the lines about it; null while they are off.
const dit_call_observer *getObserver();

}  // namespace ditorch::controls
