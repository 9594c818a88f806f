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
#include "core/edit_distance.h"
#include "dit/operator.h"

namespace ditorch::controls {
namespace {

constexpr size_t kNearest = 3;  // names that a warning offers

// What functions of torch consist of, where the names do not tell it.
const struct {
  const char *name;
  std::vector<const char *> parts;
} kParts[] = {
    {"matmul", {"mm", "bmm", "mv", "dot"}},
    {"linear", {"mm", "addmm", "bmm", "mv", "addmv"}},
    {"einsum", {"bmm"}},
    {"conv1d", {"convolution"}},
    {"conv2d", {"convolution"}},
    {"conv3d", {"convolution"}},
    {"conv_transpose1d", {"convolution"}},
    {"conv_transpose2d", {"convolution"}},
    {"conv_transpose3d", {"convolution"}},
    {"cross_entropy", {"_log_softmax", "nll_loss_forward", "nll_loss2d_forward"}},
    {"cross_entropy_loss", {"_log_softmax", "nll_loss_forward", "nll_loss2d_forward"}},
    {"nll_loss", {"nll_loss_forward", "nll_loss2d_forward"}},
};

// How an operator is called that does the work of a function: softmax is done by _softmax.
const char *const kAffixes[][2] = {
    {"_", ""},        {"native_", ""},       {"_native_", ""},       {"_fused_", ""},
    {"", "_forward"}, {"", "_with_indices"}, {"_native_", "_legit"}, {"_native_", "_legit_no_training"}};

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

bool startsWith(const std::string &text, const char *prefix) {
  return text.rfind(prefix, 0) == 0;
}

bool isPlain(const std::string &pattern) {
  return pattern.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:") ==
         std::string::npos;
}

// torch.ops.aten.add.Tensor -> add.Tensor, torch.nn.functional.softmax -> softmax, aten::add.default -> aten::add.
std::string simplify(std::string name) {
  for (const char *prefix : {"torch.ops.aten.", "aten."}) {
    if (startsWith(name, prefix)) {
      name = name.substr(std::string(prefix).size());
    }
  }
  const size_t end = name.rfind(".default");
  if (end != std::string::npos && end + sizeof(".default") - 1 == name.size()) {
    name.resize(end);
  }
  for (const char *prefix : {"torch.", "F.", "Tensor.", "nn."}) {
    if (startsWith(name, prefix)) {
      return name.substr(name.rfind('.') + 1);
    }
  }
  return name;
}

// The operators that may do the work of a function of torch.
std::vector<std::string> listParts(const std::string &name) {
  const std::string base = getBase(startsWith(name, "aten::") ? name.substr(sizeof("aten::") - 1) : name);
  std::vector<std::string> parts;
  for (const auto &row : kParts) {
    if (base == row.name) {
      parts.insert(parts.end(), row.parts.begin(), row.parts.end());
    }
  }
  for (const auto &affix : kAffixes) {
    parts.push_back(affix[0] + base + affix[1]);
  }
  if (const dit_operator *row = dit_operator_find(base.c_str())) {
    parts.emplace_back(row->name);  // __add__ is add
  }
  return parts;
}

std::string listNearest(const std::string &pattern) {
  const std::string wanted = startsWith(pattern, "aten::") ? pattern.substr(sizeof("aten::") - 1) : pattern;
  const bool has_overload = wanted.find('.') != std::string::npos;
  std::vector<std::pair<int, std::string>> found;
  for (const Known &known : listKnown()) {
    if (known.is_seen && startsWith(known.name, "aten::")) {
      const std::string name = known.name.substr(sizeof("aten::") - 1), text = has_overload ? name : getBase(name);
      found.emplace_back(dit_edit_distance_get(wanted.c_str(), text.c_str()), text);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::string text;
  for (size_t i = 0; i < std::min(kNearest, found.size()); i++) {
    text += (i ? ", " : "") + found[i].second;
  }
  return text;
}

}  // namespace

void NameList::addPattern(const std::string &origin, const std::string &pattern, std::vector<std::string> &warnings) {
  const bool plain = isPlain(pattern);
  const std::string simple = plain ? simplify(pattern) : pattern;
  try {
    patterns_.emplace_back(simple);
  } catch (const std::regex_error &error) {
    TORCH_CHECK_VALUE(false, origin, ": '", pattern, "' is no regular expression (", error.what(),
                      "); give patterns of operator names such as add.out, softmax or .*_backward, by commas");
  }
  const Matches found = findMatches(patterns_.back());
  if (found.seen) {
    return;
  }
  const bool is_name = plain && (!found.other.empty() || simple.find('.') == std::string::npos);
  bool has_parts = false;
  for (const std::string &part : is_name ? listParts(simple) : std::vector<std::string>()) {
    std::regex exact(part);
    if (findMatches(exact).seen) {
      patterns_.push_back(std::move(exact));
      has_parts = true;
    }
  }
  if (has_parts) {
    return;
  }
  warnings.push_back(
      origin + ": '" + pattern + "' matches " +
      (found.other.empty()
           ? "no operator; the nearest are " + listNearest(simple)
           : found.other + ", which the controls do not see: it is made of other operators, or needs no kernel"));
}

void NameList::add(const std::string &origin, const std::string &text, std::vector<std::string> &warnings) {
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find_first_of(",\n\r", begin), text.size());
    const size_t first = text.find_first_not_of(" \t", begin);
    if (first < end) {
      addPattern(origin, text.substr(first, text.find_last_not_of(" \t", end - 1) + 1 - first), warnings);
    }
    begin = end + 1;
  }
}

bool NameList::matches(const std::string &name) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::regex &pattern) { return matchesName(pattern, name); });
}

}  // namespace ditorch::controls
