// Blocks of snapshot memory: reference counts, a small cache of large blocks, pinned blocks with their event.
#include "tools/capture_memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define CACHE_SLOTS 64

// Blocks that wait for reuse, in no order. A block fits when it is not more than twice as large as asked for.
static struct {
  pthread_mutex_t lock;
  struct capture_memory *block[CACHE_SLOTS];
  int count;
  size_t bytes;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

// A fork must not catch another thread inside the lock.
static void cache_lock(void) {
  pthread_mutex_lock(&cache.lock);
}
static void cache_unlock(void) {
  pthread_mutex_unlock(&cache.lock);
}
static void cache_guard_fork(void) {
  (void)pthread_atfork(cache_lock, cache_unlock, cache_unlock);
}

static struct capture_memory *cache_take(size_t size) {
  struct capture_memory *found = NULL;
  int best = -1;
  pthread_mutex_lock(&cache.lock);
  for (int i = 0; i < cache.count; i++) {
    size_t have = cache.block[i]->size;
    if (have >= size && have / 2 <= size && (best < 0 || have < cache.block[best]->size)) {
      best = i;
    }
  }
  if (best >= 0) {
    found = cache.block[best];
    cache.bytes -= found->size;
    cache.block[best] = cache.block[--cache.count];
  }
  pthread_mutex_unlock(&cache.lock);
  return found;
}

static bool cache_put(struct capture_memory *memory) {
  pthread_mutex_lock(&cache.lock);
  bool kept = cache.count < CACHE_SLOTS && cache.bytes + memory->size <= CAPTURE_MEMORY_KEPT;
  if (kept) {
    cache.block[cache.count++] = memory;
    cache.bytes += memory->size;
  }
  pthread_mutex_unlock(&cache.lock);
  return kept;
}

struct capture_memory *capture_memory_create(size_t size) {
  struct capture_memory *memory = NULL;
  if (size >= CAPTURE_MEMORY_LARGE) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, cache_guard_fork);
    memory = cache_take(size);
  }
  if (!memory) {
    size_t header = (sizeof *memory + 63) & ~(size_t)63;
    if (size > SIZE_MAX - header || !(memory = malloc(header + size))) {
      return NULL;
    }
    *memory = (struct capture_memory){.size = size, .data = (unsigned char *)memory + header};
  }
  atomic_init(&memory->references, 1);
  return memory;
}

struct capture_memory *capture_memory_create_pinned(size_t size, const struct dit_helper_vtable *helper, int device) {
  struct capture_memory *memory = calloc(1, sizeof *memory);
  if (!memory) {
    return NULL;
  }
  memory->helper = helper;
  memory->size = size;
  void *data = NULL;
  if (helper->staging_allocate(size, &data, NULL) != DIT_OK) {
    free(memory);
    return NULL;
  }
  memory->data = data;
  if (helper->event_create(device, &memory->event, NULL) != DIT_OK) {
    helper->staging_free(data);
    free(memory);
    return NULL;
  }
  atomic_init(&memory->references, 1);
  return memory;
}

bool capture_memory_wait(void *context) {
  struct capture_memory *memory = context;
  return !memory->event || memory->helper->event_wait(memory->event, NULL) == DIT_OK;
}

void capture_memory_release(void *context) {
  struct capture_memory *memory = context;
  if (atomic_fetch_sub_explicit(&memory->references, 1, memory_order_acq_rel) > 1) {
    return;
  }
  if (memory->helper) {
    // The copy may still be under way when an item was refused: the memory must not be handed out before it is over.
    (void)capture_memory_wait(memory);
    memory->helper->event_destroy(memory->event);
    memory->helper->staging_free(memory->data);
    free(memory);
    return;
  }
  if (memory->size < CAPTURE_MEMORY_LARGE || !cache_put(memory)) {
    free(memory);
  }
}

void capture_memory_trim(void) {
  pthread_mutex_lock(&cache.lock);
  for (int i = 0; i < cache.count; i++) {
    free(cache.block[i]);
  }
  cache.count = 0;
  cache.bytes = 0;
  pthread_mutex_unlock(&cache.lock);
}
