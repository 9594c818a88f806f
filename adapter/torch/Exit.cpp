// A clean end of the process: no autograd thread may need Python any more when the interpreter goes away.
//
// When backward() returns, the device's autograd thread may still be releasing the finished graph, which can hold
// Python objects. If the interpreter is being finalised by then, taking the GIL ends the thread in a way C++ cannot
// unwind, and the process aborts. An autograd thread works through its queue in order: once a second, pure C++ graph
// has run on it, the first one is gone. Threads of process groups release a finished collective's tensors in the same
// way; their works are counted, and waited for.
#include "Exit.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <pthread.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "Common.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

std::atomic<bool> autograd_ran{false};

void drainAutograd() {
  if (!autograd_ran.load() || dit_runtime_is_bad_fork()) {
    return;
  }
  const at::AutoGradMode grad_mode(true);
  for (int device = 0; device < dit_device_get_count(); device++) {
    const c10::Device where(kDevice, static_cast<c10::DeviceIndex>(device));
    try {
      const at::Tensor x = at::ones({1}, at::TensorOptions().device(where)).set_requires_grad(true);
      x.neg().backward();
    } catch (const std::exception &) {
      // no memory left, or an injected fault: the program is at its end and there is nobody to tell
    }
  }
}

// A collective whose peers are gone may never end: the process goes on without it.
constexpr std::chrono::seconds kReleasePatience{5};

struct Releases {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t count = 0;
};

// Never destroyed: threads use it until the very end.
Releases &getReleases() {
  static auto *releases = new Releases;
  return *releases;
}

void drainReleases() {
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  Releases &releases = getReleases();
  std::unique_lock<std::mutex> lock(releases.mutex);
  releases.changed.wait_for(lock, kReleasePatience, [&] { return releases.count == 0; });
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("drain_autograd() -> ()", &drainAutograd);
  m.def("drain_releases() -> ()", &drainReleases);
}

}  // namespace

void beginRelease() {
  Releases &releases = getReleases();
  const std::lock_guard<std::mutex> lock(releases.mutex);
  releases.count++;
}

void endRelease() {
  Releases &releases = getReleases();
  const std::lock_guard<std::mutex> lock(releases.mutex);
  releases.count--;
  releases.changed.notify_all();
}

void noteThread() {
  static thread_local bool noted = false;
  if (C10_LIKELY(noted)) {
    return;
  }
  noted = true;
  char name[16] = "";
  if (pthread_getname_np(pthread_self(), name, sizeof name) == 0 && std::strncmp(name, "pt_autograd", 11) == 0) {
    autograd_ran.store(true);
  }
}

}  // namespace ditorch
