/// Memory of the opaque device. One file in memory per device is mapped twice: closed, at the addresses that tensors
/// carry, and open, where the device itself works. A host that follows a device address ends with SIGSEGV.
///
/// Invariant: blocks of a device are sorted by their offset and do not overlap; `used` is their sum. Depends on
/// libdit's alloc, error and peer_file.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "opaque.h"

#define ALIGNMENT ((size_t)512)
#define PAGED_FROM ((size_t)1 << 20)  ///< blocks of whole pages, which go back to the system when they are freed
#define PINNED_ALIGNMENT ((size_t)64)

struct block {
  struct block *next;
  size_t offset, size;
};

struct arena {
  char *closed, *open;
  uint64_t size;  ///< what was the limit when it was mapped
  int fd;
  struct dit_peer_handle handle;
  struct block *blocks;
  uint64_t used;
  uint64_t most;  ///< of `used`, when DITORCH_OPAQUE says so; else UINT64_MAX
};

/// Host memory that the device may use at any time, or memory of another process.
struct range {
  struct range *next;
  char *first;  ///< pinned, or closed
  char *open;   ///< NULL: pinned host memory
  size_t size;
  bool owned;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena arenas[DIT_MAX_DEVICES];
static struct range *ranges;
static uint64_t limit;  ///< of devices that are mapped from now on

void opaque_memory_init(uint64_t bytes) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  pthread_mutex_lock(&lock);
  limit = bytes / page * page;
  for (int i = 0; i < DIT_MAX_DEVICES; i++) {
    arenas[i].most = UINT64_MAX;  // earlier mishaps are over
  }
  pthread_mutex_unlock(&lock);
}

/// With the lock held.
static enum dit_status open_arena(int device, struct dit_error *err) {
  struct arena *arena = &arenas[device];
  if (arena->closed && (arena->size == limit || arena->blocks)) {
    return DIT_OK;
  }
  if (arena->closed) {
    munmap(arena->closed, arena->size);
    munmap(arena->open, arena->size);
    close(arena->fd);
    *arena = (struct arena){0};
  }
  int fd = -1;
  DIT_RETURN_IF_NOT_OK(dit_peer_file_create(limit, &fd, &arena->handle, err));
  char *closed = mmap(NULL, limit, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  char *open = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (closed == MAP_FAILED || open == MAP_FAILED) {
    int saved = errno;
    if (closed != MAP_FAILED) {
      munmap(closed, limit);
    }
    if (open != MAP_FAILED) {
      munmap(open, limit);
    }
    close(fd);
    return dit_error_set(err, DIT_ERR_NOMEM,
                         "opaque device %d: %llu bytes cannot be mapped: %s; DITORCH_HOST_MEMORY sets the size", device,
                         (unsigned long long)limit, strerror(saved));
  }
  arena->closed = closed;
  arena->open = open;
  arena->size = limit;
  arena->most = UINT64_MAX;
  arena->fd = fd;
  return DIT_OK;
}

enum dit_status opaque_get_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_opaque_check(device, err));
  pthread_mutex_lock(&lock);
  const struct arena *arena = &arenas[device];
  const uint64_t total = arena->blocks ? arena->size : limit, most = arena->most;
  *out = (struct dit_device_memory){.total = total, .free = (most < total ? most : total) - arena->used};
  pthread_mutex_unlock(&lock);
  return DIT_OK;
}

// Blocks

/// First fit. With the lock held; the place of the new block in the list, NULL when nothing fits.
static struct block **find_gap(struct arena *arena, size_t size, size_t alignment, size_t *offset) {
  size_t end = 0;
  struct block **link = &arena->blocks;
  for (;; link = &(*link)->next) {
    const size_t first = (end + alignment - 1) / alignment * alignment, stop = *link ? (*link)->offset : arena->size;
    if (first <= stop && size <= stop - first) {
      *offset = first;
      return link;
    }
    if (!*link) {
      return NULL;
    }
    end = (*link)->offset + (*link)->size;
  }
}

static enum dit_status take_block(int device, size_t asked, struct block *block, void **ptr, struct dit_error *err) {
  struct arena *arena = &arenas[device];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), alignment = asked >= PAGED_FROM ? page : ALIGNMENT;
  DIT_RETURN_IF_NOT_OK(open_arena(device, err));
  size_t size = asked <= arena->size ? (asked + alignment - 1) / alignment * alignment : asked;
  DIT_RETURN_IF_NOT_OK(opaque_mishap_strike_allocation(size, arena->used, &arena->most, err));
  struct block **link = asked <= arena->size ? find_gap(arena, size, alignment, &block->offset) : NULL;
  if (!link) {
    return dit_error_set(err, DIT_ERR_NOMEM, "opaque device %d: %zu bytes asked for, %llu of %llu are in use", device,
                         asked, (unsigned long long)arena->used, (unsigned long long)arena->size);
  }
  block->size = size;
  block->next = *link;
  *link = block;
  arena->used += size;
  *ptr = arena->closed + block->offset;
  return DIT_OK;
}

enum dit_status opaque_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_opaque_check(device, err));
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  struct block *block = dit_malloc(sizeof *block);
  if (!block) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for a block of opaque device %d", device);
  }
  pthread_mutex_lock(&lock);
  enum dit_status status = take_block(device, size, block, ptr, err);
  pthread_mutex_unlock(&lock);
  if (status != DIT_OK) {
    dit_free(block);
  }
  return status;
}

enum dit_status opaque_memory_free(int device, void *ptr, struct dit_error *err) {
  if (!ptr) {
    return DIT_OK;
  }
  struct arena *arena = &arenas[device];
  pthread_mutex_lock(&lock);
  struct block **link = &arena->blocks;
  while (*link && arena->closed + (*link)->offset != ptr) {
    link = &(*link)->next;
  }
  struct block *block = *link;
  if (block) {
    *link = block->next;
    arena->used -= block->size;
    if (block->size >= PAGED_FROM) {
      (void)fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)block->offset, (off_t)block->size);
    }
  }
  pthread_mutex_unlock(&lock);
  if (!block) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not the start of a live block of opaque device %d", ptr, device);
  }
  dit_free(block);
  return DIT_OK;
}

bool opaque_find_block(int device, const void *ptr, struct dit_peer_handle *file, uint64_t *offset, void **base,
                       uint64_t *size) {
  struct arena *arena = &arenas[device];
  const uintptr_t at = (uintptr_t)ptr - (uintptr_t)arena->closed;
  pthread_mutex_lock(&lock);
  const struct block *block = arena->blocks;
  while (block && !(at >= block->offset && at - block->offset < block->size)) {
    block = block->next;
  }
  if (block) {
    *file = arena->handle;
    *offset = block->offset;
    *base = arena->closed + block->offset;
    *size = block->size;
  }
  pthread_mutex_unlock(&lock);
  return block != NULL;
}

void *dit_opaque_open(const void *ptr, size_t size) {
  char *open = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < DIT_MAX_DEVICES && !open; i++) {
    const uintptr_t at = (uintptr_t)ptr - (uintptr_t)arenas[i].closed;
    if (arenas[i].closed && at <= arenas[i].size && size <= arenas[i].size - at) {
      open = arenas[i].open + at;
    }
  }
  for (const struct range *range = ranges; range && !open; range = range->next) {
    const uintptr_t at = (uintptr_t)ptr - (uintptr_t)range->first;
    if (range->open && at <= range->size && size <= range->size - at) {
      open = range->open + at;
    }
  }
  pthread_mutex_unlock(&lock);
  return open;
}

bool dit_opaque_open_view(const struct dit_tensor_view *closed, struct dit_tensor_view *open) {
  int64_t low, high;
  *open = *closed;
  if (closed->numel == 0) {
    return true;
  }
  dit_tensor_get_span(closed, &low, &high);
  char *first = dit_opaque_open((const char *)closed->data + low, (size_t)(high - low));
  open->data = first ? first - low : NULL;
  return first != NULL;
}

// Pinned memory, and memory of other processes

static enum dit_status add_range(char *first, char *open, size_t size, bool owned, struct dit_error *err) {
  struct range *range = dit_malloc(sizeof *range);
  if (!range) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to remember %zu bytes at %p", size, (void *)first);
  }
  *range = (struct range){.first = first, .open = open, .size = size, .owned = owned};
  pthread_mutex_lock(&lock);
  range->next = ranges;
  ranges = range;
  pthread_mutex_unlock(&lock);
  return DIT_OK;
}

/// The range that begins at `first`, taken out; NULL when there is none of this kind.
static struct range *take_range(const void *first, bool owned, bool foreign) {
  pthread_mutex_lock(&lock);
  struct range **link = &ranges;
  while (*link && ((*link)->first != first || (*link)->owned != owned || ((*link)->open != NULL) != foreign)) {
    link = &(*link)->next;
  }
  struct range *range = *link;
  if (range) {
    *link = range->next;
  }
  pthread_mutex_unlock(&lock);
  return range;
}

enum dit_status opaque_pinned_alloc(size_t size, void **ptr, struct dit_error *err) {
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  const size_t rounded = size <= SIZE_MAX / 2 ? (size + PINNED_ALIGNMENT - 1) / PINNED_ALIGNMENT * PINNED_ALIGNMENT : 0;
  char *memory = rounded ? aligned_alloc(PINNED_ALIGNMENT, rounded) : NULL;
  if (!memory) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for %zu pinned bytes", size);
  }
  enum dit_status status = add_range(memory, NULL, rounded, true, err);
  if (status != DIT_OK) {
    free(memory);
    return status;
  }
  *ptr = memory;
  return DIT_OK;
}

enum dit_status opaque_pinned_free(void *ptr, struct dit_error *err) {
  if (!ptr) {
    return DIT_OK;
  }
  struct range *range = take_range(ptr, true, false);
  if (!range) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not the start of a live pinned host block", ptr);
  }
  free(range->first);
  dit_free(range);
  return DIT_OK;
}

enum dit_status opaque_register(void *ptr, size_t size, struct dit_error *err) {
  return add_range(ptr, NULL, size, false, err);
}

enum dit_status opaque_unregister(void *ptr, struct dit_error *err) {
  struct range *range = take_range(ptr, false, false);
  if (!range) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p was not registered", ptr);
  }
  dit_free(range);
  return DIT_OK;
}

bool opaque_is_pinned(const void *ptr, size_t size) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (const struct range *range = ranges; range && !found; range = range->next) {
    const uintptr_t at = (uintptr_t)ptr - (uintptr_t)range->first;
    found = !range->open && at <= range->size && size <= range->size - at;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

enum dit_status opaque_add_mapping(void *closed, void *open, size_t size, struct dit_error *err) {
  return add_range(closed, open, size, false, err);
}

void *opaque_remove_mapping(void *closed, size_t size) {
  struct range *range = take_range(closed, false, true);
  if (!range) {
    return NULL;
  }
  void *open = range->size == size ? range->open : NULL;
  dit_free(range);
  return open;
}
