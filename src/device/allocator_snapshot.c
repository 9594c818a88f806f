/// A copy of all segments and blocks for torch.cuda.memory_snapshot.
///
/// Invariant: until the visit, a segment's `blocks` is NULL and its blocks follow those of the segment appended before
/// it; the visit sorts and sets the pointers, because both arrays may move while they grow. Depends on: core/alloc.
#include <stdlib.h>
#include <string.h>

#include "device/allocator_impl.h"
#include "dit/alloc.h"

static bool grow(void **array, size_t *capacity, size_t wanted, size_t item) {
  if (wanted <= *capacity) {
    return true;
  }
  size_t next = *capacity ? *capacity : 64;
  while (next < wanted) {
    next *= 2;
  }
  void *moved = dit_realloc(*array, next * item);
  if (!moved) {
    return false;
  }
  *array = moved;
  *capacity = next;
  return true;
}

static void copy_segment(struct dit_allocator_snapshot *snapshot, const struct dit_allocator_segment *segment) {
  struct dit_memory_segment *out = &snapshot->segments[snapshot->segment_count++];
  *out = (struct dit_memory_segment){.address = segment->address,
                                     .device = segment->owner->device,
                                     .stream = segment->slot->stream,
                                     .large = segment->large,
                                     .total_size = segment->size};
  for (const struct dit_allocator_block *block = segment->first; block; block = block->next) {
    bool active = block->state != DIT_BLOCK_INACTIVE;
    snapshot->blocks[snapshot->block_count++] =
        (struct dit_memory_block){.address = block->address,
                                  .size = block->size,
                                  .requested_size = active ? block->requested : 0,
                                  .state = block->state};
    out->block_count++;
    out->allocated_size += block->state == DIT_BLOCK_ALLOCATED ? block->size : 0;
    out->active_size += active ? block->size : 0;
    out->requested_size += active ? block->requested : 0;
  }
}

enum dit_status dit_allocator_snapshot_append(struct dit_allocator_snapshot *snapshot, struct dit_allocator *a,
                                              struct dit_error *err) {
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&a->lock);
  size_t segments = snapshot->segment_count, blocks = snapshot->block_count;
  for (const struct dit_allocator_segment *segment = a->segments; segment; segment = segment->next) {
    segments++;
    for (const struct dit_allocator_block *block = segment->first; block; block = block->next) {
      blocks++;
    }
  }
  void *segment_array = snapshot->segments, *block_array = snapshot->blocks;
  bool grown = grow(&segment_array, &snapshot->segment_capacity, segments, sizeof(*snapshot->segments)) &&
               grow(&block_array, &snapshot->block_capacity, blocks, sizeof(*snapshot->blocks));
  snapshot->segments = segment_array;
  snapshot->blocks = block_array;
  if (grown) {
    for (const struct dit_allocator_segment *segment = a->segments; segment; segment = segment->next) {
      copy_segment(snapshot, segment);
    }
  } else {
    status = dit_error_set(err, DIT_ERR_NOMEM,
                           "host memory exhausted while copying %zu segments and %zu blocks for a snapshot", segments,
                           blocks);
  }
  pthread_mutex_unlock(&a->lock);
  return status;
}

static int compare_addresses(const void *left, const void *right) {
  uintptr_t a = (uintptr_t)((const struct dit_memory_segment *)left)->address;
  uintptr_t b = (uintptr_t)((const struct dit_memory_segment *)right)->address;
  return (a > b) - (a < b);
}

void dit_allocator_snapshot_visit(struct dit_allocator_snapshot *snapshot,
                                  bool (*visit)(void *context, const struct dit_memory_segment *), void *context) {
  size_t block = 0;
  if (snapshot->segment_count == 0) {
    return;
  }
  if (!snapshot->segments[0].blocks) {
    for (size_t i = 0; i < snapshot->segment_count; i++) {
      snapshot->segments[i].blocks = &snapshot->blocks[block];
      block += (size_t)snapshot->segments[i].block_count;
    }
    qsort(snapshot->segments, snapshot->segment_count, sizeof(*snapshot->segments), compare_addresses);
  }
  for (size_t i = 0; i < snapshot->segment_count && visit(context, &snapshot->segments[i]); i++) {
  }
}

void dit_allocator_snapshot_reset(struct dit_allocator_snapshot *snapshot) {
  dit_free(snapshot->segments);
  dit_free(snapshot->blocks);
  memset(snapshot, 0, sizeof(*snapshot));
}
