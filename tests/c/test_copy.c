/// Copies and fills: all directions, stream order, what "asynchronous" means for pageable and pinned memory, bad
/// arguments.
#include "device_test.h"

enum { SIZE = 100000 };

static void fill_pattern(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (unsigned char)(i * 7 + seed);
  }
}

static void test_directions(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  static unsigned char source[SIZE], result[SIZE];
  struct dit_error err = {0};
  start_host(two);
  unsigned char *zero = take_memory(0, SIZE), *one = take_memory(1, SIZE);
  unsigned seed = 1;
  for (int stream = 0; stream < 3; stream++) {
    for (int async = 0; async < 2; async++) {
      fill_pattern(source, SIZE, ++seed);
      CHECK_OK(dit_memory_copy(zero, 0, source, -1, SIZE, 0, stream, async, &err));
      CHECK_OK(dit_memory_copy(one, 1, zero, 0, SIZE, 0, stream, async, &err));
      CHECK_OK(dit_memory_copy(result, -1, one, 1, SIZE, 0, stream, async, &err));
      CHECK(memcmp(source, result, SIZE) == 0);  // pageable: valid on return, also when async
      CHECK_OK(dit_memory_copy(one + 10, 1, one + 20, 1, 1000, 1, stream, false, &err));
      CHECK(one[10] == source[20]);  // overlapping ranges
      memset(result, 0, SIZE);
      CHECK_OK(dit_memory_copy(result, -1, source, -1, SIZE, 1, stream, async, &err));
      CHECK(memcmp(source, result, SIZE) == 0);
    }
  }
  give_memory(0, zero);
  give_memory(1, one);
}

static void test_arguments(void) {
  struct dit_error err = {0};
  char host = 1;
  start_host(NULL);
  char *memory = take_memory(0, 512);
  CHECK(dit_memory_copy(memory, 1, &host, -1, 1, 0, 0, false, &err) == DIT_ERR_ORDINAL);
  CHECK_CONTAINS(err.message, "invalid device ordinal");
  CHECK(dit_memory_copy(memory, 0, &host, -2, 1, 0, 0, false, &err) == DIT_ERR_ORDINAL);
  CHECK(dit_memory_copy(memory, 0, &host, -1, 1, -1, 0, false, &err) == DIT_ERR_ORDINAL);
  CHECK(dit_memory_copy(memory, 0, &host, -1, 1, 0, 99, false, &err) == DIT_ERR_INVALID);
  CHECK(dit_memory_copy(NULL, 0, &host, -1, 1, 0, 0, false, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "destination pointer is NULL");
  CHECK(dit_memory_copy(memory, 0, NULL, -1, 1, 0, 0, true, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "source pointer is NULL");
  CHECK_OK(dit_memory_copy(NULL, 0, NULL, -1, 0, 0, 1, true, &err));
  CHECK_OK(dit_memory_copy(NULL, -1, NULL, -1, 0, 0, 1, false, &err));
  CHECK(dit_memory_set(NULL, 0, 0, 1, 0, &err) == DIT_ERR_INVALID);
  CHECK(dit_memory_set(memory, 4, 0, 1, 0, &err) == DIT_ERR_ORDINAL);
  CHECK_OK(dit_memory_set(NULL, 0, 0, 0, 0, &err));
  give_memory(0, memory);
}

/// A synchronous copy on a side stream waits for what is queued before it.
static void test_stream_order(void) {
  struct dit_error err = {0};
  unsigned char result[64];
  start_host(NULL);
  unsigned char *memory = take_memory(0, 64);
  for (int i = 0; i < 200; i++) {
    CHECK_OK(dit_memory_set(memory, 0, i, 64, 1, &err));
    CHECK_OK(dit_memory_copy(result, -1, memory, 0, 64, 0, 1, false, &err));
    CHECK(result[0] == (unsigned char)i && result[63] == (unsigned char)i);
    CHECK_OK(dit_memory_set(memory, 0, i + 1, 64, 1, &err));
    CHECK_OK(dit_memory_copy(result, -1, result, -1, 64, 0, 1, false, &err));  // host to host waits too
    CHECK(memory[0] == (unsigned char)(i + 1));
  }
  give_memory(0, memory);
}

static void *open_now(void *context) {
  gate_await(context);
  gate_open(context);
  return NULL;
}

/// Pageable source, "async": consumed on return although the stream was blocked before.
static void test_pageable_is_consumed(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  pthread_t thread;
  char source = 7;
  start_host(NULL);
  char *memory = take_memory(0, 512);
  memory[0] = 0;
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK(pthread_create(&thread, NULL, open_now, &gate) == 0);
  CHECK_OK(dit_memory_copy(memory, 0, &source, -1, 1, 0, 1, true, &err));
  source = 9;
  CHECK(memory[0] == 7);
  CHECK(pthread_join(thread, NULL) == 0);
  give_memory(0, memory);
}

/// Pinned source, async: returns while the stream is blocked; freeing the block at once does not hand it out again.
static void test_pinned_is_async(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  void *pinned, *other;
  bool idle;
  start_host(NULL);
  char *memory = take_memory(0, 2048);
  memory[0] = 0;
  CHECK_OK(dit_host_alloc(2048, &pinned, &err));
  memset(pinned, 5, 2048);
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_memory_copy(memory, 0, (char *)pinned + 1024, -1, 1024, 0, 1, true, &err));
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(!idle);
  dit_host_free(pinned);
  CHECK_OK(dit_host_alloc(2048, &other, &err));
  CHECK(other != pinned);
  memset(other, 6, 2048);
  gate_open(&gate);
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK(memory[0] == 5 && memory[1023] == 5);
  dit_host_free(other);
  CHECK_OK(dit_host_alloc(2048, &other, &err));
  dit_host_free(other);
  give_memory(0, memory);
}

/// A range that leaves its pinned block is pageable; a registered range counts as pinned.
static void test_ranges(void) {
  static char registered[4096];
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  bool idle;
  start_host(NULL);
  char *memory = take_memory(0, 4096);
  CHECK_OK(dit_host_register(registered, sizeof registered, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_memory_copy(memory, 0, registered + 10, -1, 100, 0, 1, true, &err));
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(!idle);
  gate_open(&gate);
  CHECK_OK(dit_memory_copy(registered, -1, memory, 0, 4096, 0, 1, true, &err));
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK_OK(dit_host_unregister(registered, &err));
  CHECK_OK(dit_host_register(registered, 50, &err));
  CHECK_OK(dit_memory_copy(memory, 0, registered, -1, 100, 0, 1, true, &err));
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(idle);  // waited for
  CHECK_OK(dit_host_unregister(registered, &err));
  give_memory(0, memory);
}

static void test_failures(void) {
  struct dit_error err = {0};
  void *pinned;
  char host = 3;
  start_host(NULL);
  char *memory = take_memory(0, 512);
  memory[0] = 0;
  CHECK_OK(dit_host_alloc(64, &pinned, &err));
  memset(pinned, 1, 64);
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  dit_alloc_set_failure(0);
  CHECK(dit_memory_copy(memory, 0, &host, -1, 1, 0, 1, false, &err) == DIT_ERR_NOMEM);
  CHECK(dit_memory_copy(memory, 0, pinned, -1, 1, 0, 1, true, &err) == DIT_ERR_NOMEM);
  CHECK(dit_memory_set(memory, 0, 1, 1, 1, &err) == DIT_ERR_NOMEM);
  CHECK_OK(dit_memory_copy(memory, 0, &host, -1, 1, 0, 0, false, &err));  // inline needs none
  dit_alloc_set_failure(-1);
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK(memory[0] == 3);
  dit_host_free(pinned);
  give_memory(0, memory);
}

int main(void) {
  RUN(test_directions);
  RUN(test_arguments);
  RUN(test_stream_order);
  RUN(test_pageable_is_consumed);
  RUN(test_pinned_is_async);
  RUN(test_ranges);
  RUN(test_failures);
  dit_runtime_shutdown();
  return 0;
}
