/// The allocation seam over libc's allocator, with failure injection and counters.
///
/// Invariant: `live` counts blocks handed out and not yet freed; an injected failure returns NULL and changes nothing.
/// All state is atomic: the seam never takes a lock, so it may be used from any thread and in a forked child.
/// Depends on libc only.
#include "dit/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool failure_on;
static _Atomic int64_t failure_countdown;
static _Atomic int64_t allocation_count;
static _Atomic int64_t live_count;

/// Counts one allocation and says whether it has to fail.
static bool count_and_check(void) {
  atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
  if (DIT_LIKELY(!atomic_load_explicit(&failure_on, memory_order_relaxed))) {
    return false;
  }
  return atomic_fetch_sub_explicit(&failure_countdown, 1, memory_order_relaxed) <= 0;
}

static void *count_live(void *ptr) {
  if (ptr) {
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
  }
  return ptr;
}

void *dit_malloc(size_t size) {
  return count_and_check() ? NULL : count_live(malloc(size ? size : 1));
}

void *dit_calloc(size_t count, size_t size) {
  size_t bytes = 0;
  if (count_and_check() || __builtin_mul_overflow(count, size, &bytes)) {
    return NULL;
  }
  return count_live(calloc(1, bytes ? bytes : 1));
}

void *dit_realloc(void *ptr, size_t size) {
  if (count_and_check()) {
    return NULL;
  }
  if (!ptr) {
    return count_live(malloc(size ? size : 1));
  }
  return realloc(ptr, size ? size : 1);
}

char *dit_strdup(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = dit_malloc(size);
  if (copy) {
    memcpy(copy, text, size);
  }
  return copy;
}

void dit_free(void *ptr) {
  if (ptr) {
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
    free(ptr);
  }
}

void dit_alloc_set_failure(int64_t after) {
  atomic_store(&failure_on, false);
  if (after >= 0) {
    atomic_store(&failure_countdown, after);
    atomic_store(&failure_on, true);
  }
}

int64_t dit_alloc_get_count(void) {
  return atomic_load_explicit(&allocation_count, memory_order_relaxed);
}

int64_t dit_alloc_get_live(void) {
  return atomic_load_explicit(&live_count, memory_order_relaxed);
}
