/// The algorithm BS: buckets of equal size.
///
/// A block is a piece of vendor memory of its own: never split, never merged, kept for requests of the very same
/// rounded size. Sizes are rounded to 512 bytes or, when `adaptable`, to powers of two, so that more requests share a
/// bucket. The buckets are runs of equal size in one tree. Invariant: a segment of BS has one block. Depends on:
/// allocator_tree, allocator_raw. The allocator's lock is held throughout.
#include "device/allocator_impl.h"

static size_t round_size(const struct dit_allocator_config *config, size_t size) {
  size_t least = size > config->min_size ? size : config->min_size;
  if (config->adaptable && least > 1) {
    least = (size_t)1 << (64 - __builtin_clzll(least - 1));  // requests are below 2^60: this stays in range
  }
  return (least + DIT_MIN_BLOCK_SIZE - 1) & ~(DIT_MIN_BLOCK_SIZE - 1);
}

static void insert(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  dit_allocator_tree_insert(&slot->bs, block);
}

static void remove_block(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  dit_allocator_tree_remove(&slot->bs, block);
}

static struct dit_allocator_block *take(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size) {
  struct dit_allocator_block *block = dit_allocator_tree_find(slot->bs, size);
  a->large_calls++;
  if (!block || block->size != size) {
    return NULL;
  }
  dit_allocator_tree_remove(&slot->bs, block);
  return block;
}

const struct dit_algorithm_vtable dit_algorithm_bs = {
    .round_size = round_size,
    .segment_size = dit_algorithm_get_whole_segment,
    .granule_shift = dit_algorithm_get_whole_shift,
    .should_split = dit_algorithm_never_split,
    .take = take,
    .insert = insert,
    .remove = remove_block,
};
