/// The cache of staging blocks (see pool.h). Compiled into libdit and into libdit_cuda, each with its own pool.
#include "helper/pool.h"

#include <stdbool.h>
#include <stdint.h>

#define SMALLEST_CLASS 12

struct pool_block {
  struct pool_block *next;
  int power;
};

_Static_assert(sizeof(struct pool_block) <= POOL_HEADER, "the header of a block is too small");

static int get_power(size_t size) {
  int power = SMALLEST_CLASS;
  while (((size_t)1 << power) < size) {
    power++;
  }
  return power;
}

enum dit_status pool_take(struct pool *pool, size_t size, void **memory, struct dit_error *err) {
  if (size > ((size_t)1 << (POOL_CLASSES - 1)) - POOL_HEADER) {
    return dit_error_set(err, DIT_ERR_NOMEM, "staging memory: %zu bytes asked for, more than a machine has", size);
  }
  int power = get_power(size + POOL_HEADER);
  pthread_mutex_lock(&pool->lock);
  struct pool_block *block = pool->unused[power];
  if (block) {
    pool->unused[power] = block->next;
    pool->kept -= (size_t)1 << power;
  }
  pthread_mutex_unlock(&pool->lock);
  if (!block) {
    void *fresh = NULL;
    enum dit_status status = pool->allocate((size_t)1 << power, &fresh, err);
    if (status == DIT_ERR_NOMEM) {
      pool_trim(pool);
      status = pool->allocate((size_t)1 << power, &fresh, err);
    }
    DIT_RETURN_IF_NOT_OK(status);
    block = fresh;
    block->power = power;
  }
  block->next = NULL;
  *memory = (char *)block + POOL_HEADER;
  return DIT_OK;
}

void pool_give(struct pool *pool, void *memory) {
  if (!memory) {
    return;
  }
  struct pool_block *block = (struct pool_block *)(void *)((char *)memory - POOL_HEADER);
  size_t size = (size_t)1 << block->power;
  pthread_mutex_lock(&pool->lock);
  bool keep = size <= pool->limit - pool->kept;
  if (keep) {
    block->next = pool->unused[block->power];
    pool->unused[block->power] = block;
    pool->kept += size;
  }
  pthread_mutex_unlock(&pool->lock);
  if (!keep) {
    pool->release(block);
  }
}

void pool_trim(struct pool *pool) {
  for (int power = 0; power < POOL_CLASSES; power++) {
    pthread_mutex_lock(&pool->lock);
    struct pool_block *block = pool->unused[power];
    pool->unused[power] = NULL;
    for (const struct pool_block *at = block; at; at = at->next) {
      pool->kept -= (size_t)1 << power;
    }
    pthread_mutex_unlock(&pool->lock);
    while (block) {
      struct pool_block *next = block->next;
      pool->release(block);
      block = next;
    }
  }
}
