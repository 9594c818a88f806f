// Devices, streams and events as c10 sees them.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "Common.h"
#include "Exit.h"
#include "Share.h"
#include "dit/memory.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

c10::Stream makeStream(c10::DeviceIndex device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, device), id);
}

dit_event *asEvent(void *event) {
  return static_cast<dit_event *>(event);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    if (device.index() >= 0 && device.index() != previous.index()) {
      setDevice(device);
    }
    return previous;
  }
  c10::Device getDevice() const override {
    return c10::Device(kDevice, static_cast<c10::DeviceIndex>(dit_device_get_current()));
  }
  void setDevice(c10::Device device) const override {
    noteThread();
    if (device.index() >= 0) {
      DIT_CHECK(dit_device_set_current(device.index(), &err));
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && dit_device_set_current(device.index(), nullptr) != DIT_OK) {
      return;  // the device was valid when the guard was made; there is nobody to tell
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(dit_device_get_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = resolveIndex(device.index());
    return makeStream(index, dit_stream_get_current(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return makeStream(resolveIndex(device.index()), 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const c10::DeviceIndex index = resolveIndex(device.index());
    int64_t id = 0;
    DIT_CHECK(dit_stream_acquire(index, priority, &id, &err));
    return makeStream(index, id);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream previous = getStream(stream.device());
    DIT_CHECK(dit_stream_set_current(stream.device_index(), stream.id(), &err));
    return previous;
  }
#if defined(DIT_HAS_STREAM_NATIVE_HANDLE)
  void *getStreamNativeHandle(const c10::Stream stream) const override {
    void *raw = nullptr;
    DIT_CHECK(dit_stream_get_raw(stream.device_index(), stream.id(), &raw, &err));
    return raw;
  }
#endif
  bool queryStream(const c10::Stream &stream) const override {
    bool idle = false;
    DIT_CHECK(dit_stream_query(stream.device_index(), stream.id(), &idle, &err));
    return idle;
  }
  void synchronizeStream(const c10::Stream &stream) const override {
    DIT_CHECK(dit_stream_synchronize(stream.device_index(), stream.id(), &err));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    DIT_CHECK(dit_device_synchronize(resolveIndex(device), &err));
  }
  void recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &stream) const override {
    recordStreamOf(data, stream.id());
  }

  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
                " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
    if (*event == nullptr) {
      const unsigned flags = flag == c10::EventFlag::BACKEND_DEFAULT ? unsigned{DIT_EVENT_TIMING} : 0u;
      dit_event *created = nullptr;
      DIT_CHECK(dit_event_create(stream.device_index(), flags, &created, &err));
      *event = created;
    }
    DIT_CHECK(dit_event_record(asEvent(*event), stream.device_index(), stream.id(), &err));
  }
  void block(void *event, const c10::Stream &stream) const override {
    if (event != nullptr) {
      DIT_CHECK(dit_event_block(asEvent(event), stream.device_index(), stream.id(), &err));
    }
  }
  bool queryEvent(void *event) const override {
    bool done = true;
    if (event != nullptr) {
      DIT_CHECK(dit_event_query(asEvent(event), &done, &err));
    }
    return done;
  }
  void synchronizeEvent(void *event) const override {
    if (event != nullptr) {
      DIT_CHECK(dit_event_synchronize(asEvent(event), &err));
    }
  }
  double elapsedTime(void *start, void *end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    double milliseconds = 0;
    DIT_CHECK(dit_event_get_elapsed(asEvent(start), asEvent(end), &milliseconds, &err));
    return milliseconds;
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override { dit_event_destroy(asEvent(event)); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace ditorch
