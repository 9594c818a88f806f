/// Writing an item as `.pth` and `.json` under temporary names that are renamed when complete.
///
/// Invariant: a name below the root holds a whole file or what it held before; a failure leaves no temporary file
/// behind (kill -9 may). The companion comes first, so that a `.pth` has its `.json`. Depends on archive, folder, sink.
#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "store/archive.h"

enum { BUFFER_BYTES = 256 << 10, TEMP_NAME = 64, MOST_NAMES = 1000 };

static atomic_uint temp_counter;

enum dit_status dit_item_check(const struct dit_store_item *item, struct dit_error *err) {
  if (!item->pickle || item->pickle_size == 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "item '%s' has no pickle", item->path ? item->path : "");
  }
  if (item->blob_count > DIT_STORE_MAX_BLOBS) {
    return dit_error_set(err, DIT_ERR_INVALID, "item '%s' has %zu storages; at most %d fit",
                         item->path ? item->path : "", item->blob_count, DIT_STORE_MAX_BLOBS);
  }
  for (size_t i = 0; i < item->blob_count; i++) {
    if (!item->blobs[i].data && item->blobs[i].size > 0) {
      return dit_error_set(err, DIT_ERR_INVALID, "storage %zu of item '%s' has %zu bytes and no data", i,
                           item->path ? item->path : "", item->blobs[i].size);
    }
  }
  return DIT_OK;
}

bool dit_item_wait(const struct dit_store_item *item) {
  for (size_t i = 0; i < item->blob_count; i++) {
    if (item->blobs[i].wait && !item->blobs[i].wait(item->blobs[i].context)) {
      return false;
    }
  }
  return true;
}

void dit_item_release(const struct dit_store_item *item) {
  for (size_t i = 0; i < item->blob_count; i++) {
    if (item->blobs[i].release) {
      item->blobs[i].release(item->blobs[i].context);
    }
  }
}

enum dit_status dit_files_init(struct dit_files *files, const char *root, bool follow, struct dit_error *err) {
  *files = (struct dit_files){.capacity = BUFFER_BYTES, .pid = (unsigned)getpid()};
  DIT_RETURN_IF_NOT_OK(dit_folder_init(&files->folder, root, follow, err));
  files->buffer = dit_malloc(files->capacity);
  if (!files->buffer) {
    dit_files_reset(files);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to write files (%zu bytes)", files->capacity);
  }
  return DIT_OK;
}

void dit_files_reset(struct dit_files *files) {
  dit_folder_reset(&files->folder);
  dit_free(files->buffer);
  files->buffer = NULL;
}

/// A new file of the folder; its name into `temp`. The descriptor, or -1 and errno.
static int open_temp(int folder, unsigned pid, char temp[TEMP_NAME]) {
  int fd = -1;
  for (int i = 0; i < MOST_NAMES; i++) {
    snprintf(temp, TEMP_NAME, ".dit-%x-%x.tmp", pid, atomic_fetch_add(&temp_counter, 1));
    fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) {
      break;
    }
  }
  return fd;
}

/// What one file is made of: the archive of `item`, or `text`.
struct content {
  const struct dit_store_item *item;
  const char *stem;
  size_t stem_size;
  const void *text;
  size_t text_size;
};

/// Write a temporary file of the folder; its name into `temp`. 0 or errno (ENOMEM stands for DIT_ERR_NOMEM too); after
/// a failure there is no file.
static int write_temp(struct dit_files *files, const struct content *content, char temp[TEMP_NAME], uint64_t *bytes) {
  struct dit_sink sink;
  int folder = files->folder.fd, fd = open_temp(folder, files->pid, temp);
  if (fd < 0) {
    return errno;
  }
  dit_sink_init(&sink, fd, files->buffer, files->capacity, 0);
  if (!content->item) {
    dit_sink_put(&sink, content->text, content->text_size);
  } else if (dit_archive_put(&sink, content->stem, content->stem_size, content->item, NULL) != DIT_OK) {
    sink.error = ENOMEM;
  }
  dit_sink_flush(&sink);
  int error = sink.error;
  if (close(fd) != 0 && !error && errno != EINTR) {
    error = errno;
  }
  if (error) {
    unlinkat(folder, temp, 0);
  }
  *bytes += sink.written;
  return error;
}

/// Give a temporary file its name, or remove it. 0 or errno.
static int publish(int folder, const char *temp, const char *name) {
  if (renameat(folder, temp, folder, name) == 0) {
    return 0;
  }
  int error = errno;
  unlinkat(folder, temp, 0);
  return error;
}

/// The companion and the archive: both are complete before either gets its name.
static int write_pair(struct dit_files *files, const char *name, const struct content *archive,
                      const struct dit_store_item *item, uint64_t *bytes) {
  char companion[DIT_STORE_MAX_PATH + 8], temps[2][TEMP_NAME];
  struct content text = {.text = item->json, .text_size = item->json_size};
  int folder = files->folder.fd, error = write_temp(files, &text, temps[0], bytes);
  if (error) {
    return error;
  }
  snprintf(companion, sizeof(companion), "%s.json", name);
  error = write_temp(files, archive, temps[1], bytes);
  if (error) {
    unlinkat(folder, temps[0], 0);
    return error;
  }
  error = publish(folder, temps[0], companion);
  if (error) {
    unlinkat(folder, temps[1], 0);
    return error;
  }
  error = publish(folder, temps[1], name);
  if (error) {
    unlinkat(folder, companion, 0);
  }
  return error;
}

/// The item's files into the folder that was entered.
static int write_item(struct dit_files *files, const char *name, const struct dit_store_item *item, uint64_t *bytes) {
  const char *dot = strrchr(name, '.');
  char temp[TEMP_NAME];
  struct content archive = {.item = item, .stem = name, .stem_size = dot ? (size_t)(dot - name) : strlen(name)};
  if (archive.stem_size == 0) {
    archive.stem = "archive";
    archive.stem_size = 7;
  }
  *bytes = 0;
  if (item->json) {
    return write_pair(files, name, &archive, item, bytes);
  }
  int error = write_temp(files, &archive, temp, bytes);
  return error ? error : publish(files->folder.fd, temp, name);
}

enum dit_status dit_files_write(struct dit_files *files, const char *path, const struct dit_store_item *item,
                                uint64_t *bytes, int *error, struct dit_error *err) {
  const char *name = dit_path_get_name(path);
  int failed = dit_folder_enter(&files->folder, path);
  failed = failed ? failed : write_item(files, name, item, bytes);
  if (failed == ENOENT || failed == ESTALE) {  // the folder was removed meanwhile
    dit_folder_leave(&files->folder);
    failed = dit_folder_enter(&files->folder, path);
    failed = failed ? failed : write_item(files, name, item, bytes);
  }
  *error = failed;
  if (failed) {
    dit_folder_leave(&files->folder);
    return dit_error_set(err, failed == ENOMEM ? DIT_ERR_NOMEM : DIT_ERR_IO, "file '%s/%s' cannot be written: %s",
                         files->folder.root, path, strerror(failed));
  }
  return DIT_OK;
}

static enum dit_status write_alone(const char *path, const struct dit_store_item *item, struct dit_error *err) {
  size_t size = path ? strlen(path) : 0;
  const char *name = size > 0 ? dit_path_get_name(path) : "";
  if (name[0] == '\0' || size >= DIT_STORE_MAX_PATH / 2) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%.200s' is no path of a file (or longer than 2047 bytes)",
                         path ? path : "");
  }
  DIT_RETURN_IF_NOT_OK(dit_item_check(item, err));
  if (!dit_item_wait(item)) {
    return dit_error_set(err, DIT_ERR_DEVICE, "the bytes of '%s' did not arrive", path);
  }
  char folder[DIT_STORE_MAX_PATH] = ".";
  if (name > path) {
    size_t length = (size_t)(name - path) == 1 ? 1 : (size_t)(name - path) - 1;
    memcpy(folder, path, length);
    folder[length] = '\0';
  }
  struct dit_files files;
  uint64_t bytes = 0;
  int error = 0;
  DIT_RETURN_IF_NOT_OK(dit_files_init(&files, folder, true, err));
  enum dit_status status = dit_files_write(&files, name, item, &bytes, &error, err);
  dit_files_reset(&files);
  return status;
}

enum dit_status dit_store_write_file(const char *path, const struct dit_store_item *item, struct dit_error *err) {
  enum dit_status status = write_alone(path, item, err);
  dit_item_release(item);
  return status;
}
