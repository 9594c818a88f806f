/// The device functions of mychip (dit/device.h): a vendor library for ditorch.
///
/// As it stands the device is host memory, and work is done in the caller: everything passes `ditorch doctor --vendor`,
/// and PyTorch trains on it with every operator on the CPU. Each REPLACE says what a real chip does there. Rules that
/// hold for all functions: thread safe; outputs are written last, and only on success; nothing prints or exits; `err`
/// may be NULL.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/device.h"

enum { DEVICES = 1 };
#define MEMORY ((uint64_t)2 << 30)  // REPLACE: what the chip has
#define DEVICE_ALIGNMENT ((size_t)512)
#define HOST_ALIGNMENT ((size_t)64)

static enum dit_status fail(struct dit_error *err, enum dit_status status, const char *format, ...) DIT_PRINTF(3, 4);

/// REPLACE: add the text of the chip's own runtime to the message.
static enum dit_status fail(struct dit_error *err, enum dit_status status, const char *format, ...) {
  if (err) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    err->status = status;
  }
  return status;
}

// Process

static enum dit_status mychip_init(struct dit_error *err) {
  (void)err;  // REPLACE: open the driver; DIT_ERR_DEVICE with its words when it is not there
  return DIT_OK;
}

static void mychip_finalize(void) {
  // REPLACE: close the driver; init may come again
}

static enum dit_status mychip_count(int *count, struct dit_error *err) {
  (void)err;  // REPLACE: ask the driver; may come before init; no device is 0, not an error
  *count = DEVICES;
  return DIT_OK;
}

static enum dit_status mychip_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  (void)err;
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "mychip %d", device);
  snprintf(out->vendor, sizeof out->vendor, "mychip");
  snprintf(out->architecture, sizeof out->architecture, "host");
  out->total_memory = MEMORY;
  out->major = 8;  // REPLACE: torch programs branch on the capability
  out->multi_processor_count = 1;
  out->warp_size = 32;
  out->max_threads_per_multi_processor = 1024;
  out->max_threads_per_block = 1024;
  out->host_accessible = true;  // REPLACE: false when the host cannot follow a device address
  return DIT_OK;
}

// Memory: blocks are kept in a list, so that a wrong free is refused and the limit is exact

struct block {
  struct block *next;
  void *address;
  size_t size;
  int device;  // -1: pinned host memory
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static uint64_t used[DEVICES];

static enum dit_status mychip_get_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  (void)err;
  pthread_mutex_lock(&lock);
  out->total = MEMORY;
  out->free = MEMORY - used[device];
  pthread_mutex_unlock(&lock);
  return DIT_OK;
}

/// REPLACE: the chip's own allocation. Zero bytes are at NULL; DIT_ERR_NOMEM makes the allocator give back its cache.
static enum dit_status take_block(int device, size_t size, size_t alignment, void **ptr, struct dit_error *err) {
  if (size == 0) {
    *ptr = NULL;
    return DIT_OK;
  }
  if (size > MEMORY) {
    return fail(err, DIT_ERR_NOMEM, "mychip: %zu bytes asked for, a device has %llu", size, (unsigned long long)MEMORY);
  }
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  struct block *block = malloc(sizeof *block);
  void *address = block ? aligned_alloc(alignment, rounded) : NULL;
  pthread_mutex_lock(&lock);
  const bool fits = address && (device < 0 || rounded <= MEMORY - used[device]);
  if (fits) {
    *block = (struct block){blocks, address, rounded, device};
    blocks = block;
    if (device >= 0) {
      used[device] += rounded;
    }
  }
  pthread_mutex_unlock(&lock);
  if (!fits) {
    free(address);
    free(block);
    return fail(err, DIT_ERR_NOMEM, "mychip: no room for %zu bytes", size);
  }
  *ptr = address;
  return DIT_OK;
}

static enum dit_status give_block(int device, void *ptr, struct dit_error *err) {
  if (!ptr) {
    return DIT_OK;
  }
  pthread_mutex_lock(&lock);
  struct block **link = &blocks;
  while (*link && ((*link)->address != ptr || (*link)->device != device)) {
    link = &(*link)->next;
  }
  struct block *block = *link;
  if (block) {
    *link = block->next;
    if (device >= 0) {
      used[device] -= block->size;
    }
  }
  pthread_mutex_unlock(&lock);
  if (!block) {
    return fail(err, DIT_ERR_INVALID, "mychip: %p is not the start of a live block", ptr);
  }
  free(block->address);
  free(block);
  return DIT_OK;
}

static enum dit_status mychip_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  return take_block(device, size, DEVICE_ALIGNMENT, ptr, err);
}

static enum dit_status mychip_memory_free(int device, void *ptr, struct dit_error *err) {
  return give_block(device, ptr, err);
}

/// REPLACE: pinned memory, which the chip reads while the host goes on.
static enum dit_status mychip_host_alloc(size_t size, void **ptr, struct dit_error *err) {
  return take_block(-1, size, HOST_ALIGNMENT, ptr, err);
}

static enum dit_status mychip_host_free(void *ptr, struct dit_error *err) {
  return give_block(-1, ptr, err);
}

/// REPLACE: put the fill onto the stream. Bytes, as memset.
static enum dit_status mychip_memory_set(int device, void *stream, void *ptr, int value, size_t size,
                                         struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  if (size > 0) {
    memset(ptr, value, size);
  }
  return DIT_OK;
}

// Copies

/// REPLACE: by copy->kind, host to device, device to host, or on and between devices; done when it returns, and after
/// all earlier work of the default stream.
static enum dit_status mychip_copy(const struct dit_copy *copy, struct dit_error *err) {
  (void)err;
  if (copy->size > 0) {
    memmove(copy->dst, copy->src, copy->size);
  }
  return DIT_OK;
}

/// REPLACE: put the copy onto the stream. `copy` itself is not valid after the call.
static enum dit_status mychip_copy_async(const struct dit_copy *copy, int stream_device, void *stream,
                                         struct dit_error *err) {
  (void)stream_device;
  (void)stream;
  return mychip_copy(copy, err);
}

// Streams: work is done when a function returns, so there is nothing to wait for

struct stream {
  int device, priority;
};

/// REPLACE: a queue of the chip. The handle NULL is the default stream in every function.
static enum dit_status mychip_stream_create(int device, int priority, void **out, struct dit_error *err) {
  struct stream *stream = malloc(sizeof *stream);
  if (!stream) {
    return fail(err, DIT_ERR_NOMEM, "mychip: no host memory for a stream");
  }
  *stream = (struct stream){device, priority};
  *out = stream;
  return DIT_OK;
}

/// REPLACE: wait for the stream's work first.
static enum dit_status mychip_stream_destroy(int device, void *stream, struct dit_error *err) {
  (void)device;
  (void)err;
  free(stream);
  return DIT_OK;
}

/// REPLACE: wait for the stream's work; an asynchronous failure is reported here.
static enum dit_status mychip_stream_synchronize(int device, void *stream, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  return DIT_OK;
}

/// REPLACE: wait for all streams of the device.
static enum dit_status mychip_synchronize(int device, struct dit_error *err) {
  (void)device;
  (void)err;
  return DIT_OK;
}

/// REPLACE: false while work is pending. Must not wait.
static enum dit_status mychip_stream_query(int device, void *stream, bool *idle, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  *idle = true;
  return DIT_OK;
}

/// REPLACE: later work of the stream waits for the event's latest recording. The event may be another device's.
static enum dit_status mychip_stream_wait_event(int device, void *stream, void *event, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)event;
  (void)err;
  return DIT_OK;
}

/// REPLACE: call the function on a host thread when the stream's earlier work is done.
static enum dit_status mychip_stream_launch_host(int device, void *stream, void (*function)(void *), void *argument,
                                                 struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  function(argument);
  return DIT_OK;
}

// Events: a place in a stream, with its time

struct event {
  pthread_mutex_t lock;
  unsigned flags;
  bool recorded;
  double milliseconds;
};

static enum dit_status mychip_event_create(int device, unsigned flags, void **out, struct dit_error *err) {
  (void)device;
  struct event *event = calloc(1, sizeof *event);
  if (!event) {
    return fail(err, DIT_ERR_NOMEM, "mychip: no host memory for an event");
  }
  pthread_mutex_init(&event->lock, NULL);
  event->flags = flags;
  *out = event;
  return DIT_OK;
}

/// REPLACE: safe while the recording is pending.
static void mychip_event_destroy(int device, void *handle) {
  (void)device;
  struct event *event = handle;
  pthread_mutex_destroy(&event->lock);
  free(event);
}

/// REPLACE: the chip takes the time when the work before is done. An event may be recorded again.
static enum dit_status mychip_event_record(int device, void *handle, void *stream, struct dit_error *err) {
  (void)device;
  (void)stream;
  (void)err;
  struct event *event = handle;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&event->lock);
  event->recorded = true;
  event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
  pthread_mutex_unlock(&event->lock);
  return DIT_OK;
}

/// REPLACE: false while the work before the recording is pending; an event that was never recorded is done.
static enum dit_status mychip_event_query(int device, void *event, bool *done, struct dit_error *err) {
  (void)device;
  (void)event;
  (void)err;
  *done = true;
  return DIT_OK;
}

/// REPLACE: wait for the work before the recording.
static enum dit_status mychip_event_synchronize(int device, void *event, struct dit_error *err) {
  (void)device;
  (void)event;
  (void)err;
  return DIT_OK;
}

static enum dit_status get_time(struct event *event, double *milliseconds, struct dit_error *err) {
  pthread_mutex_lock(&event->lock);
  const bool timed = event->recorded && event->flags & DIT_EVENT_TIMING;
  const double time = event->milliseconds;
  pthread_mutex_unlock(&event->lock);
  if (!timed) {
    return fail(err, DIT_ERR_INVALID, "mychip: the event was not recorded, or made without timing");
  }
  *milliseconds = time;
  return DIT_OK;
}

static enum dit_status mychip_event_get_elapsed(int device, void *start, void *end, double *milliseconds,
                                                struct dit_error *err) {
  (void)device;
  double first = 0, last = 0;
  DIT_RETURN_IF_NOT_OK(get_time(start, &first, err));
  DIT_RETURN_IF_NOT_OK(get_time(end, &last, err));
  *milliseconds = last - first;
  return DIT_OK;
}

static const struct dit_device_vtable table = {
    .abi_version = DIT_DEVICE_ABI_VERSION,
    .struct_size = sizeof(struct dit_device_vtable),
    .name = "mychip",
    .version = "0.1",
    .init = mychip_init,
    .finalize = mychip_finalize,
    .count = mychip_count,
    .get_properties = mychip_get_properties,
    .get_memory = mychip_get_memory,
    .synchronize = mychip_synchronize,
    .memory_alloc = mychip_memory_alloc,
    .memory_free = mychip_memory_free,
    .memory_set = mychip_memory_set,
    .host_alloc = mychip_host_alloc,
    .host_free = mychip_host_free,
    .copy = mychip_copy,
    .copy_async = mychip_copy_async,
    .stream_create = mychip_stream_create,
    .stream_destroy = mychip_stream_destroy,
    .stream_synchronize = mychip_stream_synchronize,
    .stream_query = mychip_stream_query,
    .stream_wait_event = mychip_stream_wait_event,
    .stream_launch_host = mychip_stream_launch_host,
    .event_create = mychip_event_create,
    .event_destroy = mychip_event_destroy,
    .event_record = mychip_event_record,
    .event_query = mychip_event_query,
    .event_synchronize = mychip_event_synchronize,
    .event_get_elapsed = mychip_event_get_elapsed,
};

/// The one symbol that ditorch looks for.
DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);

const struct dit_device_vtable *dit_vendor_get_device(void) {
  return &table;
}
