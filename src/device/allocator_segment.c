/// Segments: memory taken from the vendor and given back, and the chain of measures when the device is full.
///
/// Invariant: a segment in a->segments is in the address map and its blocks tile it. A segment on its way back is in no
/// list that another thread can reach, so the lock is free while the device is synchronised and the vendor works. An
/// allocation that finds the device full waits for threads that are giving memory back before it fails. Depends on:
/// allocator_pool, allocator_event, allocator_map, core/log.
#include "device/allocator_impl.h"
#include "dit/alloc.h"
#include "dit/log.h"

// Metadata

static struct dit_allocator_segment *create_segment(struct dit_allocator *a, struct dit_allocator_slot *slot,
                                                    size_t size) {
  const struct dit_algorithm_vtable *algorithm = a->algorithm;
  size_t bytes = algorithm->segment_size(a, size);
  unsigned shift = algorithm->granule_shift(size);
  size_t granules = ((bytes - 1) >> shift) + 1;
  size_t words = granules > DIT_SMALL_BINS && shift == 9 ? (granules + 63) / 64 : 0, summary = (words + 63) / 64;
  struct dit_allocator_segment *segment =
      dit_calloc(1, sizeof(*segment) + granules * sizeof(segment->starts[0]) + (words + summary) * sizeof(uint64_t));
  struct dit_allocator_block *block = segment ? dit_allocator_block_get(a) : NULL;
  if (!block) {
    dit_free(segment);
    return NULL;
  }
  segment->owner = a;
  segment->slot = slot;
  segment->first = block;
  segment->size = bytes;
  segment->large = size > DIT_SMALL_SIZE || algorithm->is_mixed;
  segment->algorithm = a->config.algorithm;
  segment->vtable = algorithm;
  if (words > 0) {
    segment->marks = (uint64_t *)(void *)&segment->starts[granules];
    segment->mark_summary = segment->marks + words;
  }
  segment->shift = shift;
  segment->granules = granules;
  *block = (struct dit_allocator_block){.size = bytes, .segment = segment, .state = DIT_BLOCK_ALLOCATED};
  return segment;
}

static void destroy_segment(struct dit_allocator *a, struct dit_allocator_segment *segment) {
  dit_allocator_block_put(a, segment->first);
  dit_free(segment);
}

void dit_allocator_segment_set_start(struct dit_allocator_segment *segment, const char *address,
                                     struct dit_allocator_block *block) {
  size_t granule = (size_t)(address - segment->address) >> segment->shift, word = granule / 64;
  segment->starts[granule] = block;
  if (segment->marks) {
    uint64_t mark = (uint64_t)1 << (granule % 64);
    segment->marks[word] = block ? segment->marks[word] | mark : segment->marks[word] & ~mark;
    mark = (uint64_t)1 << (word % 64);
    uint64_t *summary = &segment->mark_summary[word / 64];
    *summary = segment->marks[word] ? *summary | mark : *summary & ~mark;
  }
}

static size_t get_highest_bit(uint64_t bits) {
  return 63 - (size_t)__builtin_clzll(bits);
}

/// The last granule up to `granule` in which a block starts; the first granule always has one.
static size_t find_mark(const struct dit_allocator_segment *segment, size_t granule) {
  size_t word = granule / 64;
  uint64_t bits = segment->marks[word] & (~(uint64_t)0 >> (63 - granule % 64));
  if (!bits) {
    size_t group = word / 64;
    uint64_t words = segment->mark_summary[group] & (((uint64_t)1 << (word % 64)) - 1);
    while (!words) {
      words = segment->mark_summary[--group];
    }
    word = group * 64 + get_highest_bit(words);
    bits = segment->marks[word];
  }
  return word * 64 + get_highest_bit(bits);
}

struct dit_allocator_block *dit_allocator_segment_find(const struct dit_allocator_segment *segment, const void *ptr) {
  const char *address = ptr;
  size_t granule = (size_t)(address - segment->address) >> segment->shift;
  if (segment->marks) {
    return segment->starts[find_mark(segment, granule)];
  }
  struct dit_allocator_block *block = segment->starts[granule];
  while (!block || (uintptr_t)block->address > (uintptr_t)address) {
    block = segment->starts[--granule];  // the first granule always holds the first block
  }
  return block;
}

// Giving back

void dit_allocator_segment_detach(struct dit_allocator_segment *segment, struct dit_allocator_segment **list) {
  struct dit_allocator *a = segment->owner;
  if (segment->first->state == DIT_BLOCK_INACTIVE) {
    dit_allocator_pool_remove(segment->first);
  }
  dit_allocator_map_remove(segment);
  if (segment->prev) {
    segment->prev->next = segment->next;
  } else {
    a->segments = segment->next;
  }
  if (segment->next) {
    segment->next->prev = segment->prev;
  }
  segment->prev = NULL;
  segment->next = *list;
  *list = segment;
}

static void count_release(struct dit_allocator *a, const struct dit_allocator_segment *segment) {
  enum dit_memory_pool pool = dit_allocator_get_pool(segment);
  dit_allocator_stats_decrease(a->stats.segment, pool, 1);
  dit_allocator_stats_decrease(a->stats.reserved_bytes, pool, (int64_t)segment->size);
  if (segment->oversize) {
    dit_allocator_stat_decrease(&a->stats.oversize_segments, 1);
  }
  a->stats.num_device_free++;
  a->taken -= segment->size;
}

/// (unlocks) When synchronising fails the device has drained with an error or is lost: the memory is given back all the
/// same and the error is returned.
static enum dit_status release_list(struct dit_allocator *a, struct dit_allocator_segment *list, bool synchronize,
                                    struct dit_error *err) {
  if (!list) {
    return DIT_OK;
  }
  enum dit_status status = DIT_OK;
  a->releasing++;
  dit_allocator_leave(a);
  if (synchronize) {
    status = a->vtable->synchronize(a->context, err);
  }
  for (struct dit_allocator_segment *segment = list; segment; segment = segment->next) {
    struct dit_error detail = {0};
    if (a->vtable->memory_free(a->context, segment->address, segment->size, &detail) != DIT_OK) {
      dit_log_write_once("allocator.vendor_free", DIT_LOG_WARNING, "device %d did not take %zu bytes at %p back: %s",
                         a->device, segment->size, (void *)segment->address, detail.message);
    }
  }
  dit_allocator_reenter(a);
  a->releasing--;
  pthread_cond_broadcast(&a->changed);
  while (list) {
    struct dit_allocator_segment *segment = list;
    list = segment->next;
    count_release(a, segment);
    destroy_segment(a, segment);
  }
  return status;
}

void dit_allocator_segment_flush(struct dit_allocator *a) {
  struct dit_allocator_segment *list = a->doomed;
  a->doomed = NULL;
  enum dit_status ignored = release_list(a, list, false, NULL);
  (void)ignored;  // cannot fail: nothing is synchronised
}

/// (unlocks) pool 0: all that may be given back.
static enum dit_status release_unused(struct dit_allocator *a, int64_t pool, struct dit_error *err) {
  enum dit_status status = DIT_OK;
  a->stats.num_sync_all_streams++;
  if (a->pending > 0) {
    uint64_t queued = a->queued_uses;
    dit_allocator_leave(a);
    status = a->vtable->synchronize(a->context, err);
    dit_allocator_reenter(a);
    dit_allocator_event_poll(a, status == DIT_OK ? queued : 0);
    dit_allocator_segment_flush(a);
  }
  struct dit_allocator_segment *list = NULL;
  for (struct dit_allocator_segment *segment = a->segments, *next; segment; segment = next) {
    next = segment->next;
    if (dit_allocator_segment_is_unused(segment) && (pool == 0 || segment->slot->pool == pool)) {
      dit_allocator_segment_detach(segment, &list);
    }
  }
  enum dit_status released = release_list(a, list, true, status == DIT_OK ? err : NULL);
  return status == DIT_OK ? released : status;
}

enum dit_status dit_allocator_segment_release_cached(struct dit_allocator *a, struct dit_error *err) {
  enum dit_status status = release_unused(a, 0, err);
  a->bf_step = DIT_BF_FIRST_STEP;
  return status;
}

enum dit_status dit_allocator_segment_release_pool(struct dit_allocator *a, int64_t pool, struct dit_error *err) {
  return release_unused(a, pool, err);
}

/// (unlocks) Give back unused large segments of more than average age until the threshold is reached again.
static void collect_garbage(struct dit_allocator *a) {
  uint64_t allowed = a->limit < a->total_memory ? a->limit : a->total_memory;
  uint64_t threshold = (uint64_t)(a->config.gc_threshold * (double)allowed);
  if (a->taken <= threshold) {
    return;
  }
  uint64_t target = a->taken - threshold, reclaimed = 0, total_age = 0, count = 0;
  for (struct dit_allocator_segment *s = a->segments; s; s = s->next) {
    if (s->large && dit_allocator_segment_is_unused(s)) {
      total_age += a->large_calls - s->first->age;
      count++;
    }
  }
  struct dit_allocator_segment *list = NULL;
  for (bool freed = true; freed && reclaimed < target && count > 0;) {
    double average = (double)total_age / (double)count;
    freed = false;
    for (struct dit_allocator_segment *s = a->segments, *next; s; s = next) {
      next = s->next;
      if (s->large && dit_allocator_segment_is_unused(s) && (double)(a->large_calls - s->first->age) >= average) {
        freed = true;
        reclaimed += s->size;
        total_age -= a->large_calls - s->first->age;
        count--;
        dit_allocator_segment_detach(s, &list);
      }
    }
  }
  enum dit_status ignored = release_list(a, list, true, NULL);
  (void)ignored;  // the allocation that follows meets the device's error itself
}

/// The smallest unused oversize segment of the stream with at least `size` bytes, or else the largest.
static struct dit_allocator_segment *find_oversize(struct dit_allocator *a, const struct dit_allocator_slot *slot,
                                                   size_t size) {
  struct dit_allocator_segment *best = NULL;
  for (struct dit_allocator_segment *s = a->segments; s; s = s->next) {
    if (s->slot != slot || s->algorithm != DIT_ALGORITHM_TORCH || !s->large || s->size < a->config.max_split_size ||
        !dit_allocator_segment_is_unused(s)) {
      continue;
    }
    bool fits = s->size >= size, best_fits = best && best->size >= size;
    if (!best || (fits && !best_fits) || (fits == best_fits && (fits ? s->size < best->size : s->size > best->size))) {
      best = s;
    }
  }
  return best;
}

/// (unlocks) With max_split_size: give back one oversize segment that is large enough, or several that are so together.
/// False when there are not enough of them.
static bool release_oversize(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size) {
  if (a->config.algorithm != DIT_ALGORITHM_TORCH || a->config.max_split_size == SIZE_MAX || size <= DIT_SMALL_SIZE) {
    return false;
  }
  size_t wanted = size < a->config.max_split_size ? a->config.max_split_size : size, total = 0;
  struct dit_allocator_segment *list = NULL, *segment;
  while (total < wanted && (segment = find_oversize(a, slot, wanted - total))) {
    total += segment->size;
    dit_allocator_segment_detach(segment, &list);
  }
  enum dit_status ignored = release_list(a, list, true, NULL);
  (void)ignored;  // the allocation that follows meets the device's error itself
  return total >= wanted;
}

// Taking

static void count_segment(struct dit_allocator *a, struct dit_allocator_segment *segment) {
  enum dit_memory_pool pool = dit_allocator_get_pool(segment);
  dit_allocator_stats_increase(a->stats.segment, pool, 1);
  dit_allocator_stats_increase(a->stats.reserved_bytes, pool, (int64_t)segment->size);
  if (segment->size >= a->config.max_split_size) {
    segment->oversize = true;
    dit_allocator_stat_increase(&a->stats.oversize_segments, 1);
  }
  a->stats.num_device_alloc++;
}

/// (unlocks) Fill the segment with vendor memory. `full` says that the device, not the host, has no memory left.
static enum dit_status take_memory(struct dit_allocator *a, struct dit_allocator_segment *segment, bool *full,
                                   struct dit_error *err) {
  *full = segment->size > a->limit || a->taken > a->limit - segment->size;
  if (*full) {
    return DIT_ERR_NOMEM;
  }
  void *memory = NULL;
  a->taken += segment->size;
  dit_allocator_leave(a);
  enum dit_status status = a->vtable->memory_alloc(a->context, segment->size, &memory, err);
  dit_allocator_reenter(a);
  if (status != DIT_OK) {
    a->taken -= segment->size;
    *full = status == DIT_ERR_NOMEM;
    return status;
  }
  segment->address = segment->first->address = memory;
  dit_allocator_segment_set_start(segment, segment->address, segment->first);
  status = dit_allocator_map_insert(segment, err);
  if (status != DIT_OK) {
    a->taken -= segment->size;
    dit_allocator_leave(a);
    enum dit_status ignored = a->vtable->memory_free(a->context, memory, segment->size, NULL);
    (void)ignored;  // the error to report is the first one
    dit_allocator_reenter(a);
    return status;
  }
  segment->next = a->segments;
  if (segment->next) {
    segment->next->prev = segment;
  }
  a->segments = segment;
  count_segment(a, segment);
  return DIT_OK;
}

/// (unlocks) One measure after another against a full device; false when none is left.
static bool make_room(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size, int *measure) {
  if (*measure == 0) {
    *measure = 1;
    if (release_oversize(a, slot, size)) {
      return true;
    }
  }
  if (*measure == 1) {
    *measure = 2;
    a->stats.num_alloc_retries++;
    enum dit_status ignored = dit_allocator_segment_release_cached(a, NULL);
    (void)ignored;  // the allocation that follows meets the device's error itself
    return true;
  }
  if (a->releasing == 0) {
    return false;
  }
  while (a->releasing > 0) {
    pthread_cond_wait(&a->changed, &a->lock);
  }
  return true;
}

enum dit_status dit_allocator_segment_acquire(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size,
                                              struct dit_allocator_block **out, struct dit_error *err) {
  bool full = false;
  if (a->total_memory > 0 && size > a->total_memory) {
    return dit_allocator_report_oom(a, size, err);  // nothing that is given back could help
  }
  struct dit_allocator_segment *segment = create_segment(a, slot, size);
  if (!segment) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while allocating %zu bytes on device %d", size,
                         a->device);
  }
  if (a->config.gc_threshold > 0 && a->config.algorithm != DIT_ALGORITHM_RAW) {
    collect_garbage(a);
  }
  int measure = 0;
  enum dit_status status = take_memory(a, segment, &full, err);
  if (full && segment->vtable->is_mixed && segment->size > size) {
    segment->size = segment->first->size = size;  // no room for a step: the request alone
    status = take_memory(a, segment, &full, err);
  }
  while (full && make_room(a, slot, size, &measure)) {
    struct dit_allocator_block *block = a->algorithm->take(a, slot, size);
    if (block) {
      destroy_segment(a, segment);
      *out = block;
      return DIT_OK;
    }
    status = take_memory(a, segment, &full, err);
  }
  if (status != DIT_OK) {
    destroy_segment(a, segment);
    return full ? dit_allocator_report_oom(a, size, err) : status;
  }
  if (segment->vtable->is_mixed && segment->size == a->bf_step && a->bf_step < a->config.max_extend) {
    a->bf_step *= 2;
  }
  *out = segment->first;
  return DIT_OK;
}
