// The device's random generator: philox state (seed, offset), 16 bytes as on CUDA.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "Common.h"

namespace ditorch {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl &state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return kDevice; }

  // Take `count` 32-bit numbers: returns the philox offset (in groups of four) before the advance. Hold mutex_.
  uint64_t reserve(uint64_t count);

 private:
  Generator *clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator &defaultGenerator(c10::DeviceIndex device);
at::Generator newGenerator(c10::DeviceIndex device);

// A CPU generator that continues where the device's one stands, which is advanced: CPU kernels draw from it.
// `generator` undefined: the device's default generator.
at::Generator borrowCpuGenerator(const at::Generator &generator, c10::DeviceIndex device);

}  // namespace ditorch
