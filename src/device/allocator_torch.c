/// The algorithm TORCH: PyTorch's caching allocator.
///
/// Small pool: sizes are multiples of 512 up to 2 MiB, so there is one list per size and a two-level bitmap finds the
/// best fit in constant time. Large pool: a tree ordered by (size, address). Invariant: a segment belongs to one of the
/// two pools for its life. Depends on: allocator_tree. The allocator's lock is held throughout.
#include "device/allocator_impl.h"

static size_t get_segment_size(const struct dit_allocator *a, size_t rounded) {
  if (rounded <= DIT_SMALL_SIZE) {
    return DIT_SMALL_SEGMENT;
  }
  if (rounded < DIT_MIN_LARGE_ALLOC) {
    return a->config.large_segment;
  }
  return (rounded + DIT_ROUND_LARGE - 1) / DIT_ROUND_LARGE * DIT_ROUND_LARGE;
}

static unsigned get_granule_shift(size_t rounded) {
  return rounded > DIT_SMALL_SIZE ? 20 : 9;
}

// Small bins

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

// Both pools

void dit_torch_insert(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  if (block->segment->large) {
    dit_allocator_tree_insert(&slot->large, block);
  } else {
    bin_insert(slot, block);
  }
}

void dit_torch_remove(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  if (block->segment->large) {
    dit_allocator_tree_remove(&slot->large, block);
  } else {
    bin_remove(slot, block);
  }
}

struct dit_allocator_block *dit_torch_take(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size) {
  struct dit_allocator_block *block;
  if (size <= DIT_SMALL_SIZE) {
    block = bin_find(slot, size);
    if (block) {
      bin_remove(slot, block);
    }
    return block;
  }
  a->large_calls++;
  block = dit_allocator_tree_find(slot->large, size);
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
  dit_allocator_tree_remove(&slot->large, block);
  return block;
}

const struct dit_algorithm_vtable dit_algorithm_torch = {
    .round_size = dit_allocator_round_size,
    .segment_size = get_segment_size,
    .granule_shift = get_granule_shift,
    .should_split = dit_torch_should_split,
    .take = dit_torch_take,
    .insert = dit_torch_insert,
    .remove = dit_torch_remove,
};
