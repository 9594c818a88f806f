#include "Generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <cstring>
#include <mutex>

#include "dit/device.h"
#include "dit/random.h"

namespace ditorch {
namespace {
constexpr size_t kStateSize = 2 * sizeof(uint64_t);
}

Generator::Generator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kDevice, device), kDeviceKeys), seed_(c10::default_rng_seed_val) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void Generator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4, but got ", offset);
  offset_ = offset;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl &state) {
  TORCH_CHECK_TYPE(state.layout() == c10::kStrided && state.device_type() == c10::kCPU &&
                       state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(state.numel() == static_cast<int64_t>(kStateSize) && state.is_contiguous(),
              "RNG state is wrong size: expected ", kStateSize, " bytes, got ", state.numel());
  uint64_t words[2];
  std::memcpy(words, state.data(), kStateSize);
  TORCH_CHECK(words[1] % 4 == 0, "RNG state is corrupt: offset ", words[1], " is not a multiple of 4");
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  auto state = at::detail::empty_generic({static_cast<int64_t>(kStateSize)}, c10::GetCPUAllocator(),
                                         c10::DispatchKeySet(c10::DispatchKey::CPU), at::kByte, std::nullopt);
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, kStateSize);
  return state.getIntrusivePtr();
}

Generator *Generator::clone_impl() const {
  auto *copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

uint64_t Generator::reserve(uint64_t count) {
  const uint64_t before = offset_;
  offset_ += (count + 3) / 4 * 4;
  return before / 4;
}

const at::Generator &defaultGenerator(c10::DeviceIndex device) {
  static const auto generators = [] {
    std::array<at::Generator, DIT_MAX_DEVICES> made;
    for (int i = 0; i < DIT_MAX_DEVICES; i++) {
      made[static_cast<size_t>(i)] = at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i));
    }
    return new auto(std::move(made));  // never destroyed: tensors may die after static destructors ran
  }();
  return (*generators)[static_cast<size_t>(resolveIndex(device))];
}

at::Generator newGenerator(c10::DeviceIndex device) {
  return at::make_generator<Generator>(resolveIndex(device));
}

at::Generator borrowCpuGenerator(const at::Generator &generator, c10::DeviceIndex device) {
  const at::Generator &source = generator.defined() ? generator : defaultGenerator(device);
  TORCH_CHECK(source.device().type() == kDevice, "Expected a '", showDevice(c10::Device(kDevice)),
              "' device type for generator but found '", showDevice(source.device()), "'");
  auto *impl = source.get<Generator>();
  uint64_t seed = 0;
  uint64_t offset = 0;
  {
    std::lock_guard<std::mutex> lock(impl->mutex_);
    seed = impl->current_seed();
    offset = impl->reserve(4);
  }
  return at::detail::createCPUGenerator(dit_random_mix(seed, offset));
}

}  // namespace ditorch
