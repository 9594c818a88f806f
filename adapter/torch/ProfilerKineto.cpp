// The device as a source of activities for kineto, PyTorch's tracing library.
//
// Kineto asks every child profiler for a session per trace. Ours records device work (Profiler.cpp) and, when the trace
// is put together, hands out per piece of work: the call on the host (category cuda_runtime), the work on a track of
// its device and stream (kernel, gpu_memcpy) linked to the operator that asked for it, and for each of the program's
// ranges its extent on the device (gpu_user_annotation). Types that were not asked for are left out.
#include "ProfilerTrace.h"

#if __has_include(<kineto/libkineto.h>) && __has_include(<fmt/format.h>)
#define DIT_HAS_KINETO 1
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY 1  // the wheel has fmt's headers, not its library
#endif
#ifndef KINETO_NAMESPACE
#define KINETO_NAMESPACE libkineto
#endif
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#include <kineto/time_since_epoch.h>
#endif
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "dit/runtime.h"

namespace ditorch::profiler {
namespace {

std::atomic<bool> enabled{true};  // false after ditorch.uninstall()

#ifdef DIT_HAS_KINETO
using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// To be added to a time of the monotonic clock: the closest of a few pairs of readings.
int64_t measureEpoch() {
  int64_t best = INT64_MAX;
  int64_t offset = 0;
  for (int i = 0; i < 20; i++) {
    const auto before = static_cast<int64_t>(now());
    const auto wall = libkineto::timeSinceEpoch(std::chrono::system_clock::now());
    const int64_t elapsed = static_cast<int64_t>(now()) - before;
    if (elapsed < best) {
      best = elapsed;
      offset = wall - (before + elapsed / 2);
    }
  }
  return offset;
}

// "aten::add.Tensor" -> "add"; other libraries keep their name space.
std::string plainName(const char *name) {
  std::string text(name);
  if (text.rfind("aten::", 0) == 0) {
    text.erase(0, sizeof("aten::") - 1);
  }
  const size_t space = text.rfind("::");
  const size_t dot = text.find('.', space == std::string::npos ? 0 : space);
  return dot == std::string::npos ? text : text.substr(0, dot);
}

struct Look {
  ActivityType type;
  const char *prefix;  // of the operator's name; a whole name for copies
  const char *call;    // on the host; null: the host itself did the work
  const char *path;
};

const Look &look(Work work) {
  static constexpr Look looks[] = {
      {ActivityType::CONCURRENT_KERNEL, "dit::", "ditLaunchKernel", "C operator"},
      {ActivityType::CONCURRENT_KERNEL, "cpu_fallback::", nullptr, "CPU fallback"},
      {ActivityType::CONCURRENT_KERNEL, "fault::", nullptr, "injected fault"},
      {ActivityType::GPU_MEMCPY, "Memcpy HtoD (Host -> Device)", "ditMemcpy", nullptr},
      {ActivityType::GPU_MEMCPY, "Memcpy DtoH (Device -> Host)", "ditMemcpy", nullptr},
  };
  return looks[static_cast<size_t>(work)];
}

std::string showName(const Record &record) {
  const Look &seen = look(record.work);
  if (record.function != nullptr) {
    return record.function;
  }
  return seen.path == nullptr ? seen.prefix : seen.prefix + plainName(record.name);
}

std::string describeDevices() {
  std::string json;
  for (int device = 0; device < dit_device_get_count(); device++) {
    dit_device_properties p;
    if (dit_device_get_properties(device, &p, nullptr) != DIT_OK) {
      continue;
    }
    json += c10::str(json.empty() ? "" : ",", "\n    {\"id\": ", device, ", \"name\": \"", p.name,
                     "\", \"totalGlobalMem\": ", p.total_memory, ", \"computeMajor\": ", p.major,
                     ", \"computeMinor\": ", p.minor, ", \"numSms\": ", p.multi_processor_count,
                     ", \"warpSize\": ", p.warp_size, "}");
  }
  return json;
}

constexpr int64_t kBelowProcesses = 5000000;  // sort index: device tracks come after all processes

libkineto::DeviceInfo describeTrack(int device) {
  const int32_t process = libkineto::processId();
  return {device, device + kBelowProcesses, libkineto::processName(process), c10::str("GPU ", device)};
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> types) : types_(std::move(types)) {}
  ~Session() override { stop(); }

  void start() override {
    started_ = true;
    startTrace(wants(ActivityType::CONCURRENT_KERNEL) || wants(ActivityType::GPU_MEMCPY));
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (started_) {
      started_ = false;
      stopTrace();
      status_ = libkineto::TraceStatus::PROCESSING;
    }
  }
  std::vector<std::string> errors() override {
    return error_.empty() ? std::vector<std::string>() : std::vector<std::string>{error_};
  }
  void processTrace(libkineto::ActivityLogger &logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, INT64_MIN, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback find, int64_t start,
                    int64_t end) override;
  // One per session is asked for; without an answer kineto would name sixteen. nameTracks does the other devices.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(describeTrack(0));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { pushOperation(id); }
  void popCorrelationId() override { popOperation(); }
  void pushUserCorrelationId(uint64_t id) override { pushAnnotation(id); }
  void popUserCorrelationId() override { popAnnotation(); }
  std::string getDeviceProperties() { return describeDevices(); }  // overrides it where kineto asks

 private:
  bool wants(ActivityType type) const { return types_.count(type) != 0; }
  GenericTraceActivity &add(ActivityType type, const std::string &name, int64_t start, int64_t end);
  void addCall(const Record &record, int64_t epoch, uint32_t flow, const libkineto::ITraceActivity *operation);
  void addWork(const Record &record, int64_t epoch, uint32_t flow, const libkineto::ITraceActivity *operation);
  void addAnnotations(const std::vector<Record> &records, int64_t epoch,
                      const libkineto::getLinkedActivityCallback &find);
  void addRanges(const std::vector<Range> &ranges, int64_t epoch);
  static void nameTracks(const std::vector<Record> &records, libkineto::ActivityLogger &logger, int64_t time);

  std::set<ActivityType> types_;
  std::string error_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  bool started_ = false;
};

GenericTraceActivity &Session::add(ActivityType type, const std::string &name, int64_t start, int64_t end) {
  buffer_->emplace_activity(buffer_->span, type, name);
  auto &activity = *buffer_->activities.back();
  activity.startTime = start;
  activity.endTime = end;
  return activity;
}

void Session::addCall(const Record &record, int64_t epoch, uint32_t flow, const libkineto::ITraceActivity *operation) {
  const char *call = look(record.work).call;
  if (call == nullptr || !wants(ActivityType::CUDA_RUNTIME)) {
    return;
  }
  auto &activity = add(ActivityType::CUDA_RUNTIME, call, record.called + epoch, record.returned + epoch);
  activity.device = libkineto::processId();
  activity.resource = record.thread;
  activity.threadId = record.thread;
  activity.id = static_cast<int32_t>(flow);
  activity.linked = operation;
  activity.flow.id = flow;
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.flow.start = 1;
  activity.addMetadata("correlation", flow);
}

void Session::addWork(const Record &record, int64_t epoch, uint32_t flow, const libkineto::ITraceActivity *operation) {
  const Look &seen = look(record.work);
  if (!wants(seen.type)) {
    return;
  }
  auto &activity = add(seen.type, showName(record), record.start + epoch, record.end + epoch);
  activity.device = record.device;
  activity.resource = static_cast<int32_t>(record.stream);
  activity.threadId = static_cast<int32_t>(record.stream);
  activity.id = static_cast<int32_t>(flow);
  activity.linked = operation;
  activity.flow.id = flow;
  activity.flow.type = seen.call != nullptr ? libkineto::kLinkAsyncCpuGpu : 0;
  activity.flow.start = 0;
  activity.addMetadata("device", record.device);
  activity.addMetadata("stream", record.stream);
  activity.addMetadata("correlation", flow);
  if (seen.path != nullptr) {
    activity.addMetadataQuoted("operator", record.name);
    activity.addMetadataQuoted("path", seen.path);
  }
  if (record.bytes > 0) {
    activity.addMetadata("bytes", record.bytes);
    const int64_t elapsed = std::max<int64_t>(record.end - record.start, 1);
    activity.addMetadata("memory bandwidth (GB/s)", static_cast<double>(record.bytes) / static_cast<double>(elapsed));
  }
}

// A range of the program on the device: from the start of its first to the end of its last work, per stream.
void Session::addAnnotations(const std::vector<Record> &records, int64_t epoch,
                             const libkineto::getLinkedActivityCallback &find) {
  if (!wants(ActivityType::GPU_USER_ANNOTATION)) {
    return;
  }
  std::map<std::tuple<uint64_t, int, int64_t>, std::pair<int64_t, int64_t>> extents;
  for (const Record &record : records) {
    if (record.annotation != 0) {
      auto [entry, is_new] =
          extents.try_emplace({record.annotation, record.device, record.stream}, record.start, record.end);
      entry->second.first = std::min(entry->second.first, record.start);
      entry->second.second = std::max(entry->second.second, record.end);
    }
  }
  for (const auto &[key, extent] : extents) {
    const auto *range = find(static_cast<int32_t>(std::get<0>(key)));
    if (range == nullptr) {
      continue;
    }
    auto &activity = add(ActivityType::GPU_USER_ANNOTATION, range->name(), extent.first + epoch, extent.second + epoch);
    activity.device = std::get<1>(key);
    activity.resource = static_cast<int32_t>(std::get<2>(key));
    activity.threadId = activity.resource;
    activity.id = static_cast<int32_t>(std::get<0>(key));
  }
}

// PyTorch takes user_annotation for its own records and would miss them among these: so another host-side type.
void Session::addRanges(const std::vector<Range> &ranges, int64_t epoch) {
  if (!wants(ActivityType::USER_ANNOTATION) || !wants(ActivityType::PRIVATEUSE1_RUNTIME)) {
    return;
  }
  for (const Range &range : ranges) {
    auto &activity = add(ActivityType::PRIVATEUSE1_RUNTIME, range.name, range.start + epoch, range.end + epoch);
    activity.device = libkineto::processId();
    activity.resource = range.thread;
    activity.threadId = range.thread;
  }
}

void Session::nameTracks(const std::vector<Record> &records, libkineto::ActivityLogger &logger, int64_t time) {
  std::set<std::pair<int, int64_t>> streams;
  std::set<int> devices;
  for (const Record &record : records) {
    streams.emplace(record.device, record.stream);
    devices.insert(record.device);
  }
  devices.erase(0);
  for (const int device : devices) {
    logger.handleDeviceInfo(describeTrack(device), time);
  }
  for (const auto &[device, stream] : streams) {
    logger.handleResourceInfo({stream, stream, device, c10::str("stream ", stream)}, time);
  }
}

void Session::processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback find, int64_t start,
                           int64_t end) {
  std::vector<Record> records;
  std::vector<Range> ranges;
  takeTrace(records, ranges, error_);
  const int64_t epoch = measureEpoch();
  const auto outside = [&](const Record &r) { return r.start + epoch < start || r.end + epoch > end; };
  records.erase(std::remove_if(records.begin(), records.end(), outside), records.end());
  buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  buffer_->span = libkineto::TraceSpan(start, end, "ditorch");
  buffer_->gpuOpCount = static_cast<int>(records.size());
  uint32_t flow = 0;
  for (const Record &record : records) {
    flow++;
    const auto *operation = record.operation != 0 ? find(static_cast<int32_t>(record.operation)) : nullptr;
    addCall(record, epoch, flow, operation);
    addWork(record, epoch, flow, operation);
  }
  addAnnotations(records, epoch, find);
  addRanges(ranges, epoch);
  for (const auto &activity : buffer_->activities) {
    logger.handleActivity(*activity);  // kineto takes the buffer afterwards, so the address stays good
  }
  nameTracks(records, logger, start);
}

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string &name() const override { return name_; }
  const std::set<ActivityType> &availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &types,
                                                                 const libkineto::Config &) override {
    const bool usable = enabled.load() && dit_device_get_count() > 0 && !dit_runtime_is_bad_fork();
    return usable ? std::make_unique<Session>(types) : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType> &types,
                                                                 const libkineto::Config &config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "ditorch";
  std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                ActivityType::GPU_USER_ANNOTATION, ActivityType::CUDA_RUNTIME};
};

const bool tracerRegistered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();
#endif

bool setEnabled(bool enable) {
  enabled.store(enable);
#ifdef DIT_HAS_KINETO
  return true;
#else
  return false;
#endif
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("profiler_enable(bool enable) -> bool", &setEnabled);
  m.def("profiler_pause(bool paused) -> ()", &pauseTrace);
}

}  // namespace
}  // namespace ditorch::profiler
