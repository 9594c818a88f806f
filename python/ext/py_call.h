/// Small calls of Python objects, and pending exceptions as text. Needs the GIL.
#ifndef DIT_EXT_PY_CALL_H
#define DIT_EXT_PY_CALL_H

#include "module.h"

/// function(argument) whose result does not matter. 0 or -1.
DIT_NODISCARD int py_call_none(PyObject *function, PyObject *argument);
/// function(first, second) whose result does not matter. 0 or -1.
DIT_NODISCARD int py_call_pair(PyObject *function, PyObject *first, PyObject *second);
/// Is function(argument), or function() without one, true? 1, 0 or -1.
int py_call_bool(PyObject *function, PyObject *argument);
/// The same where a failure, or a function that is NULL, means no. Leaves no exception.
bool py_call_is_true(PyObject *function, PyObject *argument);
/// function() as a number; -1 with an exception.
long py_call_long(PyObject *function);

/// function(argument), which takes the reference of the argument; NULL when that is NULL. For chains of calls.
PyObject *py_call_take(PyObject *function, PyObject *py_argument);

/// Enter a context manager; takes the reference and returns it, or NULL with an exception. NULL allowed.
PyObject *py_context_enter(PyObject *py_context);
/// Leave it; takes the reference. Keeps a pending exception, and drops the context's own. NULL allowed.
void py_context_leave(PyObject *py_context);

/// The text of the pending exception, which is cleared: "" without a text. `name` (nullable) becomes that of its type.
void py_error_take(char *text, size_t size, const char **name);

#endif
