// The autograd engine's queues for devices that came after its first backward. PyTorch counts the devices once, when
// the engine starts its threads; a program that ran a backward on the CPU before `import ditorch` started it without
// ours, and a backward on the device would end in an internal assert.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include <mutex>
#include <thread>

namespace ditorch {
namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;

// Reaches the protected list of the one engine that there is; never made.
struct Queues : Engine {
  static std::vector<std::shared_ptr<ReadyQueue>> &of(Engine &engine) {
    return engine.*(&Queues::device_ready_queues_);
  }
};

// Starts the engine if nobody did; returns how many queues were added. Before the first backward on the device only:
// afterwards other threads read the list without a lock.
int64_t growEngine() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> guard(mutex);
  auto &engine = Engine::get_default_engine();
  engine.initialize_device_threads_pool();
  auto &queues = Queues::of(engine);
  const auto *devices = c10::impl::device_guard_impl_registry[static_cast<int>(c10::DeviceType::PrivateUse1)].load();
  const size_t before = queues.size(), count = devices ? static_cast<size_t>(devices->deviceCount()) : 0;
  for (size_t index = before; index < count; index++) {
    queues.push_back(std::make_shared<ReadyQueue>());
    std::thread(&Engine::thread_init, &engine, static_cast<int>(index), queues.back(), true).detach();
  }
  return count > before ? static_cast<int64_t>(count - before) : 0;
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("grow_engine() -> int", &growEngine);
}

}  // namespace
}  // namespace ditorch
