/// The algorithms BF, BS and RAW next to TORCH: what each of them decides, and that the rest is the same for all.
#include "device_test.h"
#include "test_allocator_device.h"

#define GIB ((size_t)1 << 30)

static struct dit_error err;
static struct fake_device device;
static const char *const names[] = {"torch", "bf", "bs", "raw"};

static struct dit_allocator_config get_config(enum dit_memory_algorithm algorithm) {
  struct dit_allocator_config config;
  dit_allocator_config_init(&config);
  config.algorithm = algorithm;
  return config;
}

static struct dit_allocator *start_with(const struct dit_allocator_config *config, uint64_t capacity) {
  struct dit_allocator *allocator = NULL;
  fake_device_init(&device, capacity, (uintptr_t)1 << 40);
  CHECK_OK(dit_allocator_create(0, &fake_vtable, &device, &allocator, &err));
  dit_allocator_set_config(allocator, config);
  return allocator;
}

static struct dit_allocator *start(enum dit_memory_algorithm algorithm, uint64_t capacity) {
  struct dit_allocator_config config = get_config(algorithm);
  return start_with(&config, capacity);
}

static void finish(struct dit_allocator *allocator) {
  CHECK(dit_allocator_check(allocator, &err));
  dit_allocator_destroy(allocator);
  CHECK(device.used == 0 && device.events == 0 && !device.complaint[0]);
}

static char *take(struct dit_allocator *allocator, size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_allocator_alloc(allocator, 0, size, &ptr, &err));
  return ptr;
}

static size_t get_size(const void *ptr) {
  void *base;
  size_t size;
  int number;
  CHECK(dit_allocator_find(ptr, &base, &size, &number) && base == ptr);
  return size;
}

static struct dit_memory_stats get_stats(struct dit_allocator *allocator) {
  struct dit_memory_stats stats;
  dit_allocator_get_stats(allocator, &stats);
  return stats;
}

// BF

static void test_bf_takes_the_smallest_block_that_fits(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BF, 1024 * MIB);
  static const size_t units[] = {900, 300, 500, 310, 700};
  char *blocks[5], *walls[5];
  for (int i = 0; i < 5; i++) {
    blocks[i] = take(allocator, units[i] * 512);
    walls[i] = take(allocator, 512);  // keeps the neighbours apart
  }
  for (int i = 0; i < 5; i++) {
    CHECK(dit_allocator_free(blocks[i]));
  }
  CHECK(take(allocator, 305 * 512) == blocks[3]);  // 310, not 300, 500, 700 or 900
  CHECK(take(allocator, 290 * 512) == blocks[1]);
  CHECK(take(allocator, 301 * 512) == blocks[2]);
  CHECK(take(allocator, 699 * 512) == blocks[4]);
  for (int i = 0; i < 5; i++) {
    CHECK(dit_allocator_free(walls[i]));
  }
  finish(allocator);
}

static void test_bf_splits_at_twice_the_size_or_8_mib_more(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BF, 1024 * MIB);
  char *block = take(allocator, 1000 * 512), *wall = take(allocator, 512);
  CHECK(get_size(block) == 1000 * 512);
  dit_allocator_free(block);
  CHECK(take(allocator, 501 * 512) == block && get_size(block) == 1000 * 512);
  dit_allocator_free(block);
  CHECK(take(allocator, 500 * 512) == block && get_size(block) == 500 * 512);
  dit_allocator_free(block);
  char *big = take(allocator, 40 * MIB);
  dit_allocator_free(big);
  CHECK(take(allocator, 33 * MIB) == big && get_size(big) == 40 * MIB);
  dit_allocator_free(big);
  CHECK(take(allocator, 32 * MIB) == big && get_size(big) == 32 * MIB);
  dit_allocator_free(big);
  dit_allocator_free(wall);
  finish(allocator);
}

static void test_bf_joins_free_neighbours(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BF, 1024 * MIB);
  char *a = take(allocator, 3 * MIB), *b = take(allocator, 1000), *c = take(allocator, 2 * MIB);
  CHECK(b == a + 3 * MIB && c == b + 1024);
  dit_allocator_free(a);
  dit_allocator_free(c);
  CHECK(get_stats(allocator).inactive_split[DIT_POOL_ALL].current == 2);
  dit_allocator_free(b);
  CHECK(get_stats(allocator).inactive_split[DIT_POOL_ALL].current == 0);
  CHECK(take(allocator, 8 * MIB) == a);
  finish(allocator);
}

static void test_bf_grows_by_steps_that_double(void) {
  struct dit_allocator_config config = get_config(DIT_ALGORITHM_BF);
  config.max_extend = 32 * MIB;
  struct dit_allocator *allocator = start_with(&config, 256 * MIB);
  static const uint64_t held[] = {8, 24, 24, 56, 56, 56, 56, 88};
  for (int i = 0; i < 8; i++) {
    take(allocator, 8 * MIB);
    CHECK(device.used == held[i] * MIB);
  }
  take(allocator, 100 * MIB);  // larger than a step
  CHECK(device.used <= 188 * MIB + 32 * MIB);
  finish(allocator);
}

static void test_bf_takes_the_request_alone_on_a_full_device(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BF, 12 * MIB);
  char *a = take(allocator, 8 * MIB);
  CHECK(device.used == 8 * MIB);
  char *b = take(allocator, 3 * MIB);  // a step of 16 MiB does not fit
  CHECK(device.used == 11 * MIB && get_stats(allocator).num_alloc_retries == 0);
  void *ptr = NULL;
  CHECK(dit_allocator_alloc(allocator, 0, 2 * MIB, &ptr, &err) == DIT_ERR_NOMEM && !ptr);
  CHECK_CONTAINS(err.message, "CUDA out of memory. Tried to allocate 2.00 MiB");
  dit_allocator_free(a);
  CHECK_OK(dit_allocator_alloc(allocator, 1, 9 * MIB, &ptr, &err));  // another stream: the cache goes back first
  CHECK(get_stats(allocator).num_alloc_retries == 2 && get_stats(allocator).num_ooms == 1);
  dit_allocator_free(b);
  finish(allocator);
}

static void test_dipu_13_bf_steps_of_2_gib_and_more(void) {
  struct dit_allocator_config config = get_config(DIT_ALGORITHM_BF);
  config.max_extend = 4 * GIB;
  struct dit_allocator *allocator = start_with(&config, 64 * GIB);
  uint64_t largest = 0;
  for (int i = 0; i < 1200; i++) {
    uint64_t before = device.used;
    take(allocator, 7 * MIB);
    largest = device.used - before > largest ? device.used - before : largest;
  }
  CHECK(largest == 4 * GIB);
  finish(allocator);
}

static void test_bf_finds_any_address_of_a_large_block(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BF, 8 * GIB);
  char *small = take(allocator, 512), *large = take(allocator, 3 * GIB);
  void *base;
  size_t size;
  int number;
  for (size_t offset = 0; offset < 3 * GIB; offset += 77 * MIB + 512) {
    CHECK(dit_allocator_find(large + offset, &base, &size, &number) && base == large);
  }
  CHECK(dit_allocator_find(large + 3 * GIB - 1, &base, &size, &number) && base == large);
  CHECK(dit_allocator_find(small + 511, &base, &size, &number) && base == small);
  finish(allocator);
}

// BS

static void test_bs_keeps_blocks_for_the_same_size(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_BS, 64 * MIB);
  char *a = take(allocator, 1000), *b = take(allocator, 2000);
  CHECK(get_size(a) == 1024 && get_size(b) == 2048 && device.used == 3072);
  dit_allocator_free(a);
  dit_allocator_free(b);
  CHECK(device.used == 3072);
  char *c = take(allocator, 1500);  // 2048 would hold it, but its bucket is another one
  CHECK(c != a && c != b && device.used == 3072 + 1536);
  CHECK(take(allocator, 1024) == a && take(allocator, 1537) == b);
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(device.used == 3072 + 1536);
  finish(allocator);
}

static void test_bs_smallest_block_and_powers_of_two(void) {
  struct dit_allocator_config config = get_config(DIT_ALGORITHM_BS);
  config.min_size = 4000;
  struct dit_allocator *allocator = start_with(&config, 64 * MIB);
  CHECK(get_size(take(allocator, 1)) == 4096);
  config.min_size = 511;  // DIPU's other default
  config.adaptable = true;
  dit_allocator_set_config(allocator, &config);
  CHECK(get_size(take(allocator, 1)) == 512 && get_size(take(allocator, 513)) == 1024);
  CHECK(get_size(take(allocator, 5 * MIB)) == 8 * MIB && get_size(take(allocator, 8 * MIB)) == 8 * MIB);
  finish(allocator);
}

static void test_dipu_13_bs_sizes_above_2_gib_are_not_cut(void) {
  struct dit_allocator_config config = get_config(DIT_ALGORITHM_BS);
  config.adaptable = true;
  struct dit_allocator *allocator = start_with(&config, 64 * GIB);
  CHECK(get_size(take(allocator, 2 * GIB)) == 2 * GIB);
  CHECK(get_size(take(allocator, 3 * GIB + 7)) == 4 * GIB);
  CHECK(get_size(take(allocator, 9 * GIB)) == 16 * GIB);
  finish(allocator);
}

// All

static void test_frees_poll_when_many_wait(void) {
  for (int algorithm = DIT_ALGORITHM_BF; algorithm <= DIT_ALGORITHM_BS; algorithm++) {
    struct dit_allocator_config config = get_config((enum dit_memory_algorithm)algorithm);
    config.max_pending = 2;
    struct dit_allocator *allocator = start_with(&config, 64 * MIB);
    char *blocks[5];
    for (int i = 0; i < 5; i++) {
      blocks[i] = take(allocator, 1 * MIB);
      CHECK_OK(dit_allocator_record_stream(blocks[i], 1, &err));
      fake_queue_work(&device, blocks[i], MIB, 1);
    }
    for (int i = 0; i < 4; i++) {
      dit_allocator_free(blocks[i]);
    }
    CHECK(get_stats(allocator).active[DIT_POOL_ALL].current == 5);
    fake_complete(&device, 1, 5);
    CHECK(get_stats(allocator).active[DIT_POOL_ALL].current == 5);
    dit_allocator_free(blocks[4]);
    CHECK(get_stats(allocator).active[DIT_POOL_ALL].current == 0);
    finish(allocator);
  }
}

static void test_algorithms_change_while_blocks_live(void) {
  struct dit_allocator *allocator = start(DIT_ALGORITHM_TORCH, 512 * MIB);
  char *blocks[DIT_ALGORITHM_COUNT][4];
  for (int algorithm = 0; algorithm < DIT_ALGORITHM_COUNT; algorithm++) {
    struct dit_allocator_config config = get_config((enum dit_memory_algorithm)algorithm);
    dit_allocator_set_config(allocator, &config);
    for (int i = 0; i < 4; i++) {
      blocks[algorithm][i] = take(allocator, (size_t)(i + 1) * 700000);
    }
    CHECK(dit_allocator_check(allocator, &err));
  }
  for (int i = 3; i >= 0; i--) {
    for (int algorithm = 0; algorithm < DIT_ALGORITHM_COUNT; algorithm++) {
      CHECK(dit_allocator_free(blocks[algorithm][i]));
      CHECK(dit_allocator_check(allocator, &err));
    }
  }
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(device.used == 0);
  finish(allocator);
}

static void test_dipu_15_events_of_all_devices_are_destroyed(void) {
  static struct fake_device two[2];
  struct dit_allocator *allocators[2];
  for (int i = 0; i < 2; i++) {
    struct dit_allocator_config config = get_config(DIT_ALGORITHM_BS);
    fake_device_init(&two[i], 64 * MIB, (uintptr_t)(i + 1) << 42);
    CHECK_OK(dit_allocator_create(i, &fake_vtable, &two[i], &allocators[i], &err));
    dit_allocator_set_config(allocators[i], &config);
    for (int j = 0; j < 20; j++) {
      char *block = take(allocators[i], 5000);
      CHECK_OK(dit_allocator_record_stream(block, 1 + j % 3, &err));
      dit_allocator_free(block);
    }
    CHECK(two[i].events > 0 && two[i].events <= 20);
  }
  for (int i = 0; i < 2; i++) {
    dit_allocator_destroy(allocators[i]);
    CHECK(two[i].events == 0 && two[i].used == 0 && !two[i].complaint[0]);
  }
}

// The embedded device

static void test_options_choose(void) {
  for (int i = 0; i < DIT_ALGORITHM_COUNT; i++) {
    start_host((const char *[]){"allocator", names[i], NULL});
    CHECK(dit_memory_get_algorithm() == (enum dit_memory_algorithm)i);
    CHECK_OK(dit_memory_configure("backend:raw", &err));
    CHECK(dit_memory_get_algorithm() == DIT_ALGORITHM_RAW);
    CHECK_OK(dit_memory_configure("max_split_size_mb:64", &err));  // without backend the option counts again
    CHECK(dit_memory_get_algorithm() == (enum dit_memory_algorithm)i);
    CHECK_OK(dit_memory_configure("", &err));
  }
}

static void test_bad_configuration_names_its_origin(void) {
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_option_set("alloc_conf", "max_split_size:20", &err));
  CHECK(dit_runtime_init("host", &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "option 'alloc_conf' is 'max_split_size:20'");
  CHECK_CONTAINS(err.message, "max_split_size_mb");
  CHECK(!dit_runtime_is_active());
  dit_options_reset();
  setenv("DIPU_TORCH_ALLOCATOR_CONF", "garbage_collection_threshold:2", 1);
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(dit_runtime_init("host", &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "environment variable DIPU_TORCH_ALLOCATOR_CONF is 'garbage_collection_threshold:2'");
  unsetenv("DIPU_TORCH_ALLOCATOR_CONF");
  dit_options_reset();
}

static int64_t read_option(const char *variable, const char *value, const char *option) {
  setenv(variable, value, 1);
  dit_options_reset();
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(strcmp(dit_option_get_variable(dit_option_find(option)), variable) == 0);
  int64_t number = dit_option_get_int(dit_option_find(option));
  unsetenv(variable);
  dit_options_reset();
  return number;
}

static void test_variables_of_dipu(void) {
  CHECK(read_option("DIPU_DEVICE_MEMCACHING_ALGORITHM", "BF", "allocator") == DIT_ALGORITHM_BF);
  CHECK(read_option("DIPU_HOST_MEMCACHING_ALGORITHM", "RAW", "host_allocator") == DIT_ALGORITHM_RAW);
  CHECK(read_option("DIPU_MAX_EXTEND_SIZE", "2048", "allocator_extend") == (int64_t)(2 * GIB));  // dipu 13
  CHECK(read_option("DIPU_MAX_ASYNC_RESOURCE_POOL_LENGTH", "7", "allocator_pending") == 7);
  CHECK(read_option("DIPU_BS_ALLOCATOR_MIN_ALLOCATE_SIZE", "1024", "allocator_min_size") == 1024);
  CHECK(read_option("DIPU_BS_MORE_ADAPTABLE", "1", "allocator_adaptable") == 1);
  CHECK(read_option("DIPU_CPU_AFFINITY", "-3", "cpu_affinity") == -3);
  static const char *const bad[][2] = {{"DIPU_MAX_EXTEND_SIZE", "huge"},
                                       {"DIPU_DEVICE_MEMCACHING_ALGORITHM", "BEST"},
                                       {"DIPU_MEM_CHECK", "perhaps"},
                                       {"DIPU_MAX_ASYNC_RESOURCE_POOL_LENGTH", "-1"}};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    setenv(bad[i][0], bad[i][1], 1);
    CHECK(dit_options_load(NULL, &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, bad[i][0]);
    CHECK_CONTAINS(err.message, bad[i][1]);
    unsetenv(bad[i][0]);
  }
  setenv("DITORCH_ALLOCATOR", "bs", 1);  // our own variable wins
  setenv("DIPU_DEVICE_MEMCACHING_ALGORITHM", "RAW", 1);
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(dit_option_get_int(dit_option_find("allocator")) == DIT_ALGORITHM_BS);
  unsetenv("DITORCH_ALLOCATOR");
  unsetenv("DIPU_DEVICE_MEMCACHING_ALGORITHM");
  dit_options_reset();
}

static void test_dipu_25_many_devices(void) {
  for (int i = 0; i < DIT_ALGORITHM_COUNT; i++) {
    start_host((const char *[]){"allocator", names[i], "host_devices", "40", NULL});
    for (int number = 0; number < 40; number += 13) {
      void *block = NULL;
      int64_t stream;
      CHECK_OK(dit_memory_alloc(number, 0, 100000, &block, &err));
      memset(block, number, 100000);
      CHECK_OK(dit_stream_acquire(number, 0, &stream, &err));
      CHECK_OK(dit_memory_record_stream(block, stream, &err));
      dit_memory_free(block);
      CHECK_OK(dit_memory_empty_cache(number, &err));
      struct dit_memory_stats stats;
      CHECK_OK(dit_memory_get_stats(number, &stats, &err));
      CHECK(stats.reserved_bytes[DIT_POOL_ALL].current == 0);
    }
  }
}

static void test_dipu_14_properties_of_no_device(void) {
  struct dit_device_properties properties;
  start_host(NULL);
  CHECK(dit_device_get_properties(-1, &properties, &err) == DIT_ERR_ORDINAL);
  CHECK_CONTAINS(err.message, "invalid device ordinal: -1");
}

// Pinned memory

static void check_pinned(const char *device_algorithm, const char *host_algorithm) {
  start_host((const char *[]){"allocator", device_algorithm, "host_allocator", host_algorithm, NULL});
  struct gate gate = GATE_INITIALIZER;
  struct dit_host_stats stats;
  int64_t stream;
  void *a = NULL, *b = NULL, *c = NULL;
  CHECK_OK(dit_host_alloc(3000, &a, &err));
  memset(a, 5, 3000);
  CHECK(dit_host_is_pinned(a) && dit_host_is_pinned((char *)a + 2999) && !dit_host_is_pinned(&stats));
  dit_memory_free(a);  // not the device's to free
  void *base;
  size_t size;
  int number;
  CHECK(dit_host_is_pinned(a) && !dit_memory_find(a, &base, &size, &number));
  CHECK(dit_memory_record_stream(a, 0, &err) == DIT_ERR_INVALID);
  dit_host_get_stats(&stats);
  CHECK(stats.allocations == 1 && stats.allocated_current >= 3000 && stats.reserved_current >= stats.allocated_current);
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
  CHECK_OK(dit_stream_launch_host(0, stream, gate_wait, &gate, &err));
  CHECK_OK(dit_host_record_stream(a, 0, stream, &err));
  gate_await(&gate);
  dit_host_free(a);
  CHECK(!dit_host_is_pinned(a));
  CHECK_OK(dit_host_alloc(3000, &b, &err));
  CHECK(b != a);  // the stream may still use it
  gate_open(&gate);
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK_OK(dit_host_alloc(3000, &c, &err));
  CHECK(strcmp(host_algorithm, "raw") == 0 || strcmp(host_algorithm, "bf") == 0 || c == a);
  dit_host_free(b);
  dit_host_free(c);
  dit_host_free(c);  // twice: ignored
  dit_host_empty_cache();
  dit_host_get_stats(&stats);
  CHECK(stats.allocated_current == 0 && stats.reserved_current == 0 && stats.frees == 3);
  CHECK(stats.vendor_allocations == stats.vendor_frees && stats.allocated_peak >= 6000);
  CHECK(dit_host_alloc(SIZE_MAX / 8, &a, &err) == DIT_ERR_NOMEM);
}

static void test_pinned_memory_under_each_algorithm(void) {
  for (int i = 0; i < DIT_ALGORITHM_COUNT; i++) {
    check_pinned("torch", names[i]);
  }
}

static void test_pinned_memory_when_host_memory_runs_out(void) {
  for (int i = 0; i < DIT_ALGORITHM_COUNT; i++) {
    for (int after = 0; after < 12; after++) {
      start_host((const char *[]){"host_allocator", names[i], NULL});
      int64_t stream;
      void *ptr = &stream;
      CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
      dit_alloc_set_failure(after);
      enum dit_status status = dit_host_alloc(5000, &ptr, &err);
      CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && ptr == &stream));
      if (status == DIT_OK) {
        enum dit_status recorded = dit_host_record_stream(ptr, 0, stream, &err);
        CHECK(recorded == DIT_OK || recorded == DIT_ERR_NOMEM);
        dit_host_free(ptr);
      }
      dit_alloc_set_failure(-1);
      struct dit_host_stats stats;
      CHECK_OK(dit_device_synchronize(0, &err));
      dit_host_empty_cache();
      dit_host_get_stats(&stats);
      CHECK(stats.allocated_current == 0 && stats.reserved_current == 0 && stats.allocations == stats.frees);
    }
  }
}

static void test_dipu_12_device_and_host_algorithms_are_independent(void) {
  check_pinned("bf", "torch");
  check_pinned("raw", "bs");
}

int main(void) {
  RUN(test_bf_takes_the_smallest_block_that_fits);
  RUN(test_bf_splits_at_twice_the_size_or_8_mib_more);
  RUN(test_bf_joins_free_neighbours);
  RUN(test_bf_grows_by_steps_that_double);
  RUN(test_bf_takes_the_request_alone_on_a_full_device);
  RUN(test_dipu_13_bf_steps_of_2_gib_and_more);
  RUN(test_bf_finds_any_address_of_a_large_block);
  RUN(test_bs_keeps_blocks_for_the_same_size);
  RUN(test_bs_smallest_block_and_powers_of_two);
  RUN(test_dipu_13_bs_sizes_above_2_gib_are_not_cut);
  RUN(test_frees_poll_when_many_wait);
  RUN(test_algorithms_change_while_blocks_live);
  RUN(test_dipu_15_events_of_all_devices_are_destroyed);
  RUN(test_options_choose);
  RUN(test_bad_configuration_names_its_origin);
  RUN(test_variables_of_dipu);
  RUN(test_dipu_25_many_devices);
  RUN(test_dipu_14_properties_of_no_device);
  RUN(test_pinned_memory_under_each_algorithm);
  RUN(test_pinned_memory_when_host_memory_runs_out);
  RUN(test_dipu_12_device_and_host_algorithms_are_independent);
  dit_runtime_shutdown();
  return 0;
}
