// Ranges of operator libraries (diopiRecordStart, diopiRecordEnd) in the running trace.
//
// A range belongs to the thread that began it, wherever it ends. One that is open when the trace ends is cut off there;
// its handle stays good until the library ends it. A range that began while no trace ran is not recorded at all.
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <set>

#include "Operator.h"
#include "ProfilerTrace.h"
#include "dit/range.h"

namespace ditorch::profiler {
namespace {

struct Open {
  std::string name;
  int32_t thread;
  int64_t start;
};

struct OpenRanges {
  std::mutex mutex;
  std::set<Open *> running;  // those of the trace that runs
};

OpenRanges &openRanges() {
  static auto *const made = new OpenRanges;  // never destroyed: a library may end a range while the process ends
  return *made;
}

void *begin(const char *name) {
  if (!isRunning()) {
    return nullptr;
  }
  auto *range = new (std::nothrow) Open{name, static_cast<int32_t>(syscall(SYS_gettid)), static_cast<int64_t>(now())};
  if (range != nullptr) {
    OpenRanges &open = openRanges();
    const std::lock_guard<std::mutex> lock(open.mutex);
    open.running.insert(range);
  }
  return range;
}

void end(void *handle) {
  auto *range = static_cast<Open *>(handle);
  OpenRanges &open = openRanges();
  bool is_running = false;
  {
    const std::lock_guard<std::mutex> lock(open.mutex);
    is_running = open.running.erase(range) != 0;
  }
  if (is_running) {
    addRange(std::move(range->name), range->thread, range->start, static_cast<int64_t>(now()));
  }
  delete range;
}

const dit_range_recorder recorder = {begin, end};
const bool recorderSet = dit_range_set_recorder(&recorder, nullptr) == DIT_OK;

}  // namespace

void cutRanges() {
  OpenRanges &open = openRanges();
  const std::lock_guard<std::mutex> lock(open.mutex);
  for (const Open *range : open.running) {
    addRange(range->name, range->thread, range->start, static_cast<int64_t>(now()));
  }
  open.running.clear();
}

}  // namespace ditorch::profiler
