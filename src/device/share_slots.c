/// share_slots.h: counter files, and the locks that tell living receivers from dead ones.
///
/// Invariant: only the sender makes a slot SENT or FREE; only one receiver makes it OPEN; DONE is final until the
/// sender frees it. The locks are open-file-description locks: they belong to the opened file, not to the process, so
/// sender and receiver may be one process. Depends on dit/peer_file.h.
#include "device/share_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dit/alloc.h"

#define SLOT_COUNT ((size_t)1 << 20)
#define FILE_SIZE (SLOT_COUNT * sizeof(uint64_t))
#define IDLE_FILES 4

enum slot_state { SLOT_FREE, SLOT_SENT, SLOT_OPEN, SLOT_DONE };

struct dit_share_slots {
  struct dit_share_slots *next;
  struct dit_peer_handle handle;
  _Atomic uint64_t *words;
  int fd;
  size_t references;
  size_t hint;  // own file: where to look for a free slot
  pid_t owner;  // own file: who made it
};

static struct dit_share_slots *own;
static struct dit_share_slots *opened;

// A ticket is the slot's number in the low 20 bits and its generation above.
static size_t get_index(uint64_t ticket) {
  return (size_t)(ticket % SLOT_COUNT);
}

static uint64_t make_word(uint64_t ticket, enum slot_state state) {
  return (ticket / SLOT_COUNT) << 2 | (uint64_t)state;
}

static enum dit_status map_words(struct dit_share_slots *slots, struct dit_error *err) {
  void *mapped = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, slots->fd, 0);
  if (mapped == MAP_FAILED) {
    return dit_error_set(err, DIT_ERR_NOMEM, "the counters of shared memory cannot be mapped: %s", strerror(errno));
  }
  slots->words = mapped;
  return DIT_OK;
}

static void destroy(struct dit_share_slots *slots) {
  if (slots) {
    if (slots->words) {
      munmap((void *)slots->words, FILE_SIZE);
    }
    if (slots->fd >= 0) {
      close(slots->fd);
    }
    dit_free(slots);
  }
}

static struct dit_share_slots *create(struct dit_error *err) {
  struct dit_share_slots *slots = dit_calloc(1, sizeof *slots);
  if (!slots) {
    (void)dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while sharing device memory");
    return NULL;
  }
  slots->fd = -1;
  slots->references = 1;
  return slots;
}

enum dit_status dit_share_slots_get_own(struct dit_share_slots **out, struct dit_error *err) {
  if (own && own->owner == getpid()) {
    *out = own;
    return DIT_OK;
  }
  struct dit_share_slots *slots = create(err);
  if (!slots) {
    return DIT_ERR_NOMEM;
  }
  slots->owner = getpid();
  enum dit_status status = dit_peer_file_create(FILE_SIZE, &slots->fd, &slots->handle, err);
  if (status == DIT_OK) {
    status = map_words(slots, err);
  }
  if (status != DIT_OK) {
    destroy(slots);
    return status;
  }
  own = slots;  // a parent's file, inherited by a fork, stays mapped: shares of the parent refer to it
  *out = slots;
  return DIT_OK;
}

enum dit_status dit_share_slots_open(const struct dit_peer_handle *handle, struct dit_share_slots **out,
                                     struct dit_error *err) {
  for (struct dit_share_slots *slots = opened; slots; slots = slots->next) {
    if (memcmp(&slots->handle, handle, sizeof *handle) == 0) {
      slots->references++;
      *out = slots;
      return DIT_OK;
    }
  }
  struct dit_share_slots *slots = create(err);
  if (!slots) {
    return DIT_ERR_NOMEM;
  }
  size_t size = 0;
  slots->handle = *handle;
  enum dit_status status = dit_peer_file_open(handle, &slots->fd, &size, err);
  if (status == DIT_OK && size != FILE_SIZE) {
    status = dit_error_set(err, DIT_ERR_CORRUPT, "a counter file has %zu bytes; valid: %zu (same ditorch version)",
                           size, FILE_SIZE);
  }
  if (status == DIT_OK) {
    status = map_words(slots, err);
  }
  if (status != DIT_OK) {
    destroy(slots);
    return status;
  }
  slots->next = opened;
  opened = slots;
  *out = slots;
  return DIT_OK;
}

/// A receiver often drops one tensor before it gets the next from the same sender: some idle files stay open.
void dit_share_slots_close(struct dit_share_slots *slots) {
  if (!slots || --slots->references > 0) {
    return;
  }
  int idle = 0;
  struct dit_share_slots **link = &opened;
  while (*link) {
    struct dit_share_slots *each = *link;
    if (each->references == 0 && ++idle > IDLE_FILES) {
      *link = each->next;
      destroy(each);
    } else {
      link = &each->next;
    }
  }
}

const struct dit_peer_handle *dit_share_slots_get_handle(const struct dit_share_slots *slots) {
  return &slots->handle;
}

// The sender

enum dit_status dit_share_slots_take(struct dit_share_slots *slots, uint64_t *ticket, struct dit_error *err) {
  for (size_t tried = 0; tried < SLOT_COUNT; tried++) {
    size_t index = slots->hint;
    slots->hint = (slots->hint + 1) % SLOT_COUNT;
    uint64_t word = atomic_load(&slots->words[index]);
    if ((word & 3) == SLOT_FREE) {
      // 40 bits of generation: a ticket stays below 2^60
      uint64_t generation = ((word >> 2) + 1) & ((UINT64_C(1) << 40) - 1);
      *ticket = generation * SLOT_COUNT + index;
      atomic_store(&slots->words[index], make_word(*ticket, SLOT_SENT));
      return DIT_OK;
    }
  }
  return dit_error_set(err, DIT_ERR_NOMEM,
                       "%zu device tensors sent to other processes are still in use there or were never received; "
                       "receive or delete some",
                       SLOT_COUNT);
}

bool dit_share_slots_is_sent(const struct dit_share_slots *slots, uint64_t ticket) {
  return atomic_load(&slots->words[get_index(ticket)]) == make_word(ticket, SLOT_SENT);
}

static bool has_lock(const struct dit_share_slots *slots, size_t index) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)index, .l_len = 1};
  return fcntl(slots->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool dit_share_slots_reclaim(struct dit_share_slots *slots, uint64_t ticket, bool ask_kernel) {
  size_t index = get_index(ticket);
  uint64_t word = atomic_load(&slots->words[index]);
  bool over = word == make_word(ticket, SLOT_DONE);
  if (!over && ask_kernel && word == make_word(ticket, SLOT_OPEN)) {
    over = !has_lock(slots, index);
  }
  if (over) {
    atomic_store(&slots->words[index], make_word(ticket, SLOT_FREE));
  }
  return over;
}

// The receiver

static bool set_lock(const struct dit_share_slots *slots, uint64_t ticket, short type) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)get_index(ticket), .l_len = 1};
  return fcntl(slots->fd, F_OFD_SETLK, &lock) == 0;
}

enum dit_status dit_share_slots_claim(struct dit_share_slots *slots, uint64_t ticket, struct dit_error *err) {
  uint64_t expected = make_word(ticket, SLOT_SENT);
  if (atomic_load(&slots->words[get_index(ticket)]) == expected) {
    bool locked = set_lock(slots, ticket, F_WRLCK);
    int saved = errno;
    if (locked &&
        atomic_compare_exchange_strong(&slots->words[get_index(ticket)], &expected, make_word(ticket, SLOT_OPEN))) {
      return DIT_OK;
    }
    if (locked) {
      (void)set_lock(slots, ticket, F_UNLCK);
    } else if (saved != EAGAIN && saved != EACCES) {
      return dit_error_set(err, DIT_ERR_IO, "the counter of a shared tensor cannot be locked: %s", strerror(saved));
    }
  }
  return dit_error_set(
      err, DIT_ERR_INVALID,
      "this message with a device tensor was received before, or its sender has taken the memory back; "
      "send the tensor once per receiver");
}

void dit_share_slots_finish(struct dit_share_slots *slots, uint64_t ticket) {
  uint64_t expected = make_word(ticket, SLOT_OPEN);
  (void)atomic_compare_exchange_strong(&slots->words[get_index(ticket)], &expected, make_word(ticket, SLOT_DONE));
  (void)set_lock(slots, ticket, F_UNLCK);
}

void dit_share_slots_skip(struct dit_share_slots *slots, uint64_t ticket) {
  uint64_t expected = make_word(ticket, SLOT_SENT);
  (void)atomic_compare_exchange_strong(&slots->words[get_index(ticket)], &expected, make_word(ticket, SLOT_DONE));
}
