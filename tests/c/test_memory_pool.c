/// Pools of the caching allocator under each algorithm: whose blocks they are, what happens to them when the pool is
/// released while blocks live or work is under way, and what a thread may choose.
#include "device_test.h"
#include "dit/memory_pool.h"
#include "test_allocator_device.h"

static struct dit_error err;
static struct fake_device device;

static struct dit_allocator *start(enum dit_memory_algorithm algorithm) {
  struct dit_allocator *allocator = NULL;
  struct dit_allocator_config config;
  dit_allocator_config_init(&config);
  config.algorithm = algorithm;
  fake_device_init(&device, 1024 * (uint64_t)MIB, (uintptr_t)1 << 40);
  CHECK_OK(dit_allocator_create(0, &fake_vtable, &device, &allocator, &err));
  dit_allocator_set_config(allocator, &config);
  return allocator;
}

static void finish(struct dit_allocator *allocator) {
  CHECK(dit_allocator_check(allocator, &err));
  dit_allocator_destroy(allocator);
  CHECK(device.used == 0 && device.events == 0 && !device.complaint[0]);
}

static char *take(struct dit_allocator *allocator, int64_t pool, int64_t stream, size_t size) {
  void *ptr = NULL;
  if (pool > 0) {
    CHECK_OK(dit_memory_pool_begin(0, pool, &err));
  }
  CHECK_OK(dit_allocator_alloc(allocator, stream, size, &ptr, &err));
  if (pool > 0) {
    CHECK_OK(dit_memory_pool_end(0, pool, &err));
  }
  CHECK(dit_memory_pool_find(ptr) == pool);
  return ptr;
}

static void check_own_blocks(enum dit_memory_algorithm algorithm) {
  struct dit_allocator *allocator = start(algorithm);
  char *mine = take(allocator, 7, 0, 3 * MIB), *other = take(allocator, 8, 0, 3 * MIB);
  char *plain = take(allocator, 0, 0, 3 * MIB);
  CHECK(dit_allocator_free(mine) && dit_allocator_free(plain));
  if (algorithm != DIT_ALGORITHM_RAW) {
    CHECK(take(allocator, 0, 0, 3 * MIB) == plain);  // not the pool's, which is free too
    CHECK(take(allocator, 7, 0, 3 * MIB) == mine);
    CHECK(dit_allocator_free(mine) && dit_allocator_free(plain));
    CHECK_OK(dit_allocator_empty_cache(allocator, &err));
    CHECK(take(allocator, 7, 0, 3 * MIB) == mine);  // it stayed
    CHECK(dit_allocator_free(mine));
  }
  const uint64_t before = device.used;
  CHECK_OK(dit_allocator_release_pool(allocator, 7, &err));
  CHECK(algorithm == DIT_ALGORITHM_RAW ? device.used == before : device.used < before);
  CHECK_OK(dit_allocator_release_pool(allocator, 8, &err));
  CHECK(dit_memory_pool_find(other) == 8);  // a block lives
  CHECK(dit_allocator_free(other));
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(device.used == 0);
  finish(allocator);
}

static void test_blocks_of_a_pool_are_its_own(void) {
  check_own_blocks(DIT_ALGORITHM_TORCH);
  check_own_blocks(DIT_ALGORITHM_BF);
  check_own_blocks(DIT_ALGORITHM_BS);
  check_own_blocks(DIT_ALGORITHM_RAW);
}

static void test_work_under_way_keeps_a_block(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_TORCH);
  char *block = take(allocator, 3, 1, 4 * MIB);
  CHECK_OK(dit_allocator_record_stream(block, 2, &err));
  fake_queue_work(&device, block, 4 * MIB, 2);
  CHECK(dit_allocator_free(block));
  char *next = take(allocator, 3, 1, 4 * MIB);
  CHECK(next != block);
  CHECK(dit_allocator_free(next));
  CHECK_OK(dit_allocator_release_pool(allocator, 3, &err));  // waits, then nothing is left
  CHECK(device.used == 0);
  finish(allocator);
}

static void test_pools_come_and_go(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_TORCH);
  char *kept[10];
  for (int64_t pool = 1; pool <= 1000; pool++) {
    char *block = take(allocator, pool, pool % 3, (size_t)pool * 512);
    if (pool % 100 == 0) {
      kept[pool / 100 - 1] = block;
    } else {
      CHECK(dit_allocator_free(block));
    }
    CHECK_OK(dit_allocator_release_pool(allocator, pool, &err));
  }
  for (int i = 0; i < 10; i++) {
    CHECK(dit_memory_pool_find(kept[i]) == (i + 1) * 100 && dit_allocator_free(kept[i]));
  }
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(device.used == 0);
  CHECK_OK(dit_allocator_release_pool(allocator, 4711, &err));  // nobody knows it
  finish(allocator);
}

static void test_choices(void) {
  CHECK(dit_memory_pool_begin(0, 0, &err) == DIT_ERR_INVALID && strstr(err.message, "numbers above 0"));
  CHECK(dit_memory_pool_end(0, 5, &err) == DIT_ERR_INVALID && strstr(err.message, "not chosen by this thread"));
  struct dit_allocator *allocator = start(DIT_ALGORITHM_TORCH);
  CHECK_OK(dit_memory_pool_begin(0, 5, &err));
  CHECK_OK(dit_memory_pool_begin(1, 6, &err));  // another device
  take(allocator, 9, 0, 512);
  void *ptr = NULL;
  CHECK_OK(dit_allocator_alloc(allocator, 0, 512, &ptr, &err));
  CHECK(dit_memory_pool_find(ptr) == 5);
  CHECK_OK(dit_memory_pool_end(0, 5, &err));  // not the last one
  CHECK_OK(dit_memory_pool_end(1, 6, &err));
  for (int i = 0; i < 32; i++) {
    CHECK_OK(dit_memory_pool_begin(0, 1 + i, &err));
  }
  CHECK(dit_memory_pool_begin(0, 40, &err) == DIT_ERR_INVALID && strstr(err.message, "32 pools already"));
  for (int i = 32; i-- > 0;) {
    CHECK_OK(dit_memory_pool_end(0, 1 + i, &err));
  }
  CHECK(dit_memory_pool_find(&device) == 0);
  finish(allocator);
}

int main(void) {
  RUN(test_blocks_of_a_pool_are_its_own);
  RUN(test_work_under_way_keeps_a_block);
  RUN(test_pools_come_and_go);
  RUN(test_choices);
  return 0;
}
