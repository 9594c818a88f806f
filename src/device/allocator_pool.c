/// Stream slots and recycled metadata of one allocator, and the way of a block to the free set of its algorithm.
///
/// Invariant: exactly the INACTIVE blocks are in a free set. Metadata is never returned to the heap before
/// dit_allocator_pool_reset, so an operation that got what it needs up front cannot fail half-way. Depends on:
/// core/alloc. The allocator's lock is held throughout.
#include <string.h>

#include "device/allocator_impl.h"
#include "dit/alloc.h"

#define CHUNK_BLOCKS 64

struct dit_allocator_chunk {
  struct dit_allocator_chunk *next;
  struct dit_allocator_block blocks[CHUNK_BLOCKS];
};

// Free sets

void dit_allocator_pool_insert(struct dit_allocator_block *block) {
  struct dit_allocator_segment *segment = block->segment;
  block->state = DIT_BLOCK_INACTIVE;
  block->age = segment->owner->large_calls;
  if (DIT_LIKELY(segment->algorithm == DIT_ALGORITHM_TORCH)) {
    dit_torch_insert(segment->slot, block);
  } else {
    segment->vtable->insert(segment->slot, block);
  }
}

void dit_allocator_pool_remove(struct dit_allocator_block *block) {
  struct dit_allocator_segment *segment = block->segment;
  if (DIT_LIKELY(segment->algorithm == DIT_ALGORITHM_TORCH)) {
    dit_torch_remove(segment->slot, block);
  } else {
    segment->vtable->remove(segment->slot, block);
  }
}

// Slots

static size_t get_bucket(int64_t stream) {
  return (size_t)(((uint64_t)stream * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

enum dit_status dit_allocator_slot_get(struct dit_allocator *a, int64_t stream, int64_t pool,
                                       struct dit_allocator_slot **out, struct dit_error *err) {
  if (DIT_LIKELY(a->last_slot && a->last_slot->stream == stream && a->last_slot->pool == pool)) {
    *out = a->last_slot;
    return DIT_OK;
  }
  struct dit_allocator_slot **bucket = &a->buckets[get_bucket(stream)], *slot = *bucket;
  while (slot && (slot->stream != stream || slot->pool != pool)) {
    slot = slot->next_in_bucket;
  }
  if (!slot) {
    slot = dit_calloc(1, sizeof(*slot));
    if (!slot) {
      return dit_error_set(err, DIT_ERR_NOMEM,
                           "host memory exhausted while preparing device %d, stream %lld for allocations", a->device,
                           (long long)stream);
    }
    slot->stream = stream;
    slot->pool = pool;
    slot->kept = pool != 0;
    slot->next_in_bucket = *bucket;
    *bucket = slot;
    slot->next = a->slots;
    a->slots = slot;
  }
  a->last_slot = slot;
  *out = slot;
  return DIT_OK;
}

// Metadata

struct dit_allocator_block *dit_allocator_block_get(struct dit_allocator *a) {
  if (DIT_UNLIKELY(!a->spare_blocks)) {
    struct dit_allocator_chunk *chunk = dit_malloc(sizeof(*chunk));
    if (!chunk) {
      return NULL;
    }
    chunk->next = a->chunks;
    a->chunks = chunk;
    for (size_t i = CHUNK_BLOCKS; i-- > 0;) {
      chunk->blocks[i].next = a->spare_blocks;
      a->spare_blocks = &chunk->blocks[i];
    }
  }
  struct dit_allocator_block *block = a->spare_blocks;
  a->spare_blocks = block->next;
  return block;
}

void dit_allocator_block_put(struct dit_allocator *a, struct dit_allocator_block *block) {
  if (block) {
    block->next = a->spare_blocks;
    a->spare_blocks = block;
  }
}

struct dit_allocator_use *dit_allocator_use_get(struct dit_allocator *a) {
  struct dit_allocator_use *use = a->spare_uses;
  if (use) {
    a->spare_uses = use->next;
    return use;
  }
  return dit_calloc(1, sizeof(*use));
}

void dit_allocator_use_put(struct dit_allocator *a, struct dit_allocator_use *use) {
  if (use) {
    use->next = a->spare_uses;
    a->spare_uses = use;
  }
}

void dit_allocator_pool_reset(struct dit_allocator *a) {
  while (a->spare_uses) {
    struct dit_allocator_use *use = a->spare_uses;
    a->spare_uses = use->next;
    if (use->event) {
      a->vtable->event_destroy(a->context, use->event);
    }
    dit_free(use);
  }
  while (a->slots) {
    struct dit_allocator_slot *slot = a->slots;
    a->slots = slot->next;
    dit_free(slot);
  }
  while (a->chunks) {
    struct dit_allocator_chunk *chunk = a->chunks;
    a->chunks = chunk->next;
    dit_free(chunk);
  }
  a->last_slot = NULL;
  a->spare_blocks = NULL;
  memset(a->buckets, 0, sizeof(a->buckets));
}
