// Shared by the adapter's files: the device type, and the one place where a C status becomes a C++ exception.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <string>

#include "dit/error.h"

namespace ditorch {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kDeviceKeys{c10::DispatchKey::PrivateUse1};

// Throw what PyTorch users expect for a status: OutOfMemoryError, NotImplementedError, IndexError, RuntimeError.
[[noreturn]] void throwStatus(dit_status status, const dit_error &err);

inline void check(dit_status status, const dit_error &err) {
  if (C10_UNLIKELY(status != DIT_OK)) {
    throwStatus(status, err);
  }
}

// "cuda:0", or the device's real name when DITORCH_SHOW_DEVICE_AS_CUDA=0.
std::string showDevice(c10::Device device);

// Index -1 means the calling thread's current device; an index out of range throws.
c10::DeviceIndex resolveIndex(c10::DeviceIndex index);

// Whether an optional tensor is there: PyTorch passes both "no value" and an undefined tensor for "none".
template <class Tensor>
bool isGiven(const std::optional<Tensor> &tensor) {
  return tensor.has_value() && tensor->defined();
}

// Monotonic nanoseconds, for the ledger.
inline uint64_t now() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace ditorch

// Call a libdit function whose last argument is `&err`: DIT_CHECK(dit_device_synchronize(0, &err)).
#define DIT_CHECK(call)            \
  do {                             \
    dit_error err;                 \
    err.status = DIT_OK;           \
    err.message[0] = '\0';         \
    ::ditorch::check((call), err); \
  } while (0)
