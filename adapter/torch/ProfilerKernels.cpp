// The vendor's kernel table with a record around every launch.
//
// A C operator launches kernels through the table it is given; while a trace runs that is this one. A slot that the
// vendor does not have stays empty, so an operator takes the same path with and without a trace.
#include <optional>

#include "Operator.h"
#include "ProfilerTrace.h"
#include "dit/diopi.h"
#include "dit/runtime.h"

namespace ditorch::profiler {
namespace {

struct Launcher {
  const char *name;
  int device;
};
thread_local Launcher launcher;

template <auto kSlot>
struct Traced;

template <class... Args, dit_status (*dit_kernel_vtable::*kSlot)(void *, Args...)>
struct Traced<kSlot> {
  static dit_status launch(void *stream, Args... args) {
    Span span(Work::kKernel, launcher.name, launcher.device);
    const dit_status status = (dit_runtime_get_kernels()->*kSlot)(stream, args...);
    if (status == DIT_OK) {
      span.finish();
    }
    return status;
  }
  static void put(const dit_kernel_vtable &native, dit_kernel_vtable &traced) {
    traced.*kSlot = native.*kSlot ? &launch : nullptr;
  }
};

template <auto... kSlots>
dit_kernel_vtable wrap(const dit_kernel_vtable &native) {
  dit_kernel_vtable traced = native;
  (Traced<kSlots>::put(native, traced), ...);
  return traced;
}

dit_kernel_vtable wrapAll(const dit_kernel_vtable &native) {
  using T = dit_kernel_vtable;
  return wrap<&T::copy, &T::lstm_cell, &T::lstm_cell_backward, &T::gru_cell, &T::gru_cell_backward, &T::histogram,
              &T::fold, &T::bitwise_xor>(native);
}

}  // namespace

// Functions of the vendor's library: a record from before the call until after it.
namespace {

thread_local std::optional<Span> operator_span;

void beforeOperator(dit_call *, int) {
  operator_span.emplace(Work::kKernel, launcher.name, launcher.device);
}

void afterOperator(dit_call *, int function, int code) {
  if (code == diopiSuccess) {
    called_function = dit_diopi_get_functions(nullptr)[function].name;
    operator_span->finish();
    called_function = nullptr;
  }
  operator_span.reset();
}

const dit_call_observer observer = {beforeOperator, afterOperator};

}  // namespace

const dit_call_observer *traceOperators(const char *operator_name, int device) {
  launcher = {operator_name, device};
  return &observer;
}

const dit_kernel_vtable *traceKernels(const char *operator_name, int device) {
  static thread_local const dit_kernel_vtable *wrapped = nullptr;
  static thread_local dit_kernel_vtable table;
  const dit_kernel_vtable *native = dit_runtime_get_kernels();
  if (native == nullptr) {
    return nullptr;
  }
  if (wrapped != native) {
    table = wrapAll(*native);
    wrapped = native;
  }
  launcher = {operator_name, device};
  return &table;
}

}  // namespace ditorch::profiler
