/// dit/memory_check.h: the table of watched blocks, what was freed last, the counts and the reports.
///
/// Invariant: a block is in the table from the moment the user gets its address until just before the allocator gets it
/// back, so the allocator never hands out a base that is still in it. The lock is a leaf: nothing is called with it
/// held but the allocation seam and, in verify, the writer. The number of freed addresses that are remembered is fixed.
/// Depends on memory_guard.c, memory_report.c.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/memory_watch.h"
#include "dit/alloc.h"

#define FIRST_BUCKETS 1024
#define REMEMBERED 4096
#define MOST_REPORTED 100

/// The last free of an address.
struct freed_block {
  const void *address;
  size_t size;
  uint64_t number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dit_check_record **buckets;
static size_t bucket_count;
static struct dit_memory_check_options options;
static struct dit_memory_check_state state;
static uint64_t leak_mark;  ///< number of live blocks that is called a leak next
static struct freed_block freed[REMEMBERED];
static atomic_ullong counts[DIT_COUNT_STRAY + 1];
static atomic_int reachable[DIT_MAX_DEVICES];  ///< can the host read the device's memory?
enum { REACH_UNKNOWN, REACH_YES, REACH_NO };
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

void dit_check_count(enum dit_check_count what) {
  atomic_fetch_add_explicit(&counts[what], 1, memory_order_relaxed);
}

// On and off

// After Python has gone and before the libraries do: what lives now was never given back.
static void report_at_exit(void) {
  if ((dit_watch_get() & (DIT_WATCH_CHECK | DIT_WATCH_TABLE)) && !dit_runtime_is_bad_fork()) {
    uint64_t damaged = 0;
    (void)!dit_memory_check_verify(&damaged, NULL);
    dit_memory_check_report();
  }
}

static void reset_lock(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void prepare_process(void) {
  (void)atexit(report_at_exit);
  (void)pthread_atfork(NULL, NULL, reset_lock);
}

enum dit_status dit_memory_check_start(const struct dit_memory_check_options *wanted, struct dit_error *err) {
  if (wanted->guard % DIT_MIN_BLOCK_SIZE != 0 || wanted->guard > DIT_MIB) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "memory checker: a guard of %zu bytes is not possible; valid: multiples of %zu from 0 to %zu",
                         wanted->guard, DIT_MIN_BLOCK_SIZE, DIT_MIB);
  }
  pthread_once(&exit_once, prepare_process);
  pthread_mutex_lock(&lock);
  options = *wanted;
  leak_mark = wanted->max_blocks;
  for (int device = 0; device < DIT_MAX_DEVICES; device++) {
    atomic_store(&reachable[device], REACH_UNKNOWN);
  }
  pthread_mutex_unlock(&lock);
  dit_watch_set(DIT_WATCH_CHECK | DIT_WATCH_TABLE, true);
  return DIT_OK;
}

void dit_memory_check_stop(void) {
  dit_watch_set(DIT_WATCH_CHECK, false);
  pthread_mutex_lock(&lock);
  if (state.blocks == 0) {
    dit_watch_set(DIT_WATCH_TABLE, false);
  }
  pthread_mutex_unlock(&lock);
}

bool dit_memory_check_is_on(void) {
  return dit_watch_get() & DIT_WATCH_CHECK;
}

static uint64_t get_blocks(void) {
  pthread_mutex_lock(&lock);
  uint64_t blocks = state.blocks;
  pthread_mutex_unlock(&lock);
  return blocks;
}

bool dit_check_keeps_trace(void) {
  pthread_mutex_lock(&lock);
  bool keeps = options.backtrace;
  pthread_mutex_unlock(&lock);
  return keeps;
}

/// Asked once per device and start: a vendor may take its time to tell its properties.
static bool is_reachable(int device) {
  int known = atomic_load_explicit(&reachable[device], memory_order_relaxed);
  if (known == REACH_UNKNOWN) {
    struct dit_device_properties properties;
    bool yes = dit_device_get_properties(device, &properties, NULL) == DIT_OK && properties.host_accessible;
    known = yes ? REACH_YES : REACH_NO;
    atomic_store_explicit(&reachable[device], known, memory_order_relaxed);
  }
  return known == REACH_YES;
}

size_t dit_check_get_guard(int device) {
  pthread_mutex_lock(&lock);
  size_t guard = options.guard;
  pthread_mutex_unlock(&lock);
  return guard == 0 || device < 0 || is_reachable(device) ? guard : 0;
}

// The table

static size_t get_bucket(const void *base, size_t count) {
  uint64_t key = (uint64_t)(uintptr_t)base >> 6;
  return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (count - 1);
}

/// Room for one more; a table that cannot grow goes on with longer chains.
static bool reserve(void) {
  if (state.blocks < bucket_count) {
    return true;
  }
  size_t count = bucket_count ? 2 * bucket_count : FIRST_BUCKETS;
  struct dit_check_record **grown = dit_calloc(count, sizeof *grown);
  if (!grown) {
    return bucket_count > 0;
  }
  for (size_t i = 0; i < bucket_count; i++) {
    while (buckets[i]) {
      struct dit_check_record *record = buckets[i];
      buckets[i] = record->next;
      struct dit_check_record **head = &grown[get_bucket(record->base, count)];
      record->next = *head;
      *head = record;
    }
  }
  dit_free(buckets);
  buckets = grown;
  bucket_count = count;
  return true;
}

static struct dit_check_record **find_link(const void *base) {
  if (bucket_count == 0) {
    return NULL;
  }
  struct dit_check_record **link = &buckets[get_bucket(base, bucket_count)];
  while (*link && (*link)->base != (const char *)base) {
    link = &(*link)->next;
  }
  return *link ? link : NULL;
}

struct dit_check_record *dit_check_create(int device, int64_t stream, size_t size, size_t guard) {
  struct dit_check_record *record = dit_calloc(1, sizeof *record);
  if (record) {
    *record =
        (struct dit_check_record){.device = device, .stream = stream, .front = guard, .size = size, .back = guard};
    if (dit_check_keeps_trace()) {
      record->depth = dit_check_get_trace(record->frames, DIT_CHECK_DEPTH, record->place);
    }
  }
  return record;
}

static void write_state(const char *head, const struct dit_memory_check_state *now,
                        const struct dit_memory_check_options *with) {
  dit_check_write(DIT_CHECK_PREFIX
                  "%scurrent block num = %llu, total_size = %lluMB, insert count = %llu, max block num = %llu, log "
                  "interval = %llu",
                  head, (unsigned long long)now->blocks, (unsigned long long)(now->bytes >> 20),
                  (unsigned long long)now->inserts, (unsigned long long)with->max_blocks,
                  (unsigned long long)with->interval);
}

enum dit_status dit_check_insert(struct dit_check_record *record, struct dit_error *err) {
  pthread_mutex_lock(&lock);
  if (!reserve()) {
    pthread_mutex_unlock(&lock);
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while the memory checker notes %zu bytes",
                         record->size);
  }
  struct dit_check_record **head = &buckets[get_bucket(record->base, bucket_count)];
  record->next = *head;
  *head = record;
  record->number = ++state.inserts;
  state.blocks++;
  state.bytes += record->size;
  struct dit_memory_check_state now = state;
  struct dit_memory_check_options with = options;
  bool leaks = leak_mark > 0 && now.blocks > leak_mark;
  if (leaks) {
    leak_mark *= 2;  // every further block would otherwise be a line
  }
  pthread_mutex_unlock(&lock);
  if (leaks) {
    write_state("there may be memory leak. ", &now, &with);
  } else if (with.interval > 0 && now.inserts % with.interval == 0) {
    write_state("", &now, &with);
  }
  return DIT_OK;
}

struct dit_check_record *dit_check_remove(const void *base, const void *ptr) {
  pthread_mutex_lock(&lock);
  struct dit_check_record **link = find_link(base), *record = link ? *link : NULL;
  if (record && record->base + record->front != (const char *)ptr) {
    record = NULL;
  }
  if (record) {
    *link = record->next;
    state.blocks--;
    state.bytes -= record->size;
    if (state.blocks == 0 && !(dit_watch_get() & DIT_WATCH_CHECK)) {
      dit_watch_set(DIT_WATCH_TABLE, false);
    }
  }
  pthread_mutex_unlock(&lock);
  return record;
}

bool dit_check_find(const void *base, struct dit_check_record *out) {
  pthread_mutex_lock(&lock);
  struct dit_check_record **link = find_link(base);
  if (link) {
    *out = **link;
  }
  pthread_mutex_unlock(&lock);
  return link != NULL;
}

void dit_check_clear(void) {
  struct dit_check_record *rest = NULL;
  if (!(dit_watch_get() & DIT_WATCH_TABLE)) {
    return;
  }
  if (get_blocks() > 0) {
    dit_memory_check_report();
  }
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < bucket_count; i++) {
    while (buckets[i]) {
      struct dit_check_record *record = buckets[i];
      buckets[i] = record->next;
      record->next = rest;
      rest = record;
    }
  }
  dit_free(buckets);
  buckets = NULL;
  bucket_count = 0;
  state.blocks = state.bytes = 0;
  memset(freed, 0, sizeof freed);
  dit_watch_set(DIT_WATCH_TABLE, dit_watch_get() & DIT_WATCH_CHECK);
  pthread_mutex_unlock(&lock);
  while (rest) {
    struct dit_check_record *next = rest->next;
    dit_free(rest);
    rest = next;
  }
}

// Frees

static struct freed_block *get_freed(const void *ptr) {
  return &freed[get_bucket(ptr, REMEMBERED)];
}

void dit_check_note_free(const struct dit_check_record *record) {
  const char *address = record->base + record->front;
  pthread_mutex_lock(&lock);
  *get_freed(address) = (struct freed_block){address, record->size, record->number};
  pthread_mutex_unlock(&lock);
}

void dit_check_report_free(const void *ptr, bool pinned) {
  pthread_mutex_lock(&lock);
  struct freed_block last = *get_freed(ptr);
  pthread_mutex_unlock(&lock);
  bool again = last.address == ptr;
  dit_check_count(again ? DIT_COUNT_DOUBLE : DIT_COUNT_UNKNOWN);
  if (again) {
    dit_check_write(DIT_CHECK_PREFIX
                    "not found point address going to free, ptr = %p: freed twice; it was a block of %zu bytes of %s "
                    "memory, allocation %llu",
                    ptr, last.size, pinned ? "pinned host" : "device", (unsigned long long)last.number);
  } else {
    dit_check_write(DIT_CHECK_PREFIX
                    "not found point address going to free, ptr = %p: it is not the start of a live block of %s memory",
                    ptr, pinned ? "pinned host" : "device");
  }
  if (dit_check_keeps_trace()) {
    void *frames[DIT_CHECK_DEPTH];
    char place[DIT_CHECK_PLACE_SIZE];
    int depth = dit_check_get_trace(frames, DIT_CHECK_DEPTH, place);
    dit_check_write_trace(place, frames, depth);
  }
}

// Questions

void dit_memory_check_get_state(struct dit_memory_check_state *out) {
  pthread_mutex_lock(&lock);
  *out = state;
  pthread_mutex_unlock(&lock);
  out->damaged = atomic_load(&counts[DIT_COUNT_DAMAGED]);
  out->double_frees = atomic_load(&counts[DIT_COUNT_DOUBLE]);
  out->unknown_frees = atomic_load(&counts[DIT_COUNT_UNKNOWN]);
  out->unknown_copies = atomic_load(&counts[DIT_COUNT_COPY]);
  out->stray_accesses = atomic_load(&counts[DIT_COUNT_STRAY]);
}

static int compare_numbers(const void *left, const void *right) {
  uint64_t a = ((const struct dit_check_record *)left)->number, b = ((const struct dit_check_record *)right)->number;
  return (a > b) - (a < b);
}

/// A sorted copy of the live records above `since`; NULL when there is none or host memory is exhausted (`*failed`).
static struct dit_check_record *copy_records(uint64_t since, size_t *count, bool *failed) {
  pthread_mutex_lock(&lock);
  struct dit_check_record *copy = state.blocks ? dit_malloc((size_t)state.blocks * sizeof *copy) : NULL;
  *failed = state.blocks && !copy;
  *count = 0;
  for (size_t i = 0; copy && i < bucket_count; i++) {
    for (const struct dit_check_record *record = buckets[i]; record; record = record->next) {
      if (record->number > since) {
        copy[(*count)++] = *record;
      }
    }
  }
  pthread_mutex_unlock(&lock);
  if (copy) {
    qsort(copy, *count, sizeof *copy, compare_numbers);
  }
  return copy;
}

enum dit_status dit_memory_check_visit(uint64_t since,
                                       bool (*visit)(void *context, const struct dit_memory_check_block *block),
                                       void *context, struct dit_error *err) {
  size_t count;
  bool failed;
  struct dit_check_record *copy = copy_records(since, &count, &failed);
  if (failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while copying the memory checker's table");
  }
  bool go_on = true;
  for (size_t i = 0; go_on && i < count; i++) {
    struct dit_memory_check_block block = {.address = copy[i].base + copy[i].front,
                                           .size = copy[i].size,
                                           .device = copy[i].device,
                                           .stream = copy[i].stream,
                                           .number = copy[i].number,
                                           .place = copy[i].place,
                                           .frames = copy[i].frames,
                                           .depth = copy[i].depth};
    go_on = visit(context, &block);
  }
  dit_free(copy);
  return DIT_OK;
}

enum dit_status dit_memory_check_verify(uint64_t *damaged, struct dit_error *err) {
  for (int device = 0; device < dit_device_get_count(); device++) {
    DIT_RETURN_IF_NOT_OK(dit_device_synchronize(device, err));
  }
  uint64_t found = 0;
  pthread_mutex_lock(&lock);  // a watched block leaves the table before its memory goes
  for (size_t i = 0; i < bucket_count; i++) {
    for (struct dit_check_record *record = buckets[i]; record; record = record->next) {
      found += (uint64_t)dit_guard_verify(record);
    }
  }
  pthread_mutex_unlock(&lock);
  *damaged = found;
  return DIT_OK;
}

void dit_memory_check_report(void) {
  size_t count;
  bool failed;
  struct dit_check_record *copy = copy_records(0, &count, &failed);
  if (count > 0) {
    dit_check_write(DIT_CHECK_PREFIX "there maybe exist memory leak. %zu blocks not released.", count);
  }
  for (size_t i = 0; i < count && i < MOST_REPORTED; i++) {
    char where[32] = "pinned host memory";
    if (copy[i].device >= 0) {
      snprintf(where, sizeof(where), "device %d, stream %lld", copy[i].device, (long long)copy[i].stream);
    }
    dit_check_write("key: %p, ptr: %zu, %s, allocation %llu, trace: %s", (void *)(copy[i].base + copy[i].front),
                    copy[i].size, where, (unsigned long long)copy[i].number, copy[i].depth ? "" : "not kept");
    dit_check_write_trace(copy[i].place, copy[i].frames, copy[i].depth);
  }
  if (count > MOST_REPORTED) {
    dit_check_write("... and %zu more", count - MOST_REPORTED);
  }
  dit_free(copy);
  pthread_mutex_lock(&lock);
  struct dit_memory_check_state now = state;
  struct dit_memory_check_options with = options;
  pthread_mutex_unlock(&lock);
  write_state("going to destruction. ", &now, &with);
}
