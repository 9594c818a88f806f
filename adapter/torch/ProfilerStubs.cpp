// PyTorch's older way to time a device: a pair of events around every operator, and NVTX marks (emit_nvtx).
//
// torch.autograd.profiler.profile(use_device="cuda") calls the CUDA methods, which a build without CUDA does not have:
// it would print a stack trace per operator. Marks and ranges go into the running trace, if there is one.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <torch/library.h>

#include <vector>

#include "ProfilerTrace.h"
#include "dit/runtime.h"

namespace ditorch::profiler {
namespace {

using torch::profiler::impl::ProfilerStubs;
using torch::profiler::impl::ProfilerVoidEventStub;

struct OpenRange {
  std::string name;
  int64_t start;
};
thread_local std::vector<OpenRange> open_ranges;

class Stubs final : public ProfilerStubs {
 public:
  void record(c10::DeviceIndex *device, ProfilerVoidEventStub *event, int64_t *cpu_ns) const override {
    const int index = dit_device_get_current();
    if (device != nullptr) {
      *device = static_cast<c10::DeviceIndex>(index);
    }
    dit_event *made = nullptr;
    DIT_CHECK(dit_event_create(index, DIT_EVENT_TIMING, &made, &err));
    *event = ProfilerVoidEventStub(made, [](void *ptr) { dit_event_destroy(static_cast<dit_event *>(ptr)); });
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    DIT_CHECK(dit_event_record(made, index, dit_stream_get_current(index), &err));
  }
  // Microseconds.
  float elapsed(const ProfilerVoidEventStub *first, const ProfilerVoidEventStub *last) const override {
    auto *start = static_cast<dit_event *>(first->get());
    auto *end = static_cast<dit_event *>(last->get());
    double milliseconds = 0;
    DIT_CHECK(dit_event_synchronize(start, &err));
    DIT_CHECK(dit_event_synchronize(end, &err));
    DIT_CHECK(dit_event_get_elapsed(start, end, &milliseconds, &err));
    return static_cast<float>(milliseconds * 1000.0);
  }
  void mark(const char *name) const override {
    const auto time = static_cast<int64_t>(now());
    addRange(name, 0, time, time);
  }
  void rangePush(const char *name) const override { open_ranges.push_back({name, static_cast<int64_t>(now())}); }
  void rangePop() const override {
    if (!open_ranges.empty()) {
      OpenRange range = std::move(open_ranges.back());
      open_ranges.pop_back();
      addRange(std::move(range.name), 0, range.start, static_cast<int64_t>(now()));
    }
  }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> visit) const override {
    const int previous = dit_device_get_current();
    for (int device = 0; device < dit_device_get_count(); device++) {
      DIT_CHECK(dit_device_set_current(device, &err));
      visit(device);
    }
    DIT_CHECK(dit_device_set_current(previous, &err));
  }
  void synchronize() const override { DIT_CHECK(dit_device_synchronize(dit_device_get_current(), &err)); }
};

Stubs stubs;

// Under the name cuda: the methods that were there before come back with enable = false.
void setStubs(bool enable) {
  static const ProfilerStubs *const previous = torch::profiler::impl::cudaStubs();
  torch::profiler::impl::registerCUDAMethods(enable ? &stubs : const_cast<ProfilerStubs *>(previous));
}

// Under the device's real name: for as long as the adapter is loaded.
const bool stubsRegistered = (torch::profiler::impl::registerPrivateUse1Methods(&stubs), true);

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("profiler_stubs(bool enable) -> ()", &setStubs);
  m.def("profiler_range(str name, int thread, int start, int end) -> ()",
        [](std::string name, int64_t thread, int64_t start, int64_t end) {
          addRange(std::move(name), static_cast<int32_t>(thread), start, end);
        });
}

}  // namespace
}  // namespace ditorch::profiler
