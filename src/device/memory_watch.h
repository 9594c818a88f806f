/// Observers of memory: the checker, the metrics, the debug lines. allocator.c and host_memory.c ask one flag word, and
/// only when it is not 0 go through the functions of memory_watch.c.
///
/// memory_check.c is the table of blocks, memory_guard.c the zones around them, memory_report.c the text,
/// memory_protect.c the pages. Lower than all of them is the allocator itself, which knows nothing of this.
#ifndef DIT_DEVICE_MEMORY_WATCH_H
#define DIT_DEVICE_MEMORY_WATCH_H

#include <stdatomic.h>

#include "device/allocator.h"
#include "device/device_internal.h"
#include "dit/memory_check.h"

enum dit_watch_flag {
  DIT_WATCH_CHECK = 1 << 0,    ///< later blocks are watched
  DIT_WATCH_TABLE = 1 << 1,    ///< watched blocks may exist
  DIT_WATCH_METRICS = 1 << 2,  ///< count
  DIT_WATCH_DEBUG = 1 << 3,    ///< write lines
};
extern DIT_HIDDEN atomic_uint dit_watch_flags;

static inline unsigned dit_watch_get(void) {
  return atomic_load_explicit(&dit_watch_flags, memory_order_relaxed);
}
static inline void dit_watch_set(unsigned flag, bool on) {
  if (on) {
    atomic_fetch_or(&dit_watch_flags, flag);
  } else {
    atomic_fetch_and(&dit_watch_flags, ~flag);
  }
}

// memory_watch.c: both kinds of memory; `allocator` NULL is pinned host memory

enum dit_status dit_watch_alloc(struct dit_allocator *allocator, int device, int64_t stream, size_t size, void **ptr,
                                struct dit_error *err);
void dit_watch_free(void *ptr, bool pinned);
/// The user's part of the block that the allocator found; false when `ptr` is in a guard zone.
bool dit_watch_find(const void *ptr, void **base, size_t *size);
/// A copy or fill is about to touch these bytes of device memory.
void dit_watch_range(const void *ptr, size_t size, const char *what);
void dit_watch_vendor(bool alloc, int device, void *ptr, size_t size, enum dit_status status);
void dit_watch_set_debug(unsigned mask);

// memory_check.c

/// A watched block. `base` is the allocator's address, the user's is base + front.
struct dit_check_record {
  struct dit_check_record *next;
  char *base;
  size_t front, size, back;
  int device;
  int64_t stream;
  uint64_t number;
  bool reported[2];  ///< damage in front, behind
  int depth;
  void *frames[DIT_CHECK_DEPTH];
  char place[DIT_CHECK_PLACE_SIZE];
};

/// Guard bytes for a block of this device; 0 where the host cannot reach the memory.
size_t dit_check_get_guard(int device);
/// Takes the record.
enum dit_status dit_check_insert(struct dit_check_record *record, struct dit_error *err);
/// Takes the record of the block out of the table when `ptr` is the user's address; NULL otherwise.
struct dit_check_record *dit_check_remove(const void *base, const void *ptr);
/// Is the block in the table at all? Copies it.
bool dit_check_find(const void *base, struct dit_check_record *out);
struct dit_check_record *dit_check_create(int device, int64_t stream, size_t size, size_t guard);
/// A free that was not found: twice, or never handed out.
void dit_check_report_free(const void *ptr, bool pinned);
void dit_check_note_free(const struct dit_check_record *record);
bool dit_check_keeps_trace(void);
/// The runtime ends: report what lives, then forget it, because the memory goes now.
void dit_check_clear(void);
enum dit_check_count { DIT_COUNT_DAMAGED, DIT_COUNT_DOUBLE, DIT_COUNT_UNKNOWN, DIT_COUNT_COPY, DIT_COUNT_STRAY };
void dit_check_count(enum dit_check_count what);

// memory_guard.c

/// Fill the zones, in the order of the block's stream.
enum dit_status dit_guard_fill(const struct dit_check_record *record, struct dit_error *err);
/// Look at both zones now and report what was written to; marks the record.
int dit_guard_verify(struct dit_check_record *record);
/// Look at the zones when the block's stream has done what is queued; takes the record.
void dit_guard_verify_later(struct dit_check_record *record);

// memory_protect.c

enum dit_protect_mode { DIT_PROTECT_OFF, DIT_PROTECT_REPORT, DIT_PROTECT_STOP };
DIT_NODISCARD enum dit_status dit_protect_set(enum dit_protect_mode mode, struct dit_error *err);
/// What to ask the vendor for, so that the block has pages of its own; `size` itself when off.
size_t dit_protect_round(size_t size);
/// Vendor memory that comes and goes.
void dit_protect_add(void *ptr, size_t size);
void dit_protect_remove(const void *ptr);

// memory_report.c

void dit_check_write(const char *format, ...) DIT_PRINTF(1, 2);
/// The place and the frames, one line each, indented.
void dit_check_write_trace(const char *place, void *const *frames, int depth);
int dit_check_get_trace(void **frames, int most, char *place);

#endif
