// Kernels that C++ extensions registered for CUDA: TORCH_LIBRARY_IMPL(mylib, CUDA, m).
//
// The key is a number in the extension's code, so no alias can translate it. What is registered for a key of CUDA's,
// and not for the device's, is registered for the device's too: the kernel is reached through the dispatcher, under
// CUDA's key. PyTorch's own operators (aten) stay as they are: their kernels for CUDA are not here.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>

namespace ditorch {
namespace {

using c10::DispatchKey;

template <DispatchKey kCuda>
void redispatch(const c10::OperatorHandle &handle, torch::jit::Stack *stack) {
  handle.redispatchBoxed(c10::DispatchKeySet(kCuda), stack);
}

bool isOwn(const std::string &space) {
  for (const char *own : {"aten", "prim", "prims", "c10d", "quantized", "mkldnn", "onednn", "ditorch"}) {
    if (space == own) {
      return true;
    }
  }
  return false;
}

template <DispatchKey kCuda, DispatchKey kDevice>
bool adopt(const c10::OperatorHandle &handle) {
  if (!handle.hasKernelForDispatchKey(kCuda) || handle.hasKernelForDispatchKey(kDevice)) {
    return false;
  }
  const c10::OperatorName &name = handle.operator_name();
  const std::string space(name.getNamespace().value());
  // The library object must live as long as the registration: for ever.
  auto *library = new torch::Library(torch::Library::IMPL, space, kDevice, __FILE__, __LINE__);
  library->impl(c10::toString(name).substr(space.size() + 2).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&redispatch<kCuda>>());
  return true;
}

int64_t adoptCudaKernels() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto &dispatcher = c10::Dispatcher::singleton();
  int64_t adopted = 0;
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    const auto space = name.getNamespace();
    if (!space.has_value() || isOwn(std::string(*space))) {
      continue;
    }
    if (const auto handle = dispatcher.findSchema(name)) {
      adopted += adopt<DispatchKey::CUDA, DispatchKey::PrivateUse1>(*handle);
      adopted += adopt<DispatchKey::AutogradCUDA, DispatchKey::AutogradPrivateUse1>(*handle);
      adopted += adopt<DispatchKey::AutocastCUDA, DispatchKey::AutocastPrivateUse1>(*handle);
    }
  }
  return adopted;
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("adopt_cuda_kernels() -> int", &adoptCudaKernels);
}

}  // namespace
}  // namespace ditorch
