/// Finding the CUDA driver, its errors in words, contexts (see driver.h).
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

struct driver driver;

/// Primary contexts, retained for the life of the process.
static _Atomic(void *) contexts[DRIVER_MAX_DEVICES];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

struct symbol {
  const char *name;
  size_t offset;
  bool optional;
};

static const struct symbol symbols[] = {
#define DRIVER_SYMBOL(field, name, parameters) {#name, offsetof(struct driver, field), false},
    DRIVER_FUNCTIONS(DRIVER_SYMBOL)
#undef DRIVER_SYMBOL
#define DRIVER_SYMBOL(field, name, parameters) {#name, offsetof(struct driver, field), true},
        DRIVER_DEVICE(DRIVER_SYMBOL) DRIVER_OPTIONAL(DRIVER_SYMBOL)
#undef DRIVER_SYMBOL
};

static enum dit_status find_symbols(void *handle, struct dit_error *err) {
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
    void *address = dlsym(handle, symbols[i].name);
    if (!address && !symbols[i].optional) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                           "the CUDA driver libcuda.so.1 lacks %s; install a driver for CUDA 11.0 or later",
                           symbols[i].name);
    }
    memcpy((char *)&driver + symbols[i].offset, &address, sizeof address);
  }
  return DIT_OK;
}

enum dit_status driver_load(struct dit_error *err) {
  void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *text = dlerror();
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "no CUDA driver on this machine: %s",
                         text ? text : "libcuda.so.1 cannot be loaded");
  }
  DIT_RETURN_IF_NOT_OK(find_symbols(handle, err));
  int error = driver.init(0);
  if (error == DRIVER_SUCCESS) {
    error = driver.device_get_count(&driver.device_count);
  }
  if (error != DRIVER_SUCCESS) {
    struct dit_error inner = {0};
    (void)!driver_check(error, "cuInit", &inner);
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the CUDA driver does not start: %s", inner.message);
  }
  if (driver.device_count == 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the CUDA driver sees no device (is CUDA_VISIBLE_DEVICES empty?)");
  }
  return DIT_OK;
}

enum dit_status driver_require_device(struct dit_error *err) {
  static const struct symbol needed[] = {
#define DRIVER_SYMBOL(field, name, parameters) {#name, offsetof(struct driver, field), false},
      DRIVER_DEVICE(DRIVER_SYMBOL)
#undef DRIVER_SYMBOL
  };
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
    void *address;
    memcpy(&address, (char *)&driver + needed[i].offset, sizeof address);
    if (!address) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                           "the CUDA driver libcuda.so.1 lacks %s; install a driver for CUDA 11.0 or later",
                           needed[i].name);
    }
  }
  return DIT_OK;
}

enum dit_status driver_check(int error, const char *what, struct dit_error *err) {
  const char *name = NULL, *text = NULL;
  if (error == DRIVER_SUCCESS) {
    return DIT_OK;
  }
  (void)driver.get_error_name(error, &name);
  (void)driver.get_error_string(error, &text);
  return dit_error_set(err, error == DRIVER_OUT_OF_MEMORY ? DIT_ERR_NOMEM : DIT_ERR_DEVICE, "CUDA: %s: %s (%d): %s",
                       what, name ? name : "error", error, text ? text : "no description");
}

enum dit_status context_find(int device, void **context, struct dit_error *err) {
  if (device < 0 || device >= driver.device_count || device >= DRIVER_MAX_DEVICES) {
    return dit_error_set(err, DIT_ERR_INVALID, "CUDA device %d; valid: 0 to %d", device, driver.device_count - 1);
  }
  *context = atomic_load_explicit(&contexts[device], memory_order_acquire);
  if (*context) {
    return DIT_OK;
  }
  int handle = 0;
  pthread_mutex_lock(&contexts_lock);
  *context = atomic_load(&contexts[device]);
  int error = *context ? DRIVER_SUCCESS : driver.device_get(&handle, device);
  if (!*context && error == DRIVER_SUCCESS) {
    error = driver.context_retain(context, handle);
    if (error == DRIVER_SUCCESS) {
      atomic_store_explicit(&contexts[device], *context, memory_order_release);
    }
  }
  pthread_mutex_unlock(&contexts_lock);
  return driver_check(error, "cuDevicePrimaryCtxRetain", err);
}

void context_forget(int device) {
  int handle = 0;
  pthread_mutex_lock(&contexts_lock);
  if (atomic_exchange(&contexts[device], NULL) && driver.device_get(&handle, device) == DRIVER_SUCCESS) {
    (void)driver.context_release(handle);
  }
  pthread_mutex_unlock(&contexts_lock);
}

static enum dit_status enter(struct context_guard *guard, void *context, void *current, struct dit_error *err) {
  guard->context = NULL;
  if (context == current) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(driver_check(driver.context_push(context), "cuCtxPushCurrent", err));
  guard->context = context;
  return DIT_OK;
}

enum dit_status context_enter(struct context_guard *guard, int device, struct dit_error *err) {
  void *context = NULL, *current = NULL;
  DIT_RETURN_IF_NOT_OK(context_find(device, &context, err));
  DIT_RETURN_IF_NOT_OK(driver_check(driver.context_get(&current), "cuCtxGetCurrent", err));
  return enter(guard, context, current, err);
}

enum dit_status context_enter_any(struct context_guard *guard, struct dit_error *err) {
  void *context = NULL, *current = NULL;
  DIT_RETURN_IF_NOT_OK(driver_check(driver.context_get(&current), "cuCtxGetCurrent", err));
  if (current) {
    return enter(guard, current, current, err);
  }
  for (int device = 0; device < DRIVER_MAX_DEVICES && !context; device++) {
    context = atomic_load(&contexts[device]);
  }
  if (!context) {
    DIT_RETURN_IF_NOT_OK(context_find(0, &context, err));
  }
  return enter(guard, context, current, err);
}

void context_leave(const struct context_guard *guard) {
  void *popped;
  if (guard->context) {
    (void)driver.context_pop(&popped);
  }
}

enum dit_status stream_check(void *stream, struct dit_error *err) {
  int status = 0;
  int error = driver.stream_is_capturing(stream, &status);
  if (error == DRIVER_SUCCESS && status == 0) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                       "the stream is being captured into a CUDA graph; events and numbers are not taken there");
}
