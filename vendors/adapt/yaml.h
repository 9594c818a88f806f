/// A reader of the YAML that rules files are written in: a list of entries, each a map of keys to one line of text or
/// to a map of one more level.
///
///   - diopiNLLLoss:             # the entry
///       dtype: (float64)->float32
///       tensor_dtype:
///         target: (int64)->int32
///
/// Comments, quoted values, values that go on in deeper lines, "---" and an empty list are understood; anchors, tags,
/// flow maps and block scalars are errors with their line.
#ifndef DIT_ADAPT_YAML_H
#define DIT_ADAPT_YAML_H

#include <stddef.h>

#include "dit/error.h"

enum { YAML_NAME = 128, YAML_VALUE = 2048 };

/// Called for every value, in order. `key` is "" for an entry without keys; `inner` is "" at the first level. An error
/// ends the reading; the reader puts the line before its text.
typedef enum dit_status yaml_visit(void *context, const char *entry, const char *key, const char *inner,
                                   const char *value, struct dit_error *err);

/// The text need not end with NUL. DIT_ERR_INVALID: "line 7: ...".
enum dit_status yaml_read(const char *text, size_t size, yaml_visit *visit, void *context, struct dit_error *err);

#endif
