/// Free blocks and recycled metadata of one allocator.
///
/// Small pool: sizes are multiples of 512 up to 2 MiB, so there is one list per size and a two-level bitmap finds the
/// best fit in constant time. Large pool: a treap ordered by (size, address), its priorities derived from the block's
/// own address. Invariant: exactly the INACTIVE blocks are in a free set. Metadata is never returned to the heap before
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

// ---- small bins

static size_t bin_index(size_t size) {
  return size / DIT_MIN_BLOCK_SIZE - 1;
}

static void bin_insert(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  size_t bin = bin_index(block->size);
  block->left = NULL;
  block->right = slot->bins[bin];
  if (block->right) {
    block->right->left = block;
  }
  slot->bins[bin] = block;
  slot->bitmap[bin / 64] |= (uint64_t)1 << (bin % 64);
  slot->summary |= (uint64_t)1 << (bin / 64);
}

static void bin_remove(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  size_t bin = bin_index(block->size);
  if (block->left) {
    block->left->right = block->right;
  } else {
    slot->bins[bin] = block->right;
  }
  if (block->right) {
    block->right->left = block->left;
  }
  if (!slot->bins[bin]) {
    slot->bitmap[bin / 64] &= ~((uint64_t)1 << (bin % 64));
    if (!slot->bitmap[bin / 64]) {
      slot->summary &= ~((uint64_t)1 << (bin / 64));
    }
  }
}

static struct dit_allocator_block *bin_find(const struct dit_allocator_slot *slot, size_t size) {
  size_t bin = bin_index(size), word = bin / 64;
  uint64_t bits = slot->bitmap[word] & (~(uint64_t)0 << (bin % 64));
  if (!bits) {
    uint64_t words = word == 63 ? 0 : slot->summary & (~(uint64_t)0 << (word + 1));
    if (!words) {
      return NULL;
    }
    word = (size_t)__builtin_ctzll(words);
    bits = slot->bitmap[word];
  }
  return slot->bins[word * 64 + (size_t)__builtin_ctzll(bits)];
}

// ---- large tree

static bool is_less(const struct dit_allocator_block *a, const struct dit_allocator_block *b) {
  return a->size != b->size ? a->size < b->size : (uintptr_t)a->address < (uintptr_t)b->address;
}

/// Metadata addresses are distinct, and multiplying by an odd number keeps them so.
static uint64_t get_priority(const struct dit_allocator_block *block) {
  uint64_t mixed = (uint64_t)(uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15);
  return mixed ^ (mixed >> 32);
}

static void tree_insert(struct dit_allocator_block **link, struct dit_allocator_block *block) {
  uint64_t priority = get_priority(block);
  while (*link && get_priority(*link) >= priority) {
    link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
  }
  struct dit_allocator_block *rest = *link, **less = &block->left, **more = &block->right;
  *link = block;
  while (rest) {
    if (is_less(rest, block)) {
      *less = rest;
      less = &rest->right;
      rest = rest->right;
    } else {
      *more = rest;
      more = &rest->left;
      rest = rest->left;
    }
  }
  *less = *more = NULL;
}

static void tree_remove(struct dit_allocator_block **link, struct dit_allocator_block *block) {
  while (*link != block) {
    link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
  }
  struct dit_allocator_block *left = block->left, *right = block->right;
  while (left && right) {
    if (get_priority(left) >= get_priority(right)) {
      *link = left;
      link = &left->right;
      left = left->right;
    } else {
      *link = right;
      link = &right->left;
      right = right->left;
    }
  }
  *link = left ? left : right;
}

/// The smallest block of at least `size` bytes, the lowest address among equals.
static struct dit_allocator_block *tree_find(struct dit_allocator_block *root, size_t size) {
  struct dit_allocator_block *best = NULL;
  while (root) {
    if (root->size >= size) {
      best = root;
      root = root->left;
    } else {
      root = root->right;
    }
  }
  return best;
}

// ---- both

void dit_allocator_pool_insert(struct dit_allocator_block *block) {
  struct dit_allocator_segment *segment = block->segment;
  block->state = DIT_BLOCK_INACTIVE;
  block->age = segment->owner->large_calls;
  if (segment->large) {
    tree_insert(&segment->slot->large, block);
  } else {
    bin_insert(segment->slot, block);
  }
}

void dit_allocator_pool_remove(struct dit_allocator_block *block) {
  struct dit_allocator_segment *segment = block->segment;
  if (segment->large) {
    tree_remove(&segment->slot->large, block);
  } else {
    bin_remove(segment->slot, block);
  }
}

struct dit_allocator_block *dit_allocator_pool_take(struct dit_allocator *a, struct dit_allocator_slot *slot,
                                                    size_t size) {
  struct dit_allocator_block *block;
  if (size <= DIT_SMALL_SIZE) {
    block = bin_find(slot, size);
    if (block) {
      bin_remove(slot, block);
    }
    return block;
  }
  a->large_calls++;
  block = tree_find(slot->large, size);
  if (!block) {
    return NULL;
  }
  size_t max_split = a->config.max_split_size;
  if (size < max_split && block->size >= max_split) {
    return NULL;  // an oversize block is kept whole for oversize requests
  }
  if (size >= max_split && block->size >= size + a->config.max_non_split_rounding) {
    return NULL;  // it may not be split and would waste too much
  }
  tree_remove(&slot->large, block);
  return block;
}

// ---- slots

static size_t get_bucket(int64_t stream) {
  return (size_t)(((uint64_t)stream * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

enum dit_status dit_allocator_slot_get(struct dit_allocator *a, int64_t stream, struct dit_allocator_slot **out,
                                       struct dit_error *err) {
  if (DIT_LIKELY(a->last_slot && a->last_slot->stream == stream)) {
    *out = a->last_slot;
    return DIT_OK;
  }
  struct dit_allocator_slot **bucket = &a->buckets[get_bucket(stream)], *slot = *bucket;
  while (slot && slot->stream != stream) {
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
    slot->next_in_bucket = *bucket;
    *bucket = slot;
    slot->next = a->slots;
    a->slots = slot;
  }
  a->last_slot = slot;
  *out = slot;
  return DIT_OK;
}

// ---- metadata

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
