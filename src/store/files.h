/// Items as files. Internal to store.
#ifndef DIT_STORE_FILES_H
#define DIT_STORE_FILES_H

#include "store/folder.h"

/// What writing needs again and again; one thread at a time.
struct dit_files {
  struct dit_folder folder;
  unsigned char *buffer;
  size_t capacity;
  unsigned pid;  ///< for temporary names; of the process that writes
};

/// DIT_ERR_NOMEM, and as dit_folder_init.
DIT_NODISCARD enum dit_status dit_files_init(struct dit_files *files, const char *root, bool follow,
                                             struct dit_error *err);
void dit_files_reset(struct dit_files *files);  ///< accepts a zeroed one
/// Write `<path>.json` (when there is one) and `path`, each complete or not at all. `bytes` receives their size and
/// `error` errno of a failure. DIT_ERR_IO, DIT_ERR_NOMEM.
DIT_NODISCARD enum dit_status dit_files_write(struct dit_files *files, const char *path,
                                              const struct dit_store_item *item, uint64_t *bytes, int *error,
                                              struct dit_error *err);

/// DIT_ERR_INVALID for an item that cannot be written, whatever its path.
DIT_NODISCARD enum dit_status dit_item_check(const struct dit_store_item *item, struct dit_error *err);
/// Wait for the bytes of all blobs; false when one gives up.
bool dit_item_wait(const struct dit_store_item *item);
/// Release all blobs.
void dit_item_release(const struct dit_store_item *item);

#endif
