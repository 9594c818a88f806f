/// Life of an allocator: init, configuration, reset.
///
/// Invariant: between init and reset the allocator is open; reset waits for operations that left the lock half-way. The
/// lock object outlives reset so that a late free on another thread finds it. Depends on: allocator_pool,
/// allocator_segment.
#include <string.h>

#include "device/allocator_impl.h"
#include "dit/alloc.h"
#include "dit/log.h"

static void set_fraction(struct dit_allocator *a, double fraction, bool from_config) {
  a->fraction = fraction;
  a->fraction_from_config = from_config;
  bool limited = fraction < 1.0 && a->total_memory > 0;
  a->limit = limited ? (uint64_t)(fraction * (double)a->total_memory) : UINT64_MAX;
}

// Critical sections last tens of nanoseconds: spinning for a moment beats sleeping when two threads meet.
static int init_lock(pthread_mutex_t *lock) {
  pthread_mutexattr_t attributes;
  int code = pthread_mutexattr_init(&attributes);
  if (code != 0) {
    return code;
  }
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
  code = pthread_mutex_init(lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return code;
}

enum dit_status dit_allocator_init(struct dit_allocator *a, int device, const struct dit_allocator_vtable *vtable,
                                   void *context, struct dit_error *err) {
  struct dit_device_memory memory = {0};
  DIT_RETURN_IF_NOT_OK(vtable->get_memory(context, &memory, err));
  if (!a->prepared) {
    if (init_lock(&a->lock) != 0 || pthread_cond_init(&a->changed, NULL) != 0) {
      return dit_error_set(err, DIT_ERR_NOMEM, "device %d: the system has no resources for another lock", device);
    }
    a->prepared = true;
  }
  pthread_mutex_lock(&a->lock);
  a->device = device;
  a->vtable = vtable;
  a->context = context;
  a->total_memory = memory.total;
  dit_allocator_config_init(&a->config);
  a->algorithm = dit_algorithm_get_vtable(a->config.algorithm);
  a->bf_step = DIT_BF_FIRST_STEP;
  set_fraction(a, 1.0, false);
  a->open = true;
  pthread_mutex_unlock(&a->lock);
  return DIT_OK;
}

static void recycle_uses(struct dit_allocator *a, struct dit_allocator_use *uses) {
  while (uses) {
    struct dit_allocator_use *use = uses;
    uses = use->next;
    dit_allocator_use_put(a, use);
  }
}

static void drop_segment(struct dit_allocator *a, struct dit_allocator_segment *segment) {
  struct dit_error err = {0};
  dit_allocator_map_remove(segment);
  for (struct dit_allocator_block *block = segment->first; block; block = block->next) {
    recycle_uses(a, block->uses);
  }
  if (a->vtable->memory_free(a->context, segment->address, segment->size, &err) != DIT_OK) {
    dit_log_write(DIT_LOG_DEBUG, "device %d: giving %zu bytes back failed: %s", a->device, segment->size, err.message);
  }
  dit_free(segment);
}

void dit_allocator_reset(struct dit_allocator *a) {
  if (!a->prepared) {
    return;
  }
  pthread_mutex_lock(&a->lock);
  bool open = a->open;
  a->open = false;
  while (a->busy > 0) {
    pthread_cond_wait(&a->changed, &a->lock);
  }
  pthread_mutex_unlock(&a->lock);
  if (!open) {
    return;
  }
  enum dit_status ignored = a->vtable->synchronize(a->context, NULL);
  (void)ignored;  // a device that fails to drain goes away all the same
  pthread_mutex_lock(&a->lock);
  dit_allocator_segment_flush(a);
  for (struct dit_allocator_slot *slot = a->slots; slot; slot = slot->next) {
    recycle_uses(a, slot->queue_head);
  }
  while (a->segments) {
    struct dit_allocator_segment *segment = a->segments;
    a->segments = segment->next;
    drop_segment(a, segment);
  }
  dit_allocator_pool_reset(a);
  a->pending = 0;
  a->taken = 0;
  a->large_calls = 0;
  a->bf_step = DIT_BF_FIRST_STEP;
  memset(&a->stats, 0, sizeof(a->stats));
  pthread_mutex_unlock(&a->lock);
}

enum dit_status dit_allocator_create(int device, const struct dit_allocator_vtable *vtable, void *context,
                                     struct dit_allocator **out, struct dit_error *err) {
  struct dit_allocator *a = dit_calloc(1, sizeof(*a));
  if (!a) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while creating the allocator of device %d", device);
  }
  enum dit_status status = dit_allocator_init(a, device, vtable, context, err);
  if (status != DIT_OK) {
    dit_free(a);
    return status;
  }
  *out = a;
  return DIT_OK;
}

void dit_allocator_destroy(struct dit_allocator *a) {
  if (a) {
    dit_allocator_reset(a);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    dit_free(a);
  }
}

void dit_allocator_set_config(struct dit_allocator *a, const struct dit_allocator_config *config) {
  pthread_mutex_lock(&a->lock);
  a->config = *config;
  a->algorithm = dit_algorithm_get_vtable(config->algorithm);
  if (config->fraction > 0) {
    set_fraction(a, config->fraction, true);
  } else if (a->fraction_from_config) {
    set_fraction(a, 1.0, false);
  }
  pthread_mutex_unlock(&a->lock);
}

void dit_allocator_set_fraction(struct dit_allocator *a, double fraction) {
  pthread_mutex_lock(&a->lock);
  set_fraction(a, fraction, false);
  pthread_mutex_unlock(&a->lock);
}

double dit_allocator_get_fraction(struct dit_allocator *a) {
  pthread_mutex_lock(&a->lock);
  double fraction = a->fraction;
  pthread_mutex_unlock(&a->lock);
  return fraction;
}
