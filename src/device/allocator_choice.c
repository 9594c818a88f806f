/// Which pool a thread has chosen, and what happens to a pool that nobody will choose again.
///
/// Invariant: a slot of a pool is `kept` from when it is made until the pool is released; kept segments are given back
/// by nobody else. A slot is freed only while no thread is in the middle of an operation. Depends on: allocator_pool,
/// allocator_segment, allocator_map.
#include "device/allocator_impl.h"
#include "dit/alloc.h"
#include "dit/memory_pool.h"

#define DEPTH 32

struct choice {
  int device;
  int64_t pool;
};

static _Thread_local struct choice choices[DEPTH];
static _Thread_local int choice_count;
static atomic_int active;  // choices of all threads: an allocation looks at its own only if there are any

int64_t dit_allocator_get_choice(int device) {
  if (DIT_LIKELY(atomic_load_explicit(&active, memory_order_relaxed) == 0)) {
    return 0;
  }
  for (int i = choice_count; i-- > 0;) {
    if (choices[i].device == device) {
      return choices[i].pool;
    }
  }
  return 0;
}

enum dit_status dit_memory_pool_begin(int device, int64_t pool, struct dit_error *err) {
  if (pool <= 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "memory pool %lld of device %d; valid: numbers above 0", (long long)pool,
                         device);
  }
  if (choice_count == DEPTH) {
    return dit_error_set(err, DIT_ERR_INVALID, "memory pool %lld: this thread has chosen %d pools already",
                         (long long)pool, DEPTH);
  }
  choices[choice_count++] = (struct choice){device, pool};
  atomic_fetch_add(&active, 1);
  return DIT_OK;
}

enum dit_status dit_memory_pool_end(int device, int64_t pool, struct dit_error *err) {
  int at = choice_count;
  while (at-- > 0 && (choices[at].device != device || choices[at].pool != pool)) {
  }
  if (at < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "memory pool %lld of device %d was not chosen by this thread",
                         (long long)pool, device);
  }
  for (int i = at; i + 1 < choice_count; i++) {
    choices[i] = choices[i + 1];
  }
  choice_count--;
  atomic_fetch_sub(&active, 1);
  return DIT_OK;
}

static bool is_in_use(const struct dit_allocator *a, const struct dit_allocator_slot *slot) {
  const struct dit_allocator_segment *segment = a->segments;
  while (segment && segment->slot != slot) {
    segment = segment->next;
  }
  return segment || slot->queue_head;
}

static void unlink_slot(struct dit_allocator *a, struct dit_allocator_slot *slot) {
  for (size_t i = 0; i < DIT_SLOT_BUCKETS; i++) {
    struct dit_allocator_slot **link = &a->buckets[i];
    while (*link && *link != slot) {
      link = &(*link)->next_in_bucket;
    }
    if (*link) {
      *link = slot->next_in_bucket;
    }
  }
}

/// Slots of released pools that hold nothing any more, also those of earlier ones.
static void drop_slots(struct dit_allocator *a) {
  for (struct dit_allocator_slot **link = &a->slots; a->busy == 0 && *link;) {
    struct dit_allocator_slot *slot = *link;
    if (slot->pool == 0 || slot->kept || is_in_use(a, slot)) {
      link = &slot->next;
      continue;
    }
    *link = slot->next;
    unlink_slot(a, slot);
    a->last_slot = a->last_slot == slot ? NULL : a->last_slot;
    dit_free(slot);
  }
}

enum dit_status dit_allocator_release_pool(struct dit_allocator *a, int64_t pool, struct dit_error *err) {
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&a->lock);
  bool found = false;
  for (struct dit_allocator_slot *slot = a->slots; slot; slot = slot->next) {
    if (slot->pool == pool) {
      slot->kept = false;
      found = true;
    }
  }
  if (a->open && found) {
    status = dit_allocator_segment_release_pool(a, pool, err);
    drop_slots(a);
  }
  pthread_mutex_unlock(&a->lock);
  return status;
}

int64_t dit_memory_pool_find(const void *address) {
  struct dit_allocator_hit hit;
  while ((hit = dit_allocator_map_find(address)).owner) {
    struct dit_allocator *a = hit.owner;
    pthread_mutex_lock(&a->lock);
    if (dit_allocator_map_get_sequence() != hit.sequence) {
      hit = dit_allocator_map_find(address);
    }
    const bool same = hit.owner == a;
    const int64_t pool = same ? hit.segment->slot->pool : 0;
    pthread_mutex_unlock(&a->lock);
    if (same) {
      return pool;
    }
  }
  return 0;
}
