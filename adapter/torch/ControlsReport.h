// What autocompare found, by operator: lines as it happens, a table in the end. See ControlsReport.cpp.
#pragma once

#include <functional>
#include <string>

#include "dit/verdict.h"

namespace ditorch::controls {

// One call that was compared. `show` makes its block of text, if that is printed: every call's when `all`.
void noteCompared(const std::string &op, dit_verdict verdict, const std::string &reason, bool on_cpu, bool all,
                  const std::function<std::string()> &show);
// One call that could not be compared.
void noteSkipped(const std::string &op, const char *reason);
// From now on the table is printed when the process ends.
void reportAtExit();

}  // namespace ditorch::controls
