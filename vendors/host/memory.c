/// Memory of the embedded accelerator: device blocks with a limit per device, and pinned host blocks.
///
/// Blocks of 1 MiB and more are anonymous mappings (transparent huge pages are advised from 4 MiB, where the mapping
/// starts on a huge page), smaller ones come from aligned_alloc. A hash table address -> block makes frees checkable
/// and accounting exact. Invariant: used[d] is the sum of the sizes of device d's blocks in the table and never exceeds
/// the limit that was in force at allocation. Blocks themselves do not go through the allocation seam (it has no
/// alignment); the table's nodes do. Depends on properties.c, status.c, libdit's core.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "host_internal.h"

#define MAPPED_FROM ((size_t)1 << 20)
#define HUGE_FROM ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define DEVICE_ALIGNMENT ((size_t)512)
#define PINNED_ALIGNMENT ((size_t)64)
#define PINNED (-1)

struct block {
  struct block *next;
  void *address;
  size_t size;
  int device;  // PINNED or an index
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block **buckets;
static size_t bucket_count, block_count;
static uint64_t used[DIT_MAX_DEVICES];
static uint64_t limit;
static bool limit_chosen;

void host_memory_init(void) {
  bool chosen;
  uint64_t value = host_memory_limit(&chosen);
  pthread_mutex_lock(&lock);
  limit = value;
  limit_chosen = chosen;
  host_status_init(limit);
  pthread_mutex_unlock(&lock);
}

uint64_t host_memory_get_total(void) {
  pthread_mutex_lock(&lock);
  uint64_t total = limit;
  pthread_mutex_unlock(&lock);
  return total;
}

enum dit_status host_get_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  (void)err;
  pthread_mutex_lock(&lock);
  uint64_t total = limit;
  uint64_t unused = limit > used[device] ? limit - used[device] : 0;
  bool chosen = limit_chosen;
  pthread_mutex_unlock(&lock);
  // Without a size of its own the device is the machine's memory, which other processes use too.
  uint64_t available = chosen ? UINT64_MAX : host_memory_available();
  out->total = total;
  out->free = unused < available ? unused : available;
  return DIT_OK;
}

// The table, with the lock held

static size_t hash_address(const void *address, size_t count) {
  uint64_t key = (uint64_t)(uintptr_t)address >> 6;
  return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (count - 1);
}

// Make room for one more block; the table keeps its old size when it cannot grow, and fails only when it is not there
// at all.
static bool table_reserve(void) {
  if (block_count < bucket_count) {
    return true;
  }
  size_t count = bucket_count ? 2 * bucket_count : 64;
  struct block **grown = dit_calloc(count, sizeof *grown);
  if (!grown) {
    return bucket_count > 0;
  }
  for (size_t i = 0; i < bucket_count; i++) {
    while (buckets[i]) {
      struct block *block = buckets[i];
      buckets[i] = block->next;
      size_t slot = hash_address(block->address, count);
      block->next = grown[slot];
      grown[slot] = block;
    }
  }
  dit_free(buckets);
  buckets = grown;
  bucket_count = count;
  return true;
}

static void table_insert(struct block *block) {
  size_t slot = hash_address(block->address, bucket_count);
  block->next = buckets[slot];
  buckets[slot] = block;
  block_count++;
}

static struct block *table_remove(const void *address, int device) {
  if (bucket_count == 0) {
    return NULL;
  }
  struct block **link = &buckets[hash_address(address, bucket_count)];
  while (*link && ((*link)->address != address || (*link)->device != device)) {
    link = &(*link)->next;
  }
  struct block *block = *link;
  if (block) {
    *link = block->next;
    block_count--;
  }
  if (block_count == 0) {
    dit_free(buckets);
    buckets = NULL;
    bucket_count = 0;
  }
  return block;
}

// Pages

// `size` is a multiple of the page size.
static void *map_pages(size_t size) {
  size_t slack = size >= HUGE_FROM ? HUGE_PAGE : 0;
  if (size > SIZE_MAX - slack) {
    return NULL;
  }
  char *start = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return NULL;
  }
  if (slack > 0) {
    size_t head = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0) {
      munmap(start, head);
    }
    if (slack > head) {
      munmap(start + head + size, slack - head);
    }
    start += head;
    madvise(start, size, MADV_HUGEPAGE);  // advice: refused where the kernel has no huge pages
  }
  return start;
}

static size_t round_up(size_t size, size_t step) {
  return (size + step - 1) / step * step;
}

// The size a block really takes; 0 when it cannot exist.
static size_t block_size(size_t size, size_t alignment) {
  size_t step = size >= MAPPED_FROM ? (size_t)sysconf(_SC_PAGESIZE) : alignment;
  return size > SIZE_MAX / 2 ? 0 : round_up(size, step);
}

static void *take_pages(size_t size, size_t alignment) {
  return size >= MAPPED_FROM ? map_pages(size) : aligned_alloc(alignment, size);
}

static void give_pages(void *address, size_t size) {
  if (size >= MAPPED_FROM) {
    munmap(address, size);
  } else {
    free(address);
  }
}

// Blocks

static void add_used(int device, uint64_t bytes) {
  used[device] += bytes;
  host_status_set_used(device, used[device]);
}

static void subtract_used(int device, uint64_t bytes) {
  used[device] -= bytes;
  host_status_set_used(device, used[device]);
}

// Book `size` bytes on the device (pinned memory has no limit of its own).
static enum dit_status book(int device, size_t asked, size_t size, struct dit_error *err) {
  pthread_mutex_lock(&lock);
  bool fits = device == PINNED || (size > 0 && used[device] <= limit && size <= limit - used[device]);
  uint64_t total = limit, taken = device == PINNED ? 0 : used[device];
  if (fits && device != PINNED) {
    add_used(device, size);
  }
  pthread_mutex_unlock(&lock);
  if (!fits) {
    return dit_error_set(
        err, DIT_ERR_NOMEM,
        "host device %d: %zu bytes asked for, %llu of %llu are in use; DITORCH_HOST_MEMORY sets the size", device,
        asked, (unsigned long long)taken, (unsigned long long)total);
  }
  return DIT_OK;
}

static void unbook(int device, size_t size) {
  if (device != PINNED) {
    pthread_mutex_lock(&lock);
    subtract_used(device, size);
    pthread_mutex_unlock(&lock);
  }
}

static enum dit_status block_alloc(int device, size_t asked, size_t alignment, void **ptr, struct dit_error *err) {
  if (asked == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  size_t size = block_size(asked, alignment);
  DIT_RETURN_IF_NOT_OK(book(device, asked, size, err));
  struct block *block = dit_malloc(sizeof *block);
  void *address = block && size > 0 ? take_pages(size, alignment) : NULL;
  bool stored = false;
  if (address) {
    *block = (struct block){.address = address, .size = size, .device = device};
    pthread_mutex_lock(&lock);
    stored = table_reserve();
    if (stored) {
      table_insert(block);
    }
    pthread_mutex_unlock(&lock);
  }
  if (!stored) {
    if (address) {
      give_pages(address, size);
    }
    dit_free(block);
    unbook(device, size);
    return dit_error_set(err, DIT_ERR_NOMEM, "the operating system gave no memory for %zu bytes of %s memory", asked,
                         device == PINNED ? "pinned host" : "host device");
  }
  *ptr = address;
  return DIT_OK;
}

static enum dit_status block_free(int device, void *address, struct dit_error *err) {
  if (!address) {
    return DIT_OK;
  }
  pthread_mutex_lock(&lock);
  struct block *block = table_remove(address, device);
  if (block && device != PINNED) {
    subtract_used(device, block->size);
  }
  pthread_mutex_unlock(&lock);
  if (!block) {
    if (device == PINNED) {
      return dit_error_set(err, DIT_ERR_INVALID, "%p is not the start of a live pinned host block", address);
    }
    return dit_error_set(err, DIT_ERR_INVALID, "%p is not the start of a live block of host device %d", address,
                         device);
  }
  host_share_forget(block->address);
  give_pages(block->address, block->size);
  dit_free(block);
  return DIT_OK;
}

bool host_memory_find(int device, const void *ptr, void **base, size_t *size, bool *mapped) {
  const struct block *found = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < bucket_count && !found; i++) {
    for (const struct block *block = buckets[i]; block && !found; block = block->next) {
      uintptr_t offset = (uintptr_t)ptr - (uintptr_t)block->address;
      found = block->device == device && offset < block->size ? block : NULL;
    }
  }
  if (found) {
    *base = found->address;
    *size = found->size;
    *mapped = found->size >= MAPPED_FROM;
  }
  pthread_mutex_unlock(&lock);
  return found != NULL;
}

enum dit_status host_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  return block_alloc(device, size, DEVICE_ALIGNMENT, ptr, err);
}

enum dit_status host_memory_free(int device, void *ptr, struct dit_error *err) {
  return block_free(device, ptr, err);
}

enum dit_status host_pinned_alloc(size_t size, void **ptr, struct dit_error *err) {
  return block_alloc(PINNED, size, PINNED_ALIGNMENT, ptr, err);
}

enum dit_status host_pinned_free(void *ptr, struct dit_error *err) {
  return block_free(PINNED, ptr, err);
}
