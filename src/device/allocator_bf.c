/// The algorithm BF: best fit over one pool for all sizes, with coalescing.
///
/// Free blocks are sorted into 128 bins: 32 powers of two of 512 bytes, each in four equal parts; a bin is a tree
/// ordered by (size, address) and a bitmap tells which are not empty, so the block found is the smallest that fits. A
/// block is split when it has twice the size asked for or 8 MiB more. Vendor memory is taken in steps that double from
/// 8 MiB to `max_extend`; on a device too full for a step the request alone is taken. Invariant: a bin's sizes are all
/// smaller than the next bin's. Depends on: allocator_tree. The allocator's lock is held throughout.
#include "device/allocator_impl.h"

size_t dit_bf_get_bin(size_t size) {
  size_t units = size / DIT_MIN_BLOCK_SIZE;
  unsigned power = 63 - (unsigned)__builtin_clzll(units);
  size_t part = (power >= 2 ? units >> (power - 2) : units << (2 - power)) & 3;
  size_t bin = (size_t)power * 4 + part;
  return bin < DIT_BF_BINS ? bin : DIT_BF_BINS - 1;
}

static size_t round_size(const struct dit_allocator_config *config, size_t size) {
  (void)config;
  return (size + DIT_MIN_BLOCK_SIZE - 1) & ~(DIT_MIN_BLOCK_SIZE - 1);
}

static size_t get_segment_size(const struct dit_allocator *a, size_t rounded) {
  size_t step = a->bf_step < a->config.max_extend ? a->bf_step : a->config.max_extend;
  size_t least = (rounded + DIT_ROUND_LARGE - 1) & ~(DIT_ROUND_LARGE - 1);
  return least > step ? least : step & ~(DIT_MIN_BLOCK_SIZE - 1);
}

static unsigned get_granule_shift(size_t rounded) {
  (void)rounded;
  return 9;
}

static bool should_split(const struct dit_allocator_config *config, const struct dit_allocator_block *block,
                         size_t size) {
  (void)config;
  return block->size / 2 >= size || block->size - size >= DIT_BF_FIRST_STEP;
}

static void insert(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  size_t bin = dit_bf_get_bin(block->size);
  dit_allocator_tree_insert(&slot->bf_bins[bin], block);
  slot->bf_bitmap[bin / 64] |= (uint64_t)1 << (bin % 64);
}

static void remove_block(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  size_t bin = dit_bf_get_bin(block->size);
  dit_allocator_tree_remove(&slot->bf_bins[bin], block);
  if (!slot->bf_bins[bin]) {
    slot->bf_bitmap[bin / 64] &= ~((uint64_t)1 << (bin % 64));
  }
}

/// The first bin after `bin` that is not empty; DIT_BF_BINS when there is none.
static size_t find_next_bin(const struct dit_allocator_slot *slot, size_t bin) {
  for (size_t next = bin + 1; next < DIT_BF_BINS; next = (next / 64 + 1) * 64) {
    uint64_t bits = slot->bf_bitmap[next / 64] >> (next % 64);
    if (bits) {
      return next + (size_t)__builtin_ctzll(bits);
    }
  }
  return DIT_BF_BINS;
}

static struct dit_allocator_block *take(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size) {
  size_t bin = dit_bf_get_bin(size);
  struct dit_allocator_block *block = dit_allocator_tree_find(slot->bf_bins[bin], size);
  if (!block) {
    bin = find_next_bin(slot, bin);
    block = bin < DIT_BF_BINS ? dit_allocator_tree_find(slot->bf_bins[bin], size) : NULL;
  }
  a->large_calls++;
  if (block) {
    remove_block(slot, block);
  }
  return block;
}

const struct dit_algorithm_vtable dit_algorithm_bf = {
    .round_size = round_size,
    .segment_size = get_segment_size,
    .granule_shift = get_granule_shift,
    .should_split = should_split,
    .take = take,
    .insert = insert,
    .remove = remove_block,
    .is_mixed = true,
};
