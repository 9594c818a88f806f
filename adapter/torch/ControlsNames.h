// Lists of operators as people write them: see ControlsNames.cpp.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace ditorch::controls {

class NameList {
 public:
  // Add patterns, separated by commas or lines. `origin` is where they come from, for messages. What is no regular
  // expression throws a ValueError; what matches no operator that the controls see adds a sentence to `warnings`.
  void add(const std::string &origin, const std::string &text, std::vector<std::string> &warnings);
  bool isEmpty() const { return patterns_.empty(); }
  // Is "aten::add.Tensor" on the list?
  bool matches(const std::string &name) const;

 private:
  void addPattern(const std::string &origin, const std::string &pattern, std::vector<std::string> &warnings);

  std::vector<std::regex> patterns_;
};

}  // namespace ditorch::controls
