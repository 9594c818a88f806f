/// Structures shared by the allocator's files (allocator_*.c); nobody else includes this.
///
/// Shape: an allocator has stream slots; a slot has the free blocks of its small and its large pool. A segment is one
/// vendor allocation; its blocks tile it without gaps and are linked in address order. A block is ALLOCATED (the user
/// has it), PENDING_FREE (freed, events outstanding) or INACTIVE (in its slot's free set). Two neighbours are never
/// both INACTIVE.
///
/// What an algorithm decides is in struct dit_algorithm_vtable; a segment keeps the one it was made by, so that the
/// configuration may change at any time.
///
/// segment->starts[offset >> shift] is the block that starts in that granule: granules are 512 bytes where blocks may
/// be so small, 1 MiB in TORCH's large pool, the whole segment where it is one block. At most one block starts in each
/// granule, and an address leads to its block without a search; where a block may span many small granules (BF), marks
/// lead over them.
///
/// Locks: allocator->lock guards everything reachable from the allocator. The address map (allocator_map.c) has a lock
/// of its own, taken inside it; a segment enters and leaves the map under its owner's lock.
#ifndef DIT_DEVICE_ALLOCATOR_IMPL_H
#define DIT_DEVICE_ALLOCATOR_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/allocator.h"

#define DIT_SMALL_BINS ((size_t)4096)  ///< DIT_SMALL_SEGMENT / DIT_MIN_BLOCK_SIZE: one per possible size
#define DIT_SLOT_BUCKETS 64
#define DIT_BF_BINS 128  ///< 32 powers of two, four parts each; larger sizes share the last
#define DIT_BF_FIRST_STEP (8 * DIT_MIB)

struct dit_allocator;
struct dit_allocator_slot;
struct dit_allocator_block;

/// One algorithm. The lock is held throughout.
struct dit_algorithm_vtable {
  size_t (*round_size)(const struct dit_allocator_config *config, size_t size);
  /// Bytes to take from the vendor for a rounded request.
  size_t (*segment_size)(const struct dit_allocator *a, size_t rounded);
  unsigned (*granule_shift)(size_t rounded);
  bool (*should_split)(const struct dit_allocator_config *config, const struct dit_allocator_block *block, size_t size);
  /// Best fit; NULL when nothing fits. The block leaves the free set.
  struct dit_allocator_block *(*take)(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size);
  void (*insert)(struct dit_allocator_slot *slot, struct dit_allocator_block *block);
  void (*remove)(struct dit_allocator_slot *slot, struct dit_allocator_block *block);
  bool is_mixed;  ///< segments hold blocks of all sizes, may be smaller than wished when the device is full, and count
                  ///< as large
};
extern const struct dit_algorithm_vtable dit_algorithm_torch, dit_algorithm_bf, dit_algorithm_bs, dit_algorithm_raw;

struct dit_allocator_block {
  char *address;
  size_t size, requested;
  struct dit_allocator_block *prev, *next;   ///< neighbours in the segment
  struct dit_allocator_block *left, *right;  ///< INACTIVE: list links of a small bin, or children in a tree
  struct dit_allocator_segment *segment;
  struct dit_allocator_use *uses;  ///< ALLOCATED: streams seen by record_stream
  uint64_t age;                    ///< INACTIVE: allocator->large_calls when it became so
  uint32_t event_count;            ///< PENDING_FREE: uses not complete
  enum dit_block_state state;
  bool oversize;  ///< counted in oversize_allocations
};

/// A stream that uses a block. It travels: block->uses, then the slot's queue, then allocator->spare_uses with its
/// event.
struct dit_allocator_use {
  struct dit_allocator_use *next;
  struct dit_allocator_block *block;
  struct dit_allocator_slot *slot;
  void *event;      ///< NULL until first needed; kept when the use is recycled
  uint64_t number;  ///< of allocator->queued_uses when it was queued
  bool recorded;    ///< false: the event could not be recorded, so the stream itself is polled
};

struct dit_allocator_slot {
  int64_t stream;
  int64_t pool;  ///< 0: none (dit/memory_pool.h)
  bool kept;     ///< its segments stay: the pool was not released
  struct dit_allocator_slot *next_in_bucket, *next;
  struct dit_allocator_use *queue_head, *queue_tail;  ///< uses on this stream whose block is PENDING_FREE
  struct dit_allocator_block *large;                  ///< root of the tree ordered by (size, address)
  uint64_t summary, bitmap[DIT_SMALL_BINS / 64];      ///< which bins are not empty
  struct dit_allocator_block *bins[DIT_SMALL_BINS];
  uint64_t bf_bitmap[DIT_BF_BINS / 64];
  struct dit_allocator_block *bf_bins[DIT_BF_BINS];  ///< trees
  struct dit_allocator_block *bs;                    ///< tree
};

struct dit_allocator_segment {
  struct dit_allocator *owner;
  struct dit_allocator_slot *slot;
  struct dit_allocator_segment *prev, *next;  ///< allocator->segments; or next alone in a list to release
  struct dit_allocator_block *first;
  char *address;
  size_t size;
  enum dit_memory_algorithm algorithm;
  const struct dit_algorithm_vtable *vtable;
  bool large;
  bool oversize;  ///< counted in oversize_segments
  unsigned shift;
  size_t granules;
  uint64_t *marks;         ///< NULL, or a bit per granule in which a block starts
  uint64_t *mark_summary;  ///< a bit per word of marks that is not 0
  struct dit_allocator_block *starts[];
};

struct dit_allocator_chunk;

struct dit_allocator {
  pthread_mutex_t lock;
  pthread_cond_t changed;  ///< busy or releasing went down
  bool prepared;           ///< lock and condition exist
  bool open;
  int device;
  const struct dit_allocator_vtable *vtable;
  void *context;
  struct dit_allocator_config config;
  const struct dit_algorithm_vtable *algorithm;  ///< of the configuration
  size_t bf_step;                                ///< BF: by how much it grows next
  uint64_t total_memory, limit;                  ///< limit: UINT64_MAX unless a fraction was set
  uint64_t taken;                                ///< bytes held from the vendor or about to be
  double fraction;
  bool fraction_from_config;
  int busy;       ///< threads that left the lock in the middle of an operation
  int releasing;  ///< those of them that are giving memory back
  struct dit_allocator_slot *slots, *last_slot, *buckets[DIT_SLOT_BUCKETS];
  struct dit_allocator_segment *segments;
  struct dit_allocator_segment *doomed;  ///< out of map and pools, no work pending, to be given back
  struct dit_allocator_block *spare_blocks;
  struct dit_allocator_use *spare_uses;
  struct dit_allocator_chunk *chunks;
  size_t pending;        ///< uses in slot queues
  uint64_t queued_uses;  ///< ever
  uint64_t large_calls;
  struct dit_memory_stats stats;
};

static inline enum dit_memory_pool dit_allocator_get_pool(const struct dit_allocator_segment *segment) {
  return segment->large ? DIT_POOL_LARGE : DIT_POOL_SMALL;
}

// allocator_map.c: from any address to the segment that contains it, without a lock

struct dit_allocator_hit {
  struct dit_allocator *owner;  ///< NULL: no segment contains the address
  struct dit_allocator_segment *segment;
  uint64_t sequence;
};
/// The segment may go away at once unless the caller holds the owner's lock and the sequence did not change.
struct dit_allocator_hit dit_allocator_map_find(const void *ptr);
uint64_t dit_allocator_map_get_sequence(void);
enum dit_status dit_allocator_map_insert(struct dit_allocator_segment *segment, struct dit_error *err);
void dit_allocator_map_remove(struct dit_allocator_segment *segment);

// allocator_tree.c: a treap ordered by (size, address)

void dit_allocator_tree_insert(struct dit_allocator_block **root, struct dit_allocator_block *block);
void dit_allocator_tree_remove(struct dit_allocator_block **root, struct dit_allocator_block *block);
/// The smallest block of at least `size` bytes, the lowest address among equals; it stays in.
struct dit_allocator_block *dit_allocator_tree_find(struct dit_allocator_block *root, size_t size);

// allocator_pool.c: slots and recycled metadata, the way to the free sets. The lock is held.

enum dit_status dit_allocator_slot_get(struct dit_allocator *a, int64_t stream, int64_t pool,
                                       struct dit_allocator_slot **out, struct dit_error *err);
void dit_allocator_pool_insert(struct dit_allocator_block *block);
void dit_allocator_pool_remove(struct dit_allocator_block *block);
/// Zeroed; NULL when host memory is exhausted.
struct dit_allocator_block *dit_allocator_block_get(struct dit_allocator *a);
void dit_allocator_block_put(struct dit_allocator *a, struct dit_allocator_block *block);  ///< NULL allowed
struct dit_allocator_use *dit_allocator_use_get(struct dit_allocator *a);
void dit_allocator_use_put(struct dit_allocator *a, struct dit_allocator_use *use);  ///< NULL allowed
void dit_allocator_pool_reset(struct dit_allocator *a);

// allocator_segment.c: vendor memory. The lock is held on entry and on return; functions marked (unlocks) leave it
// in between.

/// (unlocks) A new segment that holds `size` bytes as one ALLOCATED block with no size stats counted yet; runs the
/// whole out-of-memory chain. A cached block that became free meanwhile may be returned instead.
enum dit_status dit_allocator_segment_acquire(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size,
                                              struct dit_allocator_block **out, struct dit_error *err);
/// Take a segment whose only block is free out of pools and map and put it on `list`.
void dit_allocator_segment_detach(struct dit_allocator_segment *segment, struct dit_allocator_segment **list);
/// (unlocks) Give a->doomed back.
void dit_allocator_segment_flush(struct dit_allocator *a);
/// (unlocks) Synchronise, complete pending frees, give every unused segment back, but for those of pools.
enum dit_status dit_allocator_segment_release_cached(struct dit_allocator *a, struct dit_error *err);
/// (unlocks) The same for one pool, whose slots are not kept any more.
enum dit_status dit_allocator_segment_release_pool(struct dit_allocator *a, int64_t pool, struct dit_error *err);
/// Is it free as a whole, and may anybody give it back?
static inline bool dit_allocator_segment_is_unused(const struct dit_allocator_segment *segment) {
  return segment->first->state == DIT_BLOCK_INACTIVE && !segment->first->next && !segment->slot->kept;
}
/// The block that contains `ptr`, whatever its state.
struct dit_allocator_block *dit_allocator_segment_find(const struct dit_allocator_segment *segment, const void *ptr);
void dit_allocator_segment_set_start(struct dit_allocator_segment *segment, const char *address,
                                     struct dit_allocator_block *block);

// allocator_choice.c

/// The pool that this thread has chosen for the device; 0: none.
int64_t dit_allocator_get_choice(int device);

// allocator_event.c: frees that wait for streams. The lock is held.

/// Complete every pending free whose events are done. The device was synchronised when the `synchronized` first uses
/// had been queued: these are done without asking (0: none), which also frees blocks whose streams cannot be asked any
/// more.
void dit_allocator_event_poll(struct dit_allocator *a, uint64_t synchronized);
/// (unlocks) The block (PENDING_FREE) becomes free when all `uses` are complete.
void dit_allocator_event_defer(struct dit_allocator *a, struct dit_allocator_block *block,
                               struct dit_allocator_use *uses);

// allocator_torch.c: the default is called directly, the others through their tables

void dit_torch_insert(struct dit_allocator_slot *slot, struct dit_allocator_block *block);
void dit_torch_remove(struct dit_allocator_slot *slot, struct dit_allocator_block *block);
struct dit_allocator_block *dit_torch_take(struct dit_allocator *a, struct dit_allocator_slot *slot, size_t size);

static inline bool dit_torch_should_split(const struct dit_allocator_config *config,
                                          const struct dit_allocator_block *block, size_t size) {
  size_t remaining = block->size - size;
  if (block->segment->large) {
    return size < config->max_split_size && remaining > DIT_SMALL_SIZE;
  }
  return remaining >= DIT_MIN_BLOCK_SIZE;
}

/// Up to the next of `divisions` equal parts between two powers of two.
static inline size_t dit_torch_round_to_division(size_t size, size_t divisions) {
  if ((size & (size - 1)) == 0) {
    return size;
  }
  size_t floor = (size_t)1 << (63 - __builtin_clzll(size));
  size_t part = floor / divisions;
  return part == 0 ? floor * 2 : (size + part - 1) / part * part;
}

/// TORCH's rounding, also RAW's.
static inline size_t dit_allocator_round_size(const struct dit_allocator_config *config, size_t size) {
  if (size <= DIT_MIN_BLOCK_SIZE) {
    return DIT_MIN_BLOCK_SIZE;
  }
  int interval = 63 - __builtin_clzll(size) - 20;  // 0 is [1 MiB, 2 MiB); smaller sizes share it
  interval = interval < 0 ? 0 : interval >= DIT_DIVISION_INTERVALS ? DIT_DIVISION_INTERVALS - 1 : interval;
  size_t divisions = config->divisions[interval];
  if (divisions > 1 && size > DIT_MIN_BLOCK_SIZE * divisions) {
    size = dit_torch_round_to_division(size, divisions);
  }
  return (size + DIT_MIN_BLOCK_SIZE - 1) & ~(DIT_MIN_BLOCK_SIZE - 1);
}

// allocator_core.c

/// PENDING_FREE or ALLOCATED block to INACTIVE: coalesce, insert, count. A raw segment goes to a->doomed instead.
void dit_allocator_block_release(struct dit_allocator *a, struct dit_allocator_block *block);
void dit_allocator_leave(struct dit_allocator *a);    ///< unlock in the middle of an operation
void dit_allocator_reenter(struct dit_allocator *a);  ///< lock again
enum dit_status dit_allocator_init(struct dit_allocator *a, int device, const struct dit_allocator_vtable *vtable,
                                   void *context, struct dit_error *err);
void dit_allocator_reset(struct dit_allocator *a);  ///< give everything back; init may follow. The lock object stays.
size_t dit_bf_get_bin(size_t size);
/// For algorithms whose blocks are segments of their own (BS, RAW): a segment has the size asked for, and is never
/// split.
size_t dit_algorithm_get_whole_segment(const struct dit_allocator *a, size_t rounded);
unsigned dit_algorithm_get_whole_shift(size_t rounded);
bool dit_algorithm_never_split(const struct dit_allocator_config *config, const struct dit_allocator_block *block,
                               size_t size);
const struct dit_algorithm_vtable *dit_algorithm_get_vtable(enum dit_memory_algorithm algorithm);

// allocator_stats.c

static inline void dit_allocator_stat_increase(struct dit_memory_stat *stat, int64_t amount) {
  stat->current += amount;
  stat->allocated += amount;
  if (stat->current > stat->peak) {
    stat->peak = stat->current;
  }
}
static inline void dit_allocator_stat_decrease(struct dit_memory_stat *stat, int64_t amount) {
  stat->current -= amount;
  stat->freed += amount;
}
static inline void dit_allocator_stats_increase(struct dit_memory_stat *stats, enum dit_memory_pool pool,
                                                int64_t amount) {
  dit_allocator_stat_increase(&stats[DIT_POOL_ALL], amount);
  dit_allocator_stat_increase(&stats[pool], amount);
}
static inline void dit_allocator_stats_decrease(struct dit_memory_stat *stats, enum dit_memory_pool pool,
                                                int64_t amount) {
  dit_allocator_stat_decrease(&stats[DIT_POOL_ALL], amount);
  dit_allocator_stat_decrease(&stats[pool], amount);
}
/// (unlocks) PyTorch's message with this device's numbers. Counts the OOM.
enum dit_status dit_allocator_report_oom(struct dit_allocator *a, size_t size, struct dit_error *err);

#endif
