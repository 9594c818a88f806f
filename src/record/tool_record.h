/// What the views know of the tools' records: their types and fields. Internal to record.
///
/// The log itself takes any type and any field; the numbers and names here are those of the operator tools, described
/// in docs/export.md.
#ifndef DIT_RECORD_TOOL_RECORD_H
#define DIT_RECORD_TOOL_RECORD_H

#include "dit/record.h"

enum dit_tool_record {
  DIT_TOOL_CALL = 16,
  DIT_TOOL_BACKWARD,
  DIT_TOOL_TIME,
  DIT_TOOL_FINDING,
  DIT_TOOL_CAPTURE,
  DIT_TOOL_TOOL,
  DIT_TOOL_NOTE,
  DIT_TOOL_NONE,  ///< a record of somebody else
};

/// By the type's name in the header, by its number where the header has no name for it.
enum dit_tool_record dit_tool_record_get_type(const struct dit_record *record);
/// The first field with that key, or NULL.
const struct dit_record_field *dit_tool_record_find(const struct dit_record *record, const char *key);
/// A field's number, floats within the range in which nanoseconds make sense. False for NULL and other types.
bool dit_tool_record_get_number(const struct dit_record_field *field, int64_t *number);
/// The text of a string field; size 0 when it is absent or something else.
struct dit_record_text dit_tool_record_get_text(const struct dit_record *record, const char *key);
bool dit_tool_record_text_is(struct dit_record_text text, const char *other);
/// True for the leaves below `prefix`: "args" has "args.0" and "args.1.0", "out" also "out" itself. `*rest` (nullable)
/// is what follows "prefix.", empty for the prefix itself.
bool dit_tool_record_is_leaf(const struct dit_record_field *field, const char *prefix, struct dit_record_text *rest);
/// The same for all files of one process, another one for other processes: operators' ids are unique within it.
uint64_t dit_tool_record_get_process(const struct dit_record_header *header);

#endif
