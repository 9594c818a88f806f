/// From any device address to its segment: one sorted table for all devices, read without a lock.
///
/// Invariant: a reader that sees the same even sequence before and after its search saw a consistent table. All shared
/// words are atomics; data is stored with release after the sequence became odd and loaded with acquire before it is
/// read again, so no fences are needed. A table that was outgrown is never freed because a reader may still look at it;
/// sizes double, so all old tables together are smaller than the present one. Segments come and go seldom, so inserting
/// by shifting is cheap enough. Depends on: core/alloc.
#include "device/allocator_impl.h"
#include "dit/alloc.h"

struct map_value {
  _Atomic uintptr_t end;
  _Atomic(struct dit_allocator_segment *) segment;
  _Atomic(struct dit_allocator *) owner;
};

struct map_table {
  size_t capacity;
  _Atomic size_t count;
  struct map_table *older;  ///< keeps outgrown tables reachable
  _Atomic uintptr_t *keys;  ///< segment addresses, ascending
  struct map_value *values;
};

#define FIRST_CAPACITY 1024
static _Atomic uintptr_t first_keys[FIRST_CAPACITY];
static struct map_value first_values[FIRST_CAPACITY];
static struct map_table first_table = {.capacity = FIRST_CAPACITY, .keys = first_keys, .values = first_values};

static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct map_table *) map_current = &first_table;
static _Atomic uint64_t map_sequence;

/// Number of keys <= address.
static size_t upper_bound(const struct map_table *table, uintptr_t address, size_t count) {
  size_t low = 0;
  while (count > 0) {
    size_t half = count / 2;
    bool right = atomic_load_explicit(&table->keys[low + half], memory_order_acquire) <= address;
    low = right ? low + half + 1 : low;
    count = right ? count - half - 1 : half;
  }
  return low;
}

static struct dit_allocator_hit search(uintptr_t address) {
  struct dit_allocator_hit hit = {0};
  const struct map_table *table = atomic_load_explicit(&map_current, memory_order_acquire);
  size_t index = upper_bound(table, address, atomic_load_explicit(&table->count, memory_order_acquire));
  if (index > 0 && address < atomic_load_explicit(&table->values[index - 1].end, memory_order_acquire)) {
    hit.segment = atomic_load_explicit(&table->values[index - 1].segment, memory_order_acquire);
    hit.owner = atomic_load_explicit(&table->values[index - 1].owner, memory_order_acquire);
  }
  return hit;
}

struct dit_allocator_hit dit_allocator_map_find(const void *ptr) {
  for (;;) {
    uint64_t before = atomic_load_explicit(&map_sequence, memory_order_acquire);
    struct dit_allocator_hit hit = search((uintptr_t)ptr);
    if (DIT_LIKELY(!(before & 1) && atomic_load_explicit(&map_sequence, memory_order_acquire) == before)) {
      hit.sequence = before;
      return hit;
    }
  }
}

bool dit_allocator_owns(const void *ptr) {
  return dit_allocator_map_find(ptr).owner != NULL;
}

uint64_t dit_allocator_map_get_sequence(void) {
  return atomic_load_explicit(&map_sequence, memory_order_acquire);
}

static void begin_write(void) {
  atomic_fetch_add_explicit(&map_sequence, 1, memory_order_acq_rel);
}

static void end_write(void) {
  atomic_fetch_add_explicit(&map_sequence, 1, memory_order_release);
}

static void copy_entry(struct map_table *dst, size_t to, struct map_table *src, size_t from) {
  atomic_store_explicit(&dst->keys[to], atomic_load(&src->keys[from]), memory_order_release);
  atomic_store_explicit(&dst->values[to].end, atomic_load(&src->values[from].end), memory_order_release);
  atomic_store_explicit(&dst->values[to].segment, atomic_load(&src->values[from].segment), memory_order_release);
  atomic_store_explicit(&dst->values[to].owner, atomic_load(&src->values[from].owner), memory_order_release);
}

/// The table with room for one more entry; NULL when host memory is exhausted. map_lock is held.
static struct map_table *reserve(void) {
  struct map_table *table = atomic_load(&map_current);
  size_t count = atomic_load(&table->count), capacity = table->capacity * 2;
  if (count < table->capacity) {
    return table;
  }
  struct map_table *grown = dit_calloc(1, sizeof(*grown) + capacity * (sizeof(struct map_value) + sizeof(uintptr_t)));
  if (!grown) {
    return NULL;
  }
  grown->capacity = capacity;
  grown->values = (struct map_value *)(void *)(grown + 1);
  grown->keys = (_Atomic uintptr_t *)(void *)(grown->values + capacity);
  grown->older = table;
  for (size_t i = 0; i < count; i++) {
    copy_entry(grown, i, table, i);
  }
  atomic_store(&grown->count, count);
  begin_write();
  atomic_store_explicit(&map_current, grown, memory_order_release);
  end_write();
  return grown;
}

enum dit_status dit_allocator_map_insert(struct dit_allocator_segment *segment, struct dit_error *err) {
  uintptr_t address = (uintptr_t)segment->address;
  pthread_mutex_lock(&map_lock);
  struct map_table *table = reserve();
  if (!table) {
    pthread_mutex_unlock(&map_lock);
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while growing the map of device segments");
  }
  size_t count = atomic_load(&table->count);
  size_t at = upper_bound(table, address, count);
  begin_write();
  for (size_t i = count; i > at; i--) {
    copy_entry(table, i, table, i - 1);
  }
  atomic_store_explicit(&table->keys[at], address, memory_order_release);
  atomic_store_explicit(&table->values[at].end, address + segment->size, memory_order_release);
  atomic_store_explicit(&table->values[at].segment, segment, memory_order_release);
  atomic_store_explicit(&table->values[at].owner, segment->owner, memory_order_release);
  atomic_store_explicit(&table->count, count + 1, memory_order_release);
  end_write();
  pthread_mutex_unlock(&map_lock);
  return DIT_OK;
}

void dit_allocator_map_remove(struct dit_allocator_segment *segment) {
  pthread_mutex_lock(&map_lock);
  struct map_table *table = atomic_load(&map_current);
  size_t count = atomic_load(&table->count), at = upper_bound(table, (uintptr_t)segment->address, count);
  if (at > 0 && atomic_load(&table->values[at - 1].segment) == segment) {
    begin_write();
    for (size_t i = at; i < count; i++) {
      copy_entry(table, i - 1, table, i);
    }
    atomic_store_explicit(&table->count, count - 1, memory_order_release);
    end_write();
  }
  pthread_mutex_unlock(&map_lock);
}
