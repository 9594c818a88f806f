/// The table "host": CPU tensors and the embedded device, whose memory the host reads.
///
/// Everything but events is done when the call returns; the caller has synchronised side streams. Depends on
/// src/numerics and the pool.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/memory.h"
#include "helper/helper_internal.h"
#include "helper/pool.h"

// Slots

struct host_slots {
  size_t size, count;
  _Alignas(max_align_t) char data[];
};

static enum dit_status slots_create(int device, size_t size, size_t count, void **slots, struct dit_error *err) {
  (void)device;
  if (size == 0 || count > (SIZE_MAX / 2 - sizeof(struct host_slots)) / size) {
    return dit_error_set(err, DIT_ERR_INVALID, "%zu slots of %zu bytes: give a size of 1 or more and a sane count",
                         count, size);
  }
  struct host_slots *fresh = dit_calloc(1, sizeof *fresh + size * count);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for %zu slots of %zu bytes", count, size);
  }
  fresh->size = size;
  fresh->count = count;
  *slots = fresh;
  return DIT_OK;
}

static void slots_destroy(void *slots) {
  dit_free(slots);
}

static enum dit_status check_range(const struct host_slots *slots, size_t size, size_t first, size_t count,
                                   struct dit_error *err) {
  if (slots->size != size) {
    return dit_error_set(err, DIT_ERR_INVALID, "the slots have %zu bytes each, this result needs %zu", slots->size,
                         size);
  }
  if (first > slots->count || count > slots->count - first) {
    return dit_error_set(err, DIT_ERR_INVALID, "slots %zu to %zu asked for; the block has %zu", first, first + count,
                         slots->count);
  }
  return DIT_OK;
}

static enum dit_status slots_read(void *handle, size_t first, size_t count, void *stream, void *out,
                                  struct dit_error *err) {
  const struct host_slots *slots = handle;
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_range(slots, slots->size, first, count, err));
  memcpy(out, slots->data + first * slots->size, count * slots->size);
  return DIT_OK;
}

// Numbers

static enum dit_status check_batch(const struct host_slots *slots, size_t size, size_t first, int count,
                                   struct dit_error *err) {
  if (count < 0 || count > DIT_HELPER_BATCH) {
    return dit_error_set(err, DIT_ERR_INVALID, "%d tensors in one batch; valid: 0 to %d", count, DIT_HELPER_BATCH);
  }
  return check_range(slots, size, first, (size_t)count, err);
}

static enum dit_status host_nonfinite(const struct dit_tensor_view *views, int count, void *stream, void *handle,
                                      size_t first, struct dit_error *err) {
  struct host_slots *slots = handle;
  uint8_t flags[DIT_HELPER_BATCH];
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_batch(slots, sizeof flags[0], first, count, err));
  for (int i = 0; i < count; i++) {
    bool nan, inf;
    DIT_RETURN_IF_NOT_OK(dit_tensor_get_nonfinite(&views[i], &nan, &inf, err));
    flags[i] = (uint8_t)((nan ? DIT_NONFINITE_NAN : 0) | (inf ? DIT_NONFINITE_INF : 0));
  }
  memcpy(slots->data + first, flags, (size_t)count);
  return DIT_OK;
}

static enum dit_status host_stats(const struct dit_tensor_view *views, int count, void *stream, void *handle,
                                  size_t first, struct dit_error *err) {
  struct host_slots *slots = handle;
  struct dit_tensor_stats stats[DIT_HELPER_BATCH];
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_batch(slots, sizeof stats[0], first, count, err));
  for (int i = 0; i < count; i++) {
    DIT_RETURN_IF_NOT_OK(dit_tensor_get_stats(&views[i], &stats[i], err));
  }
  memcpy(slots->data + first * sizeof stats[0], stats, (size_t)count * sizeof stats[0]);
  return DIT_OK;
}

static enum dit_status host_compare(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                    const struct dit_compare_options *options, void *stream, void *handle, size_t first,
                                    struct dit_error *err) {
  struct host_slots *slots = handle;
  struct dit_compare_result result;
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_batch(slots, sizeof result, first, 1, err));
  DIT_RETURN_IF_NOT_OK(dit_tensor_compare(a, b, options, &result, err));
  memcpy(slots->data + first * sizeof result, &result, sizeof result);
  return DIT_OK;
}

static enum dit_status host_hash(const struct dit_tensor_view *views, int count, void *stream, void *handle,
                                 size_t first, struct dit_error *err) {
  struct host_slots *slots = handle;
  struct dit_hash hashes[DIT_HELPER_BATCH];
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_batch(slots, sizeof hashes[0], first, count, err));
  for (int i = 0; i < count; i++) {
    DIT_RETURN_IF_NOT_OK(dit_tensor_get_hash(&views[i], &hashes[i], err));
  }
  memcpy(slots->data + first * sizeof hashes[0], hashes, (size_t)count * sizeof hashes[0]);
  return DIT_OK;
}

/// Marks of `watch`, the last of each remainder.
static _Atomic uint64_t marks[DIT_HELPER_MARKS];

static enum dit_status host_watch(const struct dit_tensor_view *views, int count, int marking, uint64_t mark,
                                  void *stream, void *handle, size_t first, struct dit_error *err) {
  struct host_slots *slots = handle;
  struct dit_tensor_stats stats[DIT_HELPER_BATCH] = {0};
  bool bad = false;
  (void)stream;
  DIT_RETURN_IF_NOT_OK(check_batch(slots, sizeof stats[0], first, count, err));
  for (int i = 0; i < count; i++) {
    bool nan, inf;
    DIT_RETURN_IF_NOT_OK(dit_tensor_get_nonfinite(&views[i], &nan, &inf, err));
    stats[i].numel = views[i].numel;
    stats[i].nan = nan;
    stats[i].pos_inf = inf;
    bad |= i >= marking && (nan || inf);
  }
  if (bad && mark) {
    atomic_store(&marks[mark % DIT_HELPER_MARKS], mark);
  }
  memcpy(slots->data + first * sizeof stats[0], stats, (size_t)count * sizeof stats[0]);
  return DIT_OK;
}

static enum dit_status host_stats_if(const struct dit_tensor_view *views, int count, uint64_t mark, void *stream,
                                     void *handle, size_t first, struct dit_error *err) {
  bool wanted = !mark || atomic_load(&marks[mark % DIT_HELPER_MARKS]) == mark;
  return wanted ? host_stats(views, count, stream, handle, first, err)
                : check_batch(handle, sizeof(struct dit_tensor_stats), first, count, err);
}

// Staging

/// Kept unused for the next capture: fresh memory costs a page fault every 4 KiB.
#define STAGING_KEPT ((size_t)256 << 20)

static enum dit_status staging_fresh(size_t size, void **memory, struct dit_error *err) {
  // The seam of dit/alloc.h gives no alignment; staging blocks are large, so one spare header pays for it.
  char *raw = dit_malloc(size + POOL_HEADER);
  if (!raw) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for %zu bytes of staging memory", size);
  }
  char *aligned = raw + POOL_HEADER - (uintptr_t)raw % POOL_HEADER;
  memcpy(aligned - sizeof raw, &raw, sizeof raw);
  *memory = aligned;
  return DIT_OK;
}

static void staging_drop(void *memory) {
  char *raw;
  memcpy(&raw, (char *)memory - sizeof raw, sizeof raw);
  dit_free(raw);
}

static struct pool staging = POOL_INITIALIZER(staging_fresh, staging_drop, STAGING_KEPT);

static enum dit_status staging_allocate(size_t size, void **memory, struct dit_error *err) {
  return pool_take(&staging, size, memory, err);
}

static void staging_free(void *memory) {
  pool_give(&staging, memory);
}

static enum dit_status copy_to_host(void *host, const void *device, size_t size, void *stream, struct dit_error *err) {
  (void)stream;
  (void)err;
  if (size > 0) {
    dit_memory_access_begin();
    memcpy(host, device, size);
    dit_memory_access_end();
  }
  return DIT_OK;
}

const struct dit_helper_vtable helper_host = {
    .struct_size = sizeof(struct dit_helper_vtable),
    .version = DIT_HELPER_VERSION,
    .name = "host",
    .event_create = helper_event_create,
    .event_destroy = helper_event_destroy,
    .event_record = helper_event_record,
    .event_query = helper_event_query,
    .event_wait = helper_event_wait,
    .event_get_elapsed = helper_event_get_elapsed,
    .slots_create = slots_create,
    .slots_destroy = slots_destroy,
    .slots_read = slots_read,
    .nonfinite = host_nonfinite,
    .stats = host_stats,
    .compare = host_compare,
    .hash = host_hash,
    .staging_allocate = staging_allocate,
    .staging_free = staging_free,
    .copy_to_host = copy_to_host,
    .watch = host_watch,
    .stats_if = host_stats_if,
    .checksum = host_hash,
};
