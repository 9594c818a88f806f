/// Device blocks that other processes can map.
///
/// Blocks are born as private pages, because those can be huge and are quick to touch. At its first export a block
/// becomes a mapping of an anonymous file, in place: no address changes, so every view, alias and queued kernel stays
/// valid. It is done piece by piece: write-protect, copy the pages that are not zero, map the file over them. A thread
/// that writes to the piece meanwhile faults; the handler below lets it wait and then repeat the write, so no write is
/// lost. A system call that writes there meanwhile fails with EFAULT instead (the only such caller would be a
/// collective that receives into the same 2 MiB in that instant).
///
/// Invariant: shared_blocks lists exactly the live blocks that were exported; a block that failed half-way is listed
/// too and goes on where it stopped. The handler stays installed, because a fault that was raised before a piece was
/// done may be delivered after it. The caller has opened the pages when they are closed against stray accesses. Depends
/// on memory.c and dit/peer_file.h.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/peer_file.h"
#include "host_internal.h"

#define PIECE ((size_t)2 << 20)
#define PAGE ((size_t)4096)

_Static_assert(sizeof(struct dit_peer_handle) <= DIT_MEMORY_HANDLE_SIZE, "a peer handle fits into a memory handle");

struct shared_block {
  struct shared_block *next;
  char *base;
  size_t size, done;  // bytes that are mapped from the file already
  int fd;
  struct dit_peer_handle handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared_block *shared_blocks;
static _Atomic size_t shared_count;

// The write barrier

static _Atomic uintptr_t moving_first, moving_end;  // the piece under way; an end of 0: none
static _Atomic uint64_t moves;                      // pieces that were moved
static struct sigaction previous;
static _Thread_local int passing __attribute__((tls_model("initial-exec")));  // two handlers may each know the other
/// The last write that this thread was let repeat, and how many pieces had been moved then.
static _Thread_local struct {
  uintptr_t address;
  uint64_t moves;
} repeated __attribute__((tls_model("initial-exec")));

/// May the access be tried again? While its piece is being moved: after that. A fault may also reach the handler long
/// after its piece is done, so any address gets one more try for each state of the memory; a second fault there while
/// nothing was moved has another cause.
static bool wait_for_piece(uintptr_t address) {
  while (address >= atomic_load(&moving_first) && address < atomic_load(&moving_end)) {
    struct timespec pause = {.tv_nsec = 20000};
    nanosleep(&pause, NULL);
  }
  uint64_t now = atomic_load(&moves);
  if (repeated.address == address && repeated.moves == now) {
    return false;
  }
  repeated.address = address;
  repeated.moves = now;
  return true;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  int saved = errno;
  bool ours = info->si_code > 0 && wait_for_piece((uintptr_t)info->si_addr);  // else somebody sent the signal
  errno = saved;
  if (ours) {
    return;  // the access is repeated
  }
  bool is_function =
      (previous.sa_flags & SA_SIGINFO) || (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (!is_function || passing > 0) {
    signal(number, SIG_DFL);  // the fault is repeated and ends the process
    return;
  }
  passing++;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else {
    previous.sa_handler(number);
  }
  passing--;
}

static enum dit_status install_handler(struct dit_error *err) {
  struct sigaction now, ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
  ours.sa_sigaction = on_fault;
  sigemptyset(&ours.sa_mask);
  if (sigaction(SIGSEGV, NULL, &now) != 0) {
    return dit_error_set(err, DIT_ERR_IO, "SIGSEGV's handler cannot be read: %s", strerror(errno));
  }
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) {
    return DIT_OK;
  }
  previous = now;
  if (sigaction(SIGSEGV, &ours, NULL) != 0) {
    return dit_error_set(err, DIT_ERR_IO, "SIGSEGV's handler cannot be set: %s", strerror(errno));
  }
  return DIT_OK;
}

static void begin_piece(const char *first, size_t size) {
  atomic_store(&moving_end, 0);
  atomic_store(&moving_first, (uintptr_t)first);
  atomic_store(&moving_end, (uintptr_t)first + size);
}

static void end_piece(void) {
  atomic_fetch_add(&moves, 1);
  atomic_store(&moving_end, 0);
}

// Moving a block into its file, with the lock held

static bool is_zero(const char *page, size_t size) {
  return page[0] == 0 && memcmp(page, page + 1, size - 1) == 0;
}

static bool write_run(int fd, const char *from, size_t size, off_t offset) {
  while (size > 0) {
    ssize_t written = pwrite(fd, from, size, offset);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    from += written;
    size -= (size_t)written;
    offset += written;
  }
  return true;
}

/// Pages of zeros stay holes in the file, so memory that was never touched costs nothing.
static bool write_piece(int fd, const char *from, size_t size, size_t offset) {
  size_t start = 0;
  for (size_t at = 0; at < size; at += PAGE) {
    size_t length = size - at < PAGE ? size - at : PAGE;
    if (is_zero(from + at, length)) {
      if (!write_run(fd, from + start, at - start, (off_t)(offset + start))) {
        return false;
      }
      start = at + length;
    }
  }
  return write_run(fd, from + start, size - start, (off_t)(offset + start));
}

static enum dit_status move_piece(struct shared_block *block, struct dit_error *err) {
  char *from = block->base + block->done;
  size_t size = block->size - block->done < PIECE ? block->size - block->done : PIECE;
  begin_piece(from, size);
  const char *step = "mprotect";
  bool moved = mprotect(from, size, PROT_READ) == 0;
  if (moved) {
    step = "write";
    moved = write_piece(block->fd, from, size, block->done);
  }
  if (moved) {
    step = "mmap";
    moved = mmap(from, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block->fd, (off_t)block->done) == from;
  }
  int saved = errno;
  if (!moved && mprotect(from, size, PROT_READ | PROT_WRITE) != 0) {
    step = "mprotect back";
  }
  end_piece();
  if (!moved) {
    return dit_error_set(err, saved == ENOMEM || saved == ENOSPC ? DIT_ERR_NOMEM : DIT_ERR_IO,
                         "%zu bytes of device memory at %p cannot be shared: %s: %s", size, (void *)from, step,
                         strerror(saved));
  }
  block->done += size;
  return DIT_OK;
}

static enum dit_status get_block(void *base, size_t size, struct shared_block **out, struct dit_error *err) {
  for (struct shared_block *block = shared_blocks; block; block = block->next) {
    if (block->base == base) {
      *out = block;
      return DIT_OK;
    }
  }
  struct shared_block *block = dit_calloc(1, sizeof *block);
  if (!block) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while sharing %zu bytes", size);
  }
  enum dit_status status = dit_peer_file_create(size, &block->fd, &block->handle, err);
  if (status != DIT_OK) {
    dit_free(block);
    return status;
  }
  block->base = base;
  block->size = size;
  block->next = shared_blocks;
  shared_blocks = block;
  atomic_fetch_add(&shared_count, 1);
  *out = block;
  return DIT_OK;
}

static enum dit_status share_block(void *base, size_t size, struct dit_memory_handle *handle, struct dit_error *err) {
  struct shared_block *block = NULL;
  DIT_RETURN_IF_NOT_OK(get_block(base, size, &block, err));
  if (block->done < block->size) {
    DIT_RETURN_IF_NOT_OK(install_handler(err));
  }
  while (block->done < block->size) {
    DIT_RETURN_IF_NOT_OK(move_piece(block, err));
  }
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &block->handle, sizeof block->handle);
  return DIT_OK;
}

// Slots of the vtable

enum dit_status host_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                   struct dit_error *err) {
  void *start = NULL;
  size_t size = 0;
  bool mapped = false;
  if (!host_memory_find(device, ptr, &start, &size, &mapped)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not inside a live block of host device %d", ptr, device);
  }
  if (!mapped) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "a block of %zu bytes that the allocator took from the system by itself cannot be shared "
                         "between processes; use DITORCH_ALLOCATOR=torch (the default) or bf, without backend:raw",
                         size);
  }
  struct dit_memory_handle made;
  pthread_mutex_lock(&lock);
  enum dit_status status = share_block(start, size, &made, err);
  pthread_mutex_unlock(&lock);
  if (status == DIT_OK) {
    *handle = made;
    *base = start;
  }
  return status;
}

enum dit_status host_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err) {
  (void)device;
  struct dit_peer_handle peer;
  size_t length = 0;
  int fd = -1;
  memcpy(&peer, handle->bytes, sizeof peer);
  DIT_RETURN_IF_NOT_OK(dit_peer_file_open(&peer, &fd, &length, err));
  void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int saved = errno;
  close(fd);
  if (mapped == MAP_FAILED) {
    return dit_error_set(err, saved == ENOMEM ? DIT_ERR_NOMEM : DIT_ERR_IO,
                         "%zu bytes of another process's device memory cannot be mapped: %s", length, strerror(saved));
  }
  *base = mapped;
  *size = length;
  return DIT_OK;
}

enum dit_status host_memory_close(int device, void *base, size_t size, struct dit_error *err) {
  (void)device;
  if (munmap(base, size) != 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is no mapping of another process's memory: %s", base,
                         strerror(errno));
  }
  return DIT_OK;
}

void host_share_forget(const void *base) {
  if (atomic_load(&shared_count) == 0) {
    return;
  }
  pthread_mutex_lock(&lock);
  struct shared_block **link = &shared_blocks;
  while (*link && (*link)->base != base) {
    link = &(*link)->next;
  }
  struct shared_block *block = *link;
  if (block) {
    *link = block->next;
    atomic_fetch_sub(&shared_count, 1);
  }
  pthread_mutex_unlock(&lock);
  if (block) {
    close(block->fd);
    dit_free(block);
  }
}
