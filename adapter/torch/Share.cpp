// Device tensors between processes: the operators behind UntypedStorage._share_cuda_ and its siblings.
//
// A storage that is sent for the first time gets a new DataPtr over the same address; its context holds the old DataPtr
// and the share, and gives the memory back when no receiver needs it any more. A received storage's DataPtr closes the
// import. Handles travel through Python as hexadecimal text.
#include "Share.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <tuple>

#include "Allocator.h"
#include "Storage.h"
#include "dit/memory.h"
#include "dit/runtime.h"
#include "dit/share.h"

namespace ditorch {
namespace {

using Message = std::tuple<std::string, int64_t, int64_t, std::string, int64_t>;

template <typename Handle>
std::string toText(const Handle &handle) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * sizeof handle.bytes);
  for (const uint8_t byte : handle.bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

int fromDigit(char digit) {
  return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

template <typename Handle>
Handle fromText(const std::string &text) {
  Handle handle;
  TORCH_CHECK(text.size() == 2 * sizeof handle.bytes, "a handle of a shared device tensor has ",
              2 * sizeof handle.bytes, " characters, got ", text.size());
  for (size_t i = 0; i < sizeof handle.bytes; i++) {
    const int high = fromDigit(text[2 * i]), low = fromDigit(text[2 * i + 1]);
    TORCH_CHECK(high >= 0 && low >= 0, "a handle of a shared device tensor is hexadecimal, got '", text, "'");
    handle.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return handle;
}

// What stands behind a storage that was sent.
struct Sent {
  c10::DataPtr memory;
  dit_share *share = nullptr;
};

void releaseSent(void *context) {
  delete static_cast<Sent *>(context);
}
void endSent(void *context) {
  dit_share_destroy(static_cast<Sent *>(context)->share);
}
void closeReceived(void *context) {
  dit_share_close(static_cast<dit_share_import *>(context));
}

std::mutex sending;  // two threads may send the same storage

// The share of a storage, made at the first call. `sending` is held.
dit_share *getShare(c10::StorageImpl *storage) {
  if (storage->data_ptr().get_deleter() == &endSent) {
    return static_cast<Sent *>(storage->data_ptr().get_context())->share;
  }
  void *data = storage->mutable_data();  // a lazy copy becomes a real one
  auto sent = std::make_unique<Sent>();
  const int device = storage->device().index();
  DIT_CHECK(dit_share_create(device, data, storage->nbytes(), &releaseSent, sent.get(), &sent->share, &err));
  Sent *context = sent.release();
  context->memory = storage->set_data_ptr(c10::DataPtr(data, context, &endSent, storage->device()));
  return context->share;
}

Message send(const at::Tensor &bytes) {
  TORCH_CHECK(bytes.device().type() == kDevice, "only tensors of the device can be shared here, got ", bytes.device());
  auto *storage = bytes.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->data_ptr().get_deleter() != &closeReceived,
              "Attempted to send CUDA tensor received from another process; this is not currently supported. Consider "
              "cloning before sending.");
  dit_share_message message;
  const std::lock_guard<std::mutex> guard(sending);
  dit_share *share = getShare(storage);
  DIT_CHECK(dit_share_send(share, &message, &err));
  return {toText(message.memory), static_cast<int64_t>(message.size), static_cast<int64_t>(message.offset),
          toText(message.counters), static_cast<int64_t>(message.ticket)};
}

at::Tensor receive(int64_t device, const std::string &memory, int64_t size, int64_t offset, const std::string &counters,
                   int64_t ticket) {
  TORCH_CHECK(size > 0 && offset >= 0 && ticket >= 0, "a shared device tensor has ", size, " bytes at offset ", offset,
              ", ticket ", ticket, "; valid: size > 0, the others >= 0");
  dit_share_message message;
  message.memory = fromText<dit_memory_handle>(memory);
  message.counters = fromText<dit_peer_handle>(counters);
  message.size = static_cast<uint64_t>(size);
  message.offset = static_cast<uint64_t>(offset);
  message.ticket = static_cast<uint64_t>(ticket);
  const c10::Device place(kDevice, resolveIndex(static_cast<c10::DeviceIndex>(device)));
  dit_share_import *import = nullptr;
  void *data = nullptr;
  DIT_CHECK(dit_share_receive(&message, place.index(), &import, &data, &err));
  c10::Storage storage(c10::Storage::use_byte_size_t(), message.size, c10::DataPtr(data, import, &closeReceived, place),
                       deviceAllocator(), /*resizable=*/false);
  auto result =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kDeviceKeys, caffe2::TypeMeta::Make<uint8_t>());
  result.unsafeGetTensorImpl()->set_sizes_contiguous({size});
  return result;
}

void dismiss(const std::string &counters, int64_t ticket) {
  const auto handle = fromText<dit_peer_handle>(counters);
  DIT_CHECK(dit_share_dismiss(&handle, static_cast<uint64_t>(ticket), &err));
}

int64_t collect() {
  return static_cast<int64_t>(dit_share_collect());
}

int64_t countUnreceived() {
  return static_cast<int64_t>(dit_share_count_unreceived());
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("share_send(Tensor bytes) -> (str, int, int, str, int)", &send);
  m.def("share_receive(int device, str memory, int size, int offset, str counters, int ticket) -> Tensor", &receive);
  m.def("share_dismiss(str counters, int ticket) -> ()", &dismiss);
  m.def("share_collect() -> int", &collect);
  m.def("share_count_unreceived() -> int", &countUnreceived);
}

}  // namespace

void recordStreamOf(const c10::DataPtr &data, int64_t stream) {
  if (data.get() != nullptr && data.get_deleter() != &closeReceived) {
    DIT_CHECK(dit_memory_record_stream(data.get(), stream, &err));
  }
}

}  // namespace ditorch
