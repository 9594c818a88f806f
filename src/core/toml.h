/// A strict reader for the part of TOML that configuration files need. Internal to core.
///
/// Understood: comments, [table] and [dotted.table], bare, quoted and dotted keys, basic and literal strings on one
/// line, integers (decimal, hexadecimal, octal, binary, underscores), floats, booleans, arrays of those. Refused by
/// name: arrays of tables, inline tables, dates and times, multi-line strings, nested arrays.
#ifndef DIT_CORE_TOML_H
#define DIT_CORE_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

enum dit_toml_type { DIT_TOML_STRING, DIT_TOML_INTEGER, DIT_TOML_FLOAT, DIT_TOML_BOOL, DIT_TOML_ARRAY };

struct dit_toml_value {
  enum dit_toml_type type;
  union {
    char *string;  ///< UTF-8 without NUL inside
    int64_t integer;
    double real;
    bool boolean;
    struct {
      struct dit_toml_value *items;  ///< scalars
      size_t count;
    } array;
  } v;
};

/// One `key = value`.
struct dit_toml_entry {
  char *path;  ///< "table.key"; a part that is not a bare key is written in double quotes: `ditorch."a.b"`
  struct dit_toml_value value;
  int line;    ///< of the key, from 1
  int column;  ///< in characters, from 1
};

struct dit_toml_document {
  struct dit_toml_entry *entries;  ///< in the order of the file
  size_t count;
};

/// Most bytes of a file, keys and tables of a document, and items of an array.
enum { DIT_TOML_MAX_BYTES = 1 << 20, DIT_TOML_MAX_KEYS = 4096, DIT_TOML_MAX_ITEMS = 65536 };

/// Parse `size` bytes. `name` begins every error message: "name:line:column: ...". DIT_ERR_CORRUPT for text that is not
/// this subset, DIT_ERR_NOMEM; the document is then empty. Free a parsed one with dit_toml_reset.
DIT_NODISCARD enum dit_status dit_toml_parse(const char *text, size_t size, const char *name,
                                             struct dit_toml_document *document, struct dit_error *err);
/// Read and parse a file; also DIT_ERR_IO.
DIT_NODISCARD enum dit_status dit_toml_read(const char *path, struct dit_toml_document *document,
                                            struct dit_error *err);
/// Frees the entries; accepts an empty document.
void dit_toml_reset(struct dit_toml_document *document);

#endif
