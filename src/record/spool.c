/// Texts that wait.
///
/// Invariant: position p is byte p of the file when p < flushed, else byte p - flushed of the tail; a text never lies
/// in both. Depends on text and core's error.
#include "record/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAIL_BYTES = 4 << 20 };

void dit_spool_init(struct dit_spool *spool) {
  *spool = (struct dit_spool){.fd = -1};
}

void dit_spool_reset(struct dit_spool *spool) {
  if (spool->fd >= 0) {
    close(spool->fd);
  }
  dit_text_reset(&spool->tail);
  dit_spool_init(spool);
}

void dit_spool_clear(struct dit_spool *spool) {
  spool->tail.size = 0;
  spool->flushed = 0;
}

static enum dit_status open_file(struct dit_spool *spool, struct dit_error *err) {
  const char *folder = getenv("TMPDIR");
  char path[4096];
  int length = snprintf(path, sizeof(path), "%s/ditorch-export-XXXXXX", folder && *folder ? folder : "/tmp");
  if (length < (int)sizeof(path)) {
    spool->fd = mkostemp(path, O_CLOEXEC);
  } else {
    errno = ENAMETOOLONG;
  }
  if (spool->fd < 0) {
    return dit_error_set(err, DIT_ERR_IO, "a temporary file for the export cannot be made in '%s': %s; set TMPDIR",
                         folder && *folder ? folder : "/tmp", strerror(errno));
  }
  unlink(path);
  return DIT_OK;
}

static enum dit_status flush_tail(struct dit_spool *spool, struct dit_error *err) {
  if (spool->fd < 0) {
    DIT_RETURN_IF_NOT_OK(open_file(spool, err));
  }
  for (size_t done = 0; done < spool->tail.size;) {
    ssize_t some = pwrite(spool->fd, spool->tail.data + done, spool->tail.size - done, (off_t)(spool->flushed + done));
    if (some <= 0 && errno != EINTR) {
      return dit_error_set(err, DIT_ERR_IO, "the temporary file of the export cannot be written: %s; set TMPDIR",
                           strerror(some == 0 ? ENOSPC : errno));
    }
    done += some > 0 ? (size_t)some : 0;
  }
  spool->flushed += spool->tail.size;
  spool->tail.size = 0;
  return DIT_OK;
}

enum dit_status dit_spool_append(struct dit_spool *spool, const char *data, size_t size, uint64_t *position,
                                 struct dit_error *err) {
  if (spool->tail.size + size > TAIL_BYTES && spool->tail.size > 0) {
    DIT_RETURN_IF_NOT_OK(flush_tail(spool, err));
  }
  uint64_t at = spool->flushed + spool->tail.size;
  dit_text_append(&spool->tail, data, size);
  if (spool->tail.failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the texts of an export (%zu bytes)", size);
  }
  *position = at;
  return DIT_OK;
}

enum dit_status dit_spool_read(const struct dit_spool *spool, uint64_t position, size_t size, struct dit_text *text,
                               struct dit_error *err) {
  if (position >= spool->flushed) {
    dit_text_append(text, spool->tail.data + (position - spool->flushed), size);
  }
  char buffer[4096];
  for (size_t done = 0; position < spool->flushed && done < size;) {
    size_t wanted = size - done < sizeof(buffer) ? size - done : sizeof(buffer);
    ssize_t some = pread(spool->fd, buffer, wanted, (off_t)(position + done));
    if (some <= 0 && !(some < 0 && errno == EINTR)) {
      return dit_error_set(err, DIT_ERR_IO, "the temporary file of the export cannot be read: %s",
                           some == 0 ? "it is too short" : strerror(errno));
    }
    dit_text_append(text, buffer, some > 0 ? (size_t)some : 0);
    done += some > 0 ? (size_t)some : 0;
  }
  return DIT_OK;
}
