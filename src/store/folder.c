/// Checking paths, making and entering folders (contract in folder.h).
///
/// Invariant: `fd` is the folder `path` below the root, or -1. With `follow` false every part below the root is opened
/// by itself without following a link, so nothing outside the root is reached. Depends on core's error.
#include "store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_FOLDER = O_PATH | O_DIRECTORY | O_CLOEXEC, MOST_PATH = 4000 };

static enum dit_status refuse(struct dit_error *err, const char *path, size_t size, const char *why) {
  int shown = size > 200 ? 200 : (int)size;
  return dit_error_set(err, DIT_ERR_INVALID, "path '%.*s'%s %s; valid: a path like 'torch.add/1/input.pth'", shown,
                       path, size > 200 ? "..." : "", why);
}

enum dit_status dit_path_check(const char *path, size_t size, struct dit_error *err) {
  if (size == 0 || size > MOST_PATH) {
    return refuse(err, path, size, size == 0 ? "is empty" : "is longer than 4000 bytes");
  }
  if (memchr(path, '\0', size)) {
    return refuse(err, path, size, "contains a NUL");
  }
  if (path[0] == '/') {
    return refuse(err, path, size, "is absolute");
  }
  for (size_t begin = 0; begin <= size;) {
    const char *slash = begin < size ? memchr(path + begin, '/', size - begin) : NULL;
    size_t part = (slash ? (size_t)(slash - path) : size) - begin;
    if (part == 0 || (part == 1 && path[begin] == '.') || (part == 2 && memcmp(path + begin, "..", 2) == 0)) {
      return refuse(err, path, size, "has an empty part, '.' or '..'");
    }
    begin += part + 1;
  }
  return DIT_OK;
}

const char *dit_path_get_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/// mkdir -p, from the leaf: mostly only the leaf is missing. `path` is changed and restored. 0 or errno.
static int make_folders(int base, char *path) {
  if (mkdirat(base, path, 0777) == 0 || errno == EEXIST) {
    return 0;
  }
  char *slash = strrchr(path, '/');
  if (errno != ENOENT || !slash || slash == path) {
    return errno;
  }
  *slash = '\0';
  int error = make_folders(base, path);
  *slash = '/';
  if (error) {
    return error;
  }
  return mkdirat(base, path, 0777) == 0 || errno == EEXIST ? 0 : errno;
}

/// Part by part, no link followed. The descriptor, or -1 and errno.
static int enter_strictly(int root, char *path) {
  int fd = dup(root);
  for (char *part = path; fd >= 0 && part;) {
    char *slash = strchr(part, '/');
    if (slash) {
      *slash = '\0';
    }
    int made = mkdirat(fd, part, 0777), next = -1;
    if (made == 0 || errno == EEXIST) {
      next = openat(fd, part, OPEN_FOLDER | O_NOFOLLOW);
    }
    int error = errno;
    if (slash) {
      *slash = '/';
    }
    close(fd);
    fd = next;
    errno = error;
    part = slash ? slash + 1 : NULL;
  }
  return fd;
}

static int open_root(struct dit_folder *folder) {
  size_t size = strlen(folder->root);
  while (size > 1 && folder->root[size - 1] == '/') {
    folder->root[--size] = '\0';
  }
  int error = make_folders(AT_FDCWD, folder->root);
  if (error) {
    return error;
  }
  folder->root_fd = open(folder->root, OPEN_FOLDER);
  return folder->root_fd < 0 ? errno : 0;
}

enum dit_status dit_folder_init(struct dit_folder *folder, const char *root, bool follow, struct dit_error *err) {
  *folder = (struct dit_folder){.root_fd = -1, .fd = -1, .follow = follow};
  size_t size = root ? strlen(root) : 0;
  char base[DIT_STORE_MAX_PATH / 2] = "";
  if (size == 0 || size + sizeof(base) >= sizeof(folder->root)) {
    return dit_error_set(err, DIT_ERR_INVALID, "the folder of a store is %s; valid: the path of a folder",
                         size == 0 ? "empty" : "longer than 2047 bytes");
  }
  if (root[0] != '/' && (!getcwd(base, sizeof(base) - 1) || base[0] != '/')) {
    return dit_error_set(err, DIT_ERR_IO,
                         "the working directory cannot be read (%s); give the folder '%s' as an "
                         "absolute path",
                         strerror(errno), root);
  }
  size_t base_size = strlen(base);
  memcpy(folder->root, base, base_size);
  if (base_size > 0) {
    folder->root[base_size++] = '/';
  }
  memcpy(folder->root + base_size, root, size + 1);
  int error = open_root(folder);
  if (error) {
    return dit_error_set(err, DIT_ERR_IO,
                         "folder '%s' cannot be made or entered: %s; choose another or make it "
                         "writable",
                         folder->root, strerror(error));
  }
  return DIT_OK;
}

void dit_folder_leave(struct dit_folder *folder) {
  if (folder->fd >= 0 && folder->fd != folder->root_fd) {
    close(folder->fd);
  }
  folder->fd = -1;
  folder->size = 0;
}

void dit_folder_reset(struct dit_folder *folder) {
  if (folder->root[0] == '\0') {
    return;
  }
  dit_folder_leave(folder);
  if (folder->root_fd >= 0) {
    close(folder->root_fd);
  }
  folder->root_fd = -1;
}

/// Make the folders of `path` from byte `known` on, where the part before most likely exists. 0 or errno.
static int make_rest(int root, char *path, size_t known) {
  for (char *slash = strchr(path + known, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    int failed = mkdirat(root, path, 0777) != 0 && errno != EEXIST;
    *slash = '/';
    if (failed) {
      break;
    }
  }
  return make_folders(root, path);
}

static int enter(struct dit_folder *folder, size_t known) {
  if (!folder->follow) {
    return enter_strictly(folder->root_fd, folder->path);
  }
  int error = make_rest(folder->root_fd, folder->path, known);
  errno = error;
  return error ? -1 : openat(folder->root_fd, folder->path, OPEN_FOLDER);
}

/// How much of `path` the folder entered last has in common with it, in whole parts (a '/' included).
static size_t get_common(const struct dit_folder *folder, const char *path, size_t size) {
  size_t common = 0;
  for (size_t i = 0; i < size && i < folder->size && folder->path[i] == path[i]; i++) {
    common = path[i] == '/' ? i + 1 : common;
  }
  return common;
}

int dit_folder_enter(struct dit_folder *folder, const char *path) {
  const char *name = dit_path_get_name(path);
  size_t size = name > path ? (size_t)(name - path) - 1 : 0;
  if (folder->fd >= 0 && folder->size == size && memcmp(folder->path, path, size) == 0) {
    return 0;
  }
  size_t known = folder->fd >= 0 ? get_common(folder, path, size) : 0;
  dit_folder_leave(folder);
  if (size >= sizeof(folder->path)) {
    return ENAMETOOLONG;
  }
  memcpy(folder->path, path, size);
  folder->path[size] = '\0';
  struct stat info;
  if (folder->root_fd >= 0 && fstat(folder->root_fd, &info) == 0 && info.st_nlink == 0) {
    close(folder->root_fd);  // the root itself was removed
    folder->root_fd = -1;
  }
  int error = folder->root_fd < 0 ? open_root(folder) : 0;
  folder->lost = error != 0;
  if (error) {
    return error;
  }
  folder->fd = size == 0 ? folder->root_fd : enter(folder, known);
  folder->size = size;
  return folder->fd < 0 ? errno : 0;
}
