/// Checks of copies in the order of a stream: pageable and pinned memory, several streams, nothing too early.
#include <stdlib.h>

#include "doctor.h"

static bool check_pageable(struct bench *b) {
  static const size_t sizes[] = {0, 1, 4097, 2 * MIB + 5};
  void *memory = NULL, *stream = NULL;
  unsigned char *from = malloc(3 * MIB), *to = malloc(3 * MIB);
  WANT(b, from && to, "host memory", "ulimit -v", "no host memory");
  CALL(b, memory_alloc, 0, 3 * MIB, &memory);
  CALL(b, stream_create, 0, 0, &stream);
  void *const streams[] = {stream, NULL};
  for (size_t i = 0; i < 8; i++) {
    const size_t size = sizes[i / 2];
    bench_fill(from, size, (unsigned)i);
    memset(to, 0, 3 * MIB);
    const struct dit_copy in = bench_copy_in(0, memory, from, size), out = bench_copy_out(0, to, memory, size);
    CALL(b, copy_async, &in, 0, streams[i % 2]);
    CALL(b, copy_async, &out, 0, streams[i % 2]);
    CALL(b, stream_synchronize, 0, streams[i % 2]);
    const size_t same = bench_compare(to, size, (unsigned)i);
    WANT(b, same == size, "the bytes that were put there, once the stream was synchronised",
         "what stream_synchronize waits for; the address of the struct dit_copy is not valid after the call",
         "%zu bytes of pageable memory through %s stream: byte %zu differs", size, i % 2 ? "the default" : "a created",
         same);
    WANT(b, to[size] == 0, "size bytes and no more", "sizes that are rounded up",
         "%zu bytes: a byte behind the destination changed", size);
  }
  CALL(b, stream_destroy, 0, stream);
  CALL(b, memory_free, 0, memory);
  free(from);
  free(to);
  return true;
}

/// fill 1, copy, fill 2 of the source: the copy holds 1.
static bool check_order(struct bench *b) {
  const size_t size = 2 * MIB;
  void *source = NULL, *target = NULL, *stream = NULL;
  unsigned char *bytes = malloc(size);
  WANT(b, bytes, "host memory", "ulimit -v", "no host memory");
  CALL(b, memory_alloc, 0, size, &source);
  CALL(b, memory_alloc, 0, size, &target);
  CALL(b, stream_create, 0, 0, &stream);
  for (int i = 0; i < 8; i++) {
    const struct dit_copy copy = {target, source, size, DIT_COPY_DEVICE_TO_DEVICE, 0, 0};
    CALL(b, memory_set, 0, stream, source, i, size);
    CALL(b, copy_async, &copy, 0, stream);
    CALL(b, memory_set, 0, stream, source, 0xff, size);
    CALL(b, stream_synchronize, 0, stream);
    TRY(bench_get(b, 0, bytes, target, size));
    for (size_t k = 0; k < size; k++) {
      WANT(b, bytes[k] == i, "fills and copies of one stream run in the order in which they were put there",
           "copies on a queue of their own (a copy engine) must wait for the stream", "byte %zu is %u instead of %d", k,
           bytes[k], i);
    }
  }
  CALL(b, stream_destroy, 0, stream);
  CALL(b, memory_free, 0, source);
  CALL(b, memory_free, 0, target);
  free(bytes);
  return true;
}

struct look {
  const unsigned char *bytes;
  size_t size, same;
  atomic_int done;
};

static void run_look(void *argument) {
  struct look *look = argument;
  look->same = bench_compare(look->bytes, look->size, 21);
  atomic_store(&look->done, 1);
}

/// A host function behind a copy sees it; a copy behind a gate does not come early.
static bool check_beside_host(struct bench *b) {
  static struct look look;
  static struct gate gate;
  const size_t size = 4 * MIB;
  bool queued;
  void *memory = NULL, *stream = NULL, *pinned = NULL;
  TRY(bench_is_queued(b, &queued));
  CALL(b, memory_alloc, 0, size, &memory);
  CALL(b, host_alloc, size, &pinned);
  CALL(b, stream_create, 0, 0, &stream);
  bench_fill(pinned, size, 21);
  TRY(bench_put(b, 0, memory, pinned, size));
  memset(pinned, 0, size);
  if (queued) {
    CALL(b, stream_launch_host, 0, stream, gate_wait, &gate);
  }
  const struct dit_copy out = bench_copy_out(0, pinned, memory, size);
  CALL(b, copy_async, &out, 0, stream);
  look = (struct look){.bytes = pinned, .size = size};
  CALL(b, stream_launch_host, 0, stream, run_look, &look);
  if (queued) {
    bench_sleep(0.02);
    const bool early = ((volatile unsigned char *)pinned)[1] != 0 && !atomic_load(&gate.passed);
    WANT(b, !early, "a copy waits for the work before it in its stream", "copies that are done in the caller",
         "a copy to pinned memory was done while a host function before it was still running");
    atomic_store(&gate.open, true);
  }
  CALL(b, stream_synchronize, 0, stream);
  WANT(b, atomic_load(&look.done) && look.same == size, "work behind a copy sees what was copied",
       "host functions that run before the copy engine is done",
       "a host function behind a copy of %zu bytes saw %zu of them", size, look.same);
  CALL(b, stream_destroy, 0, stream);
  CALL(b, host_free, pinned);
  CALL(b, memory_free, 0, memory);
  return true;
}

/// Four streams at once, each with its own chain of copies.
static bool check_many_streams(struct bench *b) {
  enum { STREAMS = 4 };
  const size_t size = MIB + 17;
  void *memory[STREAMS], *other[STREAMS], *streams[STREAMS], *pinned[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    const int device = i % b->count;
    memory[i] = other[i] = streams[i] = pinned[i] = NULL;
    CALL(b, memory_alloc, device, size, &memory[i]);
    CALL(b, memory_alloc, device, size, &other[i]);
    CALL(b, host_alloc, size, &pinned[i]);
    CALL(b, stream_create, device, 0, &streams[i]);
    bench_fill(pinned[i], size, (unsigned)i + 40);
  }
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < STREAMS; i++) {
      const int device = i % b->count;
      const struct dit_copy steps[] = {bench_copy_in(device, memory[i], pinned[i], size),
                                       {other[i], memory[i], size, DIT_COPY_DEVICE_TO_DEVICE, device, device},
                                       bench_copy_out(device, pinned[i], other[i], size)};
      for (int k = 0; k < 3; k++) {
        CALL(b, copy_async, &steps[k], device, streams[i]);
      }
    }
  }
  for (int i = 0; i < STREAMS; i++) {
    const int device = i % b->count;
    CALL(b, stream_synchronize, device, streams[i]);
    const size_t same = bench_compare(pinned[i], size, (unsigned)i + 40);
    WANT(b, same == size, "each stream's copies as if it were alone", "a staging buffer that streams share",
         "four streams copied at once, and byte %zu of stream %d is wrong", same, i);
    CALL(b, stream_destroy, device, streams[i]);
    CALL(b, host_free, pinned[i]);
    CALL(b, memory_free, device, memory[i]);
    CALL(b, memory_free, device, other[i]);
  }
  return true;
}

static bool check_other_device(struct bench *b) {
  const size_t size = MIB + 1;
  if (b->count < 2) {
    return true;
  }
  void *first = NULL, *second = NULL, *stream = NULL;
  unsigned char *bytes = malloc(size);
  WANT(b, bytes, "host memory", "ulimit -v", "no host memory");
  CALL(b, memory_alloc, 0, size, &first);
  CALL(b, memory_alloc, 1, size, &second);
  for (int device = 0; device < 2; device++) {
    const struct dit_copy copy = {second, first, size, DIT_COPY_DEVICE_TO_DEVICE, 1, 0};
    CALL(b, stream_create, device, 0, &stream);
    bench_fill(bytes, size, (unsigned)device);
    TRY(bench_put(b, 0, first, bytes, size));
    CALL(b, copy_async, &copy, device, stream);
    CALL(b, stream_synchronize, device, stream);
    memset(bytes, 0, size);
    TRY(bench_get(b, 1, bytes, second, size));
    WANT(b, bench_compare(bytes, size, (unsigned)device) == size, "the bytes of the other device",
         "stream_device is either of the two", "a copy from device 0 to 1 on a stream of device %d is wrong", device);
    CALL(b, stream_destroy, device, stream);
  }
  CALL(b, memory_free, 0, first);
  CALL(b, memory_free, 1, second);
  free(bytes);
  return true;
}

#define BASE "memory_alloc memory_free copy stream_create stream_destroy stream_synchronize"

static const struct check checks[] = {
    {"copy_async", "copies from and to pageable memory", BASE, check_pageable, 0},
    {"copy_async", "fills and copies of a stream keep their order", "memory_set " BASE, check_order, 0},
    {"copy_async", "copies and host functions of a stream keep their order",
     "stream_launch_host host_alloc host_free " BASE, check_beside_host, 0},
    {"copy_async", "streams at work at the same time", "host_alloc host_free " BASE, check_many_streams, 0},
    {"copy_async", "between devices", BASE, check_other_device, 0},
};
const struct check_group async_group = {checks, sizeof checks / sizeof checks[0]};
