// A two-way table of the last snapshots; see capture/reuse.h.
#include "tools/capture/reuse.h"

#define SETS 1024
#define WAYS 2

struct entry {
  uintptr_t address;
  size_t size;
  struct capture_memory *memory;  // one reference; NULL: free
  uint64_t used;
};

static struct entry table[SETS][WAYS];
static size_t table_bytes;
static uint64_t table_clock;
static int sweep;  // next set to give up when there is too much

static struct entry *set_find(uintptr_t address, size_t size) {
  uint64_t key = ((uint64_t)address ^ (uint64_t)size << 40) * UINT64_C(0x9E3779B97F4A7C15);
  return table[key >> 54];
}

static void entry_drop(struct entry *entry) {
  if (entry->memory) {
    table_bytes -= entry->size;
    capture_memory_release(entry->memory);
    entry->memory = NULL;
  }
}

struct capture_memory *capture_reuse_find(uintptr_t address, size_t size) {
  struct entry *set = set_find(address, size);
  for (int way = 0; way < WAYS; way++) {
    if (set[way].memory && set[way].address == address && set[way].size == size) {
      set[way].used = ++table_clock;
      atomic_fetch_add_explicit(&set[way].memory->references, 1, memory_order_relaxed);
      return set[way].memory;
    }
  }
  return NULL;
}

void capture_reuse_keep(uintptr_t address, size_t size, struct capture_memory *memory) {
  if (size > CAPTURE_REUSE_MOST) {
    return;
  }
  struct entry *set = set_find(address, size), *victim = &set[0];
  for (int way = 0; way < WAYS; way++) {
    if (set[way].memory && set[way].address == address && set[way].size == size) {
      victim = &set[way];
      break;
    }
    if (!set[way].memory || (victim->memory && set[way].used < victim->used)) {
      victim = &set[way];
    }
  }
  entry_drop(victim);
  while (table_bytes + size > CAPTURE_REUSE_BYTES) {
    for (int way = 0; way < WAYS; way++) {
      entry_drop(&table[sweep][way]);
    }
    sweep = (sweep + 1) % SETS;
  }
  atomic_fetch_add_explicit(&memory->references, 1, memory_order_relaxed);
  *victim = (struct entry){.address = address, .size = size, .memory = memory, .used = ++table_clock};
  table_bytes += size;
}

void capture_reuse_clear(void) {
  for (int set = 0; set < SETS; set++) {
    for (int way = 0; way < WAYS; way++) {
      entry_drop(&table[set][way]);
    }
  }
}
