// The recorder behind torch.profiler: device work of one trace, timed by events on its own stream.
//
// Device times come from pairs of events and are placed on the host's clock by one base event per device, recorded when
// the trace starts. Events that have completed are read as soon as many are waiting and are used again, so their number
// stays small however long the trace is. Invariant: a record belongs to one generation (one trace); what finishes after
// its trace was stopped is dropped. Depends on libdit's events; knows nothing of kineto.
#include "Profiler.h"

#include <c10/core/Allocator.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "Operator.h"
#include "ProfilerTrace.h"
#include "dit/memory.h"
#include "dit/runtime.h"

namespace ditorch::profiler {

std::atomic<unsigned> state{0};
thread_local const char *called_function = nullptr;

namespace {

constexpr size_t kWaitingLimit = 1024;  // records whose events are not read yet, before the completed ones are read

struct Waiting {
  Record record;
  dit_event *first;
  dit_event *last;
};

struct Base {
  dit_event *event = nullptr;
  int64_t time = 0;
};

struct Trace {
  std::mutex mutex;
  std::atomic<uint64_t> generation{0};  // odd while a trace runs
  std::vector<Base> bases;              // by device
  std::vector<std::vector<dit_event *>> idle;
  std::vector<Waiting> waiting;
  size_t limit = kWaitingLimit;  // of `waiting`; twice what the last reading left, so that a slow stream costs little
  std::vector<Record> records;
  std::vector<Range> ranges;
  std::string error;
};

Trace &trace() {
  static auto *const made = new Trace;  // never destroyed: threads may finish work while the process ends
  return *made;
}

// What this thread is running, as PyTorch told: correlation ids, innermost last.
struct Nesting {
  uint64_t generation = 0;
  std::vector<uint64_t> operations, annotations;
};

// A trace that ends between a push and its pop leaves ids behind: they belong to another generation.
Nesting &nesting() {
  static thread_local Nesting mine;
  const uint64_t current = trace().generation.load(std::memory_order_acquire);
  if (mine.generation != current) {
    mine.operations.clear();
    mine.annotations.clear();
    mine.generation = current;
  }
  return mine;
}

uint64_t innermost(const std::vector<uint64_t> &ids) {
  return ids.empty() ? 0 : ids.back();
}

int32_t threadId() {
  static thread_local const int32_t id = static_cast<int32_t>(syscall(SYS_gettid));
  return id;
}

int64_t clockNow() {
  return static_cast<int64_t>(now());
}

// With the lock held.
dit_event *takeEvent(Trace &t, int device) {
  auto &idle = t.idle[static_cast<size_t>(device)];
  if (!idle.empty()) {
    dit_event *event = idle.back();
    idle.pop_back();
    return event;
  }
  dit_event *event = nullptr;
  return dit_event_create(device, DIT_EVENT_TIMING, &event, nullptr) == DIT_OK ? event : nullptr;
}

// An event of this trace, recorded on the stream; null when the trace is over or the device does not do it.
dit_event *markStream(uint64_t generation, int device, int64_t stream) {
  Trace &t = trace();
  dit_event *event = nullptr;
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    if (generation != t.generation.load(std::memory_order_relaxed) || static_cast<size_t>(device) >= t.idle.size()) {
      return nullptr;
    }
    event = takeEvent(t, device);
  }
  if (event != nullptr && dit_event_record(event, device, stream, nullptr) != DIT_OK) {
    dit_event_destroy(event);
    event = nullptr;
  }
  return event;
}

// With the lock held: give the events of a record back.
void recycle(Trace &t, const Waiting &waiting) {
  auto &idle = t.idle[static_cast<size_t>(waiting.record.device)];
  idle.push_back(waiting.first);
  idle.push_back(waiting.last);
}

// Host time of a completed event of the device.
bool readTime(const Base &base, dit_event *event, int64_t &time) {
  double milliseconds = 0;
  if (dit_event_get_elapsed(base.event, event, &milliseconds, nullptr) != DIT_OK) {
    return false;
  }
  time = base.time + std::llround(milliseconds * 1e6);
  return true;
}

// With the lock held. False when the work is not complete.
bool resolve(Trace &t, Waiting &waiting) {
  bool done = false;
  if (dit_event_query(waiting.last, &done, nullptr) == DIT_OK && !done) {
    return false;
  }
  const Base &base = t.bases[static_cast<size_t>(waiting.record.device)];
  if (done && readTime(base, waiting.first, waiting.record.start) && readTime(base, waiting.last, waiting.record.end)) {
    t.records.push_back(waiting.record);
  } else {
    t.error = "the time of some work could not be read from its events; it is missing in the trace";
  }
  recycle(t, waiting);
  return true;
}

// With the lock held: read what is complete, in whatever order the streams completed it.
void resolveCompleted(Trace &t) {
  const auto rest = std::remove_if(t.waiting.begin(), t.waiting.end(), [&t](Waiting &w) { return resolve(t, w); });
  t.waiting.erase(rest, t.waiting.end());
  t.limit = std::max(kWaitingLimit, 2 * t.waiting.size());
}

// With the lock held. The base lies in the middle of the shortest of a few recordings.
bool recordBase(int device, Base &base) {
  if (dit_event_create(device, DIT_EVENT_TIMING, &base.event, nullptr) != DIT_OK) {
    return false;
  }
  for (int i = 0; i < 3; i++) {
    const int64_t before = clockNow();
    if (dit_event_record(base.event, device, 0, nullptr) != DIT_OK ||
        dit_event_synchronize(base.event, nullptr) != DIT_OK) {
      return false;
    }
    base.time = before + (clockNow() - before) / 2;
  }
  return true;
}

// With the lock held.
void releaseEvents(Trace &t) {
  for (const Waiting &waiting : t.waiting) {
    recycle(t, waiting);
  }
  t.waiting.clear();
  for (const auto &idle : t.idle) {
    for (dit_event *event : idle) {
      dit_event_destroy(event);
    }
  }
  for (const Base &base : t.bases) {
    dit_event_destroy(base.event);
  }
  t.idle.clear();
  t.bases.clear();
}

}  // namespace

void startTrace(bool device_work) {
  Trace &t = trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  releaseEvents(t);
  t.records.clear();
  t.ranges.clear();
  t.error.clear();
  const auto count = static_cast<size_t>(device_work ? dit_device_get_count() : 0);
  t.bases.resize(count);
  t.idle.resize(count);
  for (size_t device = 0; device < count; device++) {
    if (!recordBase(static_cast<int>(device), t.bases[device])) {
      t.error = c10::str("device ", device, " could not record an event; its work is missing in the trace");
      device_work = false;
    }
  }
  const uint64_t previous = t.generation.load();
  t.generation.store(previous + ((previous & 1u) ? 2 : 1), std::memory_order_release);
  state.store(kTraceRuns | (device_work ? unsigned{kTraceDevice} : 0u));
}

void stopTrace() {
  Trace &t = trace();
  if ((t.generation.load() & 1u) == 0 || dit_runtime_is_bad_fork()) {
    return;
  }
  state.store(0);
  cutRanges();
  size_t count = 0;
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    count = t.bases.size();
  }
  bool complete = true;
  for (size_t device = 0; device < count; device++) {
    complete = dit_device_synchronize(static_cast<int>(device), nullptr) == DIT_OK && complete;
  }
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (!complete) {  // an asynchronous failure: the program hears of it from its own next call
    t.error = "a device failed before all its work was done; some of it is missing in the trace";
  }
  resolveCompleted(t);
  t.generation.fetch_add(1, std::memory_order_acq_rel);
  releaseEvents(t);
}

void pauseTrace(bool paused) {
  Trace &t = trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if ((t.generation.load() & 1u) != 0 && !t.bases.empty()) {
    state.store(kTraceRuns | (paused ? 0u : unsigned{kTraceDevice}));
  }
}

void takeTrace(std::vector<Record> &records, std::vector<Range> &ranges, std::string &error) {
  Trace &t = trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  records.swap(t.records);
  ranges.swap(t.ranges);
  error.swap(t.error);
  t.records.clear();
  t.ranges.clear();
  t.error.clear();
}

void pushOperation(uint64_t id) {
  nesting().operations.push_back(id);
}
void popOperation() {
  auto &ids = nesting().operations;
  if (!ids.empty()) {
    ids.pop_back();
  }
}
void pushAnnotation(uint64_t id) {
  nesting().annotations.push_back(id);
}
void popAnnotation() {
  auto &ids = nesting().annotations;
  if (!ids.empty()) {
    ids.pop_back();
  }
}

void addRange(std::string name, int32_t thread, int64_t start, int64_t end) {
  Trace &t = trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if ((t.generation.load() & 1u) != 0) {
    t.ranges.push_back({std::move(name), thread == 0 ? threadId() : thread, start, end});
  }
}

void Span::begin(Work work, const char *name, int device, uint64_t bytes) {
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  name_ = name;
  device_ = device;
  stream_ = dit_stream_get_current(device);
  bytes_ = bytes;
  work_ = work;
  generation_ = trace().generation.load(std::memory_order_acquire);
  called_ = clockNow();
  first_ = markStream(generation_, device, stream_);
}

void Span::end() {
  dit_event *last = markStream(generation_, device_, stream_);
  if (last == nullptr) {
    drop();
    return;
  }
  Waiting waiting{};
  waiting.first = first_;
  waiting.last = last;
  first_ = nullptr;
  const Nesting &current = nesting();
  waiting.record = {name_,
                    called_function,
                    work_,
                    device_,
                    stream_,
                    bytes_,
                    innermost(current.operations),
                    innermost(current.annotations),
                    threadId(),
                    called_,
                    clockNow(),
                    0,
                    0};
  Trace &t = trace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (generation_ != t.generation.load(std::memory_order_relaxed)) {
    dit_event_destroy(waiting.first);
    dit_event_destroy(waiting.last);
    return;
  }
  t.waiting.push_back(waiting);
  if (t.waiting.size() >= t.limit) {
    resolveCompleted(t);
  }
}

void Span::drop() {
  dit_event_destroy(first_);
  first_ = nullptr;
}

// Memory

namespace {

struct Totals {
  size_t allocated = 0, reserved = 0;
};

Totals readTotals(int device) {
  dit_memory_stats stats;
  if (dit_memory_get_stats(device, &stats, nullptr) != DIT_OK) {
    return {};
  }
  return {static_cast<size_t>(stats.allocated_bytes[DIT_POOL_ALL].current),
          static_cast<size_t>(stats.reserved_bytes[DIT_POOL_ALL].current)};
}

void report(void *ptr, int64_t bytes, int device) {
  const Totals totals = readTotals(device);
  c10::reportMemoryUsageToProfiler(ptr, bytes, totals.allocated, totals.reserved,
                                   c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

void reportAllocation(void *ptr, int device) {
  void *base = nullptr;
  size_t size = 0;
  if (c10::memoryProfilingEnabled() && dit_memory_find(ptr, &base, &size, &device)) {
    report(ptr, static_cast<int64_t>(size), device);
  }
}

void reportFree(void *ptr) {
  void *base = nullptr;
  size_t size = 0;
  int device = 0;
  if (c10::memoryProfilingEnabled() && dit_memory_find(ptr, &base, &size, &device)) {
    report(ptr, -static_cast<int64_t>(size), device);
  }
}

void reportOutOfMemory(size_t size, int device) {
  if (c10::memoryProfilingEnabled()) {
    const Totals totals = readTotals(device);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), totals.allocated, totals.reserved,
                                     c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
  }
}

}  // namespace ditorch::profiler
