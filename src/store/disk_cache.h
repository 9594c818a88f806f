/// A private directory of files that can be made again: generated code, programs of graph engines.
///
/// A file is written under another name, closed with its mark, size and hash, and renamed, so that a reader finds all
/// of it or nothing. Whatever is not complete, belongs to another user or has another mark is not there; whatever
/// cannot be written is not kept. Nothing here is an error for the caller.
#ifndef DIT_STORE_DISK_CACHE_H
#define DIT_STORE_DISK_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "dit/export.h"

#define DIT_DISK_CACHE_MARK 8                  ///< bytes of a mark
#define DIT_DISK_CACHE_MAX ((size_t)64 << 20)  ///< bytes of a file

struct dit_disk_cache_part {
  const void *bytes;
  size_t size;
};

/// The directory `chosen`, or `name` in the user's cache directory, or in /tmp with the user's number: the first that
/// can be made or is there, belongs to the user alone (mode 0700) and can be written to. False: there is none.
DIT_API bool dit_disk_cache_find(const char *chosen, const char *name, char *path, size_t size);
/// The bytes of a complete file with this mark, for dit_free; NULL: a miss.
DIT_API void *dit_disk_cache_read(const char *path, const char *mark, size_t *size);
/// Keep the parts, one behind the other, as the file `path`. False: it was not kept.
DIT_API bool dit_disk_cache_write(const char *path, const char *mark, const struct dit_disk_cache_part *parts,
                                  int count);
/// The same of a file that somebody has made in that directory; it is renamed, or removed.
DIT_API bool dit_disk_cache_seal(const char *made, const char *path, const char *mark);

#endif
