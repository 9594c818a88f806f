/// Values as Python prints them: str() of the mapping in which the original tools described arguments. Internal to
/// record.
#ifndef DIT_RECORD_PYTHON_TEXT_H
#define DIT_RECORD_PYTHON_TEXT_H

#include "record/text.h"

/// repr() of a str. Characters that Python calls unprintable beyond Latin-1 stay as they are.
void dit_python_append_repr(struct dit_text *text, const char *data, size_t size);
/// repr() of a float.
void dit_python_append_float(struct dit_text *text, double value);
/// "{'args': (...), 'kwargs': {...}}" of a call's arguments; "-" when the record has no arguments and no result.
void dit_python_append_input(struct dit_text *text, const struct dit_record *record);
/// "{'args': (...,)}" of the leaves below `prefix` as one argument; "-" when there is none.
void dit_python_append_output(struct dit_text *text, const struct dit_record *record, const char *prefix);

#endif
