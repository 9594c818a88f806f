/// Shared by the tests of src/device: start with fresh options, a gate that holds a stream back, device memory.
#ifndef DIT_TESTS_DEVICE_TEST_H
#define DIT_TESTS_DEVICE_TEST_H

#include <pthread.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/dit.h"

/// Shut down, set options ("name", "text", ..., NULL) over the defaults, start the host vendor.
static inline void start_host(const char *const *options) {
  struct dit_error err = {0};
  dit_runtime_shutdown();
  dit_options_reset();
  for (; options && options[0]; options += 2) {
    CHECK_OK(dit_option_set(options[0], options[1], &err));
  }
  CHECK_OK(dit_runtime_init("host", &err));
}

/// A host function that waits until it is opened: work behind it is certainly pending.
struct gate {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool open, reached;
};
#define GATE_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false}

static inline void gate_wait(void *context) {
  struct gate *gate = context;
  pthread_mutex_lock(&gate->lock);
  gate->reached = true;
  pthread_cond_broadcast(&gate->changed);
  while (!gate->open) {
    pthread_cond_wait(&gate->changed, &gate->lock);
  }
  pthread_mutex_unlock(&gate->lock);
}

static inline void gate_open(struct gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->open = true;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
}

/// Until the stream stands at the gate.
static inline void gate_await(struct gate *gate) {
  pthread_mutex_lock(&gate->lock);
  while (!gate->reached) {
    pthread_cond_wait(&gate->changed, &gate->lock);
  }
  pthread_mutex_unlock(&gate->lock);
}

/// Device memory straight from the vendor.
static inline void *take_memory(int device, size_t size) {
  struct dit_error err = {0};
  void *ptr = NULL;
  CHECK_OK(dit_runtime_get_vtable()->memory_alloc(device, size, &ptr, &err));
  return ptr;
}

static inline void give_memory(int device, void *ptr) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_get_vtable()->memory_free(device, ptr, &err));
}

#endif
