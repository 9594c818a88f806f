/// A CUDA driver of host memory, with the functions that vendors/cuda/driver.h asks for: device memory is
/// malloc's, a launch runs the kernel's code on the CPU (cuda_fibers.h) before it returns, contexts are checked.
///
/// The test takes `fake_cuda` to look inside and to make functions fail. Built as libcuda.so.1.
#include "fake_cuda.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "cuda_fibers.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_cuda fake_cuda = {.devices = 3};

static char contexts[FAKE_DEVICES];
static _Thread_local void *stack[8];
static _Thread_local int depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct fake_event {
  int device;
  bool recorded;
  int64_t nanoseconds;
};

struct fake_kernel {
  const char *name;
  void (*body)(const void *);
};

static const struct fake_kernel kernels[] = {
    {"helper_nonfinite", body_nonfinite}, {"helper_nonfinite_strided", body_nonfinite_strided},
    {"helper_stats", body_stats},         {"helper_stats_strided", body_stats_strided},
    {"helper_compare", body_compare},     {"helper_near", body_near},
    {"helper_checksum", body_checksum},   {"helper_checksum_strided", body_checksum_strided},
    {"helper_hash", body_hash},           {"helper_hash_strided", body_hash_strided},
};

/// The device of the current context; -1 without one.
static int current(void) {
  return depth > 0 ? (int)((char *)stack[depth - 1] - contexts) : -1;
}

/// Count the call; the error it shall answer with, CONTEXT when it needs a context and there is none.
static int begin(const char *function, bool needs_context) {
  fake_cuda.calls++;
  const char *failing = fake_cuda.failing;
  if (failing && (strcmp(failing, function) == 0 || (fake_cuda.prefix && strstr(function, failing) == function))) {
    return fake_cuda.error;
  }
  return needs_context && current() < 0 ? 201 : 0;
}

EXPORT int cuInit(unsigned flags);
int cuInit(unsigned flags) {
  (void)flags;
  return begin("cuInit", false);
}

EXPORT int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
  *version = 12040;
  return 0;
}

EXPORT int cuGetErrorName(int error, const char **text);
int cuGetErrorName(int error, const char **text) {
  (void)error;
  *text = "CUDA_ERROR_FAKE";
  return 0;
}

EXPORT int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text) {
  (void)error;
  *text = "made up";
  return 0;
}

EXPORT int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count) {
  *count = fake_cuda.devices;
  return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device) {
  int error = begin("cuDevicePrimaryCtxRetain", false);
  *context = error ? NULL : &contexts[device];
  return error;
}

EXPORT int cuCtxGetCurrent(void **context);
int cuCtxGetCurrent(void **context) {
  *context = depth > 0 ? stack[depth - 1] : NULL;
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(void *context);
int cuCtxPushCurrent_v2(void *context) {
  stack[depth++] = context;
  return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **context);
int cuCtxPopCurrent_v2(void **context) {
  *context = stack[--depth];
  return 0;
}

EXPORT int cuModuleLoadData(void **module, const void *image);
int cuModuleLoadData(void **module, const void *image) {
  (void)image;
  *module = &fake_cuda;
  return begin("cuModuleLoadData", true);
}

EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values);
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  (void)count;
  (void)options;
  (void)values;
  *module = &fake_cuda;
  fake_cuda.text_loads += strstr(image, ".version 7.8") != NULL;
  return begin("cuModuleLoadDataEx", true);
}

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
    if (strcmp(kernels[i].name, name) == 0) {
      *function = (void *)(uintptr_t)&kernels[i];
      return begin("cuModuleGetFunction", true);
    }
  }
  return 500;
}

EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                          void **extra);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
  (void)stream;
  int error = begin("cuLaunchKernel", true);
  if (error || grid_z != 1 || block_x != 256 || block_y != 1 || block_z != 1 || shared || extra) {
    return error ? error : 1;
  }
  pthread_mutex_lock(&lock);
  const struct fake_kernel *kernel = function;
  fake_cuda.launches++;
  run_grid(kernel->body, parameters[0], grid_x, grid_y);
  pthread_mutex_unlock(&lock);
  return 0;
}

EXPORT int cuEventCreate(void **event, unsigned flags);
int cuEventCreate(void **event, unsigned flags) {
  int error = begin("cuEventCreate", true);
  if (error || flags != 0) {
    return error ? error : 1;
  }
  struct fake_event *fresh = calloc(1, sizeof *fresh);
  fresh->device = current();
  fake_cuda.events++;
  *event = fresh;
  return 0;
}

EXPORT int cuEventDestroy_v2(void *event);
int cuEventDestroy_v2(void *event) {
  fake_cuda.events--;
  free(event);
  return 0;
}

EXPORT int cuEventRecord(void *handle, void *stream);
int cuEventRecord(void *handle, void *stream) {
  struct fake_event *event = handle;
  struct timespec time;
  (void)stream;
  int error = begin("cuEventRecord", true);
  if (error || current() != event->device) {
    return error ? error : 400;
  }
  clock_gettime(CLOCK_MONOTONIC, &time);
  event->nanoseconds = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
  event->recorded = true;
  return 0;
}

EXPORT int cuEventQuery(void *event);
int cuEventQuery(void *event) {
  (void)event;
  return fake_cuda.is_busy ? 600 : 0;
}

EXPORT int cuEventSynchronize(void *event);
int cuEventSynchronize(void *event) {
  (void)event;
  fake_cuda.is_busy = false;
  return begin("cuEventSynchronize", false);
}

EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end);
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  const struct fake_event *from = start, *to = end;
  if (fake_cuda.is_busy) {
    return 600;
  }
  *milliseconds = (float)(to->nanoseconds - from->nanoseconds) * 1e-6F;
  return from->recorded && to->recorded ? 0 : 400;
}

EXPORT int cuMemAlloc_v2(uint64_t *memory, size_t size);
int cuMemAlloc_v2(uint64_t *memory, size_t size) {
  int error = begin("cuMemAlloc", true);
  if (!error) {
    *memory = (uintptr_t)malloc(size);
    memset((void *)(uintptr_t)*memory, 0xEE, size);
    fake_cuda.blocks++;
  }
  return error;
}

EXPORT int cuMemFree_v2(uint64_t memory);
int cuMemFree_v2(uint64_t memory) {
  free((void *)(uintptr_t)memory);
  fake_cuda.blocks--;
  return begin("cuMemFree", true);
}

EXPORT int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t size, void *stream);
int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t size, void *stream) {
  (void)stream;
  int error = begin("cuMemsetD8Async", true);
  if (!error) {
    memset((void *)(uintptr_t)memory, value, size);
  }
  return error;
}

EXPORT int cuMemHostAlloc(void **memory, size_t size, unsigned flags);
int cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
  int error = begin("cuMemHostAlloc", true);
  if (error || flags != 1) {
    return error ? error : 1;
  }
  *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  fake_cuda.pinned++;
  return 0;
}

EXPORT int cuMemFreeHost(void *memory);
int cuMemFreeHost(void *memory) {
  free(memory);
  fake_cuda.pinned--;
  return begin("cuMemFreeHost", true);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t size, void *stream);
int cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t size, void *stream) {
  (void)stream;
  int error = begin("cuMemcpyDtoHAsync", true);
  if (!error) {
    memcpy(host, (const void *)(uintptr_t)device, size);
  }
  return error;
}

EXPORT int cuStreamSynchronize(void *stream);
int cuStreamSynchronize(void *stream) {
  (void)stream;
  fake_cuda.waits++;
  return begin("cuStreamSynchronize", true);
}

EXPORT int cuStreamIsCapturing(void *stream, int *status);
int cuStreamIsCapturing(void *stream, int *status) {
  (void)stream;
  *status = fake_cuda.is_capturing;
  return 0;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode) {
  static _Thread_local int now;
  int before = now;
  now = *mode;
  *mode = before;
  fake_cuda.capture_mode = now;
  return 0;
}

EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer);
int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer) {
  (void)pointer;
  if (attribute != 9) {
    return 1;
  }
  *(int *)value = fake_cuda.pointer_device;
  return 0;
}

EXPORT int cuStreamGetId(void *stream, unsigned long long *id);
int cuStreamGetId(void *stream, unsigned long long *id) {
  *id = (uintptr_t)stream + 77;
  return 0;
}
