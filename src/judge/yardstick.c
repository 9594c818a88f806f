/// A table of fixed size, one place per key, behind a mutex: a lost entry costs further runs and nothing else.
#include "judge/yardstick.h"

#include <pthread.h>
#include <string.h>

#include "dit/alloc.h"

#define YARDSTICKS 4096

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

static struct yardstick *place_get(struct dit_verdict_memory *memory, uint64_t key) {
  return &memory->table[key / 2 % YARDSTICKS];
}

void yardstick_put(struct dit_verdict_memory *memory, uint64_t key, double relative, double residual) {
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
