// What PyTorch's device-neutral code asks of an accelerator.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "Allocator.h"
#include "Generator.h"
#include "Storage.h"
#include "dit/memory.h"
#include "dit/runtime.h"
#include "dit/share.h"

namespace ditorch {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return dit_device_get_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(dit_device_get_count()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { DIT_CHECK(dit_device_set_current(device, &err)); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(dit_device_get_current()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    if (device >= 0) {
      setCurrentDevice(device);
    }
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void *data) const override { return dit_host_is_pinned(data); }
  c10::Allocator *getPinnedMemoryAllocator() const override { return pinnedAllocator(); }
  at::Device getDeviceFromPtr(void *data) const override {
    void *base = nullptr;
    size_t size = 0;
    int device = 0;
    TORCH_CHECK(dit_memory_find(data, &base, &size, &device) || dit_share_find(data, &device), "the pointer ", data,
                " does not belong to memory of the device");
    return at::Device(kDevice, static_cast<c10::DeviceIndex>(device));
  }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex device) const override { return defaultGenerator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return newGenerator(device); }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t size) const override {
    resizeStorage(storage.unsafeGetStorageImpl(), size);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace ditorch
