/// Allocations and frees with observers: the order in which checker, metrics and debug lines see them.
///
/// Invariant: without observers nothing here runs. The checker's record is made before the block and inserted after it;
/// it is removed before the block goes back. Depends on allocator.c, host_memory.c, memory_check.c, metrics.c.
#include "device/memory_watch.h"

#include "device/metrics_internal.h"
#include "dit/alloc.h"
#include "dit/log.h"

enum { DEBUG_ALLOC = 1, DEBUG_FREE = 2, DEBUG_VENDOR = 4, DEBUG_TRACE = 8 };

atomic_uint dit_watch_flags;
static atomic_uint debug_mask;

void dit_watch_set_debug(unsigned mask) {
  atomic_store(&debug_mask, mask);
  dit_watch_set(DIT_WATCH_DEBUG, mask != 0);
}

static void write_debug(unsigned kind, const char *what, int device, const void *ptr, size_t size) {
  unsigned mask = atomic_load(&debug_mask);
  if (!(mask & kind)) {
    return;
  }
  if (device >= 0) {
    dit_check_write("ditorch allocator: %s %zu bytes, ptr = %p, device %d", what, size, ptr, device);
  } else {
    dit_check_write("ditorch allocator: %s %zu bytes, ptr = %p, pinned host memory", what, size, ptr);
  }
  if (mask & DEBUG_TRACE) {
    void *frames[DIT_CHECK_DEPTH];
    char place[DIT_CHECK_PLACE_SIZE];
    int depth = dit_check_get_trace(frames, DIT_CHECK_DEPTH, place);
    dit_check_write_trace(place, frames, depth);
  }
}

// Alloc

static enum dit_status take_block(struct dit_allocator *a, int64_t stream, size_t size, void **ptr,
                                  struct dit_error *err) {
  return a ? dit_allocator_alloc(a, stream, size, ptr, err) : dit_host_take(size, ptr, err);
}

static void give_block(void *ptr, bool pinned) {
  struct dit_allocator_freed freed;
  if (pinned) {
    (void)dit_host_give(ptr, &freed);
  } else {
    (void)dit_allocator_free_block(ptr, false, &freed);
  }
}

static enum dit_status alloc_checked(struct dit_allocator *a, int device, int64_t stream, size_t size, void **ptr,
                                     struct dit_error *err) {
  void *base = NULL;
  size_t guard = dit_check_get_guard(device);
  if (size > SIZE_MAX / 4) {
    guard = 0;  // refused below in any case
  }
  struct dit_check_record *record = dit_check_create(device, stream, size, guard);
  if (!record) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while the memory checker notes %zu bytes", size);
  }
  enum dit_status status = take_block(a, stream, guard + size + guard, &base, err);
  if (status != DIT_OK) {
    dit_free(record);
    return status;
  }
  record->base = base;
  status = dit_guard_fill(record, err);
  if (status == DIT_OK) {
    status = dit_check_insert(record, err);
  }
  if (status != DIT_OK) {
    dit_free(record);
    give_block(base, a == NULL);
    return status;
  }
  *ptr = (char *)base + guard;
  return DIT_OK;
}

enum dit_status dit_watch_alloc(struct dit_allocator *a, int device, int64_t stream, size_t size, void **ptr,
                                struct dit_error *err) {
  unsigned flags = dit_watch_get();
  enum dit_status status = (flags & DIT_WATCH_CHECK) && size > 0 ? alloc_checked(a, device, stream, size, ptr, err)
                                                                 : take_block(a, stream, size, ptr, err);
  if (size > 0 && (flags & DIT_WATCH_METRICS)) {
    dit_metrics_note_alloc(DIT_METRIC_CACHING, device, size, status == DIT_OK);
  }
  if (size > 0 && (flags & DIT_WATCH_DEBUG)) {
    write_debug(DEBUG_ALLOC, status == DIT_OK ? "allocated" : "could not allocate", device,
                status == DIT_OK ? *ptr : NULL, size);
  }
  return status;
}

// Free

static bool find_block(const void *ptr, bool pinned, void **base, size_t *size) {
  int device;
  return pinned ? dit_host_find(ptr, base, size) : dit_allocator_find(ptr, base, size, &device);
}

/// False when `ptr` is no block that may be freed. `freed` gets the user's size.
static bool free_checked(void *ptr, bool pinned, struct dit_allocator_freed *freed) {
  void *base = ptr;
  size_t size;
  struct dit_check_record *record = NULL, other;
  if (dit_watch_get() & DIT_WATCH_TABLE) {
    if (!find_block(ptr, pinned, &base, &size)) {
      return false;
    }
    record = dit_check_remove(base, ptr);
    if (!record && (base != ptr || dit_check_find(base, &other))) {
      return false;  // the middle of a block, or a guard zone
    }
  }
  size_t user_size = record ? record->size : 0;
  if (record) {
    dit_check_note_free(record);
    dit_guard_verify_later(record);
  }
  bool found = pinned ? dit_host_give(base, freed) : dit_allocator_free_block(base, false, freed);
  freed->requested = user_size ? user_size : freed->requested;
  return found;
}

void dit_watch_free(void *ptr, bool pinned) {
  unsigned flags = dit_watch_get();
  struct dit_allocator_freed freed = {.device = pinned ? -1 : 0};
  if (!ptr) {
    if (flags & DIT_WATCH_METRICS) {
      dit_metrics_note_free(DIT_METRIC_CACHING, pinned ? -1 : dit_device_get_current(), 0, DIT_FREE_NULL);
    }
    return;
  }
  bool found = free_checked(ptr, pinned, &freed);
  if (flags & DIT_WATCH_METRICS) {
    dit_metrics_note_free(DIT_METRIC_CACHING, found || pinned ? freed.device : dit_device_get_current(),
                          freed.requested, found ? DIT_FREE_DONE : DIT_FREE_UNEXPECTED);
  }
  if (flags & DIT_WATCH_DEBUG) {
    write_debug(DEBUG_FREE, found ? "freed" : "refused to free", freed.device, ptr, freed.requested);
  }
  if (!found && (flags & DIT_WATCH_CHECK)) {
    dit_check_report_free(ptr, pinned);
  } else if (!found && dit_runtime_is_active()) {
    dit_log_write_once("memory_watch.free", DIT_LOG_WARNING,
                       "free: %p is not the start of a live block of %s memory; ignored (said once)", ptr,
                       pinned ? "pinned host" : "device");
  }
}

// Questions

bool dit_watch_find(const void *ptr, void **base, size_t *size) {
  struct dit_check_record record;
  if (!dit_check_find(*base, &record)) {
    return true;
  }
  *base = record.base + record.front;
  *size = record.size;
  return (uintptr_t)ptr - (uintptr_t)*base < record.size;
}

void dit_watch_range(const void *ptr, size_t size, const char *what) {
  void *base = NULL;
  size_t block_size = 0;
  int device = 0;
  struct dit_check_record record;
  if (!(dit_watch_get() & DIT_WATCH_CHECK) || size == 0) {
    return;
  }
  if (!dit_allocator_find(ptr, &base, &block_size, &device)) {
    if (dit_allocator_owns(ptr)) {
      dit_check_count(DIT_COUNT_COPY);
      dit_check_write(DIT_CHECK_PREFIX
                      "not found point address when check, ptr = %p: %s of %zu bytes touches device memory that is "
                      "free",
                      ptr, what, size);
    }
    return;  // memory of somebody else, such as another process's
  }
  if (!dit_check_find(base, &record)) {
    return;
  }
  const char *start = record.base + record.front, *from = ptr;
  if (from < start || size > record.size || (size_t)(from - start) > record.size - size) {
    dit_check_count(DIT_COUNT_COPY);
    dit_check_write(DIT_CHECK_PREFIX
                    "%s of %zu bytes at ptr = %p leaves the block, ptr = %p, size = %zu, device %d, allocation %llu",
                    what, size, ptr, (const void *)start, record.size, device, (unsigned long long)record.number);
    dit_check_write_trace(record.place, record.frames, record.depth);
  }
}

void dit_watch_vendor(bool alloc, int device, void *ptr, size_t size, enum dit_status status) {
  unsigned flags = dit_watch_get();
  enum dit_metric_kind kind = device >= 0 ? DIT_METRIC_DEVICE : DIT_METRIC_HOST;
  if (flags & DIT_WATCH_METRICS) {
    if (alloc) {
      dit_metrics_note_alloc(kind, device, size, status == DIT_OK);
    } else {
      dit_metrics_note_free(kind, device, size, status == DIT_OK ? DIT_FREE_DONE : DIT_FREE_UNEXPECTED);
    }
  }
  if (flags & DIT_WATCH_DEBUG) {
    const char *failed = alloc ? "the vendor had no" : "the vendor did not take back";
    write_debug(DEBUG_VENDOR,
                status != DIT_OK ? failed
                : alloc          ? "took from the vendor"
                                 : "gave back to the vendor",
                device, ptr, size);
  }
}
