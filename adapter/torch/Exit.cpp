// A clean end of the process: no thread may need Python any more when the interpreter goes away.
//
// When backward() returns, the device's autograd thread may still be releasing the finished graph, which can hold
// Python objects; so may a lane of collectives with the tensors of the work that was waited for. If the interpreter is
// being finalised by then, taking the GIL ends the thread in a way C++ cannot unwind, and the process aborts.
//
// An autograd thread works through its queue in order: once a second, pure C++ graph has run on it, the first one is
// gone. Threads of ours are counted as owners, and waited for a little while: a collective whose other ranks are gone
// may never end.
#include "Exit.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <pthread.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "Common.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

constexpr std::chrono::seconds kExitPatience(3);

std::atomic<bool> autograd_ran{false};

struct Owners {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

// Never destroyed: threads may outlive the static objects of the library.
Owners &owners() {
  static auto *const all = new Owners;
  return *all;
}

void drainOwners() {
  std::unique_lock<std::mutex> lock(owners().mutex);
  owners().changed.wait_for(lock, kExitPatience, [] { return owners().count == 0; });
}

void drainAutograd() {
  if (!autograd_ran.load()) {
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

void drainAtExit() {
  if (dit_runtime_is_bad_fork()) {
    return;  // the threads are the parent's
  }
  drainOwners();
  drainAutograd();
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("drain_at_exit() -> ()", &drainAtExit);
}

}  // namespace

Owner makeOwner() {
  const std::lock_guard<std::mutex> lock(owners().mutex);
  owners().count++;
  return {nullptr, [](void *) {
            const std::lock_guard<std::mutex> inner(owners().mutex);
            owners().count--;
            owners().changed.notify_all();
          }};
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
