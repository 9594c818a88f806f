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

#endif
