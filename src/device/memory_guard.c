/// Guard zones: bytes with a pattern in front of and behind a watched block.
///
/// The zones are filled in the order of the block's stream, because work queued before may still write to memory that
/// was free when the host asked for it; for the same reason they are read when the stream has passed the free. Only
/// memory that the host can reach has zones. Invariant: nothing here waits for a stream, so a block may be freed from
/// work that runs on one. Depends on the runtime's streams.
#include <stdio.h>
#include <string.h>

#include "device/memory_watch.h"
#include "dit/alloc.h"

#define PATTERN 0xB5

static enum dit_status fill(const struct dit_check_record *record, char *start, size_t size, struct dit_error *err) {
  if (record->device >= 0) {
    return dit_memory_set(start, record->device, PATTERN, size, record->stream, err);
  }
  memset(start, PATTERN, size);
  return DIT_OK;
}

enum dit_status dit_guard_fill(const struct dit_check_record *record, struct dit_error *err) {
  if (record->front == 0) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(fill(record, record->base, record->front, err));
  return fill(record, record->base + record->front + record->size, record->back, err);
}

/// Report one zone. `behind` says which; offsets are counted from the border to the block.
static int verify_zone(struct dit_check_record *record, bool behind) {
  const unsigned char *zone = (const unsigned char *)record->base + (behind ? record->front + record->size : 0);
  size_t length = behind ? record->back : record->front, damaged = 0, first = 0;
  for (size_t i = 0; i < length; i++) {
    size_t at = behind ? i : length - 1 - i;  // from the block outwards
    if (zone[at] != PATTERN && damaged++ == 0) {
      first = i + 1;
    }
  }
  if (damaged == 0 || record->reported[behind]) {
    return 0;
  }
  record->reported[behind] = true;
  dit_check_count(DIT_COUNT_DAMAGED);
  char where[32] = "pinned host memory";
  if (record->device >= 0) {
    snprintf(where, sizeof(where), "device %d", record->device);
  }
  dit_check_write(DIT_CHECK_PREFIX
                  "guard zone damaged: %zu bytes %s the block were written, the nearest %zu bytes away from it, ptr = "
                  "%p, size = %zu, %s, allocation %llu",
                  damaged, behind ? "behind" : "in front of", first, (void *)(record->base + record->front),
                  record->size, where, (unsigned long long)record->number);
  dit_check_write_trace(record->place, record->frames, record->depth);
  return 1;
}

int dit_guard_verify(struct dit_check_record *record) {
  dit_memory_access_begin();
  int damaged = record->front > 0 ? verify_zone(record, false) + verify_zone(record, true) : 0;
  dit_memory_access_end();
  return damaged;
}

static void verify_and_destroy(void *argument) {
  struct dit_check_record *record = argument;
  (void)dit_guard_verify(record);
  dit_free(record);
}

void dit_guard_verify_later(struct dit_check_record *record) {
  bool idle = true;
  if (record->device >= 0 && record->front > 0 &&
      dit_stream_query(record->device, record->stream, &idle, NULL) == DIT_OK && !idle &&
      dit_stream_launch_host(record->device, record->stream, verify_and_destroy, record, NULL) == DIT_OK) {
    return;
  }
  verify_and_destroy(record);
}
