/// Shared libraries that are found by name or by path and loaded with local scope: vendor libraries and operator
/// libraries. Private to libdit; depends on libc and libdl.
#ifndef DIT_CORE_PLUGIN_H
#define DIT_CORE_PLUGIN_H

#include <stddef.h>

#include "dit/error.h"

struct plugin_kind {
  const char *noun;    ///< "vendor library"
  const char *prefix;  ///< of the file: "libdit_vendor_"
};

/// Open "<prefix><name>.so" beside libdit, then on the loader's path; or, with a '/', the file with this path. Errors
/// name the file tried and why it is not taken: missing, no ELF library, another machine, the loader's words.
DIT_NODISCARD enum dit_status plugin_open(const struct plugin_kind *kind, const char *name, void **handle,
                                          struct dit_error *err);
/// The file a handle was loaded from, links resolved; `path` has room for PATH_MAX characters.
void plugin_get_path(void *handle, char *path);
/// "<folder of libdit>/<prefix><name>.so"; "" when libdit's own place is unknown or too long.
void plugin_get_beside(const struct plugin_kind *kind, const char *name, char *path, size_t size);
/// Make libdit's own functions visible to libraries that are loaded from now on.
void plugin_publish_self(void);

#endif
