/// Pinned host memory: sizes, reuse, the index, event-guarded reuse, registered ranges, statistics, threads, failures.
#include "device_test.h"
#include "dit/host_times.h"

static void test_sizes(void) {
  struct dit_error err = {0};
  void *ptr = &err;
  start_host(NULL);
  CHECK_OK(dit_host_alloc(0, &ptr, &err));
  CHECK(ptr == NULL);
  static const size_t sizes[] = {1, 63, 512, 513, 4096, 100000, 1 << 20, (1 << 20) + 1, 5 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    CHECK_OK(dit_host_alloc(sizes[i], &ptr, &err));
    CHECK((uintptr_t)ptr % 64 == 0);
    memset(ptr, 1, sizes[i]);
    CHECK(dit_host_is_pinned(ptr) && dit_host_is_pinned((char *)ptr + sizes[i] - 1));
    dit_host_free(ptr);
    CHECK(!dit_host_is_pinned(ptr));
  }
  ptr = NULL;
  CHECK(dit_host_alloc(SIZE_MAX, &ptr, &err) == DIT_ERR_NOMEM && !ptr);
  CHECK(dit_host_alloc((size_t)1 << 60, &ptr, &err) == DIT_ERR_NOMEM && !ptr);
  CHECK_CONTAINS(err.message, "1152921504606846976");
}

static void test_reuse(void) {
  struct dit_error err = {0};
  void *first, *second;
  start_host(NULL);
  CHECK_OK(dit_host_alloc(1000, &first, &err));
  dit_host_free(first);
  CHECK_OK(dit_host_alloc(600, &second, &err));  // same class: 1024
  CHECK(second == first);
  CHECK_OK(dit_host_alloc(600, &first, &err));
  CHECK(second != first);
  dit_host_free(first);
  dit_host_free(second);
  dit_host_free(second);  // twice: ignored
  dit_host_free(&err);    // never ours: ignored
  CHECK_OK(dit_host_alloc(600, &first, &err));
  CHECK_OK(dit_host_alloc(600, &second, &err));
  CHECK(first != second);             // the double free did not put it into the cache twice
  dit_host_free((char *)first + 64);  // inside: ignored
  CHECK(dit_host_is_pinned(first));
  dit_host_free(first);
  dit_host_free(second);
}

static void test_index(void) {
  enum { COUNT = 500 };
  static char *blocks[COUNT];
  struct dit_error err = {0};
  char local;
  start_host(NULL);
  for (int i = 0; i < COUNT; i++) {
    void *ptr;
    CHECK_OK(dit_host_alloc((size_t)1 << (9 + i % 6), &ptr, &err));
    blocks[i] = ptr;
  }
  for (int i = 0; i < COUNT; i += 2) {
    dit_host_free(blocks[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    size_t size = (size_t)1 << (9 + i % 6);
    CHECK(dit_host_is_pinned(blocks[i]) == (i % 2 == 1));
    CHECK(dit_host_is_pinned(blocks[i] + size / 2) == (i % 2 == 1));
    CHECK(dit_host_is_pinned(blocks[i] + size - 1) == (i % 2 == 1));
  }
  CHECK(!dit_host_is_pinned(NULL) && !dit_host_is_pinned(&local) && !dit_host_is_pinned((void *)UINTPTR_MAX));
  dit_host_empty_cache();
  for (int i = 0; i < COUNT; i++) {
    CHECK(dit_host_is_pinned(blocks[i]) == (i % 2 == 1));
  }
  for (int i = 1; i < COUNT; i += 2) {
    dit_host_free(blocks[i]);
  }
}

/// A block used by a blocked stream is not reused and not given back; afterwards it is.
static void test_streams(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  struct gate gates[2] = {GATE_INITIALIZER, GATE_INITIALIZER};
  struct dit_host_stats stats;
  void *block, *other;
  start_host(two);
  CHECK_OK(dit_host_alloc(4096, &block, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gates[0], &err));
  CHECK_OK(dit_stream_launch_host(1, 1, gate_wait, &gates[1], &err));
  CHECK_OK(dit_host_record_stream((char *)block + 100, 0, 1, &err));
  CHECK_OK(dit_host_record_stream(block, 0, 1, &err));
  CHECK_OK(dit_host_record_stream(block, 1, 1, &err));
  CHECK_OK(dit_host_record_stream(block, 0, 0, &err));
  CHECK(dit_host_record_stream(&err, 0, 1, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "not inside a live pinned");
  CHECK(dit_host_record_stream(block, 2, 1, &err) == DIT_ERR_ORDINAL);
  dit_host_free(block);
  CHECK(!dit_host_is_pinned(block));
  CHECK_OK(dit_host_alloc(4096, &other, &err));
  CHECK(other != block);
  dit_host_free(other);
  gate_open(&gates[0]);
  CHECK_OK(dit_device_synchronize(0, &err));
  dit_host_empty_cache();
  dit_host_get_stats(&stats);
  CHECK(stats.reserved_current == 4096);  // still held for the other device
  gate_open(&gates[1]);
  CHECK_OK(dit_device_synchronize(1, &err));
  CHECK_OK(dit_host_alloc(4096, &other, &err));
  CHECK(other == block);
  dit_host_free(other);
  dit_host_empty_cache();
  dit_host_get_stats(&stats);
  CHECK(stats.reserved_current == 0 && stats.vendor_allocations == stats.vendor_frees);
}

static void test_registered(void) {
  static char range[1000];
  struct dit_error err = {0};
  void *block;
  start_host(NULL);
  CHECK(!dit_host_is_pinned(range));
  CHECK_OK(dit_host_register(range + 100, 500, &err));
  CHECK(dit_host_is_pinned(range + 100) && dit_host_is_pinned(range + 599));
  CHECK(!dit_host_is_pinned(range + 99) && !dit_host_is_pinned(range + 600));
  CHECK(dit_host_register(range, 101, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "overlap");
  CHECK(dit_host_register(range + 599, 10, &err) == DIT_ERR_INVALID);
  CHECK(dit_host_register(range + 200, 10, &err) == DIT_ERR_INVALID);
  CHECK(dit_host_register(range, 1000, &err) == DIT_ERR_INVALID);
  CHECK(dit_host_register(NULL, 10, &err) == DIT_ERR_INVALID && dit_host_register(range, 0, &err) == DIT_ERR_INVALID);
  CHECK_OK(dit_host_register(range, 100, &err));  // neighbours are fine
  CHECK_OK(dit_host_record_stream(range + 10, 0, 1, &err));
  dit_host_free(range);  // not allocated here: ignored
  CHECK(dit_host_is_pinned(range));
  CHECK_OK(dit_host_unregister(range, &err));
  CHECK(dit_host_unregister(range, &err) == DIT_ERR_INVALID);
  CHECK(dit_host_unregister(range + 200, &err) == DIT_ERR_INVALID);
  CHECK_OK(dit_host_alloc(64, &block, &err));
  CHECK(dit_host_unregister(block, &err) == DIT_ERR_INVALID);
  dit_host_free(block);
  dit_runtime_shutdown();  // one range is still registered
}

static void test_stats(void) {
  struct dit_error err = {0};
  struct dit_host_stats s;
  void *a, *b;
  start_host(NULL);
  dit_host_get_stats(&s);
  CHECK(s.allocations == 0 && s.reserved_peak == 0);
  CHECK_OK(dit_host_alloc(1000, &a, &err));
  CHECK_OK(dit_host_alloc(2000, &b, &err));
  dit_host_get_stats(&s);
  CHECK(s.allocated_current == 3072 && s.allocated_peak == 3072 && s.allocated_total == 3072 && s.freed_total == 0);
  CHECK(s.reserved_current == 3072 && s.allocations == 2 && s.vendor_allocations == 2 && s.frees == 0);
  dit_host_free(b);
  CHECK_OK(dit_host_alloc(2048, &b, &err));
  dit_host_free(b);
  dit_host_get_stats(&s);
  CHECK(s.allocated_current == 1024 && s.allocated_peak == 3072 && s.allocated_total == 5120 && s.freed_total == 4096);
  CHECK(s.allocations == 3 && s.frees == 2 && s.vendor_allocations == 2 && s.vendor_frees == 0);
  dit_host_reset_peak();
  dit_host_empty_cache();
  dit_host_get_stats(&s);
  CHECK(s.allocated_peak == 1024 && s.reserved_peak == 3072 && s.reserved_current == 1024 && s.vendor_frees == 1);
  struct dit_host_times given, taken;
  dit_host_get_times(&given, &taken);
  CHECK(given.count == 2 && given.min <= given.max && given.total >= given.max && given.total <= 2 * given.max);
  CHECK(taken.count == 1 && taken.min == taken.max && taken.total == taken.max);
  dit_host_free(a);
}

static void *churn(void *context) {
  unsigned state = *(unsigned *)context;
  struct dit_error err = {0};
  void *blocks[16] = {0};
  unsigned char marks[16] = {0};
  for (int i = 0; i < 2000; i++) {
    state = state * 1664525u + 1013904223u;
    int slot = (int)(state >> 8) % 16;
    if (blocks[slot]) {
      unsigned char *bytes = blocks[slot];
      CHECK(bytes[0] == marks[slot] && bytes[499] == marks[slot]);  // nobody else wrote here
      if (state & 1u << 20) {
        CHECK_OK(dit_host_record_stream(bytes, 0, 1 + (state >> 24) % 4, &err));
      }
      dit_host_free(bytes);
      blocks[slot] = NULL;
    } else {
      CHECK_OK(dit_host_alloc(500 + (state >> 16) % 3000, &blocks[slot], &err));
      marks[slot] = (unsigned char)(state >> 24);
      memset(blocks[slot], marks[slot], 500);
      CHECK(dit_host_is_pinned(blocks[slot]));
    }
    if (i % 500 == 499) {
      dit_host_empty_cache();
    }
  }
  for (int i = 0; i < 16; i++) {
    dit_host_free(blocks[i]);
  }
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  unsigned seeds[4] = {1, 2, 3, 4};
  struct dit_host_stats stats;
  struct dit_error err = {0};
  start_host(NULL);
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, churn, &seeds[i]) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  CHECK_OK(dit_device_synchronize(0, &err));
  dit_host_empty_cache();
  dit_host_get_stats(&stats);
  CHECK(stats.allocated_current == 0 && stats.reserved_current == 0 && stats.allocations == stats.frees);
}

static void test_failures(void) {
  struct dit_error err = {0};
  static char range[10];
  void *ptr = NULL;
  int failures = 0;
  start_host(NULL);
  int64_t live = dit_alloc_get_live();
  for (int n = 0; n < 20; n++) {
    dit_alloc_set_failure(n);
    enum dit_status status = dit_host_alloc(100, &ptr, &err);
    dit_alloc_set_failure(-1);
    CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && !ptr));
    if (status == DIT_OK) {
      break;
    }
    failures++;
    CHECK(dit_alloc_get_live() == live);
  }
  CHECK(failures >= 3 && ptr);
  dit_alloc_set_failure(0);
  CHECK(dit_host_record_stream(ptr, 0, 0, &err) == DIT_ERR_NOMEM);
  CHECK(dit_host_register(range, 10, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(-1);
  // Freeing never fails: without memory for an event it waits for the stream.
  struct gate gate = GATE_INITIALIZER;
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_host_record_stream(ptr, 0, 1, &err));
  gate_open(&gate);
  dit_alloc_set_failure(0);
  dit_host_free(ptr);
  dit_alloc_set_failure(-1);
  bool idle;
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(idle);
  dit_runtime_shutdown();
  CHECK(dit_alloc_get_live() == live);
}

int main(void) {
  dit_log_set_level(DIT_LOG_ERROR);
  RUN(test_sizes);
  RUN(test_reuse);
  RUN(test_index);
  RUN(test_streams);
  RUN(test_registered);
  RUN(test_stats);
  RUN(test_threads);
  RUN(test_failures);
  dit_runtime_shutdown();
  return 0;
}
