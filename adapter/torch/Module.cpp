// Start-up of the adapter, and the few functions Python needs from it (as operators, so that no Python header is
// needed).
#include <ATen/core/Generator.h>
#include <c10/core/DeviceType.h>
#include <torch/library.h>

#include "Generator.h"

namespace ditorch {
namespace {

const bool named = [] {
  if (!c10::is_privateuse1_backend_registered()) {  // a name that the program gave before stays
    c10::register_privateuse1_backend("dit");
  }
  return true;
}();

at::Generator getDefaultGenerator(int64_t device) {
  return defaultGenerator(static_cast<c10::DeviceIndex>(device));
}

std::string getTorchVersion() {
  return DIT_TORCH_VERSION;
}

TORCH_LIBRARY(ditorch, m) {
  m.def("default_generator(int device) -> Generator?", &getDefaultGenerator);
  m.def("torch_version() -> str", &getTorchVersion);
}

}  // namespace
}  // namespace ditorch
