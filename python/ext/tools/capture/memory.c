// Blocks of snapshot memory: reference counts, a cache of blocks by size, pinned blocks and how to wait for them.
#include "tools/capture/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// Four sizes per power of two: at most a quarter of a block is unused.
#define CLASSES (4 * 48)
#define LARGE_PAGE (2u << 20)
#define LARGE_BYTES (4u << 20)  // blocks from this size on

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

// Large blocks ask for large pages: the first touch of 64 MiB is otherwise 16,384 page faults.
static void *block_allocate(size_t size) {
  if (size < LARGE_BYTES) {
    return malloc(size);
  }
  void *block = NULL;
  if (posix_memalign(&block, LARGE_PAGE, size) != 0) {
    return NULL;
  }
  (void)madvise(block, size, MADV_HUGEPAGE);
  return block;
}

struct capture_memory *capture_memory_create(size_t size) {
  size_t header = (sizeof(struct capture_memory) + 63) & ~(size_t)63, capacity = size;
  int class = class_find(size, &capacity);
  struct capture_memory *memory = class >= 0 ? cache_take(class, capacity) : NULL;
  if (!memory) {
    if (capacity > SIZE_MAX - header || !(memory = block_allocate(header + capacity))) {
      return NULL;
    }
    *memory = (struct capture_memory){.size = capacity, .data = (unsigned char *)memory + header};
  }
  memory->identity = 0;
  atomic_init(&memory->references, 1);
  return memory;
}

void capture_memory_identify(struct capture_memory *memory) {
  static _Atomic uint64_t last;
  memory->identity = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

// Pinned memory

#define DEVICES 64
#define EVENTS 256
#define CAPTURING_MS 1  // between two looks at a stream that is recording a graph

// Copies on the default stream of a device: numbered when queued; one event tells how far the device has come.
static struct fence {
  _Atomic uint64_t queued, passed;
  void *event;
} fences[DEVICES];
static pthread_mutex_t fence_lock = PTHREAD_MUTEX_INITIALIZER;

// Events for other streams, kept for reuse.
static struct {
  pthread_mutex_t lock;
  struct {
    void *event;
    int device;
  } free[EVENTS];
  int count;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum dit_status event_take(const struct dit_helper_vtable *helper, int device, void **event,
                                  struct dit_error *err) {
  void *found = NULL;
  pthread_mutex_lock(&events.lock);
  for (int i = events.count - 1; i >= 0 && !found; i--) {
    if (events.free[i].device == device) {
      found = events.free[i].event;
      events.free[i] = events.free[--events.count];
    }
  }
  pthread_mutex_unlock(&events.lock);
  *event = found;
  return found ? DIT_OK : helper->event_create(device, event, err);
}

static void event_give(const struct dit_helper_vtable *helper, int device, void *event) {
  pthread_mutex_lock(&events.lock);
  bool kept = events.count < EVENTS;
  if (kept) {
    events.free[events.count].event = event;
    events.free[events.count++].device = device;
  }
  pthread_mutex_unlock(&events.lock);
  if (!kept) {
    helper->event_destroy(event);
  }
}

struct capture_memory *capture_memory_create_pinned(size_t size, const struct dit_helper_vtable *helper, int device) {
  struct capture_memory *memory = device >= 0 && device < DEVICES ? calloc(1, sizeof *memory) : NULL;
  if (!memory) {
    return NULL;
  }
  memory->helper = helper;
  memory->device = device;
  memory->size = size;
  void *data = NULL;
  if (helper->staging_allocate(size, &data, NULL) != DIT_OK) {
    free(memory);
    return NULL;
  }
  memory->data = data;
  atomic_init(&memory->references, 1);
  return memory;
}

// The null stream and its other name (CU_STREAM_LEGACY); it lives as long as the context, so any thread may use it
// later.
static bool stream_is_default(const void *stream) {
  return (uintptr_t)stream <= 1;
}

enum dit_status capture_memory_follow(struct capture_memory *memory, void *stream, struct dit_error *err) {
  memory->pending = true;
  if (stream_is_default(stream)) {
    memory->ticket = atomic_fetch_add_explicit(&fences[memory->device].queued, 1, memory_order_release) + 1;
    return DIT_OK;
  }
  enum dit_status status = event_take(memory->helper, memory->device, &memory->event, err);
  return status == DIT_OK ? memory->helper->event_record(memory->event, stream, err) : status;
}

// Record behind everything queued so far and wait. The lock is held.
static bool fence_wait(struct fence *fence, const struct dit_helper_vtable *helper, int device) {
  if (!fence->event && helper->event_create(device, &fence->event, NULL) != DIT_OK) {
    return false;
  }
  uint64_t queued = atomic_load_explicit(&fence->queued, memory_order_acquire);
  enum dit_status status = helper->event_record(fence->event, NULL, NULL);
  while (status == DIT_ERR_UNSUPPORTED) {  // a graph is being recorded: nothing can be asked until it is done
    usleep(CAPTURING_MS * 1000);
    status = helper->event_record(fence->event, NULL, NULL);
  }
  if (status != DIT_OK || helper->event_wait(fence->event, NULL) != DIT_OK) {
    return false;
  }
  atomic_store_explicit(&fence->passed, queued, memory_order_release);
  return true;
}

bool capture_memory_wait(void *context) {
  const struct capture_memory *memory = context;
  if (!memory->pending) {
    return true;
  }
  if (memory->event) {
    return memory->helper->event_wait(memory->event, NULL) == DIT_OK;
  }
  struct fence *fence = &fences[memory->device];
  if (atomic_load_explicit(&fence->passed, memory_order_acquire) >= memory->ticket) {
    return true;
  }
  pthread_mutex_lock(&fence_lock);
  bool passed = atomic_load_explicit(&fence->passed, memory_order_acquire) >= memory->ticket ||
                fence_wait(fence, memory->helper, memory->device);
  pthread_mutex_unlock(&fence_lock);
  return passed;
}

void capture_memory_release(void *context) {
  struct capture_memory *memory = context;
  if (atomic_fetch_sub_explicit(&memory->references, 1, memory_order_acq_rel) > 1) {
    return;
  }
  if (memory->helper) {
    // The copy may still be under way when an item was refused: the memory must not be handed out before it is over.
    (void)capture_memory_wait(memory);
    if (memory->event) {
      event_give(memory->helper, memory->device, memory->event);
    }
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
