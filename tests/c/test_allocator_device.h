/// A scripted device for the allocator's tests: invented addresses that nobody reads, streams whose work completes when
/// the test says so, and a log of which addresses unfinished work uses, so that memory that is reused or given back too
/// early is seen.
#ifndef DIT_TESTS_ALLOCATOR_DEVICE_H
#define DIT_TESTS_ALLOCATOR_DEVICE_H

#include <pthread.h>

#include "check.h"
#include "device/allocator.h"

#define FAKE_STREAMS 8
#define FAKE_SEGMENTS 4096
#define FAKE_WORK 16384
#define MIB (1024 * 1024)

struct fake_range {
  uintptr_t address;
  size_t size;
};

/// Work number `ticket` of `stream` uses these bytes.
struct fake_work {
  struct fake_range range;
  int64_t stream;
  uint64_t ticket;
};

struct fake_event {
  int64_t stream;
  uint64_t ticket;
};

struct fake_device {
  pthread_mutex_t lock;
  uint64_t capacity, used;
  uintptr_t next_address;
  struct fake_range segments[FAKE_SEGMENTS];
  int segment_count;
  uint64_t queued[FAKE_STREAMS], done[FAKE_STREAMS];
  struct fake_work work[FAKE_WORK];
  int work_count;
  int events, allocs, frees, synchronizes;
  bool fail_event_create, fail_event_record, fail_query, fail_alloc;
  char complaint[256];  ///< first rule the allocator broke; "" when none
};

static void fake_device_init(struct fake_device *device, uint64_t capacity, uintptr_t base) {
  memset(device, 0, sizeof(*device));
  pthread_mutex_init(&device->lock, NULL);
  device->capacity = capacity;
  device->next_address = base;
}

static inline bool fake_overlaps(struct fake_range a, struct fake_range b) {
  return a.address < b.address + b.size && b.address < a.address + a.size;
}

static inline void fake_complain(struct fake_device *device, const char *text, uintptr_t address) {
  if (!device->complaint[0]) {
    snprintf(device->complaint, sizeof(device->complaint), "%s (%#llx)", text, (unsigned long long)address);
  }
}

/// Unfinished work on another stream than `stream` (-1: on any) that uses the range.
static inline bool fake_is_in_use(struct fake_device *device, struct fake_range range, int64_t stream) {
  for (int i = 0; i < device->work_count; i++) {
    const struct fake_work *work = &device->work[i];
    if (work->stream != stream && fake_overlaps(work->range, range) && device->done[work->stream] < work->ticket) {
      return true;
    }
  }
  return false;
}

static inline void fake_queue_work(struct fake_device *device, const void *ptr, size_t size, int64_t stream) {
  pthread_mutex_lock(&device->lock);
  int kept = 0;
  for (int i = 0; i < device->work_count; i++) {
    if (device->done[device->work[i].stream] < device->work[i].ticket) {
      device->work[kept++] = device->work[i];
    }
  }
  device->work_count = kept;
  CHECK(kept < FAKE_WORK);
  device->work[device->work_count++] = (struct fake_work){{(uintptr_t)ptr, size}, stream, ++device->queued[stream]};
  pthread_mutex_unlock(&device->lock);
}

static inline void fake_complete(struct fake_device *device, int64_t stream, uint64_t count) {
  pthread_mutex_lock(&device->lock);
  uint64_t left = device->queued[stream] - device->done[stream];
  device->done[stream] += count < left ? count : left;
  pthread_mutex_unlock(&device->lock);
}

static enum dit_status fake_memory_alloc(void *context, size_t size, void **ptr, struct dit_error *err) {
  struct fake_device *device = context;
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&device->lock);
  if (device->fail_alloc) {
    status = dit_error_set(err, DIT_ERR_DEVICE, "the fake device is broken");
  } else if (device->used + size > device->capacity) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "the fake device is full");
  } else {
    CHECK(device->segment_count < FAKE_SEGMENTS);
    device->segments[device->segment_count++] = (struct fake_range){device->next_address, size};
    *ptr = (void *)device->next_address;
    device->next_address += size + (device->next_address / 512 % 3) * 512;  // some segments touch, some do not
    device->used += size;
    device->allocs++;
  }
  pthread_mutex_unlock(&device->lock);
  return status;
}

static enum dit_status fake_memory_free(void *context, void *ptr, size_t size, struct dit_error *err) {
  struct fake_device *device = context;
  (void)err;
  pthread_mutex_lock(&device->lock);
  int i = 0;
  while (i < device->segment_count && device->segments[i].address != (uintptr_t)ptr) {
    i++;
  }
  if (i == device->segment_count) {
    fake_complain(device, "gave back memory that it does not hold", (uintptr_t)ptr);
  } else {
    if (device->segments[i].size != size) {
      fake_complain(device, "gave back another size than it took", (uintptr_t)ptr);
    }
    if (fake_is_in_use(device, device->segments[i], -1)) {
      fake_complain(device, "gave back memory that work still uses", (uintptr_t)ptr);
    }
    device->used -= device->segments[i].size;
    device->segments[i] = device->segments[--device->segment_count];
    device->frees++;
  }
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static enum dit_status fake_get_memory(void *context, struct dit_device_memory *out, struct dit_error *err) {
  struct fake_device *device = context;
  (void)err;
  pthread_mutex_lock(&device->lock);
  *out = (struct dit_device_memory){.free = device->capacity - device->used, .total = device->capacity};
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static enum dit_status fake_synchronize(void *context, struct dit_error *err) {
  struct fake_device *device = context;
  (void)err;
  pthread_mutex_lock(&device->lock);
  memcpy(device->done, device->queued, sizeof(device->done));
  device->synchronizes++;
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static enum dit_status fake_stream_query(void *context, int64_t stream, bool *idle, struct dit_error *err) {
  struct fake_device *device = context;
  if (device->fail_query) {
    return dit_error_set(err, DIT_ERR_DEVICE, "the fake device answers nothing");
  }
  pthread_mutex_lock(&device->lock);
  *idle = device->done[stream] == device->queued[stream];
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static enum dit_status fake_event_create(void *context, void **event, struct dit_error *err) {
  struct fake_device *device = context;
  struct fake_event *created = device->fail_event_create ? NULL : calloc(1, sizeof(*created));
  if (!created) {
    return dit_error_set(err, DIT_ERR_NOMEM, "the fake device has no event left");
  }
  pthread_mutex_lock(&device->lock);
  device->events++;
  pthread_mutex_unlock(&device->lock);
  *event = created;
  return DIT_OK;
}

static void fake_event_destroy(void *context, void *event) {
  struct fake_device *device = context;
  pthread_mutex_lock(&device->lock);
  device->events--;
  pthread_mutex_unlock(&device->lock);
  free(event);
}

static enum dit_status fake_event_record(void *context, void *event, int64_t stream, struct dit_error *err) {
  struct fake_device *device = context;
  if (device->fail_event_record) {
    return dit_error_set(err, DIT_ERR_DEVICE, "the fake device records nothing");
  }
  pthread_mutex_lock(&device->lock);
  *(struct fake_event *)event = (struct fake_event){stream, device->queued[stream]};
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static enum dit_status fake_event_query(void *context, void *event, bool *done, struct dit_error *err) {
  struct fake_device *device = context;
  const struct fake_event *recorded = event;
  if (device->fail_query) {
    return dit_error_set(err, DIT_ERR_DEVICE, "the fake device answers nothing");
  }
  pthread_mutex_lock(&device->lock);
  *done = device->done[recorded->stream] >= recorded->ticket;
  pthread_mutex_unlock(&device->lock);
  return DIT_OK;
}

static const struct dit_allocator_vtable fake_vtable = {
    .memory_alloc = fake_memory_alloc,
    .memory_free = fake_memory_free,
    .get_memory = fake_get_memory,
    .synchronize = fake_synchronize,
    .stream_query = fake_stream_query,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
    .capacity_hint = "Buy more.",
};

#endif
