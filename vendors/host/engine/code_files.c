/// Generated code on disk (see code_files.h).
#include "code_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/options.h"

uint64_t code_hash(uint64_t hash, const char *data, size_t size) {
  for (size_t i = 0; i < size; i++) {
    hash = (hash ^ (unsigned char)data[i]) * UINT64_C(0x100000001B3);
    hash ^= hash >> 29;
  }
  return hash;
}

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

bool code_find_directory(const char *option, char *path, size_t size) {
  const int number = dit_option_find(option);
  const char *chosen = number >= 0 ? dit_option_get_text(number) : "";
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (chosen[0]) {
    length = snprintf(path, size, "%s", chosen);
  } else if (cache && cache[0] == '/') {
    length = snprintf(path, size, "%s/ditorch-regions", cache);
  } else if (home && home[0] == '/') {
    length = snprintf(path, size, "%s/.cache/ditorch-regions", home);
  }
  if (length > 0 && (size_t)length < size && make_directory(path) && access(path, W_OK | X_OK) == 0) {
    return true;
  }
  length = snprintf(path, size, "/tmp/ditorch-regions-%ld", (long)geteuid());
  return length > 0 && (size_t)length < size && make_directory(path);
}

// Files: the code, and behind it "DITREGN1", its size and its hash

#define FOOTER 24

static char *read_file(const char *path, size_t *size) {
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status;
  char *data = NULL;
  if (file < 0) {
    return NULL;
  }
  if (fstat(file, &status) == 0 && status.st_uid == geteuid() && S_ISREG(status.st_mode) && status.st_size > 0 &&
      status.st_size < (16 << 20)) {
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

char *code_read(const char *path, size_t *size) {
  char *data = read_file(path, size);
  uint64_t words[2] = {0, 0};
  bool complete = false;
  if (data && *size > FOOTER && memcmp(data + *size - FOOTER, "DITREGN1", 8) == 0) {
    memcpy(words, data + *size - 16, sizeof words);
    *size -= FOOTER;
    complete = words[0] == *size && words[1] == code_hash(1, data, *size);
  }
  if (!complete) {
    dit_free(data);
    return NULL;
  }
  data[*size] = '\0';
  return data;
}

bool code_is_complete(const char *path) {
  size_t size = 0;
  char *data = code_read(path, &size);
  dit_free(data);
  return data != NULL;
}

bool code_write(int file, const char *data, size_t size) {
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

bool code_complete(const char *path) {
  size_t size = 0;
  char *data = read_file(path, &size);
  if (!data) {
    return false;
  }
  char footer[FOOTER];
  const uint64_t words[2] = {size, code_hash(1, data, size)};
  dit_free(data);
  memcpy(footer, "DITREGN1", 8);
  memcpy(footer + 8, words, sizeof words);
  const int file = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  const bool done = file >= 0 && code_write(file, footer, sizeof footer);
  if (file >= 0) {
    close(file);
  }
  return done;
}

bool code_save(const char *path, const char *data, size_t size) {
  char made[4400];
  const int length = snprintf(made, sizeof made, "%s-%ld.tmp", path, (long)getpid());
  const int file = length > 0 && (size_t)length < sizeof made
                       ? open(made, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)
                       : -1;
  if (file < 0) {
    return false;
  }
  bool good = code_write(file, data, size);
  good = close(file) == 0 && good;
  good = good && code_complete(made) && rename(made, path) == 0;
  if (!good) {
    (void)unlink(made);
  }
  return good;
}
