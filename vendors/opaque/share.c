/// Device memory between processes: a handle names the device's file and the block's place in it.
///
/// Invariant: what import mapped is two mappings of the same bytes, one closed and one open, known to memory.c. Depends
/// on memory.c and dit/peer_file.h.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dit/peer_file.h"
#include "opaque.h"

struct place {
  struct dit_peer_handle file;
  uint64_t offset, size;
};

_Static_assert(sizeof(struct place) <= DIT_MEMORY_HANDLE_SIZE, "a place fits into a memory handle");

enum dit_status opaque_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                     struct dit_error *err) {
  struct place place = {.offset = 0};
  if (!opaque_find_block(device, ptr, &place.file, &place.offset, base, &place.size)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not inside a live block of opaque device %d", ptr, device);
  }
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (place.offset % page != 0 || place.size % page != 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "a block of %llu bytes that is not made of whole pages cannot be shared between processes",
                         (unsigned long long)place.size);
  }
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &place, sizeof place);
  return DIT_OK;
}

static void *map(int fd, const struct place *place, int protection) {
  return mmap(NULL, place->size, protection, MAP_SHARED, fd, (off_t)place->offset);
}

enum dit_status opaque_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                     struct dit_error *err) {
  struct place place;
  size_t length = 0;
  int fd = -1;
  (void)device;
  memcpy(&place, handle->bytes, sizeof place);
  DIT_RETURN_IF_NOT_OK(dit_peer_file_open(&place.file, &fd, &length, err));
  if (place.size == 0 || place.size > length || place.offset > length - place.size) {
    close(fd);
    return dit_error_set(err, DIT_ERR_CORRUPT, "a memory handle names %llu bytes at %llu of a file of %zu",
                         (unsigned long long)place.size, (unsigned long long)place.offset, length);
  }
  void *closed = map(fd, &place, PROT_NONE), *open = map(fd, &place, PROT_READ | PROT_WRITE);
  int saved = errno;
  close(fd);
  enum dit_status status = DIT_OK;
  if (closed == MAP_FAILED || open == MAP_FAILED) {
    status = dit_error_set(err, saved == ENOMEM ? DIT_ERR_NOMEM : DIT_ERR_IO,
                           "%llu bytes of another process's device memory cannot be mapped: %s",
                           (unsigned long long)place.size, strerror(saved));
  } else {
    status = opaque_add_mapping(closed, open, place.size, err);
  }
  if (status != DIT_OK) {
    if (closed != MAP_FAILED) {
      munmap(closed, place.size);
    }
    if (open != MAP_FAILED) {
      munmap(open, place.size);
    }
    return status;
  }
  *base = closed;
  *size = place.size;
  return DIT_OK;
}

enum dit_status opaque_memory_close(int device, void *base, size_t size, struct dit_error *err) {
  (void)device;
  void *open = opaque_remove_mapping(base, size);
  if (!open) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is no mapping of %zu bytes of another process's memory", base, size);
  }
  munmap(open, size);
  munmap(base, size);
  return DIT_OK;
}
