// The clock that DistributedDataParallel asks for by device type, for its statistics. The host's clock will do: DDP
// takes it where the device's default stream, which runs in the caller, has done its work.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "Common.h"

namespace ditorch {
namespace {

using c10d::RegistererTimerRegistry;
using c10d::TimerRegistry;

class DeviceTimer final : public c10d::Timer {
 public:
  explicit DeviceTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t begun = getTimeRef(start), ended = getTimeRef(end);
    // an event of an earlier iteration does not count
    return begun != c10d::kUnsetTime && ended > begun ? std::optional<int64_t>(ended - begun) : std::nullopt;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, DeviceTimer);

}  // namespace
}  // namespace ditorch
