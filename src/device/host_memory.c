/// Pinned host memory: cached blocks of power-of-two size, an index by address, reuse guarded by events.
///
/// Life of a block: vendor -> live -> (uses? pending until events recorded at free time are done) -> cached -> live ...
/// -> vendor. Invariants: `index_` holds every block once, sorted by address, and ranges do not overlap; a cached block
/// is in exactly one free list; a block in no state but live answers dit_host_is_pinned with true. Registered ranges
/// are blocks that are never cached. The lock is not held while the vendor allocates, frees or records, so a host
/// function that frees pinned memory cannot deadlock. This is the algorithm TORCH; the others are in host_pool.c, and
/// the statistics count both. Depends on runtime.c, stream.c, event.c.
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "device/memory_watch.h"
#include "dit/alloc.h"
#include "dit/host_times.h"
#include "dit/log.h"

#define SMALLEST_CLASS 9  // 512 bytes
#define CLASS_COUNT 64

enum block_state { BLOCK_LIVE, BLOCK_CLOSING, BLOCK_PENDING, BLOCK_CACHED };

struct block_use {
  int device;
  int64_t stream;
  struct dit_event *event;  // recorded when the block is freed
};

struct host_block {
  char *address;
  size_t size, requested;
  int power;  // log2 of size; -1 for a registered range
  enum block_state state;
  struct block_use *uses;
  int use_count, use_capacity;
  struct host_block *next;  // in a free list or the pending list
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_block **index_;
static size_t index_count, index_capacity;
static struct host_block *cached[CLASS_COUNT];
static struct host_block *pending;
static struct dit_host_stats stats;
static struct dit_host_times alloc_times, free_times;

// The index, with the lock held

// Number of blocks that start at or before `ptr`.
static size_t index_rank(const void *ptr) {
  size_t low = 0, high = index_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if ((uintptr_t)index_[middle]->address <= (uintptr_t)ptr) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static struct host_block *index_find(const void *ptr) {
  size_t rank = index_rank(ptr);
  struct host_block *block = rank > 0 ? index_[rank - 1] : NULL;
  return block && (uintptr_t)ptr - (uintptr_t)block->address < block->size ? block : NULL;
}

static bool index_reserve(void) {
  if (index_count < index_capacity) {
    return true;
  }
  size_t capacity = index_capacity ? 2 * index_capacity : 32;
  struct host_block **grown = dit_realloc(index_, capacity * sizeof *grown);
  if (!grown) {
    return false;
  }
  index_ = grown;
  index_capacity = capacity;
  return true;
}

static bool index_insert(struct host_block *block) {
  if (!index_reserve()) {
    return false;
  }
  size_t rank = index_rank(block->address);
  memmove(index_ + rank + 1, index_ + rank, (index_count - rank) * sizeof *index_);
  index_[rank] = block;
  index_count++;
  return true;
}

static void index_remove(const struct host_block *block) {
  size_t rank = index_rank(block->address);
  memmove(index_ + rank - 1, index_ + rank, (index_count - rank) * sizeof *index_);
  index_count--;
  if (index_count == 0) {
    dit_free(index_);
    index_ = NULL;
    index_capacity = 0;
  }
}

// Statistics and lists, with the lock held

static void count_reserved(int64_t size) {
  stats.vendor_allocations += size > 0;
  stats.vendor_frees += size < 0;
  stats.reserved_current += (uint64_t)size;
  if (stats.reserved_current > stats.reserved_peak) {
    stats.reserved_peak = stats.reserved_current;
  }
}

void dit_host_count_reserved(int64_t size) {
  pthread_mutex_lock(&lock);
  count_reserved(size);
  pthread_mutex_unlock(&lock);
}

static void count_alloc(size_t size) {
  stats.allocations++;
  stats.allocated_total += size;
  stats.allocated_current += size;
  if (stats.allocated_current > stats.allocated_peak) {
    stats.allocated_peak = stats.allocated_current;
  }
}

static void count_free(size_t size) {
  stats.frees++;
  stats.freed_total += size;
  stats.allocated_current -= size;
}

static void put_in_cache(struct host_block *block) {
  block->state = BLOCK_CACHED;
  block->next = cached[block->power];
  cached[block->power] = block;
}

static void drop_uses(struct host_block *block) {
  for (int i = 0; i < block->use_count; i++) {
    dit_event_destroy(block->uses[i].event);
  }
  block->use_count = 0;
}

// Forget the uses whose events are done (or can no longer be asked).
static bool uses_are_done(struct host_block *block) {
  int left = 0;
  for (int i = 0; i < block->use_count; i++) {
    bool done = true;
    if (dit_event_query(block->uses[i].event, &done, NULL) == DIT_OK && !done) {
      block->uses[left++] = block->uses[i];
    } else {
      dit_event_destroy(block->uses[i].event);
    }
  }
  block->use_count = left;
  return left == 0;
}

static void sweep_pending(void) {
  struct host_block **link = &pending;
  while (*link) {
    struct host_block *block = *link;
    if (uses_are_done(block)) {
      *link = block->next;
      put_in_cache(block);
    } else {
      link = &block->next;
    }
  }
}

static void destroy_block(struct host_block *block) {
  if (block) {
    dit_free(block->uses);
    dit_free(block);
  }
}

// Alloc

static int size_class(size_t size) {
  int power = SMALLEST_CLASS;
  while (power < CLASS_COUNT - 2 && ((size_t)1 << power) < size) {
    power++;
  }
  return power;
}

static struct host_block *take_cached(int power) {
  pthread_mutex_lock(&lock);
  sweep_pending();
  struct host_block *block = cached[power];
  if (block) {
    cached[power] = block->next;
    block->state = BLOCK_LIVE;
    count_alloc(block->size);
  }
  pthread_mutex_unlock(&lock);
  return block;
}

// Time

static uint64_t read_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void note_time(struct dit_host_times *times, uint64_t begin) {
  const uint64_t taken = read_clock() - begin;
  pthread_mutex_lock(&lock);
  times->min = times->count == 0 || taken < times->min ? taken : times->min;
  times->max = taken > times->max ? taken : times->max;
  times->total += taken;
  times->count++;
  pthread_mutex_unlock(&lock);
}

enum dit_status dit_host_vendor_alloc(size_t size, void **address, struct dit_error *err) {
  const uint64_t begin = read_clock();
  enum dit_status status = dit_runtime_get_vtable()->host_alloc(size, address, err);
  if (status == DIT_OK) {
    note_time(&alloc_times, begin);
  }
  return status;
}

enum dit_status dit_host_vendor_free(void *address, struct dit_error *err) {
  const uint64_t begin = read_clock();
  enum dit_status status = dit_runtime_get_vtable()->host_free(address, err);
  note_time(&free_times, begin);
  return status;
}

void dit_host_get_times(struct dit_host_times *allocations, struct dit_host_times *frees) {
  *allocations = *frees = (struct dit_host_times){0};
  if (!dit_runtime_is_bad_fork()) {
    pthread_mutex_lock(&lock);
    *allocations = alloc_times;
    *frees = free_times;
    pthread_mutex_unlock(&lock);
  }
}

static enum dit_status take_from_vendor(size_t size, void **address, struct dit_error *err) {
  dit_runtime_note_use();
  enum dit_status status = dit_host_vendor_alloc(size, address, err);
  if (status == DIT_ERR_NOMEM) {
    dit_host_empty_cache();
    status = dit_host_vendor_alloc(size, address, err);
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(true, -1, status == DIT_OK ? *address : NULL, size, status);
  }
  return status;
}

static enum dit_status create_block(int power, size_t requested, void **ptr, struct dit_error *err) {
  size_t size = (size_t)1 << power;
  void *address = NULL;
  struct host_block *block = dit_calloc(1, sizeof *block);
  if (!block) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to keep track of a pinned block");
  }
  enum dit_status status = take_from_vendor(size, &address, err);
  if (status != DIT_OK) {
    destroy_block(block);
    return status;
  }
  *block = (struct host_block){
      .address = address, .size = size, .requested = requested, .power = power, .state = BLOCK_LIVE};
  pthread_mutex_lock(&lock);
  bool stored = index_insert(block);
  if (stored) {
    count_reserved((int64_t)size);
    count_alloc(size);
  }
  pthread_mutex_unlock(&lock);
  if (!stored) {
    (void)!dit_host_vendor_free(address, NULL);
    destroy_block(block);
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory for the index of pinned blocks");
  }
  *ptr = address;
  return DIT_OK;
}

static enum dit_status take_from_pool(size_t size, void **ptr, struct dit_error *err) {
  void *address = NULL, *base;
  size_t block_size = 0;
  DIT_RETURN_IF_NOT_OK(dit_host_pool_alloc(size, &address, err));
  (void)dit_allocator_find_pinned(address, &base, &block_size);
  pthread_mutex_lock(&lock);
  count_alloc(block_size);
  pthread_mutex_unlock(&lock);
  *ptr = address;
  return DIT_OK;
}

enum dit_status dit_host_take(size_t size, void **ptr, struct dit_error *err) {
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  if (size > SIZE_MAX / 4) {
    return dit_error_set(err, DIT_ERR_NOMEM, "pinned host memory: %zu bytes asked for, more than an address space has",
                         size);
  }
  if (dit_host_pool_get_algorithm() != DIT_ALGORITHM_TORCH) {
    return take_from_pool(size, ptr, err);
  }
  int power = size_class(size);
  struct host_block *block = take_cached(power);
  if (block) {
    block->requested = size;
    *ptr = block->address;
    return DIT_OK;
  }
  return create_block(power, size, ptr, err);
}

enum dit_status dit_host_alloc(size_t size, void **ptr, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_check(err));
  if (DIT_UNLIKELY(dit_watch_get())) {
    return dit_watch_alloc(NULL, -1, 0, size, ptr, err);
  }
  return dit_host_take(size, ptr, err);
}

// Free

// Record an event on each stream that used the block; where that fails, wait for the stream (or the whole device)
// instead. The block is closing: nobody else touches it.
static void record_uses(struct host_block *block) {
  int left = 0;
  for (int i = 0; i < block->use_count; i++) {
    struct block_use use = block->uses[i];
    struct dit_event *event = NULL;
    if (dit_event_create(use.device, 0, &event, NULL) == DIT_OK &&
        dit_event_record(event, use.device, use.stream, NULL) == DIT_OK) {
      block->uses[left] = use;
      block->uses[left++].event = event;
      continue;
    }
    dit_event_destroy(event);
    if (dit_stream_synchronize(use.device, use.stream, NULL) != DIT_OK &&
        dit_device_synchronize(use.device, NULL) != DIT_OK) {
      dit_log_write_once("host_memory.record", DIT_LOG_WARNING,
                         "pinned memory freed while device %d could not be synchronized", use.device);
    }
  }
  block->use_count = left;
}

static struct host_block *close_block(const void *ptr) {
  pthread_mutex_lock(&lock);
  struct host_block *block = index_find(ptr);
  if (block && (block->address != ptr || block->state != BLOCK_LIVE || block->power < 0)) {
    block = NULL;
  }
  if (block) {
    block->state = BLOCK_CLOSING;
    count_free(block->size);
  }
  pthread_mutex_unlock(&lock);
  return block;
}

bool dit_host_give(void *ptr, struct dit_allocator_freed *freed) {
  if (dit_allocator_free_block(ptr, true, freed)) {
    pthread_mutex_lock(&lock);
    count_free(freed->size);
    pthread_mutex_unlock(&lock);
    return true;
  }
  struct host_block *block = close_block(ptr);
  if (!block) {
    return false;
  }
  *freed = (struct dit_allocator_freed){-1, block->size, block->requested};
  record_uses(block);
  pthread_mutex_lock(&lock);
  if (uses_are_done(block)) {
    put_in_cache(block);
  } else {
    block->state = BLOCK_PENDING;
    block->next = pending;
    pending = block;
  }
  pthread_mutex_unlock(&lock);
  return true;
}

// In a bad fork the child leaves the parent's blocks alone: the lock may belong to a thread that is gone.
void dit_host_free(void *ptr) {
  struct dit_allocator_freed freed;
  if (dit_runtime_is_bad_fork()) {
    return;
  }
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_free(ptr, true);
  } else if (ptr && !dit_host_give(ptr, &freed)) {
    dit_log_write_once("host_memory.free", DIT_LOG_WARNING,
                       "dit_host_free: %p is not the start of a live pinned block; ignored (said once)", ptr);
  }
}

static void give_back(struct host_block *block) {
  struct dit_error err = {0};
  enum dit_status status = dit_host_vendor_free(block->address, &err);
  if (DIT_UNLIKELY(dit_watch_get())) {
    dit_watch_vendor(false, -1, block->address, block->size, status);
  }
  if (status != DIT_OK) {
    dit_log_write(DIT_LOG_WARNING, "pinned memory %p: %s", (void *)block->address, err.message);
  }
  destroy_block(block);
}

void dit_host_empty_cache(void) {
  if (!dit_runtime_is_active()) {
    return;
  }
  struct host_block *taken = NULL;
  dit_host_pool_empty_cache();
  pthread_mutex_lock(&lock);
  sweep_pending();
  for (int power = 0; power < CLASS_COUNT; power++) {
    while (cached[power]) {
      struct host_block *block = cached[power];
      cached[power] = block->next;
      index_remove(block);
      count_reserved(-(int64_t)block->size);
      block->next = taken;
      taken = block;
    }
  }
  pthread_mutex_unlock(&lock);
  while (taken) {
    struct host_block *next = taken->next;
    give_back(taken);
    taken = next;
  }
}

// Questions and uses

bool dit_host_find(const void *ptr, void **base, size_t *size) {
  if (dit_allocator_find_pinned(ptr, base, size)) {
    return true;
  }
  pthread_mutex_lock(&lock);
  const struct host_block *block = index_find(ptr);
  bool live = block && block->state == BLOCK_LIVE;
  if (live) {
    *base = block->address;
    *size = block->size;
  }
  pthread_mutex_unlock(&lock);
  return live;
}

bool dit_host_is_pinned(const void *ptr) {
  void *base;
  size_t size;
  return ptr && dit_runtime_is_active() && dit_host_find(ptr, &base, &size);
}

// With the lock held.
static enum dit_status add_use(struct host_block *block, int device, int64_t stream, struct dit_error *err) {
  for (int i = 0; i < block->use_count; i++) {
    if (block->uses[i].device == device && block->uses[i].stream == stream) {
      return DIT_OK;
    }
  }
  if (block->use_count == block->use_capacity) {
    int capacity = block->use_capacity ? 2 * block->use_capacity : 2;
    struct block_use *grown = dit_realloc(block->uses, (size_t)capacity * sizeof *grown);
    if (!grown) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to record stream %lld on a pinned block",
                           (long long)stream);
    }
    block->uses = grown;
    block->use_capacity = capacity;
  }
  block->uses[block->use_count++] = (struct block_use){.device = device, .stream = stream};
  return DIT_OK;
}

enum dit_status dit_host_use_range(const void *ptr, size_t size, int device, int64_t stream, bool *pinned,
                                   struct dit_error *err) {
  enum dit_status status = DIT_OK;
  void *base;
  size_t whole;
  if (dit_allocator_find_pinned(ptr, &base, &whole)) {
    bool fits = size <= whole - (size_t)((uintptr_t)ptr - (uintptr_t)base);
    DIT_RETURN_IF_NOT_OK(fits ? dit_host_pool_record(ptr, device, stream, err) : DIT_OK);
    *pinned = fits;
    return DIT_OK;
  }
  pthread_mutex_lock(&lock);
  struct host_block *block = index_find(ptr);
  bool inside =
      block && block->state == BLOCK_LIVE && size <= block->size - (size_t)((uintptr_t)ptr - (uintptr_t)block->address);
  if (inside && block->power >= 0) {  // a registered range is its owner's to keep until the work is done
    status = add_use(block, device, stream, err);
  }
  pthread_mutex_unlock(&lock);
  if (status == DIT_OK) {
    *pinned = inside;
  }
  return status;
}

enum dit_status dit_host_record_stream(const void *ptr, int device, int64_t stream, struct dit_error *err) {
  void *raw;
  bool pinned;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  DIT_RETURN_IF_NOT_OK(dit_host_use_range(ptr, 1, device, stream, &pinned, err));
  if (!pinned) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "%p is not inside a live pinned host block; allocate it with dit_host_alloc", ptr);
  }
  return DIT_OK;
}

// Registered ranges

// With the lock held: does [ptr, ptr + size) touch a block?
static bool range_is_taken(const void *ptr, size_t size) {
  size_t rank = index_rank((const char *)ptr + size - 1);
  return rank > 0 && (uintptr_t)index_[rank - 1]->address + index_[rank - 1]->size > (uintptr_t)ptr;
}

enum dit_status dit_host_register(void *ptr, size_t size, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_check(err));
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (!vtable->host_register || !vtable->host_unregister) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "vendor '%s' cannot pin memory that exists already", vtable->name);
  }
  if (!ptr || size == 0 || size > UINTPTR_MAX - (uintptr_t)ptr) {
    return dit_error_set(err, DIT_ERR_INVALID, "cannot register %zu bytes at %p: give an address and a size above 0",
                         size, ptr);
  }
  struct host_block *block = dit_calloc(1, sizeof *block);
  if (!block) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to register a range");
  }
  *block = (struct host_block){.address = ptr, .size = size, .power = -1, .state = BLOCK_LIVE};
  pthread_mutex_lock(&lock);
  bool taken = range_is_taken(ptr, size);
  bool stored = !taken && index_insert(block);
  pthread_mutex_unlock(&lock);
  enum dit_status status = DIT_OK;
  if (!stored) {
    status =
        taken ? dit_error_set(err, DIT_ERR_INVALID, "%zu bytes at %p overlap memory that is pinned already", size, ptr)
              : dit_error_set(err, DIT_ERR_NOMEM, "no host memory for the index of pinned blocks");
  } else if ((status = vtable->host_register(ptr, size, err)) != DIT_OK) {
    pthread_mutex_lock(&lock);
    index_remove(block);
    pthread_mutex_unlock(&lock);
  }
  if (status != DIT_OK) {
    destroy_block(block);
  }
  return status;
}

enum dit_status dit_host_unregister(void *ptr, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_runtime_check(err));
  pthread_mutex_lock(&lock);
  struct host_block *block = index_find(ptr);
  if (block && (block->address != ptr || block->power >= 0)) {
    block = NULL;
  }
  if (block) {
    index_remove(block);
  }
  pthread_mutex_unlock(&lock);
  if (!block) {
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not the start of a registered range", ptr);
  }
  destroy_block(block);
  return dit_runtime_get_vtable()->host_unregister(ptr, err);
}

// Statistics and end

void dit_host_get_stats(struct dit_host_stats *out) {
  memset(out, 0, sizeof *out);
  if (!dit_runtime_is_bad_fork()) {
    pthread_mutex_lock(&lock);
    *out = stats;
    pthread_mutex_unlock(&lock);
  }
}

void dit_host_reset_peak(void) {
  if (!dit_runtime_is_bad_fork()) {
    pthread_mutex_lock(&lock);
    stats.allocated_peak = stats.allocated_current;
    stats.reserved_peak = stats.reserved_current;
    pthread_mutex_unlock(&lock);
  }
}

// The devices are drained and no other thread is here: live blocks go too, their owners' later frees are ignored.
void dit_host_shutdown(void) {
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  dit_host_pool_shutdown();
  while (index_count > 0) {
    struct host_block *block = index_[index_count - 1];
    bool registered = block->power < 0;
    if (block->state == BLOCK_PENDING) {
      drop_uses(block);
    }
    index_remove(block);
    if (registered) {
      (void)!vtable->host_unregister(block->address, NULL);
      destroy_block(block);
    } else {
      give_back(block);
    }
  }
  memset(cached, 0, sizeof cached);
  pending = NULL;
  memset(&stats, 0, sizeof stats);
  memset(&alloc_times, 0, sizeof alloc_times);
  memset(&free_times, 0, sizeof free_times);
}
