#include "Allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/GPUTrace.h>
#ifdef DIT_HAS_DEVICE_ALLOCATOR
#include <c10/core/CachingDeviceAllocator.h>
#endif
#ifdef DIT_HAS_HOST_ALLOCATOR
#include <ATen/core/CachingHostAllocator.h>
#endif

#include "Profiler.h"
#include "Share.h"
#include "Staging.h"
#include "dit/memory.h"
#include "dit/runtime.h"
#include "dit/share.h"

namespace ditorch {
namespace {

// Who serves this thread's CPU allocations: a device's allocator, pinned memory, or (below 0) PyTorch's own.
constexpr int kPinned = DIT_MAX_DEVICES;
thread_local int lend_device = -1;

// torch.cuda._gpu_trace, where it is on.
template <typename Report>
void trace(void *ptr, Report report) {
  const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr) && ptr != nullptr) {
    report(*interpreter, reinterpret_cast<uintptr_t>(ptr));
  }
}

void freeBlock(void *ptr) {
  trace(ptr, [](auto &python, uintptr_t block) { python->trace_gpu_memory_deallocation(c10::kCUDA, block); });
  if (profiler::isRunning()) {
    profiler::reportFree(ptr);
  }
  dit_memory_free(ptr);
}

void freeDevice(void *ptr) {
  freeBlock(ptr);
}
// A function of its own: its address marks memory that CPU tensors hold but the device's allocator owns.
void freeLent(void *ptr) {
  freeBlock(ptr);
}
void freePinned(void *ptr) {
  dit_host_free(ptr);
}

void *allocateOn(int device, size_t size) {
  void *ptr = nullptr;
  dit_error err;
  dit_status status = dit_memory_alloc(device, dit_stream_get_current(device), size, &ptr, &err);
  if (C10_UNLIKELY(status == DIT_ERR_NOMEM) && dit_share_collect() > 0) {  // memory that other processes had held
    status = dit_memory_alloc(device, dit_stream_get_current(device), size, &ptr, &err);
  }
  if (profiler::isRunning()) {
    if (status == DIT_OK) {
      profiler::reportAllocation(ptr, device);
    } else if (status == DIT_ERR_NOMEM) {
      profiler::reportOutOfMemory(size, device);
    }
  }
  check(status, err);
  trace(ptr, [](auto &python, uintptr_t block) { python->trace_gpu_memory_allocation(c10::kCUDA, block); });
  return ptr;
}

#ifdef DIT_HAS_DEVICE_ALLOCATOR
using DeviceAllocatorBase = c10::DeviceAllocator;
#else
using DeviceAllocatorBase = c10::Allocator;
#endif

class DeviceAllocator final : public DeviceAllocatorBase {
 public:
  c10::DataPtr allocate(size_t size) override {
    const int device = dit_device_get_current();
    void *ptr = allocateOn(device, size);
    return {ptr, ptr, &freeDevice, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freeDevice; }
  void copy_data(void *dst, const void *src, std::size_t size) const override {
    const int device = dit_device_get_current();
    DIT_CHECK(dit_memory_copy(dst, device, src, device, size, device, dit_stream_get_current(device), true, &err));
  }
#ifdef DIT_HAS_DEVICE_ALLOCATOR
  bool initialized() override { return dit_runtime_is_active(); }
  void emptyCache(c10::MempoolId_t) override { DIT_CHECK(dit_memory_empty_cache(-1, &err)); }
  void recordStream(const c10::DataPtr &data, c10::Stream stream) override { recordStreamOf(data, stream.id()); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    DIT_CHECK(dit_memory_reset_accumulated(device, &err));
  }
  void resetPeakStats(c10::DeviceIndex device) override { DIT_CHECK(dit_memory_reset_peak(device, &err)); }
#ifdef DIT_HAS_MEMORY_INFO
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    dit_device_memory memory;
    DIT_CHECK(dit_runtime_get_vtable()->get_memory(resolveIndex(device), &memory, &err));
    return {memory.free, memory.total};
  }
#endif
#endif
};

#ifdef DIT_HAS_DEVICE_ALLOCATOR
void copyStat(const dit_memory_stat &from, c10::CachingAllocator::Stat &to) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

void copyStats(const dit_memory_stat (&from)[DIT_POOL_COUNT], c10::CachingAllocator::StatArray &to) {
  for (int pool = 0; pool < DIT_POOL_COUNT; pool++) {
    copyStat(from[pool], to[static_cast<size_t>(pool)]);
  }
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  dit_memory_stats from;
  DIT_CHECK(dit_memory_get_stats(device, &from, &err));
  c10::CachingDeviceAllocator::DeviceStats to;
  copyStats(from.allocation, to.allocation);
  copyStats(from.segment, to.segment);
  copyStats(from.active, to.active);
  copyStats(from.inactive_split, to.inactive_split);
  copyStats(from.allocated_bytes, to.allocated_bytes);
  copyStats(from.reserved_bytes, to.reserved_bytes);
  copyStats(from.active_bytes, to.active_bytes);
  copyStats(from.inactive_split_bytes, to.inactive_split_bytes);
  copyStats(from.requested_bytes, to.requested_bytes);
  copyStat(from.oversize_allocations, to.oversize_allocations);
  copyStat(from.oversize_segments, to.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = from.max_split_size;
  return to;
}
#endif

c10::Allocator *cpu_allocator = nullptr;  // PyTorch's own, behind the lending one

void freeRaw(void *ptr) {
  void *base = nullptr;
  size_t size = 0;
  int device = 0;
  if (dit_memory_find(ptr, &base, &size, &device)) {
    freeBlock(ptr);
  } else if (C10_UNLIKELY(!isHostAccessible()) && dit_host_is_pinned(ptr)) {
    dit_host_free(ptr);
  } else {
    cpu_allocator->raw_deleter()(ptr);
  }
}

#ifdef DIT_HAS_HOST_ALLOCATOR
using HostAllocatorBase = at::HostAllocator;
#else
using HostAllocatorBase = c10::Allocator;
#endif

class PinnedAllocator final : public HostAllocatorBase {
 public:
  c10::DataPtr allocate(size_t size) override {
    void *ptr = nullptr;
    DIT_CHECK(dit_host_alloc(size, &ptr, &err));
    return {ptr, ptr, &freePinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freePinned; }
  void copy_data(void *dst, const void *src, std::size_t size) const override { default_copy_data(dst, src, size); }
#ifdef DIT_HAS_HOST_ALLOCATOR
  bool record_event(void *ptr, void *, c10::Stream stream) override {
    DIT_CHECK(dit_host_record_stream(ptr, stream.device_index(), stream.id(), &err));
    return true;
  }
  void empty_cache() override { dit_host_empty_cache(); }
  at::HostStats get_stats() override {
    dit_host_stats from;
    dit_host_get_stats(&from);
    at::HostStats to;
    to.active_bytes.current = static_cast<int64_t>(from.allocated_current);
    to.active_bytes.peak = static_cast<int64_t>(from.allocated_peak);
    to.allocated_bytes.current = static_cast<int64_t>(from.reserved_current);
    to.allocated_bytes.peak = static_cast<int64_t>(from.reserved_peak);
    to.num_host_alloc = static_cast<int64_t>(from.vendor_allocations);
    to.num_host_free = static_cast<int64_t>(from.vendor_frees);
    return to;
  }
  void reset_accumulated_stats() override {}  // totals stay, as torch.cuda's
  void reset_peak_stats() override { dit_host_reset_peak(); }
#endif
};

// Stands in front of the CPU allocator: one thread-local test decides who serves the request.
class LendingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (C10_LIKELY(lend_device < 0)) {
      return cpu_allocator->allocate(size);
    }
    if (lend_device == kPinned) {
      void *ptr = nullptr;
      DIT_CHECK(dit_host_alloc(size, &ptr, &err));
      return {ptr, ptr, &freePinned, c10::Device(c10::kCPU)};
    }
    void *ptr = allocateOn(lend_device, size);
    return {ptr, ptr, &freeLent, c10::Device(c10::kCPU)};
  }
  // Raw allocations are freed without their DataPtr, so the address decides who gets the memory back.
  c10::DeleterFnPtr raw_deleter() const override { return &freeRaw; }
  bool is_simple_data_ptr(const c10::DataPtr &data) const override { return cpu_allocator->is_simple_data_ptr(data); }
  void copy_data(void *dst, const void *src, std::size_t size) const override { default_copy_data(dst, src, size); }
};

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;

const bool registered = [] {
  c10::SetAllocator(kDevice, &device_allocator);
#ifdef DIT_HAS_HOST_ALLOCATOR
  at::setHostAllocator(kDevice, &pinned_allocator);  // torch.accelerator.empty_host_cache
#endif
  cpu_allocator = c10::GetCPUAllocator();
  static LendingAllocator lending;
  c10::SetCPUAllocator(&lending, /*priority=*/1);
  return true;
}();

}  // namespace

c10::Allocator *deviceAllocator() {
  return &device_allocator;
}
c10::Allocator *pinnedAllocator() {
  return &pinned_allocator;
}

LendMemory::LendMemory(int device) : previous_(lend_device) {
  dit_memory_access_begin();
  lend_device = device;
}
LendMemory::~LendMemory() {
  dit_memory_access_end();
  lend_device = previous_;
}

PinMemory::PinMemory(int) : previous_(lend_device) {
  lend_device = kPinned;
}
PinMemory::~PinMemory() {
  lend_device = previous_;
}

bool isLent(const c10::DataPtr &data) {
  return data.get_deleter() == &freeLent;
}

c10::DataPtr adoptLent(c10::DataPtr &&data, int device) {
  void *ptr = data.release_context();
  return {ptr, ptr, &freeDevice, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device))};
}

}  // namespace ditorch
