#include "Common.h"

#include "dit/gate.h"
#include "dit/options.h"
#include "dit/runtime.h"

namespace ditorch {

void throwStatus(dit_status status, const dit_error &err) {
  const char *text = err.message[0] ? err.message : dit_status_get_name(status);
  TORCH_CHECK_WITH(OutOfMemoryError, status != DIT_ERR_NOMEM, text);
  TORCH_CHECK_NOT_IMPLEMENTED(status != DIT_ERR_UNSUPPORTED, text);
  TORCH_CHECK_INDEX(status != DIT_ERR_RANGE, text);
  TORCH_CHECK(false, text);
}

std::string showDevice(c10::Device device) {
  if (device.type() != kDevice) {
    return device.str();
  }
  static const int option = dit_option_find("show_device_as_cuda");
  const char *name = option < 0 || dit_option_get_int(option) ? "cuda" : "dit";
  return device.has_index() ? c10::str(name, ":", static_cast<int>(device.index())) : std::string(name);
}

c10::DeviceIndex resolveIndex(c10::DeviceIndex index) {
  if (index < 0) {
    return static_cast<c10::DeviceIndex>(dit_device_get_current());
  }
  DIT_CHECK(dit_device_check(index, &err));
  return index;
}

}  // namespace ditorch
