/// Threads against the allocator: blocks are allocated on one thread and freed on another, while streams complete work,
/// caches are emptied, statistics read and the configuration changed. The memory is real: each block carries its own
/// address and size, written by its owner, so two owners of one byte are seen by the pattern or by a thread sanitizer.
/// Usage: stress_allocator [seed [rounds [seconds for each part]]].
#include <stdatomic.h>

#include "dit/memory_check.h"
#include "dit/options.h"
#include "dit/runtime.h"
#include "test_allocator_device.h"

#define THREADS 4
#define SHELVES 64

static struct fake_device device;
static struct dit_allocator *allocators[2];
static _Atomic(void *) shelves[SHELVES];  ///< live blocks that nobody owns at the moment
static uint64_t rounds = CHECK_SANITIZED ? 5000 : 20000;
static double part_seconds = 10, part_end;
static _Atomic uint64_t taken, given, full;

/// The device remembers the size of what it handed out.
static struct {
  void *ptr;
  size_t size;
} segments[FAKE_SEGMENTS];

static enum dit_status tracked_alloc(void *context, size_t size, void **ptr, struct dit_error *err) {
  (void)context;
  int i = 0;
  pthread_mutex_lock(&device.lock);
  void *memory = device.used + size <= device.capacity ? aligned_alloc(512, size) : NULL;
  while (memory && i < FAKE_SEGMENTS && segments[i].ptr) {
    i++;
  }
  CHECK(i < FAKE_SEGMENTS);
  if (memory) {
    segments[i].ptr = memory;
    segments[i].size = size;
    device.used += size;
  }
  pthread_mutex_unlock(&device.lock);
  if (!memory) {
    return dit_error_set(err, DIT_ERR_NOMEM, "full");
  }
  *ptr = memory;
  return DIT_OK;
}

static enum dit_status tracked_free(void *context, void *ptr, size_t size, struct dit_error *err) {
  (void)context;
  (void)err;
  pthread_mutex_lock(&device.lock);
  int i = 0;
  while (i < FAKE_SEGMENTS && segments[i].ptr != ptr) {
    i++;
  }
  CHECK(i < FAKE_SEGMENTS && segments[i].size == size);
  segments[i].ptr = NULL;
  device.used -= segments[i].size;
  pthread_mutex_unlock(&device.lock);
  free(ptr);
  return DIT_OK;
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

/// The first and the last 16 bytes say whose block it is.
static void mark(char *block, size_t size) {
  uint64_t words[2] = {(uint64_t)(uintptr_t)block, size};
  memcpy(block, words, 16);
  memcpy(block + size - 16, words, 16);
}

static void verify_and_free(char *block) {
  uint64_t words[2], tail[2];
  memcpy(words, block, 16);
  CHECK(words[0] == (uint64_t)(uintptr_t)block);
  memcpy(tail, block + words[1] - 16, 16);
  CHECK(tail[0] == words[0] && tail[1] == words[1]);
  CHECK(dit_allocator_free(block));
  atomic_fetch_add(&given, 1);
}

static void allocate_and_shelve(uint64_t *state) {
  void *block = NULL;
  struct dit_error err = {0};
  size_t size = next_random(state) % 10 ? 32 + next_random(state) % 8192 : 32 + next_random(state) % (6 * MIB);
  int64_t stream = (int64_t)(next_random(state) % 3);
  enum dit_status status = dit_allocator_alloc(allocators[next_random(state) % 2], stream, size, &block, &err);
  if (status != DIT_OK) {
    CHECK(status == DIT_ERR_NOMEM && strncmp(err.message, "CUDA out of memory", 18) == 0);
    atomic_fetch_add(&full, 1);
    return;
  }
  atomic_fetch_add(&taken, 1);
  mark(block, size);
  if (next_random(state) % 4 == 0) {
    CHECK_OK(dit_allocator_record_stream((char *)block + size / 2, (int64_t)(next_random(state) % 3), &err));
  }
  block = atomic_exchange(&shelves[next_random(state) % SHELVES], block);
  if (block) {
    verify_and_free(block);
  }
}

static void disturb(uint64_t *state) {
  static const char *configs[] = {
      "", "max_split_size_mb:20", "garbage_collection_threshold:0.5", "backend:raw", "backend:bf", "backend:bs"};
  struct dit_error err = {0};
  struct dit_memory_stats stats;
  struct dit_allocator *allocator = allocators[next_random(state) % 2];
  struct dit_allocator_config config;
  struct dit_allocator_snapshot snapshot = {0};
  void *base;
  size_t size;
  int number;
  switch (next_random(state) % 6) {
    case 0:
      CHECK_OK(dit_allocator_empty_cache(allocator, &err));
      break;
    case 1:
      dit_allocator_get_stats(allocator, &stats);
      CHECK(stats.allocated_bytes[DIT_POOL_ALL].current <= stats.reserved_bytes[DIT_POOL_ALL].current);
      break;
    case 2:
      CHECK_OK(dit_allocator_snapshot_append(&snapshot, allocator, &err));
      dit_allocator_snapshot_reset(&snapshot);
      break;
    case 3:
      CHECK_OK(dit_allocator_config_parse(configs[next_random(state) % 6], &config, &err));
      dit_allocator_set_config(allocator, &config);
      break;
    case 4:
      CHECK(!dit_allocator_free(&stats));
      dit_allocator_find(atomic_load(&shelves[0]), &base, &size, &number);
      break;
    default:
      if (!dit_allocator_check(allocator, &err)) {
        fprintf(stderr, "check: %s\n", err.message);
        exit(1);
      }
  }
}

static void *work(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument;
  for (uint64_t i = 0; i < rounds && (i % 64 || check_get_seconds() < part_end); i++) {
    allocate_and_shelve(&state);
    int64_t stream = (int64_t)(next_random(&state) % 3);
    if (i % 8 == 0) {
      fake_queue_work(&device, NULL, 0, stream);
    }
    if (i % 5 == 0) {
      fake_complete(&device, stream, 3);
    }
    if (i % 64 == 0) {
      disturb(&state);
    }
  }
  return NULL;
}

// The embedded device: work on streams uses the allocator, too

static int64_t streams[3];
static bool
    observed;  ///< guard zones are looked at in stream order, so the host must not write before the stream is idle

static void work_on_stream(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument;
  void *block = NULL;
  if (dit_memory_alloc(0, streams[next_random(&state) % 3], 32 + next_random(&state) % 100000, &block, NULL) ==
      DIT_OK) {
    if (!observed) {
      memset(block, 1, 32);
    }
    dit_memory_free(block);
  }
}

static void *work_on_device(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument;
  struct dit_error err = {0};
  for (uint64_t i = 0; i < rounds / 10 && (i % 64 || check_get_seconds() < part_end); i++) {
    void *block = NULL;
    int64_t stream = streams[next_random(&state) % 3], owner = streams[next_random(&state) % 3];
    CHECK_OK(dit_memory_alloc(0, owner, 32 + next_random(&state) % (3 * MIB), &block, &err));
    if (observed) {
      CHECK_OK(dit_stream_synchronize(0, owner, &err));
    }
    mark(block, 32);
    CHECK_OK(dit_memory_record_stream(block, stream, &err));
    CHECK_OK(dit_stream_launch_host(0, stream, work_on_stream, (void *)(uintptr_t)next_random(&state), &err));
    block = atomic_exchange(&shelves[next_random(&state) % SHELVES], block);
    dit_memory_free(block);
    CHECK_OK(dit_host_alloc(32 + next_random(&state) % 20000, &block, &err));
    mark(block, 32);
    CHECK_OK(dit_host_record_stream(block, 0, stream, &err));
    dit_host_free(block);
    if (i % 128 == 0) {
      CHECK_OK(dit_memory_empty_cache(-1, &err));
    }
  }
  return NULL;
}

static void run_threads(void *(*function)(void *), uint64_t seed) {
  pthread_t threads[THREADS];
  part_end = check_get_seconds() + part_seconds;
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)(seed * THREADS + (uint64_t)i)) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
}

static void stress_embedded_device(const char *algorithm, bool watched, uint64_t seed) {
  struct dit_error err = {0};
  struct dit_memory_stats stats;
  struct dit_host_stats host;
  struct dit_memory_check_state check;
  observed = watched;
  CHECK_OK(dit_option_set("allocator", algorithm, &err));
  CHECK_OK(dit_option_set("host_allocator", algorithm, &err));
  CHECK_OK(dit_option_set("memory_check", watched ? "1" : "0", &err));
  CHECK_OK(dit_option_set("memory_check_interval", "0", &err));
  CHECK_OK(dit_option_set("metrics", watched ? "1" : "0", &err));
  CHECK_OK(dit_runtime_init("host", &err));
  for (int i = 1; i < 3; i++) {
    CHECK_OK(dit_stream_acquire(0, 0, &streams[i], &err));
  }
  run_threads(work_on_device, seed);
  for (int i = 0; i < SHELVES; i++) {
    dit_memory_free(atomic_exchange(&shelves[i], NULL));
  }
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK_OK(dit_memory_empty_cache(0, &err));
  CHECK_OK(dit_memory_get_stats(0, &stats, &err));
  CHECK(stats.reserved_bytes[DIT_POOL_ALL].current == 0 && stats.active[DIT_POOL_ALL].current == 0);
  dit_host_empty_cache();
  dit_host_get_stats(&host);
  CHECK(host.allocated_current == 0 && host.reserved_current == 0);
  dit_memory_check_get_state(&check);
  CHECK(check.blocks == 0 && check.damaged == 0 && check.double_frees == 0 && check.unknown_frees == 0);
  printf("ok   embedded device, %s%s, %lld allocations\n", algorithm, watched ? " under observation" : "",
         (long long)stats.allocation[DIT_POOL_ALL].allocated);
  dit_runtime_shutdown();
}

static void stress_scripted_device(uint64_t seed) {
  struct dit_error err = {0};
  struct dit_allocator_vtable vtable = fake_vtable;
  vtable.memory_alloc = tracked_alloc;
  vtable.memory_free = tracked_free;
  fake_device_init(&device, 192 * MIB, 0);
  for (int i = 0; i < 2; i++) {
    CHECK_OK(dit_allocator_create(i, &vtable, &device, &allocators[i], &err));
  }
  run_threads(work, seed);
  for (int i = 0; i < SHELVES; i++) {
    void *block = atomic_exchange(&shelves[i], NULL);
    if (block) {
      verify_and_free(block);
    }
  }
  CHECK(taken == given);
  for (int i = 0; i < 2; i++) {
    struct dit_memory_stats stats;
    CHECK_OK(dit_allocator_empty_cache(allocators[i], &err));
    CHECK(dit_allocator_check(allocators[i], &err));
    dit_allocator_get_stats(allocators[i], &stats);
    CHECK(stats.reserved_bytes[DIT_POOL_ALL].current == 0 && stats.active[DIT_POOL_ALL].current == 0);
    dit_allocator_destroy(allocators[i]);
  }
  CHECK(device.used == 0 && device.events == 0);
  printf("ok   scripted device, %llu blocks on %d threads, %llu times full\n", (unsigned long long)taken, THREADS,
         (unsigned long long)full);
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 7;
  rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : rounds;
  part_seconds = argc > 3 ? atof(argv[3]) : part_seconds;
  printf("seed %llu, up to %llu rounds\n", (unsigned long long)seed, (unsigned long long)rounds);
  stress_scripted_device(seed);
  static const char *const algorithms[] = {"torch", "bf", "bs", "raw"};
  for (int i = 0; i < 8; i++) {
    stress_embedded_device(algorithms[i % 4], i >= 4, seed + (uint64_t)i);
  }
  return 0;
}
