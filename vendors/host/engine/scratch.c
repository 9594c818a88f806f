/// Kept blocks lie in a few slots, each taken and filled by one atomic operation: no lock that a fork could leave
/// behind.
#include "engine/scratch.h"

#include <stdatomic.h>
#include <stdint.h>

#include "dit/alloc.h"

#define SLOTS 16
#define SMALL ((size_t)64 << 10)
#define ALIGNMENT ((size_t)64)

struct block {
  size_t capacity;
  void *base;  ///< what malloc gave
};

static _Atomic(struct block *) slots[SLOTS];
static _Atomic size_t kept;

static struct block *get_block(void *data) {
  return (struct block *)(void *)((char *)data - ALIGNMENT);
}

static void *get_data(struct block *block) {
  return (char *)block + ALIGNMENT;
}

static struct block *block_new(size_t capacity) {
  if (capacity > SIZE_MAX - 2 * ALIGNMENT) {
    return NULL;
  }
  char *base = dit_malloc(capacity + 2 * ALIGNMENT);
  if (!base) {
    return NULL;
  }
  struct block *block = (struct block *)(void *)(base + (ALIGNMENT - (uintptr_t)base % ALIGNMENT));
  *block = (struct block){.capacity = capacity, .base = base};
  return block;
}

/// Back into a slot; without a free one, or above the limit, to the system.
static void block_keep(struct block *block) {
  const size_t size = block->capacity;
  if (size >= SMALL && atomic_fetch_add(&kept, size) + size <= SCRATCH_KEPT) {
    for (int i = 0; i < SLOTS; i++) {
      struct block *none = NULL;
      if (atomic_compare_exchange_strong(&slots[i], &none, block)) {
        return;
      }
    }
  }
  if (size >= SMALL) {
    atomic_fetch_sub(&kept, size);
  }
  dit_free(block->base);
}

void *scratch_take(size_t bytes) {
  if (bytes >= SMALL) {
    for (int i = 0; i < SLOTS; i++) {
      struct block *block =
          atomic_load_explicit(&slots[i], memory_order_relaxed) ? atomic_exchange(&slots[i], NULL) : NULL;
      if (!block) {
        continue;
      }
      atomic_fetch_sub(&kept, block->capacity);
      if (block->capacity >= bytes && block->capacity / 4 <= bytes) {
        return get_data(block);
      }
      block_keep(block);
    }
  }
  struct block *block = block_new(bytes);
  return block ? get_data(block) : NULL;
}

void scratch_give(void *data) {
  if (data) {
    block_keep(get_block(data));
  }
}

/// The library may be closed while the program goes on.
__attribute__((destructor)) static void free_kept(void) {
  for (int i = 0; i < SLOTS; i++) {
    struct block *block = atomic_exchange(&slots[i], NULL);
    if (block) {
      atomic_fetch_sub(&kept, block->capacity);
      dit_free(block->base);
    }
  }
}
