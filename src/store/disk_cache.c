/// See disk_cache.h. Behind the bytes of a file stand its mark (8 bytes), their number and their 128-bit hash.
#include "store/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/numerics.h"

#define FOOTER (DIT_DISK_CACHE_MARK + 3 * sizeof(uint64_t))
#define MAX_NAME 4300

// The directory

static bool is_private(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 077) == 0;
}

/// Makes `path` and its parent; false: it is not ours alone.
static bool make_directory(char *path) {
  char *slash = strrchr(path, '/');
  if (slash && slash != path) {
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  (void)mkdir(path, 0700);
  return is_private(path);
}

bool dit_disk_cache_find(const char *chosen, const char *name, char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (chosen[0]) {
    length = snprintf(path, size, "%s", chosen);
  } else if (cache && cache[0] == '/') {
    length = snprintf(path, size, "%s/%s", cache, name);
  } else if (home && home[0] == '/') {
    length = snprintf(path, size, "%s/.cache/%s", home, name);
  }
  if (length > 0 && (size_t)length < size && make_directory(path) && access(path, W_OK | X_OK) == 0) {
    return true;
  }
  length = snprintf(path, size, "/tmp/%s-%ld", name, (long)geteuid());
  return length > 0 && (size_t)length < size && make_directory(path);
}

// Files

static void write_footer(char *footer, const char *mark, const void *bytes, size_t size) {
  const int64_t length = (int64_t)size, stride = 1;
  const struct dit_tensor_view view = {.data = (void *)(uintptr_t)bytes,
                                       .dtype = DIT_DTYPE_U8,
                                       .ndim = 1,
                                       .sizes = &length,
                                       .strides = &stride,
                                       .numel = length};
  struct dit_hash hash = {0, 0};
  const enum dit_status status = dit_tensor_get_hash(&view, &hash, NULL);
  (void)status;  // it refuses no view of bytes
  const uint64_t words[3] = {size, hash.low, hash.high};
  memcpy(footer, mark, DIT_DISK_CACHE_MARK);
  memcpy(footer + DIT_DISK_CACHE_MARK, words, sizeof words);
}

static char *read_file(const char *path, size_t *size) {
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status;
  char *data = NULL;
  if (file < 0) {
    return NULL;
  }
  if (fstat(file, &status) == 0 && status.st_uid == geteuid() && S_ISREG(status.st_mode) && status.st_size > 0 &&
      (size_t)status.st_size <= DIT_DISK_CACHE_MAX + FOOTER) {
    data = dit_malloc((size_t)status.st_size);
  }
  size_t at = 0;
  while (data && at < (size_t)status.st_size) {
    const ssize_t got = read(file, data + at, (size_t)status.st_size - at);
    if (got == 0 || (got < 0 && errno != EINTR)) {
      dit_free(data);
      data = NULL;
    } else if (got > 0) {
      at += (size_t)got;
    }
  }
  close(file);
  *size = at;
  return data;
}

void *dit_disk_cache_read(const char *path, const char *mark, size_t *size) {
  size_t whole = 0;
  char footer[FOOTER];
  char *data = read_file(path, &whole);
  if (data && whole > FOOTER) {
    write_footer(footer, mark, data, whole - FOOTER);
    if (memcmp(footer, data + whole - FOOTER, FOOTER) == 0) {
      *size = whole - FOOTER;
      return data;
    }
  }
  dit_free(data);
  return NULL;
}

static bool write_whole(int file, const char *data, size_t size) {
  while (size > 0) {
    const ssize_t put = write(file, data, size);
    if (put < 0 && errno != EINTR) {
      return false;
    }
    data += put > 0 ? put : 0;
    size -= put > 0 ? (size_t)put : 0;
  }
  return true;
}

bool dit_disk_cache_seal(const char *made, const char *path, const char *mark) {
  size_t size = 0;
  char footer[FOOTER];
  char *data = read_file(made, &size);
  bool done = data && size <= DIT_DISK_CACHE_MAX;
  if (done) {
    write_footer(footer, mark, data, size);
    const int file = open(made, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    done = file >= 0 && write_whole(file, footer, sizeof footer);
    done = file >= 0 && close(file) == 0 && done;
  }
  dit_free(data);
  done = done && rename(made, path) == 0;
  if (!done) {
    (void)unlink(made);
  }
  return done;
}

bool dit_disk_cache_write(const char *path, const char *mark, const struct dit_disk_cache_part *parts, int count) {
  static atomic_uint last;
  char made[MAX_NAME];
  const int length = snprintf(made, sizeof made, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&last, 1));
  if (length < 0 || (size_t)length >= sizeof made) {
    return false;
  }
  const int file = open(made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) {
    return false;
  }
  bool done = true;
  for (int i = 0; i < count && done; i++) {
    done = write_whole(file, parts[i].bytes, parts[i].size);
  }
  done = close(file) == 0 && done;
  if (!done) {
    (void)unlink(made);
  }
  return done && dit_disk_cache_seal(made, path, mark);
}
