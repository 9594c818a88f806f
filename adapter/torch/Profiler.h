// torch.profiler on the device: what the adapter's hot paths call.
//
// While no trace runs each hook costs one relaxed load. While one runs, a piece of device work (a kernel, a copy, a CPU
// fallback) becomes a record: its name, the operator that asked for it, its stream, and two events on that stream. A
// record never changes what the program computes: when an event cannot be made, the work is simply not in the trace.
#pragma once

#include <atomic>

#include "Common.h"
#include "dit/kernel.h"

struct dit_call_observer;
struct dit_event;

namespace ditorch::profiler {

enum : unsigned {
  kTraceRuns = 1u,    // a trace runs: memory is reported, ranges are kept
  kTraceDevice = 2u,  // and device work is recorded
};
extern std::atomic<unsigned> state;

inline bool isRunning() {
  return C10_UNLIKELY(state.load(std::memory_order_relaxed) != 0);
}
inline bool isTracing() {
  return C10_UNLIKELY((state.load(std::memory_order_relaxed) & kTraceDevice) != 0);
}

enum class Work : uint8_t { kKernel, kFallback, kFault, kCopyIn, kCopyOut };

// One piece of device work on the thread's current stream, between construction and finish(). Without finish() (an
// exception, a kernel that declined) nothing is recorded. `name` must live as long as the process.
class Span {
 public:
  Span(Work work, const char *name, int device, uint64_t bytes = 0) {
    if (isTracing()) {
      begin(work, name, device, bytes);
    }
  }
  ~Span() {
    if (C10_UNLIKELY(first_ != nullptr)) {
      drop();
    }
  }
  Span(const Span &) = delete;
  Span &operator=(const Span &) = delete;
  void finish() {
    if (C10_UNLIKELY(first_ != nullptr)) {
      end();
    }
  }

 private:
  void begin(Work work, const char *name, int device, uint64_t bytes);
  void end();
  void drop();

  dit_event *first_ = nullptr;
  const char *name_;
  int device_;
  int64_t stream_;
  uint64_t bytes_;
  uint64_t generation_;
  int64_t called_;
  Work work_;
};

// The vendor's kernels, each launch recorded under the name of the operator (which must live as long as the process).
// Valid until the thread's next call of it.
const dit_kernel_vtable *traceKernels(const char *operator_name, int device);
// What records the operators of the vendor's library while a trace runs.
const ::dit_call_observer *traceOperators(const char *operator_name, int device);

// Report device memory that was handed out (bytes > 0) or is about to be given back (the size is looked up).
void reportAllocation(void *ptr, int device);
void reportFree(void *ptr);
void reportOutOfMemory(size_t size, int device);

}  // namespace ditorch::profiler
