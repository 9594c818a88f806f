/// dit/peer_file.h: anonymous files that other processes open through /proc/<owner>/fd.
///
/// Invariant: whoever opened a file through a handle has the file its owner meant: the label (owner and random number)
/// is compared on the descriptor that was really opened, and the seals promise that a mapping of `size` bytes never
/// meets the file's end. Depends on Linux (memfd, /proc) and libc alone.
#include "dit/peer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC "DITPEER1"
#define LABEL_SIZE 48
#define MFD_FLAGS 3u       // MFD_CLOEXEC | MFD_ALLOW_SEALING: older C libraries do not name them
#define ADD_SEALS 1033     // F_ADD_SEALS
#define GET_SEALS 1034     // F_GET_SEALS
#define SEALS (1 | 2 | 4)  // F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW

struct contents {
  char magic[8];
  int32_t pid, fd;
  uint64_t number, size;
};
_Static_assert(sizeof(struct contents) == DIT_PEER_HANDLE_SIZE, "the handle's layout is fixed");

static void make_label(const struct contents *contents, char *label) {
  snprintf(label, LABEL_SIZE, "ditorch-%ld-%016llx", (long)contents->pid, (unsigned long long)contents->number);
}

static enum dit_status make_file(struct contents *contents, struct dit_error *err) {
  char label[LABEL_SIZE];
  if (syscall(SYS_getrandom, &contents->number, sizeof contents->number, 0) != (long)sizeof contents->number) {
    return dit_error_set(err, DIT_ERR_IO, "no random number for shared memory: %s", strerror(errno));
  }
  make_label(contents, label);
  int fd = (int)syscall(SYS_memfd_create, label, MFD_FLAGS);
  if (fd < 0) {
    const char *hint = errno == EMFILE ? "; each shared segment takes one file descriptor: raise `ulimit -n`" : "";
    return dit_error_set(err, DIT_ERR_IO, "shared memory of %llu bytes cannot be made: memfd_create: %s%s",
                         (unsigned long long)contents->size, strerror(errno), hint);
  }
  if (ftruncate(fd, (off_t)contents->size) != 0 || fcntl(fd, ADD_SEALS, SEALS) != 0) {
    int saved = errno;
    close(fd);
    return dit_error_set(err, saved == ENOMEM ? DIT_ERR_NOMEM : DIT_ERR_IO,
                         "shared memory cannot be sized to %llu bytes: %s", (unsigned long long)contents->size,
                         strerror(saved));
  }
  contents->fd = fd;
  return DIT_OK;
}

enum dit_status dit_peer_file_create(size_t size, int *fd, struct dit_peer_handle *handle, struct dit_error *err) {
  if (size == 0 || size > SIZE_MAX / 2) {
    return dit_error_set(err, DIT_ERR_INVALID, "shared memory of %zu bytes; valid: 1 to %zu", size, SIZE_MAX / 2);
  }
  struct contents contents = {.pid = (int32_t)getpid(), .size = size};
  memcpy(contents.magic, MAGIC, sizeof contents.magic);
  DIT_RETURN_IF_NOT_OK(make_file(&contents, err));
  memcpy(handle->bytes, &contents, sizeof contents);
  *fd = contents.fd;
  return DIT_OK;
}

static enum dit_status explain_open(const struct contents *contents, int error, struct dit_error *err) {
  if (error == ENOENT && kill((pid_t)contents->pid, 0) != 0 && errno == ESRCH) {
    return dit_error_set(err, DIT_ERR_IO,
                         "the process %ld, which shared this memory, has ended; it must live until what it sent was "
                         "received",
                         (long)contents->pid);
  }
  if (error == ENOENT) {
    return dit_error_set(err, DIT_ERR_IO, "the process %ld has given the shared memory up", (long)contents->pid);
  }
  return dit_error_set(err, DIT_ERR_IO,
                       "shared memory of process %ld cannot be opened: %s; both processes must belong to the same user "
                       "and see the same /proc",
                       (long)contents->pid, strerror(error));
}

/// Is the open file the one that the handle means?
static bool is_meant(int fd, const struct contents *contents) {
  char path[64], label[LABEL_SIZE], expected[LABEL_SIZE + 32], target[128];
  struct stat status;
  make_label(contents, label);
  snprintf(expected, sizeof expected, "/memfd:%s (deleted)", label);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(path, target, sizeof target - 1);
  if (length <= 0) {
    return false;
  }
  target[length] = '\0';
  int seals = fcntl(fd, GET_SEALS);
  return strcmp(target, expected) == 0 && fstat(fd, &status) == 0 && (uint64_t)status.st_size == contents->size &&
         seals >= 0 && (seals & SEALS) == SEALS;
}

enum dit_status dit_peer_file_open(const struct dit_peer_handle *handle, int *fd, size_t *size, struct dit_error *err) {
  struct contents contents;
  char path[64];
  memcpy(&contents, handle->bytes, sizeof contents);
  if (memcmp(contents.magic, MAGIC, sizeof contents.magic) != 0 || contents.pid <= 0 || contents.fd < 0 ||
      contents.size == 0 || contents.size > SIZE_MAX / 2) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "these %d bytes are no handle of shared memory", DIT_PEER_HANDLE_SIZE);
  }
  snprintf(path, sizeof path, "/proc/%ld/fd/%ld", (long)contents.pid, (long)contents.fd);
  int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0) {
    return explain_open(&contents, errno, err);
  }
  if (!is_meant(opened, &contents)) {
    close(opened);
    return explain_open(&contents, ENOENT, err);
  }
  *fd = opened;
  *size = (size_t)contents.size;
  return DIT_OK;
}
