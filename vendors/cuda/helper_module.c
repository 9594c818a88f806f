/// The kernels as the driver knows them: loaded per device when first needed; and scratch memory per stream.
///
/// What was built is in the library: machine code for a few architectures, and PTX that the driver translates for the
/// others. Scratch memory is never given back: one block of about 1.2 MB for each stream that was ever used.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "dit/alloc.h"
#include "helper_cuda.h"

static const char *const names[CUDA_KERNELS] = {
    "helper_nonfinite", "helper_nonfinite_strided", "helper_stats", "helper_stats_strided", "helper_compare",
    "helper_hash",      "helper_hash_strided",      "helper_near",  "helper_checksum",      "helper_checksum_strided",
};

#if defined(DIT_CUDA_FATBIN)
// The files that the build made, as read-only data with a NUL behind.
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    "cuda_kernels_fatbin:\n"
    ".incbin \"" DIT_CUDA_FATBIN
    "\"\n"
    ".balign 64\n"
    "cuda_kernels_ptx:\n"
    ".incbin \"" DIT_CUDA_PTX
    "\"\n"
    ".byte 0\n"
    ".popsection\n");
extern const char cuda_kernels_fatbin[] __attribute__((visibility("hidden")));
extern const char cuda_kernels_ptx[] __attribute__((visibility("hidden")));
static const char *const image_fatbin = cuda_kernels_fatbin, *const image_ptx = cuda_kernels_ptx;
#else
static const char *const image_fatbin, *const image_ptx;
#endif

bool cuda_module_is_built(void) {
  return image_ptx != NULL;
}

// Kernels

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(void *) functions[DRIVER_MAX_DEVICES][CUDA_KERNELS];
static struct dit_error failures[DRIVER_MAX_DEVICES];  ///< why a device has no kernels

/// In the current context.
static enum dit_status load_module(void **module, struct dit_error *err) {
  char log[512] = "";
  int options[2] = {DRIVER_JIT_ERROR_LOG, DRIVER_JIT_ERROR_LOG_SIZE};
  void *values[2] = {log, (void *)(uintptr_t)sizeof log};
  if (driver.module_load(module, image_fatbin) == DRIVER_SUCCESS) {
    return DIT_OK;
  }
  int error = driver.module_load_text(module, image_ptx, 2, options, values);
  struct dit_error inner = {0};
  if (driver_check(error, "cuModuleLoadDataEx", &inner) == DIT_OK) {
    return DIT_OK;
  }
  log[sizeof log - 1] = '\0';
  return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                       "the driver takes neither the kernels' machine code nor their PTX: %s %s", inner.message, log);
}

static enum dit_status load_functions(int device, struct dit_error *err) {
  void *module = NULL, *function = NULL;
  int mode = DRIVER_CAPTURE_RELAXED;
  (void)driver.capture_exchange(&mode);
  enum dit_status status = load_module(&module, err);
  for (int i = 0; i < CUDA_KERNELS && status == DIT_OK; i++) {
    status = driver_check(driver.module_get_function(&function, module, names[i]), names[i], err);
    if (status == DIT_OK) {
      atomic_store_explicit(&functions[device][i], function, memory_order_release);
    }
  }
  (void)driver.capture_exchange(&mode);
  return status;
}

enum dit_status cuda_module_get(int device, enum cuda_kernel kernel, void **function, struct dit_error *err) {
  *function = atomic_load_explicit(&functions[device][kernel], memory_order_acquire);
  if (DIT_LIKELY(*function != NULL)) {
    return DIT_OK;
  }
  pthread_mutex_lock(&lock);
  struct dit_error *failure = &failures[device];
  if (failure->status == DIT_OK && !atomic_load(&functions[device][kernel])) {
    failure->status = load_functions(device, failure);
  }
  enum dit_status status = failure->status;
  *function = atomic_load(&functions[device][kernel]);
  pthread_mutex_unlock(&lock);
  return status == DIT_OK ? DIT_OK : dit_error_set(err, status, "%s", failure->message);
}

// Scratch

struct stream_scratch {
  struct stream_scratch *next;
  uint64_t stream;
  struct kernel_scratch *memory;  ///< on the device
};

static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream_scratch *scratches[DRIVER_MAX_DEVICES];

/// A number that no other stream of the context ever has; where the driver has none to give, the handle.
static uint64_t stream_get_id(void *stream) {
  unsigned long long id = 0;
  if (driver.stream_get_id && driver.stream_get_id(stream, &id) == DRIVER_SUCCESS) {
    return id;
  }
  // The handle 2 means another stream in every thread.
  static _Thread_local char thread;
  return (uintptr_t)stream == 2 ? (uint64_t)(uintptr_t)&thread : (uint64_t)(uintptr_t)stream;
}

static enum dit_status scratch_create(int device, void *stream, uint64_t id, struct stream_scratch **out,
                                      struct dit_error *err) {
  driver_pointer memory = 0;
  struct stream_scratch *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to keep track of scratch memory");
  }
  enum dit_status status = cuda_memory_allocate(sizeof(struct kernel_scratch), stream, &memory, err);
  if (status != DIT_OK) {
    dit_free(fresh);
    return status;
  }
  *fresh = (struct stream_scratch){scratches[device], id, (struct kernel_scratch *)(uintptr_t)memory};
  scratches[device] = fresh;
  *out = fresh;
  return DIT_OK;
}

enum dit_status cuda_scratch_get(int device, void *stream, struct kernel_scratch **scratch, struct dit_error *err) {
  uint64_t id = stream_get_id(stream);
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&scratch_lock);
  struct stream_scratch *found = scratches[device];
  while (found && found->stream != id) {
    found = found->next;
  }
  if (!found) {
    status = scratch_create(device, stream, id, &found, err);
  }
  if (status == DIT_OK) {
    *scratch = found->memory;
  }
  pthread_mutex_unlock(&scratch_lock);
  return status;
}
