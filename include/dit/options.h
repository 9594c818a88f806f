/// Typed options: one schema; the same option as keyword argument, environment variable and TOML file (in this order of
/// precedence).
///
/// The schema is a pair of X-macro lists (src/core/option_list.h): the options of ditorch itself, which have one value
/// per process, and those of the operator tools, which have one per tool. Docs and Python read them through the
/// functions below, so nothing is typed twice. The environment is read, never written.
#ifndef DIT_OPTIONS_H
#define DIT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// The types from NAMES on are texts with a syntax of their own: operator names and regular expressions separated by
/// commas; shell patterns separated by commas; "4-6,9,20-"; "torch.float16->torch.float32,..."; "1e-3,1e-3". The first
/// two are only taken as they are here: the patterns are compiled by whoever uses them.
enum dit_option_type {
  DIT_OPTION_BOOL,
  DIT_OPTION_INT,
  DIT_OPTION_SIZE,
  DIT_OPTION_CHOICE,
  DIT_OPTION_STRING,
  DIT_OPTION_NAMES,
  DIT_OPTION_PATTERNS,
  DIT_OPTION_RANGES,
  DIT_OPTION_CASTS,
  DIT_OPTION_TOLERANCE,
};
enum dit_option_source { DIT_SOURCE_DEFAULT, DIT_SOURCE_FILE, DIT_SOURCE_ENVIRONMENT, DIT_SOURCE_ARGUMENT };

struct dit_option_info {
  const char *name;         ///< TOML key and keyword: "host_devices"
  const char *environment;  ///< "DITORCH_HOST_DEVICES"
  enum dit_option_type type;
  const char *default_text;
  const char *choices;  ///< CHOICE: "auto|cuda|host|none"; else NULL
  int64_t min, max;     ///< INT and SIZE
  const char *help;     ///< one sentence for the generated table
};

/// A variable of another product that sets an option of ours.
struct dit_option_alias {
  const char *variable;  ///< "DIPU_MAX_EXTEND_SIZE"
  const char *option;    ///< "allocator_extend"
  const char *unit;      ///< appended to the variable's value
};

DIT_API int dit_option_get_count(void);
DIT_API const struct dit_option_info *dit_option_get_info(int index);
DIT_API const struct dit_option_alias *dit_option_get_alias(int index);  ///< NULL beyond the last
/// Index by keyword or environment name; -1 when unknown.
DIT_API int dit_option_find(const char *name);

/// Read the TOML file (NULL: the one that option `config` or DITORCH_CONFIG names, if any) and the environment. Unknown
/// keys of the [ditorch] table and bad values are errors that name the key, its place (file:line), its value and the
/// valid ones; unknown DITORCH_* variables are errors too, with the nearest known name. Nothing changes on error.
/// Keyword arguments set before stay. An empty DITORCH_* variable counts as unset; an empty CUDA_VISIBLE_DEVICES or
/// PYTORCH_CUDA_ALLOC_CONF has the empty text with source ENVIRONMENT.
DIT_API DIT_NODISCARD enum dit_status dit_options_load(const char *toml_path, struct dit_error *err);
/// Keyword argument: highest precedence.
DIT_API DIT_NODISCARD enum dit_status dit_option_set(const char *name, const char *text, struct dit_error *err);
DIT_API void dit_options_reset(void);  ///< back to the defaults

/// Values by index (find once). The text is the canonical form of the value; borrowed until the next change of options.
DIT_API const char *dit_option_get_text(int index);
DIT_API int64_t dit_option_get_int(int index);  ///< BOOL 0/1, INT, SIZE in bytes, CHOICE index
DIT_API enum dit_option_source dit_option_get_source(int index);
/// The environment variable that gave the value, our own or an alias; NULL when it came from elsewhere.
DIT_API const char *dit_option_get_variable(int index);

/// "2GiB", "512 MB", "1048576", "1.5G" -> bytes. KiB/MiB/GiB/TiB are powers of 1024, KB/MB/GB/TB of 1000, K/M/G/T of
/// 1024.
DIT_API DIT_NODISCARD enum dit_status dit_size_parse(const char *text, int64_t *bytes, struct dit_error *err);

// The operator tools

enum dit_tool {
  DIT_TOOL_OBSERVE,
  DIT_TOOL_TIME_MEASURE,
  DIT_TOOL_OVERFLOW_CHECK,
  DIT_TOOL_CAPTURE,
  DIT_TOOL_FALLBACK,
  DIT_TOOL_AUTOCOMPARE,
  DIT_TOOL_DTYPE_CAST,
  DIT_TOOL_PROCESS_MONITOR,
  DIT_TOOL_COUNT,
};

/// Where an option of a tool is read from, strongest first.
enum dit_tool_scope {
  DIT_SCOPE_SHARED,   ///< OP_<TOOL>_<NAME>, OP_TOOLS_<NAME>, [op_tools.<tool>], [op_tools]
  DIT_SCOPE_OWN,      ///< OP_<TOOL>_<NAME>, [op_tools.<tool>]
  DIT_SCOPE_NAMED,    ///< option.environment, and both tables
  DIT_SCOPE_PATTERN,  ///< every variable <KEY><option.environment>, one value per key; the same in lower case in TOML
};

struct dit_tool_option_info {
  struct dit_option_info option;
  unsigned tools;  ///< bits 1 << enum dit_tool; two rows may have the same name and different tools
  enum dit_tool_scope scope;
};

DIT_API const char *dit_tool_get_name(int tool);  ///< "time_measure"; NULL beyond the last
DIT_API int dit_tool_find(const char *name);      ///< -1 when unknown
DIT_API int dit_tool_option_get_count(void);
DIT_API const struct dit_tool_option_info *dit_tool_option_get_info(int index);
/// The `position`-th variable (strongest first, old names included) that sets option `index` of `tool`, into `buffer`;
/// "<OP>" stands for the key of a PATTERN. False beyond the last.
DIT_API bool dit_tool_option_get_variable(int index, int tool, int position, char *buffer, size_t size);
/// True for a variable that belongs to the tools: by its prefix, its name or its pattern. Whether it is a known one is
/// checked by dit_tool_options_create.
DIT_API bool dit_tool_variable_is_ours(const char *name);

/// One value of a set.
struct dit_tool_value {
  int option;       ///< index for dit_tool_option_get_info
  const char *key;  ///< PATTERN: "LINEAR"; else NULL
  const char *text;
  int64_t number;  ///< as dit_option_get_int
  enum dit_option_source source;
  const char *origin;  ///< "environment variable OP_OBSERVE_LIST", begins error messages about the value
};

/// A keyword argument.
struct dit_tool_argument {
  const char *name;
  const char *text;
};

/// All values of one tool, immutable.
struct dit_tool_options;

/// Resolve the options of `tool`: arguments, environment, TOML file (NULL: none), defaults; for each of the sources the
/// tool's own spelling beats the shared one. Unknown names (of arguments, of keys in [op_tools...], of variables
/// with a prefix of the tools) and bad values are DIT_ERR_INVALID with a message that names the nearest valid ones. An
/// empty variable counts as unset, except for NAMES, where it is the empty list.
DIT_API DIT_NODISCARD enum dit_status dit_tool_options_create(enum dit_tool tool, const char *toml_path,
                                                              const struct dit_tool_argument *arguments, size_t count,
                                                              struct dit_tool_options **options, struct dit_error *err);
DIT_API void dit_tool_options_destroy(struct dit_tool_options *options);  ///< accepts NULL
/// Value `index` in the order of the schema, borrowed; NULL beyond the last. A PATTERN has any number of values.
DIT_API const struct dit_tool_value *dit_tool_options_get(const struct dit_tool_options *options, size_t index);

DIT_EXTERN_C_END

#endif
