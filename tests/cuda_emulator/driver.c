/// An emulated CUDA driver for tests, built as libcuda.so.1: the functions that vendors/cuda/driver.h asks for.
///
/// Kernels are those of vendors/cuda, compiled by the C++ compiler and linked into this library; a module's image is
/// not looked at unless the emulated NVRTC made it (nvrtc.c). Work waits in its stream until somebody synchronises,
/// asks an event, or another stream waits for it: a program that reads a result too early, or forgets an event, sees
/// old bytes. Pinned memory is read when the work runs, pageable memory when it was asked for. Device memory is a file,
/// so that other processes can map it. One lock; two devices.
///
/// With EMULATED_CUDA_EAGER in the environment each stream has a thread that runs its work as soon as it is there, like
/// hardware, for programs that look at a device without waiting for it (dit_doctor). Only host functions run without
/// the lock then.
#include "driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

#define DEVICES 2
#define ARENA ((size_t)256 << 20)
#define INVALID 1
#define INVALID_CONTEXT 201
#define INVALID_HANDLE 400
#define NOT_FOUND 500
#define LAUNCH_FAILED 719

enum work_kind { WORK_KERNEL, WORK_COPY, WORK_SET, WORK_HOST, WORK_RECORD, WORK_WAIT, WORK_FAIL };

struct event;
struct stream;
struct work {
  struct work *next;
  enum work_kind kind;
  const struct emulated_kernel *kernel;
  struct emulator_dim grid, block;
  size_t size;
  void *to;
  const void *from;
  int value;
  struct event *event;
  struct stream *other;
  uint64_t ticket;
  void (*function)(void *);
  char bytes[];  ///< a kernel's parameter, or bytes of pageable memory
};

struct stream {
  struct device *device;
  struct work *first, **last;
  bool busy, closing;
};

struct event {
  unsigned flags;
  struct stream *stream;
  uint64_t asked, done;
  double time;
  int references;
  bool destroyed;
};

struct block {
  struct block *next;
  size_t offset, size;
};

struct device {
  struct stream null_stream;
  struct block *blocks;
  char *memory;
  int fd, error;
};

struct range {
  struct range *next;
  char *first;
  size_t size;
  bool imported;
};

static pthread_mutex_t lock;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;  ///< eager: work was added, has begun or is done
static bool eager;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct device devices[DEVICES];
static struct range *ranges;
static uint64_t tickets;
static struct stream *streams[4096];
static int stream_count;
static _Thread_local struct device *contexts[16];
static _Thread_local int depth;

static void start_worker(struct stream *stream);

static void start(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &attributes);
  eager = getenv("EMULATED_CUDA_EAGER") != NULL;
  for (int i = 0; i < DEVICES; i++) {
    devices[i].fd = memfd_create("emulated_cuda", 0);
    if (ftruncate(devices[i].fd, (off_t)ARENA) == 0) {
      devices[i].memory = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, devices[i].fd, 0);
    }
    devices[i].null_stream = (struct stream){.device = &devices[i], .last = &devices[i].null_stream.first};
    streams[stream_count++] = &devices[i].null_stream;
    start_worker(&devices[i].null_stream);
  }
}

static struct device *get_current(void) {
  return depth > 0 ? contexts[depth - 1] : NULL;
}

/// Every function that needs a context begins so: an earlier failure is the answer to everything.
#define BEGIN(device)                    \
  struct device *device = get_current(); \
  if (!device) {                         \
    return INVALID_CONTEXT;              \
  }                                      \
  pthread_mutex_lock(&lock);             \
  if (device->error) {                   \
    pthread_mutex_unlock(&lock);         \
    return device->error;                \
  }
#define END(value)               \
  do {                           \
    const int end_ = (value);    \
    pthread_mutex_unlock(&lock); \
    return end_;                 \
  } while (0)

static struct stream *find_stream(struct device *device, void *stream) {
  return stream ? stream : &device->null_stream;
}

static struct work *add_work(struct stream *stream, enum work_kind kind, size_t bytes) {
  struct work *work = calloc(1, sizeof *work + bytes);
  if (!work) {
    abort();
  }
  work->kind = kind;
  *stream->last = work;
  stream->last = &work->next;
  pthread_cond_broadcast(&changed);
  return work;
}

static double get_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void release_event(struct event *event) {
  if (--event->references == 0) {
    free(event);
  }
}

static void run_until(struct stream *stream, const struct event *event, uint64_t ticket);

static void run_work(struct stream *stream, struct work *work) {
  switch (work->kind) {
    case WORK_KERNEL:
      if (!emulator_run(work->kernel, work->grid, work->block, work->size, work->bytes)) {
        stream->device->error = LAUNCH_FAILED;
      }
      break;
    case WORK_COPY:
      memmove(work->to, work->from ? work->from : work->bytes, work->size);
      break;
    case WORK_SET:
      memset(work->to, work->value, work->size);
      break;
    case WORK_HOST:
      if (eager) {
        pthread_mutex_unlock(&lock);
      }
      work->function(work->to);
      if (eager) {
        pthread_mutex_lock(&lock);
      }
      break;
    case WORK_RECORD:
      work->event->done = work->ticket;
      work->event->time = get_time();
      release_event(work->event);
      break;
    case WORK_WAIT:
      run_until(work->other, work->event, work->ticket);
      release_event(work->event);
      break;
    case WORK_FAIL:
      stream->device->error = work->value;
  }
}

static bool run_one(struct stream *stream) {
  struct work *work = stream->first;
  if (!work || stream->busy) {
    return false;
  }
  stream->first = work->next;
  if (!stream->first) {
    stream->last = &stream->first;
  }
  stream->busy = true;
  run_work(stream, work);
  stream->busy = false;
  free(work);
  return true;
}

static void run_until(struct stream *stream, const struct event *event, uint64_t ticket) {
  while (eager && event->done < ticket) {
    pthread_cond_wait(&changed, &lock);
  }
  while (event->done < ticket && run_one(stream)) {
  }
}

static void run_stream(struct stream *stream) {
  while (eager && (stream->first || stream->busy)) {
    pthread_cond_wait(&changed, &lock);
  }
  while (run_one(stream)) {
  }
}

/// Take a stream off the list. Its memory goes with it.
static void free_stream(struct stream *stream) {
  for (int i = DEVICES; i < stream_count; i++) {
    streams[i] = streams[i] == stream ? NULL : streams[i];
  }
  free(stream);
}

/// A stream that is destroyed does what it has, nobody waits for it.
static void *run_worker(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&lock);
  while (stream->first || !stream->closing) {
    if (run_one(stream)) {
      pthread_cond_broadcast(&changed);
    } else {
      pthread_cond_wait(&changed, &lock);
    }
  }
  free_stream(stream);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void start_worker(struct stream *stream) {
  pthread_t thread;
  if (eager && pthread_create(&thread, NULL, run_worker, stream) == 0) {
    pthread_detach(thread);
  }
}

static bool is_at_work(const struct device *device) {
  bool found = false;
  for (int i = 0; i < stream_count && !found; i++) {
    found = streams[i] && streams[i]->device == device && (streams[i]->first || streams[i]->busy);
  }
  return found;
}

static void run_device(const struct device *device) {
  while (eager && is_at_work(device)) {  // a stream may go meanwhile
    pthread_cond_wait(&changed, &lock);
  }
  for (int i = 0; i < stream_count && !eager; i++) {
    if (streams[i] && streams[i]->device == device) {
      run_stream(streams[i]);
    }
  }
}

// Process, devices, contexts

#define API __attribute__((visibility("default")))

API int cuInit(unsigned flags) {
  pthread_once(&once, start);
  return flags || !devices[0].memory ? INVALID : 0;
}
API int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}
API int cuGetErrorName(int error, const char **text) {
  *text = error == LAUNCH_FAILED         ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == 2                   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == DRIVER_NOT_READY    ? "CUDA_ERROR_NOT_READY"
          : error == DRIVER_PEER_ENABLED ? "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
          : error == NOT_FOUND           ? "CUDA_ERROR_NOT_FOUND"
                                         : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
API int cuGetErrorString(int error, const char **text) {
  *text = error == LAUNCH_FAILED ? "unspecified launch failure" : error == 2 ? "out of memory" : "an emulated error";
  return 0;
}
API int cuDeviceGetCount(int *count) {
  *count = DEVICES;
  return 0;
}
API int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < DEVICES ? 0 : INVALID;
}
API int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, (size_t)length, "Emulated GPU %d", device);
  return 0;
}
API int cuDeviceGetUuid(unsigned char *uuid, int device) {
  memset(uuid, 0xE0 + device, 16);
  return 0;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = ARENA;
  return 0;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const int table[][2] = {{DRIVER_MAX_THREADS_PER_BLOCK, 1024},
                                 {DRIVER_SHARED_PER_BLOCK, 49152},
                                 {DRIVER_WARP_SIZE, 32},
                                 {DRIVER_MULTIPROCESSORS, 4},
                                 {DRIVER_L2_SIZE, 1 << 20},
                                 {DRIVER_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                                 {DRIVER_MAJOR, 9},
                                 {DRIVER_SHARED_PER_MULTIPROCESSOR, 228 << 10},
                                 {DRIVER_SHARED_OPTIN, 227 << 10},
                                 {DRIVER_REGISTERS_PER_MULTIPROCESSOR, 65536}};
  *value = attribute == DRIVER_PCI_BUS ? device : 0;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    *value = table[i][0] == attribute ? table[i][1] : *value;
  }
  return 0;
}
API int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return 0;
}
API int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &devices[device];
  return 0;
}
API int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}
API int cuDevicePrimaryCtxReset_v2(int device) {
  pthread_mutex_lock(&lock);
  run_device(&devices[device]);
  devices[device].error = 0;
  END(0);
}
API int cuCtxGetCurrent(void **context) {
  *context = get_current();
  return 0;
}
API int cuCtxSetCurrent(void *context) {
  depth = depth > 0 ? depth : 1;
  contexts[depth - 1] = context;
  return 0;
}
API int cuCtxPushCurrent_v2(void *context) {
  if (depth == 16) {
    return INVALID;
  }
  contexts[depth++] = context;
  return 0;
}
API int cuCtxPopCurrent_v2(void **context) {
  if (depth == 0) {
    return INVALID_CONTEXT;
  }
  *context = contexts[--depth];
  return 0;
}
API int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  return !peer || flags ? INVALID : 0;
}
API int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return get_current() ? 0 : INVALID_CONTEXT;
}
API int cuCtxSynchronize(void) {
  BEGIN(device)
  run_device(device);
  END(device->error);
}

// Modules and launches

/// What the emulated NVRTC made is a shared library (its section headers come last); any other image is not looked at.
static void *open_library(const void *image) {
  const Elf64_Ehdr *header = image;
  char path[64];
  const int fd = memfd_create("emulated_module", MFD_CLOEXEC);
  const size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
  void *library = NULL;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (fd >= 0 && write(fd, image, size) == (ssize_t)size) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // the file stays open: the next one needs another name
  }
  return library;
}
API int cuModuleLoadData(void **module, const void *image) {
  if (!get_current() || !image) {
    return INVALID_CONTEXT;
  }
  const bool is_library = strncmp(image, ELFMAG, SELFMAG) == 0;
  *module = is_library ? open_library(image) : NULL;
  return is_library && !*module ? INVALID : 0;
}
API int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  (void)count, (void)options, (void)values;
  return cuModuleLoadData(module, image);
}
API int cuModuleGetFunction(void **function, void *module, const char *name) {
  char symbol[160];
  Dl_info info;
  snprintf(symbol, sizeof symbol, "emulated_%s", name);
  static void *self;
  if (!self && dladdr((void *)devices, &info)) {
    self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  void *library = module ? module : self;
  *function = library ? dlsym(library, symbol) : NULL;
  return *function ? 0 : NOT_FOUND;
}
API int cuFuncSetAttribute(void *function, int attribute, int value) {
  return !function || attribute != DRIVER_SHARED_LIMIT || value > 227 << 10 ? INVALID : 0;
}
API int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                       void **extra) {
  const struct emulated_kernel *kernel = function;
  const uint64_t threads = (uint64_t)block_x * block_y * block_z;
  if (extra || !grid_x || !grid_y || !grid_z || !threads || threads > 1024 || grid_x > 0x7FFFFFFFu || grid_y > 65535 ||
      grid_z > 65535 || kernel->size > 4096) {
    return INVALID;
  }
  BEGIN(device)
  struct work *work = add_work(find_stream(device, stream), WORK_KERNEL, kernel->size);
  work->kernel = kernel;
  work->grid = (struct emulator_dim){grid_x, grid_y, grid_z};
  work->block = (struct emulator_dim){block_x, block_y, block_z};
  work->size = shared;
  memcpy(work->bytes, parameters[0], kernel->size);
  END(0);
}
API int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  BEGIN(device)
  struct work *work = add_work(find_stream(device, stream), WORK_HOST, 0);
  work->function = function;
  work->to = argument;
  END(0);
}
API int cuProfilerStart(void) {
  BEGIN(device)
  END(0);
}
API int cuProfilerStop(void) {
  BEGIN(device)
  END(0);
}
/// For tests: this device fails with `error` when the work of `stream` gets here.
API void emulator_fail(int device, void *stream, int error) {
  pthread_mutex_lock(&lock);
  add_work(find_stream(&devices[device], stream), WORK_FAIL, 0)->value = error;
  pthread_mutex_unlock(&lock);
}

// Memory

API int cuMemAlloc_v2(driver_pointer *memory, size_t size) {
  BEGIN(device)
  if (size == 0 || size > ARENA) {
    END(size ? DRIVER_OUT_OF_MEMORY : INVALID);
  }
  size = (size + 511) / 512 * 512;
  size_t end = 0;
  struct block **link = &device->blocks;
  while (*link && (*link)->offset - end < size) {
    end = (*link)->offset + (*link)->size;
    link = &(*link)->next;
  }
  if (!*link && ARENA - end < size) {
    END(DRIVER_OUT_OF_MEMORY);
  }
  struct block *block = malloc(sizeof *block);
  *block = (struct block){*link, end, size};
  *link = block;
  *memory = (driver_pointer)(uintptr_t)(device->memory + end);
  END(0);
}
static struct block **find_block(struct device *device, driver_pointer memory) {
  const size_t offset = (size_t)((char *)(uintptr_t)memory - device->memory);
  struct block **link = &device->blocks;
  while (*link && !(offset >= (*link)->offset && offset < (*link)->offset + (*link)->size)) {
    link = &(*link)->next;
  }
  return link;
}
API int cuMemFree_v2(driver_pointer memory) {
  BEGIN(device)
  run_device(device);
  struct block **link = find_block(device, memory), *block = *link;
  if (!block || device->memory + block->offset != (char *)(uintptr_t)memory) {
    END(INVALID);
  }
  *link = block->next;
  memset(device->memory + block->offset, 0xDD, block->size);
  free(block);
  END(device->error);
}
API int cuMemGetInfo_v2(size_t *left, size_t *total) {
  BEGIN(device)
  *left = *total = ARENA;
  for (struct block *block = device->blocks; block; block = block->next) {
    *left -= block->size;
  }
  END(0);
}
static struct range **find_range(const void *memory) {
  struct range **link = &ranges;
  while (*link && !((const char *)memory >= (*link)->first && (const char *)memory < (*link)->first + (*link)->size)) {
    link = &(*link)->next;
  }
  return link;
}
static void add_range(void *first, size_t size, bool imported) {
  struct range *range = malloc(sizeof *range);
  *range = (struct range){ranges, first, size, imported};
  ranges = range;
}
static bool take_range(const void *first) {
  struct range **link = find_range(first), *range = *link;
  if (!range || range->first != first) {
    return false;
  }
  *link = range->next;
  free(range);
  return true;
}
API int cuMemGetAddressRange_v2(driver_pointer *base, size_t *size, driver_pointer memory) {
  BEGIN(device)
  struct block *block = *find_block(device, memory);
  struct range *range = block ? NULL : *find_range((void *)(uintptr_t)memory);
  if (!block && !range) {
    END(INVALID);
  }
  *base = (driver_pointer)(uintptr_t)(block ? device->memory + block->offset : range->first);
  *size = block ? block->size : range->size;
  END(0);
}
API int cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
  (void)flags;
  BEGIN(device)
  *memory = size > PTRDIFF_MAX ? NULL : aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (!*memory) {
    END(DRIVER_OUT_OF_MEMORY);
  }
  add_range(*memory, size, false);
  END(0);
}
API int cuMemFreeHost(void *memory) {
  BEGIN(device)
  run_device(device);
  if (!take_range(memory)) {
    END(INVALID);
  }
  free(memory);
  END(0);
}
API int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
  (void)flags;
  BEGIN(device)
  if (*find_range(memory)) {
    END(INVALID);
  }
  add_range(memory, size, false);
  END(0);
}
API int cuMemHostUnregister(void *memory) {
  BEGIN(device)
  run_device(device);
  END(take_range(memory) ? 0 : INVALID);
}
static int add_copy(struct device *device, void *stream, void *to, const void *from, size_t size, bool snapshot) {
  struct work *work = add_work(find_stream(device, stream), WORK_COPY, snapshot ? size : 0);
  work->to = to;
  work->from = snapshot ? NULL : from;
  work->size = size;
  if (snapshot) {
    memcpy(work->bytes, from, size);
  }
  return 0;
}
API int cuMemcpyHtoDAsync_v2(driver_pointer to, const void *from, size_t size, void *stream) {
  BEGIN(device)
  END(add_copy(device, stream, (void *)(uintptr_t)to, from, size, !*find_range(from)));
}
API int cuMemcpyDtoHAsync_v2(void *to, driver_pointer from, size_t size, void *stream) {
  BEGIN(device)
  add_copy(device, stream, to, (void *)(uintptr_t)from, size, false);
  if (!*find_range(to)) {
    run_stream(find_stream(device, stream));
  }
  END(device->error);
}
API int cuMemcpyDtoDAsync_v2(driver_pointer to, driver_pointer from, size_t size, void *stream) {
  BEGIN(device)
  END(add_copy(device, stream, (void *)(uintptr_t)to, (void *)(uintptr_t)from, size, false));
}
API int cuMemcpyPeerAsync(driver_pointer to, void *to_context, driver_pointer from, void *from_context, size_t size,
                          void *stream) {
  BEGIN(device)
  if (!*find_block(to_context, to) || !*find_block(from_context, from)) {
    END(INVALID);
  }
  END(add_copy(device, stream, (void *)(uintptr_t)to, (void *)(uintptr_t)from, size, false));
}
API int cuMemsetD8Async(driver_pointer memory, unsigned char value, size_t size, void *stream) {
  BEGIN(device)
  struct work *work = add_work(find_stream(device, stream), WORK_SET, 0);
  work->to = (void *)(uintptr_t)memory;
  work->value = value;
  work->size = size;
  END(0);
}
API int cuPointerGetAttribute(void *value, int attribute, driver_pointer pointer) {
  for (int i = 0; i < DEVICES; i++) {
    if (attribute == DRIVER_POINTER_ORDINAL && (char *)(uintptr_t)pointer >= devices[i].memory &&
        (char *)(uintptr_t)pointer < devices[i].memory + ARENA) {
      *(int *)value = i;
      return 0;
    }
  }
  return INVALID;
}

/// What the bytes of a handle mean: a file of another process, and a place in it.
struct shared_place {
  int pid, fd;
  size_t offset, size;
};
API int cuIpcGetMemHandle(struct driver_ipc *handle, driver_pointer memory) {
  BEGIN(device)
  const struct block *block = *find_block(device, memory);
  if (!block) {
    END(INVALID);
  }
  const struct shared_place place = {getpid(), device->fd, block->offset, block->size};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &place, sizeof place);
  run_device(device);
  END(0);
}
API int cuIpcOpenMemHandle_v2(driver_pointer *memory, struct driver_ipc handle, unsigned flags) {
  struct shared_place place;
  char path[64];
  (void)flags;
  memcpy(&place, &handle, sizeof place);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", place.pid, place.fd);
  BEGIN(device)
  const int fd = place.pid == getpid() ? -1 : open(path, O_RDWR);
  const size_t shift = place.offset % 4096;
  char *mapped =
      fd < 0 ? MAP_FAILED
             : mmap(NULL, place.size + shift, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(place.offset - shift));
  if (fd >= 0) {
    close(fd);
  }
  if (mapped == MAP_FAILED) {
    END(INVALID_HANDLE);
  }
  add_range(mapped + shift, place.size, true);
  *memory = (driver_pointer)(uintptr_t)(mapped + shift);
  END(0);
}
API int cuIpcCloseMemHandle(driver_pointer memory) {
  BEGIN(device)
  run_device(device);
  struct range *range = *find_range((void *)(uintptr_t)memory);
  if (!range || !range->imported) {
    END(INVALID);
  }
  const size_t shift = (size_t)(memory % 4096), size = range->size + shift;
  take_range((void *)(uintptr_t)memory);
  munmap((char *)(uintptr_t)memory - shift, size);
  END(0);
}

// Streams and events

API int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  BEGIN(device)
  struct stream *fresh = calloc(1, sizeof *fresh);
  fresh->device = device;
  fresh->last = &fresh->first;
  int place = DEVICES;
  while (place < stream_count && streams[place]) {
    place++;
  }
  if (place == 4096) {
    free(fresh);
    END(2);
  }
  streams[place] = fresh;
  start_worker(fresh);
  stream_count = place >= stream_count ? place + 1 : stream_count;
  *stream = fresh;
  END(0);
}
API int cuStreamDestroy_v2(void *stream) {
  struct stream *destroyed = stream;
  pthread_mutex_lock(&lock);
  if (eager) {
    destroyed->closing = true;
    pthread_cond_broadcast(&changed);
  } else {
    run_stream(destroyed);
    free_stream(destroyed);
  }
  END(0);
}
API int cuStreamSynchronize(void *stream) {
  BEGIN(device)
  run_stream(find_stream(device, stream));
  END(device->error);
}
API int cuStreamQuery(void *stream) {
  BEGIN(device)
  struct stream *found = find_stream(device, stream);
  const bool idle = !found->first && !found->busy;
  if (!eager) {
    run_one(found);
  }
  END(device->error ? device->error : idle ? 0 : DRIVER_NOT_READY);
}
API int cuStreamIsCapturing(void *stream, int *status) {
  (void)stream;
  *status = 0;
  return 0;
}
API int cuThreadExchangeStreamCaptureMode(int *mode) {
  (void)mode;
  return 0;
}
API int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  struct event *waited = event;
  (void)flags;
  BEGIN(device)
  if (waited->asked > waited->done) {
    struct work *work = add_work(find_stream(device, stream), WORK_WAIT, 0);
    work->event = waited;
    work->other = waited->stream;
    work->ticket = waited->asked;
    waited->references++;
  }
  END(0);
}
API int cuEventCreate(void **event, unsigned flags) {
  BEGIN(device)
  struct event *fresh = calloc(1, sizeof *fresh);
  fresh->flags = flags;
  fresh->references = 1;
  *event = fresh;
  END(0);
}
API int cuEventDestroy_v2(void *event) {
  pthread_mutex_lock(&lock);
  release_event(event);
  END(0);
}
API int cuEventRecord(void *event, void *stream) {
  struct event *recorded = event;
  BEGIN(device)
  struct work *work = add_work(find_stream(device, stream), WORK_RECORD, 0);
  recorded->stream = find_stream(device, stream);
  recorded->asked = work->ticket = ++tickets;
  recorded->references++;
  work->event = recorded;
  END(0);
}
API int cuEventQuery(void *event) {
  struct event *asked = event;
  BEGIN(device)
  const bool done = asked->done >= asked->asked;
  if (!done && !eager) {
    run_one(asked->stream);
  }
  END(device->error ? device->error : done ? 0 : DRIVER_NOT_READY);
}
API int cuEventSynchronize(void *event) {
  struct event *waited = event;
  BEGIN(device)
  if (waited->done < waited->asked) {
    run_until(waited->stream, waited, waited->asked);
  }
  END(device->error);
}
API int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  const struct event *first = start, *last = end;
  BEGIN(device)
  if (first->flags & DRIVER_EVENT_NO_TIMING || last->flags & DRIVER_EVENT_NO_TIMING || !first->asked || !last->asked) {
    END(INVALID_HANDLE);
  }
  *milliseconds = (float)(last->time - first->time);
  END(first->done < first->asked || last->done < last->asked ? DRIVER_NOT_READY : 0);
}
