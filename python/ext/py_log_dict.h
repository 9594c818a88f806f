/// Records of a log as Python objects.
#ifndef DIT_EXT_PY_LOG_DICT_H
#define DIT_EXT_PY_LOG_DICT_H

#include "dit/record.h"
#include "module.h"

/// What is not UTF-8 becomes U+FFFD. New reference.
PyObject *py_log_text_decode(const char *data, size_t size);
/// The name of the record's type, or its number, as str. New reference.
PyObject *py_log_type_get(const struct dit_record *record);
/// type, seq, time, rank, pid, tid, flags when not 0, then the fields. New reference.
PyObject *py_log_record_build(const struct dit_record *record);

/// For other users of a LogReader (py_align.c): its reader is theirs between enter and leave. `enter`: -1 with an
/// exception when it is closed, in use, or no LogReader at all. `leave` says whether a filter left an exception.
DIT_NODISCARD int py_log_reader_enter(PyObject *module, PyObject *object);
bool py_log_reader_leave(PyObject *object);
struct dit_record_reader *py_log_reader_get(PyObject *object);

#endif
