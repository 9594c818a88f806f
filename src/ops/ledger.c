/// The ledger of operator calls: a hash table of entries that are never freed, counters updated by relaxed atomics.
///
/// Finding an entry takes a mutex (done once per operator by the door); counting takes none. Depends on src/core alone.
#include "dit/ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/conversion.h"

struct dit_ledger_entry {
  struct dit_ledger_entry *next;  ///< in its bucket; fixed once published
  _Atomic uint64_t calls[DIT_LEDGER_KINDS];
  _Atomic uint64_t bytes[DIT_LEDGER_KINDS];
  _Atomic uint64_t nanoseconds[DIT_LEDGER_KINDS];
  char name[];
};

#define BUCKETS 1024

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dit_ledger_entry *buckets[BUCKETS];
static _Atomic bool timing;

static unsigned hash_name(const char *name) {
  unsigned hash = 2166136261u;
  for (; *name; name++) {
    hash = (hash ^ (unsigned char)*name) * 16777619u;
  }
  return hash % BUCKETS;
}

static struct dit_ledger_entry *find_or_create(const char *name) {
  struct dit_ledger_entry **bucket = &buckets[hash_name(name)];
  for (struct dit_ledger_entry *entry = *bucket; entry; entry = entry->next) {
    if (strcmp(entry->name, name) == 0) {
      return entry;
    }
  }
  size_t length = strlen(name) + 1;
  struct dit_ledger_entry *entry = dit_calloc(1, sizeof(*entry) + length);
  if (entry) {
    memcpy(entry->name, name, length);
    entry->next = *bucket;
    *bucket = entry;
  }
  return entry;
}

struct dit_ledger_entry *dit_ledger_get(const char *name) {
  pthread_mutex_lock(&mutex);
  struct dit_ledger_entry *entry = find_or_create(name);
  pthread_mutex_unlock(&mutex);
  return entry;
}

void dit_ledger_add(struct dit_ledger_entry *entry, enum dit_ledger_kind kind, uint64_t bytes, uint64_t nanoseconds) {
  if (!entry) {
    return;
  }
  atomic_fetch_add_explicit(&entry->calls[kind], 1, memory_order_relaxed);
  if (bytes) {
    atomic_fetch_add_explicit(&entry->bytes[kind], bytes, memory_order_relaxed);
  }
  if (nanoseconds) {
    atomic_fetch_add_explicit(&entry->nanoseconds[kind], nanoseconds, memory_order_relaxed);
  }
}

void dit_ledger_set_timing(bool on) {
  atomic_store_explicit(&timing, on, memory_order_relaxed);
}
bool dit_ledger_get_timing(void) {
  return atomic_load_explicit(&timing, memory_order_relaxed);
}

static uint64_t count_calls(const struct dit_ledger_row *row) {
  return row->calls[0] + row->calls[1];
}

static void read_entry(const struct dit_ledger_entry *entry, struct dit_ledger_row *row) {
  row->name = entry->name;
  for (int kind = 0; kind < DIT_LEDGER_KINDS; kind++) {
    row->calls[kind] = atomic_load_explicit(&entry->calls[kind], memory_order_relaxed);
    row->bytes[kind] = atomic_load_explicit(&entry->bytes[kind], memory_order_relaxed);
    row->nanoseconds[kind] = atomic_load_explicit(&entry->nanoseconds[kind], memory_order_relaxed);
  }
}

static bool is_before(const struct dit_ledger_row *a, const struct dit_ledger_row *b) {
  uint64_t calls_a = count_calls(a), calls_b = count_calls(b);
  return calls_a != calls_b ? calls_a > calls_b : strcmp(a->name, b->name) < 0;
}

/// Keep the first `capacity` rows in order.
static void insert_row(struct dit_ledger_row *rows, int capacity, int have, const struct dit_ledger_row *row) {
  int at = have < capacity ? have : capacity;
  while (at > 0 && is_before(row, &rows[at - 1])) {
    if (at < capacity) {
      rows[at] = rows[at - 1];
    }
    at--;
  }
  if (at < capacity) {
    rows[at] = *row;
  }
}

int dit_ledger_read(struct dit_ledger_row *rows, int capacity) {
  int have = 0;
  pthread_mutex_lock(&mutex);
  for (int bucket = 0; bucket < BUCKETS; bucket++) {
    for (const struct dit_ledger_entry *entry = buckets[bucket]; entry; entry = entry->next) {
      struct dit_ledger_row row;
      read_entry(entry, &row);
      if (count_calls(&row) > 0) {
        insert_row(rows, capacity, have, &row);
        have++;
      }
    }
  }
  pthread_mutex_unlock(&mutex);
  return have;
}

void dit_ledger_reset(void) {
  dit_conversion_reset();
  pthread_mutex_lock(&mutex);
  for (int bucket = 0; bucket < BUCKETS; bucket++) {
    for (struct dit_ledger_entry *entry = buckets[bucket]; entry; entry = entry->next) {
      for (int kind = 0; kind < DIT_LEDGER_KINDS; kind++) {
        atomic_store_explicit(&entry->calls[kind], 0, memory_order_relaxed);
        atomic_store_explicit(&entry->bytes[kind], 0, memory_order_relaxed);
        atomic_store_explicit(&entry->nanoseconds[kind], 0, memory_order_relaxed);
      }
    }
  }
  pthread_mutex_unlock(&mutex);
}
