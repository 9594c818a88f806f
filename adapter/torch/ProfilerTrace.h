// The records of the running trace, shared by Profiler.cpp (which fills them) and ProfilerKineto.cpp (which hands them
// to PyTorch).
#pragma once

#include <string>
#include <vector>

#include "Profiler.h"

namespace ditorch::profiler {

// Times are nanoseconds of the monotonic clock.
struct Record {
  const char *name;      // "aten::add.Tensor"
  const char *function;  // "diopiAdd": the function of the vendor's library that did the work; null: no such one
  Work work;
  int device;
  int64_t stream;
  uint64_t bytes;
  uint64_t operation;   // correlation id of the operator that was running, 0: none
  uint64_t annotation;  // the same of the innermost user range
  int32_t thread;
  int64_t called, returned;  // the call on the host
  int64_t start, end;        // on the device
};

// A range of the program that is not one of the profiler's own records: NVTX ranges that may end on another thread.
struct Range {
  std::string name;
  int32_t thread;
  int64_t start, end;
};

// One trace at a time, as in kineto. All functions may be called from any thread.
void startTrace(bool device_work);
// Wait for the devices' work; afterwards nothing is added.
void stopTrace();
// Stop and go on recording device work within a running trace (torch.profiler's toggle_collection_dynamic).
void pauseTrace(bool paused);
// The records of the last trace, at most once. `error` says what could not be measured.
void takeTrace(std::vector<Record> &records, std::vector<Range> &ranges, std::string &error);

void pushOperation(uint64_t id);
void popOperation();
void pushAnnotation(uint64_t id);
void popAnnotation();

// `thread` 0: this one.
void addRange(std::string name, int32_t thread, int64_t start, int64_t end);
// Ranges that operator libraries have open (ProfilerRanges.cpp) end here.
void cutRanges();

// The function of the vendor's library that this thread is in, for the record that ends next.
extern thread_local const char *called_function;

}  // namespace ditorch::profiler
