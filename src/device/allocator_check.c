/// The allocator's self-check: walks every structure and compares it with the counters. For tests and debugging; cost
/// is linear in the number of blocks. Depends on: allocator_impl.
#include "device/allocator_impl.h"

struct totals {
  int64_t allocation[DIT_POOL_COUNT], active[DIT_POOL_COUNT], inactive_split[DIT_POOL_COUNT], segment[DIT_POOL_COUNT];
  int64_t allocated_bytes[DIT_POOL_COUNT], active_bytes[DIT_POOL_COUNT], inactive_split_bytes[DIT_POOL_COUNT];
  int64_t reserved_bytes[DIT_POOL_COUNT], requested_bytes[DIT_POOL_COUNT];
  int64_t free_blocks, pending_uses;
};

#define FAIL_IF(condition, ...)                          \
  do {                                                   \
    if (condition) {                                     \
      dit_error_set(err, DIT_ERR_INTERNAL, __VA_ARGS__); \
      return false;                                      \
    }                                                    \
  } while (0)

static void add(int64_t *total, enum dit_memory_pool pool, int64_t amount) {
  total[DIT_POOL_ALL] += amount;
  total[pool] += amount;
}

static void count_block(const struct dit_allocator_block *block, enum dit_memory_pool pool, struct totals *totals) {
  int64_t size = (int64_t)block->size;
  if (block->state == DIT_BLOCK_INACTIVE) {
    totals->free_blocks++;
    if (block->prev || block->next) {
      add(totals->inactive_split, pool, 1);
      add(totals->inactive_split_bytes, pool, size);
    }
    return;
  }
  add(totals->active, pool, 1);
  add(totals->active_bytes, pool, size);
  add(totals->requested_bytes, pool, (int64_t)block->requested);
  if (block->state == DIT_BLOCK_ALLOCATED) {
    add(totals->allocation, pool, 1);
    add(totals->allocated_bytes, pool, size);
  } else {
    totals->pending_uses += block->event_count;
  }
}

static bool check_segment(const struct dit_allocator_segment *segment, struct totals *totals, struct dit_error *err) {
  enum dit_memory_pool pool = dit_allocator_get_pool(segment);
  const char *expected = segment->address;
  const struct dit_allocator_block *prev = NULL;
  struct dit_allocator_hit hit = dit_allocator_map_find(segment->address + segment->size - 1);
  FAIL_IF(hit.segment != segment, "segment %p is not in the address map", (void *)segment->address);
  add(totals->segment, pool, 1);
  add(totals->reserved_bytes, pool, (int64_t)segment->size);
  for (const struct dit_allocator_block *block = segment->first; block; prev = block, block = block->next) {
    FAIL_IF(block->segment != segment || block->prev != prev, "block %p is linked wrongly", (void *)block->address);
    FAIL_IF(block->address != expected, "block %p should start at %p", (void *)block->address, (const void *)expected);
    FAIL_IF(!block->size || block->size % DIT_MIN_BLOCK_SIZE, "block %p has size %zu", (void *)block->address,
            block->size);
    FAIL_IF(prev && prev->state == DIT_BLOCK_INACTIVE && block->state == DIT_BLOCK_INACTIVE,
            "blocks %p and %p should be one", (void *)prev->address, (void *)block->address);
    FAIL_IF(dit_allocator_segment_find(segment, block->address + block->size - 1) != block,
            "the end of block %p leads elsewhere", (void *)block->address);
    count_block(block, pool, totals);
    expected = block->address + block->size;
  }
  FAIL_IF(expected != segment->address + segment->size, "the blocks of segment %p end at %p", (void *)segment->address,
          (const void *)expected);
  return true;
}

static bool check_bins(const struct dit_allocator_slot *slot, int64_t *count, struct dit_error *err) {
  for (size_t bin = 0; bin < DIT_SMALL_BINS; bin++) {
    bool marked = slot->bitmap[bin / 64] >> (bin % 64) & 1;
    FAIL_IF(marked != (slot->bins[bin] != NULL), "bin %zu of stream %lld is marked wrongly", bin,
            (long long)slot->stream);
    FAIL_IF(marked && !(slot->summary >> (bin / 64) & 1), "word %zu of stream %lld is marked wrongly", bin / 64,
            (long long)slot->stream);
    for (const struct dit_allocator_block *block = slot->bins[bin]; block; block = block->right) {
      FAIL_IF(block->state != DIT_BLOCK_INACTIVE || block->size != (bin + 1) * DIT_MIN_BLOCK_SIZE ||
                  block->segment->slot != slot || block->segment->large ||
                  block->segment->algorithm != DIT_ALGORITHM_TORCH,
              "block %p does not belong into bin %zu", (void *)block->address, bin);
      (*count)++;
    }
  }
  return true;
}

/// Recursion is as deep as the tree: logarithmic with overwhelming probability.
static bool check_tree(const struct dit_allocator_slot *slot, const struct dit_allocator_block *block,
                       enum dit_memory_algorithm algorithm, int64_t *count, struct dit_error *err) {
  if (!block) {
    return true;
  }
  FAIL_IF(block->state != DIT_BLOCK_INACTIVE || block->segment->slot != slot ||
              block->segment->algorithm != algorithm || (algorithm == DIT_ALGORITHM_TORCH && !block->segment->large),
          "block %p does not belong into the tree of %s", (void *)block->address, dit_algorithm_get_name(algorithm));
  FAIL_IF((block->left && block->left->size > block->size) || (block->right && block->right->size < block->size),
          "block %p is out of order", (void *)block->address);
  (*count)++;
  return check_tree(slot, block->left, algorithm, count, err) && check_tree(slot, block->right, algorithm, count, err);
}

static bool check_bf(const struct dit_allocator_slot *slot, int64_t *count, struct dit_error *err) {
  for (size_t bin = 0; bin < DIT_BF_BINS; bin++) {
    const struct dit_allocator_block *root = slot->bf_bins[bin];
    bool marked = slot->bf_bitmap[bin / 64] >> (bin % 64) & 1;
    FAIL_IF(marked != (root != NULL), "bin %zu of bf, stream %lld, is marked wrongly", bin, (long long)slot->stream);
    FAIL_IF(root && dit_bf_get_bin(root->size) != bin, "block %p does not belong into bin %zu of bf",
            (void *)root->address, bin);
    if (!check_tree(slot, root, DIT_ALGORITHM_BF, count, err)) {
      return false;
    }
  }
  return true;
}

static bool check_stats(const struct dit_allocator *a, const struct totals *totals, struct dit_error *err) {
  const struct dit_memory_stats *s = &a->stats;
  const struct {
    const char *name;
    const struct dit_memory_stat *stat;
    const int64_t *total;
  } rows[] = {{"allocation", s->allocation, totals->allocation},
              {"segment", s->segment, totals->segment},
              {"active", s->active, totals->active},
              {"inactive_split", s->inactive_split, totals->inactive_split},
              {"allocated_bytes", s->allocated_bytes, totals->allocated_bytes},
              {"reserved_bytes", s->reserved_bytes, totals->reserved_bytes},
              {"active_bytes", s->active_bytes, totals->active_bytes},
              {"inactive_split_bytes", s->inactive_split_bytes, totals->inactive_split_bytes},
              {"requested_bytes", s->requested_bytes, totals->requested_bytes}};
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    for (int pool = 0; pool < DIT_POOL_COUNT; pool++) {
      FAIL_IF(rows[i].stat[pool].current != rows[i].total[pool], "%s of pool %d is %lld, the blocks sum up to %lld",
              rows[i].name, pool, (long long)rows[i].stat[pool].current, (long long)rows[i].total[pool]);
      FAIL_IF(rows[i].stat[pool].peak < rows[i].stat[pool].current, "%s of pool %d is above its peak", rows[i].name,
              pool);
    }
  }
  return true;
}

static bool check_all(struct dit_allocator *a, struct dit_error *err) {
  struct totals totals = {0};
  int64_t in_pools = 0, queued = 0;
  for (const struct dit_allocator_segment *segment = a->segments; segment; segment = segment->next) {
    if (!check_segment(segment, &totals, err)) {
      return false;
    }
  }
  for (const struct dit_allocator_slot *slot = a->slots; slot; slot = slot->next) {
    if (!check_bins(slot, &in_pools, err) || !check_tree(slot, slot->large, DIT_ALGORITHM_TORCH, &in_pools, err) ||
        !check_bf(slot, &in_pools, err) || !check_tree(slot, slot->bs, DIT_ALGORITHM_BS, &in_pools, err)) {
      return false;
    }
    for (const struct dit_allocator_use *use = slot->queue_head; use; use = use->next) {
      queued++;
    }
  }
  FAIL_IF(in_pools != totals.free_blocks, "%lld blocks are free, %lld are in free sets", (long long)totals.free_blocks,
          (long long)in_pools);
  FAIL_IF(queued != totals.pending_uses || queued != (int64_t)a->pending, "%lld uses are queued, blocks wait for %lld",
          (long long)queued, (long long)totals.pending_uses);
  FAIL_IF((int64_t)a->taken != totals.reserved_bytes[DIT_POOL_ALL], "taken is %llu", (unsigned long long)a->taken);
  return check_stats(a, &totals, err);
}

bool dit_allocator_check(struct dit_allocator *a, struct dit_error *err) {
  pthread_mutex_lock(&a->lock);
  while (a->busy > 0) {
    pthread_cond_wait(&a->changed, &a->lock);
  }
  bool correct = check_all(a, err);
  pthread_mutex_unlock(&a->lock);
  return correct;
}
