/// The algorithm RAW: every block is taken from the vendor and given back as soon as its streams have passed the free;
/// and the table of all algorithms.
///
/// Invariant: no free block of RAW exists: dit_allocator_block_release sends the segment back instead of inserting it.
/// Depends on: allocator_torch (rounding). The allocator's lock is held throughout.
#include "device/allocator_impl.h"

size_t dit_algorithm_get_whole_segment(const struct dit_allocator *a, size_t rounded) {
  (void)a;
  return rounded;
}

unsigned dit_algorithm_get_whole_shift(size_t rounded) {
  (void)rounded;
  return 63;
}

bool dit_algorithm_never_split(const struct dit_allocator_config *config, const struct dit_allocator_block *block,
                               size_t size) {
  (void)config;
  (void)block;
  (void)size;
  return false;
}

static struct dit_allocator_block *take(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size) {
  (void)a;
  (void)slot;
  (void)size;
  return NULL;
}

static void ignore(struct dit_allocator_slot *slot, struct dit_allocator_block *block) {
  (void)slot;
  (void)block;
}

const struct dit_algorithm_vtable dit_algorithm_raw = {
    .round_size = dit_allocator_round_size,
    .segment_size = dit_algorithm_get_whole_segment,
    .granule_shift = dit_algorithm_get_whole_shift,
    .should_split = dit_algorithm_never_split,
    .take = take,
    .insert = ignore,
    .remove = ignore,
};

const struct dit_algorithm_vtable *dit_algorithm_get_vtable(enum dit_memory_algorithm algorithm) {
  static const struct dit_algorithm_vtable *const tables[DIT_ALGORITHM_COUNT] = {
      [DIT_ALGORITHM_TORCH] = &dit_algorithm_torch,
      [DIT_ALGORITHM_BF] = &dit_algorithm_bf,
      [DIT_ALGORITHM_BS] = &dit_algorithm_bs,
      [DIT_ALGORITHM_RAW] = &dit_algorithm_raw,
  };
  return tables[algorithm];
}

const char *dit_algorithm_get_name(enum dit_memory_algorithm algorithm) {
  static const char *const names[DIT_ALGORITHM_COUNT] = {"torch", "bf", "bs", "raw"};
  return (int)algorithm >= 0 && algorithm < DIT_ALGORITHM_COUNT ? names[algorithm] : "";
}
