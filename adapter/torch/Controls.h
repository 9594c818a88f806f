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

// Are calls compared? Then they go through runCompared, which encloses all else.
inline bool isComparing() {
  return C10_UNLIKELY((active.load(std::memory_order_relaxed) & kCompare) != 0);
}

// Is the operator on the list of those that run on the CPU? Injected faults are the device's: they spare it then.
bool isForced(const Operator &op);

// Run an operator and compare what it did, faults included, with the CPU, if it is on the list.
void runCompared(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack, Runner inner);

// Told by the CPU fallback while calls are compared.
void noteFallback(const Operator &op);

// Run an operator under the other controls that are on.
void run(const Operator &op, const c10::OperatorHandle &handle, torch::jit::Stack *stack, Runner plain);

// Sees the DIOPI functions of a call, for the lines about it; null while they are off.
const dit_call_observer *getObserver();

}  // namespace ditorch::controls
