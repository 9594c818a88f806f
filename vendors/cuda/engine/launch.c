/// Modules, functions, launches (see launch.h). A module is loaded on a device when its first kernel is asked for.
#include "launch.h"

#include <pthread.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/diopi.h"
#include "dit/options.h"
#include "dit/runtime.h"
#include "driver.h"
#include "list.h"
#include "modules.h"

#define MODULES_MAX 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dit_error load_failure;
static int multiprocessors[DRIVER_MAX_DEVICES], shared_limits[DRIVER_MAX_DEVICES];

static void load_driver(void) {
  load_failure.status = driver_load(&load_failure);
  if (load_failure.status == DIT_OK) {
    load_failure.status = driver_require_device(&load_failure);
  }
  for (int i = 0; load_failure.status == DIT_OK && i < driver.device_count && i < DRIVER_MAX_DEVICES; i++) {
    int handle = 0;
    if (driver.device_get(&handle, i) != DRIVER_SUCCESS ||
        driver.device_get_attribute(&multiprocessors[i], DRIVER_MULTIPROCESSORS, handle) != DRIVER_SUCCESS) {
      multiprocessors[i] = 1;
    }
    if (driver.device_get_attribute(&shared_limits[i], DRIVER_SHARED_OPTIN, handle) != DRIVER_SUCCESS) {
      shared_limits[i] = 0;
    }
  }
}

enum dit_status launch_check(struct dit_error *err) {
  pthread_once(&once, load_driver);
  if (DIT_LIKELY(load_failure.status == DIT_OK)) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_DEVICE, "%s", load_failure.message);
}

static int get_device(void) {
  const int device = dit_device_get_current();
  return device >= 0 && device < DRIVER_MAX_DEVICES ? device : 0;
}

// Modules

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static void *modules[MODULES_MAX][DRIVER_MAX_DEVICES];

/// In the current context, with the lock held.
static enum dit_status load_module(int index, int device, struct dit_error *err) {
  char log[512] = "";
  int options[2] = {DRIVER_JIT_ERROR_LOG, DRIVER_JIT_ERROR_LOG_SIZE};
  void *values[2] = {log, (void *)(uintptr_t)sizeof log};
  const int error = driver.module_load_text(&modules[index][device], cuda_modules[index].image, 2, options, values);
  struct dit_error inner = {.message = ""};
  if (driver_check(error, "cuModuleLoadDataEx", &inner) == DIT_OK) {
    return DIT_OK;
  }
  modules[index][device] = NULL;
  log[sizeof log - 1] = '\0';
  return dit_error_set(err, DIT_ERR_DEVICE, "the kernels of '%s' cannot be loaded%s: %s %s", cuda_modules[index].name,
                       CUDA_MODULES_BUILT ? "" : " (this library was built without nvcc)", inner.message, log);
}

static enum dit_status find_function(const struct kernel *kernel, int device, void **function, struct dit_error *err) {
  int index = 0;
  while (cuda_modules[index].name && strcmp(cuda_modules[index].name, kernel->module) != 0) {
    index++;
  }
  if (!cuda_modules[index].name || index >= MODULES_MAX) {
    return dit_error_set(err, DIT_ERR_INTERNAL, "no kernel file '%s'", kernel->module);
  }
  pthread_mutex_lock(&modules_lock);
  enum dit_status status = modules[index][device] ? DIT_OK : load_module(index, device, err);
  if (status == DIT_OK) {
    status =
        driver_check(driver.module_get_function(function, modules[index][device], kernel->name), kernel->name, err);
  }
  pthread_mutex_unlock(&modules_lock);
  return status;
}

static enum dit_status get_function(struct kernel *kernel, int device, void **function, struct dit_error *err) {
  if (DIT_LIKELY(device < KERNEL_DEVICES)) {
    *function = atomic_load_explicit(&kernel->functions[device], memory_order_acquire);
    if (DIT_LIKELY(*function != NULL)) {
      return DIT_OK;
    }
  }
  DIT_RETURN_IF_NOT_OK(find_function(kernel, device, function, err));
  if (device < KERNEL_DEVICES) {
    atomic_store_explicit(&kernel->functions[device], *function, memory_order_release);
  }
  return DIT_OK;
}

// Launches

#define SHARED_WITHOUT_ASKING ((size_t)48 << 10)

enum dit_status kernel_launch(struct kernel *kernel, void *stream, struct kernel_grid grid, const void *parameter,
                              struct dit_error *err) {
  const int device = get_device();
  struct context_guard guard;
  void *function = NULL, *parameters[1] = {(void *)parameter};
  DIT_RETURN_IF_NOT_OK(list_flush(err));
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, device, err));
  enum dit_status status = get_function(kernel, device, &function, err);
  if (status == DIT_OK && grid.shared > SHARED_WITHOUT_ASKING) {
    status =
        driver_check(driver.function_set_attribute(function, DRIVER_SHARED_LIMIT, (int)grid.shared), kernel->name, err);
  }
  if (status == DIT_OK) {
    status = driver_check(driver.launch(function, grid.x, grid.y ? grid.y : 1, grid.z ? grid.z : 1, grid.threads, 1, 1,
                                        (unsigned)grid.shared, stream, parameters, NULL),
                          kernel->name, err);
  }
  context_leave(&guard);
  return status;
}

int kernel_get_multiprocessors(void) {
  pthread_once(&once, load_driver);
  const int count = multiprocessors[get_device()];
  return count > 0 ? count : 1;
}

size_t kernel_get_shared_limit(void) {
  pthread_once(&once, load_driver);
  const int limit = shared_limits[get_device()];
  return limit > (int)SHARED_WITHOUT_ASKING ? (size_t)limit : SHARED_WITHOUT_ASKING;
}

unsigned kernel_get_blocks(int64_t count, int64_t per_block) {
  const int64_t wanted = (count + per_block - 1) / per_block, most = (int64_t)kernel_get_multiprocessors() * 16;
  return (unsigned)(wanted < 1 ? 1 : wanted > most ? most : wanted);
}

enum dit_status launch_write(void *stream, void *to, const void *host, size_t size, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, get_device(), err));
  const int error = driver.copy_to_device((driver_pointer)(uintptr_t)to, host, size, stream);
  context_leave(&guard);
  return driver_check(error, "cuMemcpyHtoDAsync", err);
}

enum dit_status launch_copy(void *stream, void *to, const void *from, size_t size, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(list_flush(err));
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, get_device(), err));
  const int error = driver.copy_on_device((driver_pointer)(uintptr_t)to, (driver_pointer)(uintptr_t)from, size, stream);
  context_leave(&guard);
  return driver_check(error, "cuMemcpyDtoDAsync", err);
}

enum dit_status launch_set(void *stream, void *memory, int value, size_t size, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(list_flush(err));
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, get_device(), err));
  const int error = driver.memory_set((driver_pointer)(uintptr_t)memory, (unsigned char)value, size, stream);
  context_leave(&guard);
  return driver_check(error, "cuMemsetD8Async", err);
}

enum dit_status launch_read(void *stream, void *host, const void *memory, size_t size, struct dit_error *err) {
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(list_flush(err));
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, get_device(), err));
  int error = driver.copy_to_host(host, (driver_pointer)(uintptr_t)memory, size, stream);
  if (error == DRIVER_SUCCESS) {
    error = driver.stream_synchronize(stream);
  }
  context_leave(&guard);
  return driver_check(error, "cuMemcpyDtoHAsync", err);
}

/// Is the option on? Its number is looked up once, -2 before.
static bool is_on(const char *name, _Atomic int *option) {
  if (*option == -2) {
    *option = dit_option_find(name);
  }
  return *option >= 0 && dit_option_get_int(*option) != 0;
}

bool launch_is_checked(void) {
  static _Atomic int option = -2;
  return is_on("launch_blocking", &option);
}

bool launch_allows_tf32(void) {
  static _Atomic int option = -2;
  return is_on("cuda_tf32", &option);
}

// Scratch of streams: never given back, two megabytes for each stream that reduced something large

struct stream_scratch {
  struct stream_scratch *next;
  int device;
  void *stream;
  struct launch_scratch scratch;
};

static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream_scratch *scratches;
static pthread_mutex_t sequence_lock;  ///< recursive
static pthread_once_t sequence_once = PTHREAD_ONCE_INIT;

static void create_sequence_lock(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&sequence_lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void launch_begin_sequence(void) {
  pthread_once(&sequence_once, create_sequence_lock);
  pthread_mutex_lock(&sequence_lock);
}

void launch_end_sequence(void) {
  pthread_mutex_unlock(&sequence_lock);
}

/// With the lock held.
static enum dit_status create_scratch(int device, void *stream, struct stream_scratch **out, struct dit_error *err) {
  struct context_guard guard;
  driver_pointer memory = 0;
  const size_t bytes = LAUNCH_SCRATCH + LAUNCH_TICKETS * sizeof(uint32_t);
  struct stream_scratch *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to keep track of scratch memory");
  }
  enum dit_status status = context_enter(&guard, device, err);
  if (status == DIT_OK) {
    status = driver_check(driver.memory_allocate(&memory, bytes), "cuMemAlloc", err);
    if (status == DIT_OK) {
      status = driver_check(driver.memory_set(memory, 0, bytes, stream), "cuMemsetD8Async", err);
    }
    context_leave(&guard);
  }
  if (status != DIT_OK) {
    dit_free(fresh);
    return status;
  }
  char *first = (char *)(uintptr_t)memory;
  *fresh = (struct stream_scratch){scratches, device, stream, {first, (uint32_t *)(void *)(first + LAUNCH_SCRATCH)}};
  scratches = fresh;
  *out = fresh;
  return DIT_OK;
}

enum dit_status launch_get_scratch(void *stream, struct launch_scratch *scratch, struct dit_error *err) {
  const int device = get_device();
  enum dit_status status = launch_check(err);
  DIT_RETURN_IF_NOT_OK(status);
  pthread_mutex_lock(&scratch_lock);
  struct stream_scratch *found = scratches;
  while (found && (found->stream != stream || found->device != device)) {
    found = found->next;
  }
  if (!found) {
    status = create_scratch(device, stream, &found, err);
  }
  if (status == DIT_OK) {
    *scratch = found->scratch;
  }
  pthread_mutex_unlock(&scratch_lock);
  return status;
}

void *scratch_take(struct diopiContext *context, size_t size) {
  const int64_t bytes = (int64_t)(size > 0 ? size : 1), one = 1;
  const diopiSize_t sizes = {&bytes, 1}, strides = {&one, 1};
  diopiTensorHandle_t tensor = NULL;
  void *data = NULL;
  list_suspend();
  if (diopiRequireTensor(context, &tensor, &sizes, &strides, diopi_dtype_uint8, diopi_device) != diopiSuccess ||
      diopiGetTensorData(tensor, &data) != diopiSuccess) {
    return NULL;
  }
  return data;
}
