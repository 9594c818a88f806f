// Lists of operators as people write them.
//
// A pattern is a regular expression that matches one of the names of an operator as a whole: aten::add.out, add.out,
// aten::add, add. A plain name may also be one of torch's (torch.softmax, F.softmax, Tensor.add_, torch.ops.aten.mm):
// its last word counts. A function that never reaches the device itself stands for the operators that it consists of.
// Operators that are registered later are matched as well, so a pattern without any match is a warning and no error.
#include "ControlsNames.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "Operator.h"
#include "dit/operator_name.h"

namespace ditorch::controls {
namespace {

struct Known {
  std::string name;  // aten::add.out
  bool is_seen;      // comes through the door
};

const std::vector<Known> &listKnown() {
  static thread_local std::vector<Known> known;  // made anew when operators have come
  const auto names = c10::Dispatcher::singleton().getAllOpNames();
  if (known.size() != names.size()) {
    known.clear();
    for (const c10::OperatorName &name : names) {
      std::string text = c10::toString(name);
      const bool seen = text.rfind("aten::", 0) != 0 || hasDoor(text);
      known.push_back({std::move(text), seen});
    }
  }
  return known;
}

std::string getBase(const std::string &name) {
  return name.substr(0, name.find('.'));
}

bool matchesName(const std::regex &pattern, const std::string &name) {
  const size_t colon = name.rfind("aten::", 0) == 0 ? sizeof("aten::") - 1 : 0;
  const std::string base = getBase(name);
  return std::regex_match(name, pattern) || std::regex_match(base, pattern) ||
         (colon > 0 &&
          (std::regex_match(name.substr(colon), pattern) || std::regex_match(base.substr(colon), pattern)));
}

struct Matches {
  bool seen = false;
  std::string other;  // one that the controls do not see
};

Matches findMatches(const std::regex &pattern) {
  Matches found;
  for (const Known &known : listKnown()) {
    if ((found.seen && known.is_seen) || !matchesName(pattern, known.name)) {
      continue;
    }
    found.seen = found.seen || known.is_seen;
    found.other = known.is_seen ? found.other : known.name;
  }
  return found;
}

// torch.ops.aten.add.Tensor -> add.Tensor, torch.nn.functional.softmax -> softmax, aten::add.default -> aten::add.
std::string simplify(const std::string &name) {
  std::string text(name.size() + 1, '\0');
  dit_operator_name_simplify(name.c_str(), text.data(), text.size());
  return text.c_str();
}

// The operators that may do the work of a function of torch.
std::vector<std::string> listParts(const std::string &name) {
  std::vector<std::string> parts;
  char buffer[256];
  for (size_t i = 0; const char *part = dit_operator_name_get_part(name.c_str(), i, buffer, sizeof buffer); i++) {
    parts.emplace_back(part);
  }
  return parts;
}

std::string listNearest(const std::string &pattern) {
  char buffer[512];
  dit_operator_name_list_nearest(pattern.c_str(), buffer, sizeof buffer);
  return buffer;
}

// For fault rules: copies on the device do not come through the door, but faults reach them (Factory.cpp).
void listOperators(dit_operator_visitor visit, void *context) {
  for (const Known &known : listKnown()) {
    const bool is_copy = known.name == "aten::copy_" || known.name == "aten::_to_copy";
    visit(context, known.name.c_str(), known.is_seen || is_copy);
  }
}

[[maybe_unused]] const bool is_told = (dit_operator_lister_set(&listOperators), true);

}  // namespace

void NameList::addEntry(const std::string &origin, const std::string &text, std::vector<std::string> &warnings) {
  const bool plain = dit_operator_name_is_plain(text.c_str());
  const std::string simple = plain ? simplify(text) : text;
  Entry &entry = entries_.emplace_back();
  entry.origin = origin;
  entry.text = text;
  try {
    entry.patterns.emplace_back(simple);
  } catch (const std::regex_error &error) {
    TORCH_CHECK_VALUE(
        false, origin, ": '", text, "' is no regular expression (", error.what(),
        "); give patterns of operator names such as add.out, softmax or .*_backward, separated by commas");
  }
  const Matches found = findMatches(entry.patterns.front());
  if (found.seen) {
    return;
  }
  const bool is_name = plain && (!found.other.empty() || simple.find('.') == std::string::npos);
  bool has_parts = false;
  for (const std::string &part : is_name ? listParts(simple) : std::vector<std::string>()) {
    std::regex exact(part);
    if (findMatches(exact).seen) {
      entry.patterns.push_back(std::move(exact));
      has_parts = true;
    }
  }
  if (has_parts) {
    return;
  }
  entry.state = kMatched;  // the warning says it all
  warnings.push_back(
      origin + ": '" + text + "' matches " +
      (found.other.empty()
           ? "no operator; the nearest are " + listNearest(simple)
           : found.other + ", which the controls do not see: it is made of other operators, or needs no kernel"));
}

// Entries end at commas and line ends, and at a bar among blanks: names have no blanks, so "add | mul" means two.
void NameList::add(const std::string &origin, const std::string &text, std::vector<std::string> &warnings) {
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = std::min(text.find_first_of(",\n\r", begin), text.size());
    const size_t bar = text.find(" |", begin);
    if (bar < end && (bar + 2 == text.size() || text.find_first_of(" \t", bar + 2) == bar + 2)) {
      end = bar + 1;
    }
    const size_t first = text.find_first_not_of(" \t", begin);
    if (first < end) {
      addEntry(origin, text.substr(first, text.find_last_not_of(" \t", end - 1) + 1 - first), warnings);
    }
    begin = end + 1;
  }
}

bool NameList::matches(const std::string &name) const {
  bool found = false;
  for (const Entry &entry : entries_) {
    const bool matched = std::any_of(entry.patterns.begin(), entry.patterns.end(),
                                     [&](const std::regex &pattern) { return matchesName(pattern, name); });
    int before = kUnasked;
    if (matched) {
      entry.state = kMatched;
    } else {
      entry.state.compare_exchange_strong(before, kAsked);
    }
    found = found || matched;
  }
  return found;
}

std::vector<std::string> NameList::listIdle() const {
  std::vector<std::string> lines;
  for (const Entry &entry : entries_) {
    if (entry.state == kAsked) {
      lines.push_back(entry.origin + ": '" + entry.text + "' matched none of the operators that ran");
    }
  }
  return lines;
}

void NameList::inherit(const NameList &before) {
  for (Entry &entry : entries_) {
    for (const Entry &old : before.entries_) {
      if (old.origin == entry.origin && old.text == entry.text) {
        entry.state = old.state.load();
      }
    }
  }
}

}  // namespace ditorch::controls
