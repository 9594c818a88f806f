// Controls over the operators of the device (options force_fallback, autocompare, dump_op_args, launch_blocking).
//
// The lists are those of ControlsNames.cpp; a file in the working directory adds to each. refresh_controls reads
// options and files anew, checks them, and publishes a snapshot, which calls on other threads take up with their next
// operator. Lines go to stdout, as those of DIPU do. The comparison encloses everything else, injected faults included.
#include "Controls.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "ControlsCompare.h"
#include "ControlsNames.h"
#include "ControlsReport.h"
#include "ControlsText.h"
#include "Storage.h"
#include "dit/diopi.h"
#include "dit/options.h"
#include "dit/runtime.h"

namespace ditorch::controls {

std::atomic<unsigned> active{0};

namespace {

using torch::jit::Stack;

struct Snapshot {
  NameList fallback, compare;
  int dump = -1;  // -1 off, 0 fallbacks alone, 1 functions, 2 arguments, 3 values
  bool sync = false;
  uint64_t number = 0;
};

std::mutex mutex;
std::shared_ptr<const Snapshot> current = std::make_shared<Snapshot>();  // guarded by the mutex

std::string readOption(const char *name) {
  return dit_option_get_text(dit_option_find(name));
}

std::string readFile(const char *path) {
  const std::ifstream file(path);
  std::ostringstream text;
  if (file) {
    text << file.rdbuf();
  }
  return text.str();
}

void readList(NameList &list, const char *option, const char *file, std::vector<std::string> &warnings) {
  list.add(std::string("option '") + option + "'", readOption(option), warnings);
  list.add(file, readFile(file), warnings);
}

// Returns what the user should be told about the lists.
std::vector<std::string> refresh() {
  std::vector<std::string> warnings;
  auto fresh = std::make_shared<Snapshot>();
  readList(fresh->fallback, "force_fallback", ".dipu_force_fallback_op_list.config", warnings);
  readList(fresh->compare, "autocompare", ".specified_autocompare_op_list.config", warnings);
  fresh->dump = static_cast<int>(dit_option_get_int(dit_option_find("dump_op_args")));
  fresh->sync = dit_option_get_int(dit_option_find("launch_blocking")) != 0;
  const unsigned flags = (fresh->fallback.isEmpty() ? 0u : kFallback) | (fresh->compare.isEmpty() ? 0u : kCompare) |
                         (fresh->dump < 0 ? 0u : kDump) | (fresh->sync ? kSync : 0u);
  const std::lock_guard<std::mutex> lock(mutex);
  fresh->number = current->number + 1;
  fresh->fallback.inherit(current->fallback);
  fresh->compare.inherit(current->compare);
  current = std::move(fresh);
  active.store(flags, std::memory_order_relaxed);
  if (flags & kCompare) {
    reportAtExit();
  }
  return warnings;
}

// Entries of the lists in force that no operator has matched.
std::vector<std::string> listIdle() {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::string> lines = current->fallback.listIdle();
  const std::vector<std::string> others = current->compare.listIdle();
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

// What a thread knows: the snapshot it saw last, which lists each operator is on, and the call that it is in.
struct Thread {
  std::shared_ptr<const Snapshot> snapshot;
  std::unordered_map<const Operator *, unsigned> lists;
  const Operator *op = nullptr;
  const c10::OperatorHandle *handle = nullptr;
  const c10::IValue *args = nullptr;
  bool shown = false;
  const Operator *compared = nullptr;  // the innermost one that is compared
  bool fell_back = false;              // it ran on the CPU
};

Thread &getThread() {
  static thread_local Thread thread;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (thread.snapshot == current) {
      return thread;
    }
    thread.snapshot = current;
  }
  thread.lists.clear();
  return thread;
}

unsigned findLists(Thread &thread, const Operator &op) {
  const auto [entry, fresh] = thread.lists.try_emplace(&op, 0u);
  if (fresh) {
    entry->second = (thread.snapshot->fallback.matches(op.name) ? kFallback : 0u) |
                    (thread.snapshot->compare.matches(op.name) ? kCompare : 0u);
  }
  return entry->second;
}

const char *getFunctionName(int function) {
  return function > 0 ? dit_diopi_get_functions(nullptr)[function].name : "a kernel of the device";
}

// The arguments of the call, as far as they are wanted.
std::string describeArguments(const Thread &thread) {
  std::string text;
  const auto &schema = thread.handle->schema();
  for (size_t i = 0; thread.snapshot->dump >= 2 && i < thread.op->nargs; i++) {
    text += describe(thread.op->name, schema.arguments()[i].name(), thread.args[i], thread.snapshot->dump >= 3);
  }
  return text;
}

void showLine(Thread &thread, const std::string &line) {
  print(line + "\n" + describeArguments(thread));
  thread.shown = true;
}

void observeBefore(dit_call *, int function) {
  Thread &thread = getThread();
  if (thread.op != nullptr && thread.snapshot->dump >= 1) {
    showLine(thread, "--[" + thread.op->name + "]: " + getFunctionName(function));
  }
}

void observeAfter(dit_call *, int, int) {}

const dit_call_observer observer = {observeBefore, observeAfter};

// Gives back the outer call when operators run inside operators.
class Call {
 public:
  Call(Thread &thread, const Operator &op, const c10::OperatorHandle &handle, const c10::IValue *args)
      : thread_(thread), op_(thread.op), handle_(thread.handle), args_(thread.args), shown_(thread.shown) {
    thread.op = &op;
    thread.handle = &handle;
    thread.args = args;
    thread.shown = false;
  }
  ~Call() {
    thread_.op = op_;
    thread_.handle = handle_;
    thread_.args = args_;
    thread_.shown = shown_;
  }

 private:
  Thread &thread_;
  const Operator *op_;
  const c10::OperatorHandle *handle_;
  const c10::IValue *args_;
  bool shown_;
};

void runFallbackShown(Thread &thread, const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (thread.snapshot->dump >= 0) {
    showLine(thread, "fallback to cpu, name=" + op.name);
  }
  runFallback(op, handle, stack);
}

// C first, without the composite form or the CPU; true when it ran.
bool runInC(Thread &thread, const Operator &op, Stack *stack) {
  if (op.c_op == nullptr) {
    return false;
  }
  const std::string arguments = describeArguments(thread);  // they are gone afterwards
  if (!runC(op, stack)) {
    return false;
  }
  if (!thread.shown && thread.snapshot->dump >= 1) {
    print("--[" + op.name + "]: " + getFunctionName(op.c_op->function) + "\n" + arguments);
  }
  return true;
}

// Finds out whether an operator falls back while it is compared. Operators inside of it may be compared, too.
class Watch {
 public:
  Watch(Thread &thread, const Operator &op)
      : thread_(thread), compared_(thread.compared), fell_back_(thread.fell_back) {
    thread.compared = &op;
    thread.fell_back = false;
  }
  ~Watch() {
    thread_.compared = compared_;
    thread_.fell_back = fell_back_;
  }

 private:
  Thread &thread_;
  const Operator *compared_;
  bool fell_back_;
};

}  // namespace

const dit_call_observer *getObserver() {
  return active.load(std::memory_order_relaxed) & kDump ? &observer : nullptr;
}

void run(const Operator &op, const c10::OperatorHandle &handle, Stack *stack, Runner plain) {
  Thread &thread = getThread();
  const std::shared_ptr<const Snapshot> snapshot = thread.snapshot;  // this call's, whatever comes meanwhile
  const c10::IValue *args = stack->data() + (stack->size() - op.nargs);
  const c10::DeviceIndex device = snapshot->sync ? findCommonDevice(op, args) : static_cast<c10::DeviceIndex>(-1);
  const Call call(thread, op, handle, args);
  const unsigned lists = findLists(thread, op);
  const bool fell_back = lists & kFallback || (op.c_op == nullptr && !op.composite);
  if (fell_back) {
    runFallbackShown(thread, op, handle, stack);
  } else if (!runInC(thread, op, stack)) {
    if (snapshot->dump >= 0 && !op.composite) {
      showLine(thread, "fallback to cpu, name=" + op.name);
    }
    plain(op, handle, stack);
  }
  if (device >= 0) {
    synchronizeCurrentStream(device);
  }
}

bool isForced(const Operator &op) {
  return (active.load(std::memory_order_relaxed) & kFallback) != 0 && (findLists(getThread(), op) & kFallback) != 0;
}

void runCompared(const Operator &op, const c10::OperatorHandle &handle, Stack *stack, Runner inner) {
  Thread &thread = getThread();
  if (!(findLists(thread, op) & kCompare)) {
    inner(op, handle, stack);
    return;
  }
  const bool all = thread.snapshot->dump >= 1;
  if (const char *reason = findExclusion(op)) {
    inner(op, handle, stack);
    noteSkipped(op.name, reason);
    return;
  }
  Comparison comparison(op, handle, stack->data() + (stack->size() - op.nargs));
  bool on_cpu;
  {
    const Watch watch(thread, op);
    inner(op, handle, stack);
    on_cpu = thread.fell_back;
  }
  comparison.finish(stack->data() + (stack->size() - op.nrets));
  noteCompared(op.name, comparison.verdict(), comparison.reason(), on_cpu, all, [&] { return comparison.show(); });
}

void noteFallback(const Operator &op) {
  Thread &thread = getThread();
  thread.fell_back = thread.fell_back || thread.compared == &op;
}

namespace {

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("refresh_controls() -> str[]", &refresh);
  m.def("idle_controls() -> str[]", &listIdle);
}

}  // namespace
}  // namespace ditorch::controls
