// What autocompare found, by operator.
//
// By default an operator has one line when it is right for the first time (one more when it first ran on the CPU), one
// when it could not be judged or compared, and a block for each of its first wrong calls. All calls are counted. The
// table lives as long as the process: threads may still be at work when the process ends.
#include "ControlsReport.h"

#include <torch/library.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "ControlsText.h"

namespace ditorch::controls {
namespace {

constexpr uint64_t kBlocks = 10;  // of wrong calls that are printed, by operator

struct Row {
  uint64_t compared = 0, wrong = 0, unknown = 0, on_cpu = 0, skipped = 0;
  bool said_right[2] = {false, false};  // in C or composed; on the CPU
  std::string reason;                   // why a call was unknown or not compared: the first one
};

std::mutex rows_mutex;

std::map<std::string, Row> &getRows() {
  static auto *rows = new std::map<std::string, Row>;
  return *rows;
}

std::string showRows() {
  std::ostringstream text;
  const std::lock_guard<std::mutex> lock(rows_mutex);
  uint64_t compared = 0, wrong = 0, operators = 0;
  size_t width = sizeof("operator") - 1;
  for (const auto &[name, row] : getRows()) {
    compared += row.compared;
    operators += row.compared > 0 ? 1 : 0;
    wrong += row.wrong;
    width = std::max(width, name.size());
  }
  text << "autocompare: " << compared << " calls of " << operators << " operators compared, " << wrong << " wrong\n";
  char line[256];
  const char *format = "  %-*s %9s %7s %8s %10s %13s  %s\n";
  std::snprintf(line, sizeof line, format, static_cast<int>(width), "operator", "compared", "wrong", "unknown",
                "on the CPU", "not compared", "reason");
  text << (getRows().empty() ? "" : line);
  for (const auto &[name, row] : getRows()) {
    const auto count = [](uint64_t number) { return std::to_string(number); };
    std::snprintf(line, sizeof line, format, static_cast<int>(width), name.c_str(), count(row.compared).c_str(),
                  count(row.wrong).c_str(), count(row.unknown).c_str(), count(row.on_cpu).c_str(),
                  count(row.skipped).c_str(), row.reason.substr(0, 120).c_str());
    text << line;
  }
  return text.str();
}

// Name, five counts and the reason, by tabs.
std::vector<std::string> listRows() {
  std::vector<std::string> lines;
  const std::lock_guard<std::mutex> lock(rows_mutex);
  for (const auto &[name, row] : getRows()) {
    std::ostringstream line;
    line << name << '\t' << row.compared << '\t' << row.wrong << '\t' << row.unknown << '\t' << row.on_cpu << '\t'
         << row.skipped << '\t' << row.reason;
    lines.push_back(line.str());
  }
  return lines;
}

void resetRows() {
  const std::lock_guard<std::mutex> lock(rows_mutex);
  getRows().clear();
}

// Counts a call; true when its block is to be printed. `line` becomes what is to be said instead.
bool count(const std::string &op, dit_verdict verdict, const std::string &reason, bool on_cpu, std::string &line) {
  const std::string head = "autocompare: " + op + ": ", tail = on_cpu ? ", ran on the CPU\n" : "\n";
  const std::lock_guard<std::mutex> lock(rows_mutex);
  Row &row = getRows()[op];
  row.compared++;
  row.on_cpu += on_cpu ? 1 : 0;
  if (verdict == DIT_VERDICT_WRONG) {
    row.wrong++;
    line = row.wrong == kBlocks + 1 ? head + "not_close again; from now on counted alone" + tail : "";
    return row.wrong <= kBlocks;
  }
  if (verdict == DIT_VERDICT_UNKNOWN) {
    row.unknown++;
    line = row.unknown == 1 ? head + "unknown, " + reason + tail : "";
    row.reason = row.reason.empty() ? reason : row.reason;
  } else if (!row.said_right[on_cpu]) {
    row.said_right[on_cpu] = true;
    line = head + "allclose" + tail;
  }
  return false;
}

}  // namespace

void noteCompared(const std::string &op, dit_verdict verdict, const std::string &reason, bool on_cpu, bool all,
                  const std::function<std::string()> &show) {
  std::string line;
  if (count(op, verdict, reason, on_cpu, line) || all) {
    std::string block = show();
    const size_t end = block.find('\n');
    print(on_cpu && end != std::string::npos ? block.insert(end, ", ran on the CPU") : block);
  } else if (!line.empty()) {
    print(line);
  }
}

void noteSkipped(const std::string &op, const char *reason) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(rows_mutex);
    Row &row = getRows()[op];
    first = row.skipped++ == 0;
    row.reason = row.reason.empty() ? reason : row.reason;
  }
  if (first) {
    print("autocompare: " + op + ": not compared, " + reason + "\n");
  }
}

void reportAtExit() {
  static const bool registered = std::atexit([] { print(showRows()); }) == 0;
  (void)registered;
}

namespace {

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("compared_text() -> str", &showRows);
  m.def("compared_rows() -> str[]", &listRows);
  m.def("compared_reset() -> ()", &resetRows);
}

}  // namespace
}  // namespace ditorch::controls
