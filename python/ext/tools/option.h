/// Reading the dictionary of options that Python passed to a tool. An option that is missing or None leaves the value
/// as it is. `tool` is the class as users know it ("OpCapture"), for messages. 0, or -1 with an exception.
#ifndef DIT_EXT_TOOLS_OPTION_H
#define DIT_EXT_TOOLS_OPTION_H

#include "module.h"

/// Borrowed; NULL (no exception) when it is missing or None.
PyObject *option_get(PyObject *options, const char *name);
DIT_NODISCARD int option_read_flag(PyObject *options, const char *name, bool *flag);
/// At least `least`.
DIT_NODISCARD int option_read_number(PyObject *options, const char *tool, const char *name, int64_t least,
                                     int64_t *number);
/// One of `words` (NULL behind the last): its place.
DIT_NODISCARD int option_read_choice(PyObject *options, const char *tool, const char *name, const char *const *words,
                                     int *choice);

#endif
