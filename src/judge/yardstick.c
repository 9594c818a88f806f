/// A table of fixed size, a few places per key, behind a mutex: a lost entry costs further runs and nothing else.
#include <pthread.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/verdict.h"

#define YARDSTICKS 16384
#define PLACES 4  // neighbours where a key may be

struct yardstick {
  uint64_t key;  ///< 0: free
  double relative;
  double residual;  ///< relative to the largest number of the result
};

struct dit_verdict_memory {
  pthread_mutex_t mutex;
  struct yardstick table[YARDSTICKS];
};

enum dit_status dit_verdict_memory_create(struct dit_verdict_memory **memory, struct dit_error *err) {
  struct dit_verdict_memory *made = dit_calloc(1, sizeof *made);
  if (!made) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the yardsticks of the judge");
  }
  if (pthread_mutex_init(&made->mutex, NULL) != 0) {
    dit_free(made);
    return dit_error_set(err, DIT_ERR_INTERNAL, "cannot make the mutex of the judge's yardsticks");
  }
  *memory = made;
  return DIT_OK;
}

void dit_verdict_memory_destroy(struct dit_verdict_memory *memory) {
  if (memory) {
    (void)pthread_mutex_destroy(&memory->mutex);
    dit_free(memory);
  }
}

void dit_verdict_memory_clear(struct dit_verdict_memory *memory) {
  if (memory) {
    (void)pthread_mutex_lock(&memory->mutex);
    memset(memory->table, 0, sizeof memory->table);
    (void)pthread_mutex_unlock(&memory->mutex);
  }
}

/// Where the key is; or, for a new one, where it may go.
static struct yardstick *place_get(struct dit_verdict_memory *memory, uint64_t key) {
  struct yardstick *places = &memory->table[key / 2 % (YARDSTICKS / PLACES) * PLACES], *free_place = NULL;
  for (int i = PLACES - 1; i >= 0; i--) {
    if (places[i].key == key) {
      return &places[i];
    }
    free_place = places[i].key == 0 ? &places[i] : free_place;
  }
  return free_place ? free_place : &places[key >> 40 & (PLACES - 1)];
}

void dit_verdict_memory_put(struct dit_verdict_memory *memory, uint64_t key, double relative, double residual) {
  if (!memory || key == 0) {
    return;
  }
  (void)pthread_mutex_lock(&memory->mutex);
  *place_get(memory, key) = (struct yardstick){key, relative, residual};
  (void)pthread_mutex_unlock(&memory->mutex);
}

bool dit_verdict_memory_get(struct dit_verdict_memory *memory, uint64_t key, double *relative, double *residual) {
  if (!memory || key == 0) {
    return false;
  }
  (void)pthread_mutex_lock(&memory->mutex);
  const struct yardstick found = *place_get(memory, key);
  (void)pthread_mutex_unlock(&memory->mutex);
  if (found.key == key) {
    *relative = found.relative;
    *residual = found.residual;
  }
  return found.key == key;
}
