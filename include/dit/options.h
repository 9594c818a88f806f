/// Typed options: one schema; the same option as keyword argument, environment variable and TOML file (in this order of
/// precedence).
///
/// The schema is one X-macro list (src/core/option_list.h). Docs and Python read it through the functions below, so
/// nothing is typed twice. The environment is read, never written.
#ifndef DIT_OPTIONS_H
#define DIT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

enum dit_option_type { DIT_OPTION_BOOL, DIT_OPTION_INT, DIT_OPTION_SIZE, DIT_OPTION_CHOICE, DIT_OPTION_STRING };
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

DIT_API int dit_option_get_count(void);
DIT_API const struct dit_option_info *dit_option_get_info(int index);
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

/// "2GiB", "512 MB", "1048576", "1.5G" -> bytes. KiB/MiB/GiB/TiB are powers of 1024, KB/MB/GB/TB of 1000, K/M/G/T of
/// 1024.
DIT_API DIT_NODISCARD enum dit_status dit_size_parse(const char *text, int64_t *bytes, struct dit_error *err);

DIT_EXTERN_C_END

#endif
