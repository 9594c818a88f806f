/// From the text of an option to its value. Internal to core.
#ifndef DIT_CORE_OPTION_PARSE_H
#define DIT_CORE_OPTION_PARSE_H

#include "core/toml.h"
#include "dit/options.h"

/// Checks `text` against the schema entry. On success `*number` is the value (BOOL 0/1, INT, SIZE in bytes, CHOICE
/// index, STRING 0) and `*canonical` a new string (dit_free). `origin` begins the error message: "environment variable
/// DITORCH_ALIAS".
DIT_NODISCARD enum dit_status dit_option_parse(const struct dit_option_info *info, const char *origin, const char *text,
                                               int64_t *number, char **canonical, struct dit_error *err);
/// The syntax of RANGES, CASTS and TOLERANCE; other types pass.
DIT_NODISCARD enum dit_status dit_option_check_syntax(enum dit_option_type type, const char *origin, const char *text,
                                                      struct dit_error *err);
/// A TOML value as the text that the environment would hold, a new string (dit_free). Arrays are joined by commas where
/// the option is a list. `origin` begins the error message.
DIT_NODISCARD enum dit_status dit_option_read_toml(enum dit_option_type type, const char *origin,
                                                   const struct dit_toml_value *value, char **text,
                                                   struct dit_error *err);

#endif
