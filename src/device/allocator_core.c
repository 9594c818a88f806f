/// Allocation and free of blocks: best fit, split, coalesce, count.
///
/// Invariant: every operation gets the metadata it may need before it changes anything, so a failure of the host's
/// memory leaves the allocator as it was. dit_allocator_free finds its allocator through the address map; a segment
/// that is in the map while its owner's lock is held stays there. Depends on: allocator_pool, allocator_segment,
/// allocator_event, allocator_map.
#include <string.h>

#include "device/allocator_impl.h"
#include "dit/alloc.h"

void dit_allocator_leave(struct dit_allocator *a) {
  a->busy++;
  pthread_mutex_unlock(&a->lock);
}

void dit_allocator_reenter(struct dit_allocator *a) {
  pthread_mutex_lock(&a->lock);
  if (--a->busy == 0) {
    pthread_cond_broadcast(&a->changed);
  }
}

// Alloc

/// The head keeps its metadata; `rest` becomes the free remainder.
static void split(struct dit_allocator *a, struct dit_allocator_block *block, size_t size,
                  struct dit_allocator_block *rest) {
  struct dit_allocator_segment *segment = block->segment;
  enum dit_memory_pool pool = dit_allocator_get_pool(segment);
  bool was_split = block->prev || block->next;
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->prev = block;
  rest->next = block->next;
  rest->segment = segment;
  rest->uses = NULL;
  if (rest->next) {
    rest->next->prev = rest;
  }
  block->next = rest;
  block->size = size;
  dit_allocator_segment_set_start(segment, rest->address, rest);
  dit_allocator_pool_insert(rest);
  if (was_split) {
    dit_allocator_stats_decrease(a->stats.inactive_split_bytes, pool, (int64_t)size);
  } else {
    dit_allocator_stats_increase(a->stats.inactive_split_bytes, pool, (int64_t)rest->size);
    dit_allocator_stats_increase(a->stats.inactive_split, pool, 1);
  }
}

/// Give the block, which is in no free set, to the user. Uses `spare` (and says so) when it splits.
static bool hand_out(struct dit_allocator *a, struct dit_allocator_block *block, size_t size, size_t requested,
                     struct dit_allocator_block *spare) {
  struct dit_memory_stats *stats = &a->stats;
  enum dit_memory_pool pool = dit_allocator_get_pool(block->segment);
  bool use_spare = DIT_LIKELY(block->segment->algorithm == DIT_ALGORITHM_TORCH)
                       ? dit_torch_should_split(&a->config, block, size)
                       : block->segment->vtable->should_split(&a->config, block, size);
  if (use_spare) {
    split(a, block, size, spare);
  } else if (block->prev || block->next) {
    dit_allocator_stats_decrease(stats->inactive_split_bytes, pool, (int64_t)block->size);
    dit_allocator_stats_decrease(stats->inactive_split, pool, 1);
  }
  block->state = DIT_BLOCK_ALLOCATED;
  block->requested = requested;
  dit_allocator_stats_increase(stats->allocation, pool, 1);
  dit_allocator_stats_increase(stats->allocated_bytes, pool, (int64_t)block->size);
  dit_allocator_stats_increase(stats->active, pool, 1);
  dit_allocator_stats_increase(stats->active_bytes, pool, (int64_t)block->size);
  dit_allocator_stats_increase(stats->requested_bytes, pool, (int64_t)requested);
  block->oversize = block->size >= a->config.max_split_size;
  if (block->oversize) {
    dit_allocator_stat_increase(&stats->oversize_allocations, 1);
  }
  return use_spare;
}

/// A raw block is given back when its own stream has passed the free, so that stream counts as one of its users.
static enum dit_status find_block(struct dit_allocator *a, int64_t stream, size_t size,
                                  struct dit_allocator_block **out, struct dit_error *err) {
  struct dit_allocator_slot *slot;
  struct dit_allocator_use *use = NULL;
  DIT_RETURN_IF_NOT_OK(dit_allocator_slot_get(a, stream, dit_allocator_get_choice(a->device), &slot, err));
  if (DIT_LIKELY(a->config.algorithm != DIT_ALGORITHM_RAW)) {
    *out = DIT_LIKELY(a->config.algorithm == DIT_ALGORITHM_TORCH) ? dit_torch_take(a, slot, size)
                                                                  : a->algorithm->take(a, slot, size);
    if (*out) {
      return DIT_OK;
    }
  } else {
    use = dit_allocator_use_get(a);
    if (!use) {
      return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while allocating %zu bytes on device %d", size,
                           a->device);
    }
  }
  enum dit_status status = dit_allocator_segment_acquire(a, slot, size, out, err);
  if (use && status == DIT_OK && (*out)->segment->algorithm == DIT_ALGORITHM_RAW) {
    use->block = *out;
    use->slot = slot;
    use->next = NULL;
    (*out)->uses = use;
  } else {
    dit_allocator_use_put(a, use);
  }
  return status;
}

enum dit_status dit_allocator_alloc(struct dit_allocator *a, int64_t stream, size_t size, void **ptr,
                                    struct dit_error *err) {
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  if (size >= DIT_MAX_REQUEST) {
    return dit_error_set(err, DIT_ERR_NOMEM, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  }
  enum dit_status status = DIT_OK;
  struct dit_allocator_block *block = NULL, *spare = NULL;
  pthread_mutex_lock(&a->lock);
  if (DIT_UNLIKELY(!a->open)) {
    status = dit_error_set(err, DIT_ERR_DEVICE, "device %d was shut down; call dit_runtime_init first", a->device);
    goto done;
  }
  if (DIT_UNLIKELY(a->pending > 0)) {
    dit_allocator_event_poll(a, 0);
    dit_allocator_segment_flush(a);
  }
  size_t rounded = DIT_LIKELY(a->config.algorithm == DIT_ALGORITHM_TORCH) ? dit_allocator_round_size(&a->config, size)
                                                                          : a->algorithm->round_size(&a->config, size);
  spare = dit_allocator_block_get(a);
  if (DIT_UNLIKELY(!spare)) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while allocating %zu bytes on device %d", size,
                           a->device);
    goto done;
  }
  status = find_block(a, stream, rounded, &block, err);
  if (DIT_LIKELY(status == DIT_OK)) {
    *ptr = block->address;
    if (hand_out(a, block, rounded, size, spare)) {
      spare = NULL;
    }
  }
done:
  dit_allocator_block_put(a, spare);
  pthread_mutex_unlock(&a->lock);
  return status;
}

// Free

/// Absorb an INACTIVE neighbour; returns the bytes that left the free set.
static size_t merge(struct dit_allocator *a, struct dit_allocator_block *block, struct dit_allocator_block *neighbour) {
  if (!neighbour || neighbour->state != DIT_BLOCK_INACTIVE) {
    return 0;
  }
  size_t size = neighbour->size;
  dit_allocator_pool_remove(neighbour);
  struct dit_allocator_segment *segment = block->segment;
  if (neighbour == block->prev) {
    dit_allocator_segment_set_start(segment, block->address, NULL);
    dit_allocator_segment_set_start(segment, neighbour->address, block);
    block->address = neighbour->address;
    block->prev = neighbour->prev;
    if (block->prev) {
      block->prev->next = block;
    } else {
      segment->first = block;
    }
  } else {
    dit_allocator_segment_set_start(segment, neighbour->address, NULL);
    block->next = neighbour->next;
    if (block->next) {
      block->next->prev = block;
    }
  }
  block->size += size;
  dit_allocator_block_put(a, neighbour);
  return size;
}

static void count_inactive(struct dit_allocator *a, enum dit_memory_pool pool, int64_t blocks, int64_t bytes) {
  if (blocks > 0) {
    dit_allocator_stats_increase(a->stats.inactive_split, pool, blocks);
  } else if (blocks < 0) {
    dit_allocator_stats_decrease(a->stats.inactive_split, pool, -blocks);
  }
  if (bytes > 0) {
    dit_allocator_stats_increase(a->stats.inactive_split_bytes, pool, bytes);
  } else if (bytes < 0) {
    dit_allocator_stats_decrease(a->stats.inactive_split_bytes, pool, -bytes);
  }
}

void dit_allocator_block_release(struct dit_allocator *a, struct dit_allocator_block *block) {
  struct dit_allocator_segment *segment = block->segment;
  enum dit_memory_pool pool = dit_allocator_get_pool(segment);
  dit_allocator_stats_decrease(a->stats.active, pool, 1);
  dit_allocator_stats_decrease(a->stats.active_bytes, pool, (int64_t)block->size);
  dit_allocator_stats_decrease(a->stats.requested_bytes, pool, (int64_t)block->requested);
  if (segment->algorithm == DIT_ALGORITHM_RAW) {
    dit_allocator_segment_detach(segment, &a->doomed);
    return;
  }
  size_t before = merge(a, block, block->prev), after = merge(a, block, block->next);
  bool is_split = block->prev || block->next;
  dit_allocator_pool_insert(block);
  count_inactive(a, pool, (int64_t)is_split - (before > 0) - (after > 0),
                 (is_split ? (int64_t)block->size : 0) - (int64_t)before - (int64_t)after);
}

static void free_live(struct dit_allocator *a, struct dit_allocator_block *block) {
  enum dit_memory_pool pool = dit_allocator_get_pool(block->segment);
  struct dit_allocator_use *uses = block->uses;
  dit_allocator_stats_decrease(a->stats.allocation, pool, 1);
  dit_allocator_stats_decrease(a->stats.allocated_bytes, pool, (int64_t)block->size);
  if (block->oversize) {
    dit_allocator_stat_decrease(&a->stats.oversize_allocations, 1);
  }
  block->state = DIT_BLOCK_PENDING_FREE;
  if (DIT_LIKELY(!uses)) {
    dit_allocator_block_release(a, block);
    return;
  }
  enum dit_memory_algorithm algorithm = block->segment->algorithm;
  block->uses = NULL;
  dit_allocator_event_defer(a, block, uses);
  if (algorithm == DIT_ALGORITHM_RAW || (algorithm != DIT_ALGORITHM_TORCH && a->pending > a->config.max_pending)) {
    dit_allocator_event_poll(a, 0);
    dit_allocator_segment_flush(a);
  }
}

/// The live block of pinned or of device memory that contains `ptr`, with its allocator locked; NULL and nothing locked
/// when there is none.
static struct dit_allocator_block *lock_block(const void *ptr, bool pinned, struct dit_allocator **owner) {
  struct dit_allocator_hit hit;
  while ((hit = dit_allocator_map_find(ptr)).owner) {
    struct dit_allocator *a = hit.owner;
    if (DIT_UNLIKELY((a->device < 0) != pinned)) {
      return NULL;
    }
    pthread_mutex_lock(&a->lock);
    if (DIT_UNLIKELY(dit_allocator_map_get_sequence() != hit.sequence)) {
      hit = dit_allocator_map_find(ptr);
    }
    if (DIT_LIKELY(hit.owner == a)) {
      struct dit_allocator_block *block = dit_allocator_segment_find(hit.segment, ptr);
      if (block->state == DIT_BLOCK_ALLOCATED) {
        *owner = a;
        return block;
      }
      pthread_mutex_unlock(&a->lock);
      return NULL;
    }
    pthread_mutex_unlock(&a->lock);
  }
  return NULL;
}

bool dit_allocator_free_block(void *ptr, bool pinned, struct dit_allocator_freed *out) {
  struct dit_allocator *a;
  struct dit_allocator_block *block = lock_block(ptr, pinned, &a);
  if (!block) {
    return false;
  }
  bool is_start = block->address == (char *)ptr;
  if (is_start) {
    *out = (struct dit_allocator_freed){a->device, block->size, block->requested};
    free_live(a, block);
  }
  pthread_mutex_unlock(&a->lock);
  return is_start;
}

bool dit_allocator_free(void *ptr) {
  struct dit_allocator_freed freed;
  return dit_allocator_free_block(ptr, false, &freed);
}

static bool find_live(const void *ptr, bool pinned, void **base, size_t *size, int *device) {
  struct dit_allocator *a;
  struct dit_allocator_block *block = lock_block(ptr, pinned, &a);
  if (!block) {
    return false;
  }
  *base = block->address;
  *size = block->size;
  *device = a->device;
  pthread_mutex_unlock(&a->lock);
  return true;
}

bool dit_allocator_find(const void *ptr, void **base, size_t *size, int *device) {
  return find_live(ptr, false, base, size, device);
}

bool dit_allocator_find_pinned(const void *ptr, void **base, size_t *size) {
  int device;
  return find_live(ptr, true, base, size, &device);
}

static enum dit_status record_use(const void *ptr, bool pinned, int64_t stream, struct dit_error *err) {
  struct dit_allocator *a;
  struct dit_allocator_block *block = lock_block(ptr, pinned, &a);
  if (!block) {
    return dit_error_set(err, DIT_ERR_INVALID, "record_stream: %p is not inside a live block of %s memory", ptr,
                         pinned ? "pinned host" : "device");
  }
  enum dit_status status = DIT_OK;
  struct dit_allocator_slot *slot = NULL;
  struct dit_allocator_use *use = block->uses;
  if (block->segment->slot->stream == stream) {
    goto done;
  }
  while (use && use->slot->stream != stream) {
    use = use->next;
  }
  if (use) {
    goto done;
  }
  status = dit_allocator_slot_get(a, stream, 0, &slot, err);
  use = status == DIT_OK ? dit_allocator_use_get(a) : NULL;
  if (use) {
    use->block = block;
    use->slot = slot;
    use->next = block->uses;
    block->uses = use;
  } else if (status == DIT_OK) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while recording stream %lld on device %d",
                           (long long)stream, a->device);
  }
done:
  pthread_mutex_unlock(&a->lock);
  return status;
}

enum dit_status dit_allocator_record_stream(const void *ptr, int64_t stream, struct dit_error *err) {
  return record_use(ptr, false, stream, err);
}

enum dit_status dit_allocator_record_pinned(const void *ptr, int64_t stream, struct dit_error *err) {
  return record_use(ptr, true, stream, err);
}

enum dit_status dit_allocator_empty_cache(struct dit_allocator *a, struct dit_error *err) {
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&a->lock);
  if (a->open) {
    status = dit_allocator_segment_release_cached(a, err);
  }
  pthread_mutex_unlock(&a->lock);
  return status;
}
