// Lists of operators as people write them: see ControlsNames.cpp.
#pragma once

#include <atomic>
#include <deque>
#include <regex>
#include <string>
#include <vector>

namespace ditorch::controls {

class NameList {
 public:
  // Add patterns, separated by commas or lines. `origin` is where they come from, for messages. What is no regular
  // expression throws a ValueError; what matches no operator that the controls see adds a sentence to `warnings`.
  void add(const std::string &origin, const std::string &text, std::vector<std::string> &warnings);
  bool isEmpty() const { return entries_.empty(); }
  // Is "aten::add.Tensor" on the list?
  bool matches(const std::string &name) const;
  // Sentences about the entries that have met operators, and matched none.
  std::vector<std::string> listIdle() const;
  // What equal entries of another list have met counts here as well.
  void inherit(const NameList &before);

 private:
  enum State { kUnasked, kAsked, kMatched };

  // What a person wrote, the operators that it means, and whether one has come.
  struct Entry {
    std::string origin, text;
    std::vector<std::regex> patterns;
    mutable std::atomic<int> state{kUnasked};
  };

  void addEntry(const std::string &origin, const std::string &text, std::vector<std::string> &warnings);

  std::deque<Entry> entries_;
};

}  // namespace ditorch::controls
