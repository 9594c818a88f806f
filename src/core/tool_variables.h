/// Environment variables of the operator tools. Internal to core.
#ifndef DIT_CORE_TOOL_VARIABLES_H
#define DIT_CORE_TOOL_VARIABLES_H

#include "dit/options.h"

enum { DIT_TOOL_VARIABLE_SIZE = 128 };  ///< of a name with its NUL; longer ones are none of ours

extern char **environ;

/// The name of an entry of `environ` ("NAME=text") into `name`; false when it does not fit.
bool dit_tool_variable_read(const char *entry, char name[DIT_TOOL_VARIABLE_SIZE]);
/// True when `name` (in any case) is <KEY> and the suffix of the PATTERN option `index`; `key` receives the key in
/// upper case.
bool dit_tool_variable_match(int index, const char *name, char key[DIT_TOOL_VARIABLE_SIZE]);
/// Refuse variables with a prefix of the tools that nobody reads: a misspelt option must not be ignored. Empty ones
/// pass.
DIT_NODISCARD enum dit_status dit_tool_variables_check(struct dit_error *err);

#endif
