/// The folders below a root: made when needed, kept open while items go to the same one. Internal to store.
#ifndef DIT_STORE_FOLDER_H
#define DIT_STORE_FOLDER_H

#include "dit/store.h"

struct dit_folder {
  char root[DIT_STORE_MAX_PATH];  ///< absolute, or relative to a working directory that stays
  int root_fd;
  int fd;  ///< of the folder entered last, -1 for none; may be root_fd
  /// Folders of links are entered in a store that the program fills itself (the user may have linked its results to
  /// another disk), never when the paths come from a file.
  bool follow;
  bool lost;  ///< the root was removed and cannot be made again
  size_t size;
  char path[DIT_STORE_MAX_PATH];  ///< of the folder entered last, relative to the root
};

/// DIT_ERR_INVALID unless `path` is relative, without empty, "." and ".." parts, and short enough.
DIT_NODISCARD enum dit_status dit_path_check(const char *path, size_t size, struct dit_error *err);
/// The part of `path` behind the last '/'.
const char *dit_path_get_name(const char *path);

/// Make `root` and its parents and open it. DIT_ERR_IO, DIT_ERR_INVALID.
DIT_NODISCARD enum dit_status dit_folder_init(struct dit_folder *folder, const char *root, bool follow,
                                              struct dit_error *err);
void dit_folder_reset(struct dit_folder *folder);  ///< accepts a zeroed one
/// Forget the open folder: it may have been removed.
void dit_folder_leave(struct dit_folder *folder);
/// Make and open the folder of the file `path`; its descriptor is in `fd`. 0 or errno.
int dit_folder_enter(struct dit_folder *folder, const char *path);

#endif
