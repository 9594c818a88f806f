// Blocks of snapshot memory: reference counts, a small cache of large blocks, pinned blocks with their event.
#include "tools/capture_memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

// Four sizes per power of two: at most a quarter of a block is unused.
#define CLASSES (4 * 48)

// Blocks that wait for reuse, the last one first: its bytes are probably still in the processor's cache.
static struct {
  pthread_mutex_t lock;
  struct capture_memory *free[CLASSES];
  size_t bytes;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

// The class of blocks that hold `size` bytes, and how many they hold. -1: none.
static int class_find(size_t size, size_t *capacity) {
  if (size < CAPTURE_MEMORY_LEAST || size > (size_t)1 << 46) {
    return -1;
  }
  int top = 63 - __builtin_clzll((unsigned long long)(size - 1));  // 2^top < size <= 2^(top + 1)
  size_t quarter = (size_t)1 << (top - 2);
  size_t count = (size + quarter - 1) / quarter;  // 5 to 8
  *capacity = count * quarter;
  return 4 * top + (int)(count - 5);
}

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

static struct capture_memory *cache_take(int class, size_t capacity) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, cache_guard_fork);
  pthread_mutex_lock(&cache.lock);
  struct capture_memory *found = cache.free[class];
  if (found) {
    cache.free[class] = found->next;
    cache.bytes -= capacity;
  }
  pthread_mutex_unlock(&cache.lock);
  return found;
}

static bool cache_put(struct capture_memory *memory) {
  size_t capacity = 0;
  int class = class_find(memory->size, &capacity);
  if (class < 0) {
    return false;
  }
  pthread_mutex_lock(&cache.lock);
  bool kept = cache.bytes + capacity <= CAPTURE_MEMORY_KEPT;
  if (kept) {
    memory->next = cache.free[class];
    cache.free[class] = memory;
    cache.bytes += capacity;
  }
  pthread_mutex_unlock(&cache.lock);
  return kept;
}

struct capture_memory *capture_memory_create(size_t size) {
  size_t header = (sizeof(struct capture_memory) + 63) & ~(size_t)63, capacity = size;
  int class = class_find(size, &capacity);
  struct capture_memory *memory = class >= 0 ? cache_take(class, capacity) : NULL;
  if (!memory) {
    if (capacity > SIZE_MAX - header || !(memory = malloc(header + capacity))) {
      return NULL;
    }
    *memory = (struct capture_memory){.size = capacity, .data = (unsigned char *)memory + header};
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
  if (!cache_put(memory)) {
    free(memory);
  }
}

void capture_memory_trim(size_t keep) {
  pthread_mutex_lock(&cache.lock);
  for (int class = CLASSES - 1; class >= 0; class --) {  // the largest first
    while (cache.free[class] && cache.bytes > keep) {
      struct capture_memory *memory = cache.free[class];
      cache.free[class] = memory->next;
      cache.bytes -= memory->size;
      free(memory);
    }
  }
  pthread_mutex_unlock(&cache.lock);
}
