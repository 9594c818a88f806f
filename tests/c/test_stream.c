/// Streams: numbers, pools, external handles, order, independence, host functions, launch blocking, devices.
#include <stdatomic.h>
#include <sys/resource.h>

#include "device_test.h"

static void test_ids(void) {
  struct dit_error err = {0};
  int64_t stream;
  void *raw, *again;
  start_host(NULL);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < DIT_STREAM_POOL_SIZE; i++) {
      CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
      CHECK(stream == 1 + i);
      CHECK(dit_stream_get_priority(0, stream) == 0);
      CHECK_OK(dit_stream_acquire(0, -3, &stream, &err));
      CHECK(stream == 33 + i);
      CHECK(dit_stream_get_priority(0, stream) == -1);
    }
  }
  CHECK_OK(dit_stream_get_raw(0, 0, &raw, &err));
  CHECK(raw == NULL);
  CHECK_OK(dit_stream_get_raw(0, 7, &raw, &err));
  CHECK_OK(dit_stream_get_raw(0, 7, &again, &err));
  CHECK(raw && raw == again);
  CHECK_OK(dit_stream_get_raw(0, 8, &again, &err));
  CHECK(again != raw);
  CHECK(dit_stream_acquire(1, 0, &stream, &err) == DIT_ERR_ORDINAL);
}

static void test_current(void) {
  struct dit_error err = {0};
  void *raw;
  start_host(NULL);
  CHECK(dit_stream_get_current(0) == 0 && !dit_stream_get_current_raw(0));
  CHECK_OK(dit_stream_set_current(0, 40, &err));  // created on first mention
  CHECK_OK(dit_stream_get_raw(0, 40, &raw, &err));
  CHECK(dit_stream_get_current(0) == 40 && dit_stream_get_current_raw(0) == raw && raw);
  CHECK(dit_stream_set_current(0, 65, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "65");
  CHECK_CONTAINS(err.message, "1 to 64");
  CHECK(dit_stream_set_current(0, -2, &err) == DIT_ERR_INVALID);
  CHECK(dit_stream_set_current(0, 0xdead0, &err) == DIT_ERR_INVALID);  // not a live handle: refused, not followed
  CHECK_CONTAINS(err.message, "0xdead0");
  CHECK(dit_stream_get_current(0) == 40 && dit_stream_get_current_raw(0) == raw);
  CHECK_OK(dit_stream_set_current(0, 0, &err));
  CHECK(!dit_stream_get_current_raw(0));
}

struct note {
  int *log;
  atomic_int *length;
  int value;
};

static void write_note(void *context) {
  const struct note *note = context;
  note->log[atomic_fetch_add(note->length, 1)] = note->value;
}

static void test_external(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  void *handle, *raw;
  bool idle;
  int log[1];
  atomic_int length = 0;
  struct note note = {log, &length, 5};
  start_host(two);
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  CHECK_OK(vtable->stream_create(0, 0, &handle, &err));
  int64_t id = (int64_t)(intptr_t)handle;
  CHECK_OK(dit_stream_get_raw(0, id, &raw, &err));
  CHECK(raw == handle);
  CHECK(dit_stream_get_raw(1, id, &raw, &err) == DIT_ERR_INVALID);  // of the other device
  CHECK_OK(dit_stream_set_current(0, id, &err));
  CHECK(dit_stream_get_current(0) == id && dit_stream_get_current_raw(0) == handle);
  CHECK_OK(dit_stream_launch_host(0, id, write_note, &note, &err));
  CHECK_OK(dit_stream_synchronize(0, id, &err));
  CHECK(atomic_load(&length) == 1 && log[0] == 5);
  CHECK_OK(dit_stream_query(0, id, &idle, &err));
  CHECK(idle && dit_stream_get_priority(0, id) == 0);
  CHECK_OK(dit_stream_set_current(0, 0, &err));
  CHECK_OK(vtable->stream_destroy(0, handle, &err));
  CHECK(dit_stream_get_raw(0, id, &raw, &err) == DIT_ERR_INVALID);
  CHECK(vtable->stream_destroy(0, handle, &err) == DIT_ERR_INVALID);
  CHECK(vtable->stream_destroy(0, NULL, &err) == DIT_ERR_INVALID);
}

/// FIFO within a stream, whatever else runs.
static void test_order(void) {
  enum { COUNT = 5000 };
  static int log[COUNT];
  static struct note notes[COUNT];
  struct dit_error err = {0};
  atomic_int length = 0;
  start_host(NULL);
  for (int i = 0; i < COUNT; i++) {
    notes[i] = (struct note){log, &length, i};
    CHECK_OK(dit_stream_launch_host(0, 1, write_note, &notes[i], &err));
  }
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK(atomic_load(&length) == COUNT);
  for (int i = 0; i < COUNT; i++) {
    CHECK(log[i] == i);
  }
}

/// The default stream runs inline and does not wait for other streams; streams do not wait for each other.
static void test_independence(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  int log[3];
  atomic_int length = 0;
  struct note first = {log, &length, 1}, second = {log, &length, 2}, third = {log, &length, 3};
  bool idle;
  start_host(NULL);
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(idle);
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, write_note, &third, &err));
  CHECK_OK(dit_stream_launch_host(0, 0, write_note, &first, &err));
  CHECK(atomic_load(&length) == 1);
  CHECK_OK(dit_stream_synchronize(0, 0, &err));  // no work of its own: returns with stream 1 still blocked
  CHECK_OK(dit_stream_launch_host(0, 2, write_note, &second, &err));
  CHECK_OK(dit_stream_synchronize(0, 2, &err));
  CHECK(atomic_load(&length) == 2);
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(!idle);
  CHECK_OK(dit_stream_query(0, 2, &idle, &err));
  CHECK(idle);
  gate_open(&gate);
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK(atomic_load(&length) == 3 && log[0] == 1 && log[1] == 2 && log[2] == 3);
  CHECK_OK(dit_stream_query(0, 1, &idle, &err));
  CHECK(idle);
}

/// Synchronising one device does not wait for another.
static void test_two_devices(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  int log[2];
  atomic_int length = 0;
  struct note note = {log, &length, 1};
  void *raw[2];
  start_host(two);
  CHECK_OK(dit_stream_get_raw(0, 1, &raw[0], &err));
  CHECK_OK(dit_stream_get_raw(1, 1, &raw[1], &err));
  CHECK(raw[0] != raw[1]);
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_stream_launch_host(1, 1, write_note, &note, &err));
  CHECK_OK(dit_device_synchronize(1, &err));
  CHECK(atomic_load(&length) == 1);
  gate_open(&gate);
  CHECK_OK(dit_device_synchronize(0, &err));
}

struct own_stream {
  enum dit_status synchronize, destroy, device;
};

static void use_own_stream(void *context) {
  struct own_stream *own = context;
  void *raw = NULL;
  own->synchronize = dit_stream_synchronize(0, 1, NULL);
  own->device = dit_device_synchronize(0, NULL);
  if (dit_stream_get_raw(0, 1, &raw, NULL) == DIT_OK) {
    own->destroy = dit_runtime_get_vtable()->stream_destroy(0, raw, NULL);
  }
}

static void test_no_self_wait(void) {
  struct dit_error err = {0};
  struct own_stream own = {DIT_OK, DIT_OK, DIT_OK};
  start_host(NULL);
  CHECK_OK(dit_stream_launch_host(0, 1, use_own_stream, &own, &err));
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK(own.synchronize == DIT_ERR_INVALID && own.destroy == DIT_ERR_INVALID && own.device == DIT_ERR_INVALID);
  CHECK(dit_stream_launch_host(0, 1, NULL, NULL, &err) == DIT_ERR_INVALID);
}

/// A host function may queue work itself, also with launch blocking.
static void launch_more(void *context) {
  struct note *note = context;
  struct dit_error err = {0};
  CHECK_OK(dit_stream_launch_host(0, 1, write_note, note, &err));
  CHECK_OK(dit_stream_launch_host(0, 2, write_note, note, &err));
}

static void test_launch_from_host_function(void) {
  static const char *const blocking[] = {"launch_blocking", "1", NULL};
  for (int round = 0; round < 2; round++) {
    struct dit_error err = {0};
    int log[2];
    atomic_int length = 0;
    struct note note = {log, &length, 1};
    start_host(round ? blocking : NULL);
    CHECK_OK(dit_stream_launch_host(0, 1, launch_more, &note, &err));
    CHECK_OK(dit_stream_synchronize(0, 1, &err));
    CHECK_OK(dit_device_synchronize(0, &err));
    CHECK(atomic_load(&length) == 2);
  }
}

static void test_launch_blocking(void) {
  static const char *const blocking[] = {"launch_blocking", "1", NULL};
  struct dit_error err = {0};
  bool idle;
  start_host(blocking);
  char *memory = take_memory(0, 1 << 20);
  for (int i = 0; i < 50; i++) {
    CHECK_OK(dit_memory_set(memory, 0, i, 1 << 20, 1, &err));
    CHECK(memory[0] == i && memory[(1 << 20) - 1] == i);
    CHECK_OK(dit_memory_copy(memory, 0, memory + 512, 0, 512, 0, 2, true, &err));
    CHECK_OK(dit_stream_query(0, 2, &idle, &err));
    CHECK(idle);
  }
  // A host function is not waited for: it may need what the caller holds.
  struct gate gate = GATE_INITIALIZER;
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  gate_open(&gate);
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  give_memory(0, memory);
}

/// Nothing is half-queued when memory runs out: the counter says exactly what was accepted.
static void test_queue_failure(void) {
  struct dit_error err = {0};
  int log[1000];
  atomic_int length = 0;
  int accepted = 0;
  struct note note = {log, &length, 0};
  start_host(NULL);
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  for (int i = 0; i < 20; i++) {
    dit_alloc_set_failure(i % 2 ? 0 : -1);
    enum dit_status status = dit_stream_launch_host(0, 1, write_note, &note, &err);
    dit_alloc_set_failure(-1);
    CHECK(status == (i % 2 ? DIT_ERR_NOMEM : DIT_OK));
    accepted += status == DIT_OK;
  }
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK(atomic_load(&length) == accepted);
  dit_alloc_set_failure(0);
  int64_t stream = -7;
  dit_runtime_shutdown();
  dit_alloc_set_failure(-1);
  start_host(NULL);
  dit_alloc_set_failure(0);
  CHECK(dit_stream_acquire(0, 0, &stream, &err) == DIT_ERR_NOMEM && stream == -7);
  dit_alloc_set_failure(-1);
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
}

static void count_one(void *context) {
  atomic_fetch_add((atomic_int *)context, 1);
}

/// Many threads use, create and synchronise streams at once.
static void *hammer(void *context) {
  struct dit_error err = {0};
  atomic_int *total = context;
  for (int i = 0; i < 300; i++) {
    int64_t stream;
    bool idle;
    CHECK_OK(dit_stream_acquire(0, i % 3 ? 0 : -1, &stream, &err));
    CHECK_OK(dit_stream_set_current(0, stream, &err));
    CHECK_OK(dit_stream_launch_host(0, stream, count_one, total, &err));
    if (i % 16 == 0) {
      CHECK_OK(dit_device_synchronize(0, &err));
    }
    CHECK_OK(dit_stream_query(0, stream, &idle, &err));
    CHECK_OK(dit_stream_synchronize(0, stream, &err));
  }
  return NULL;
}

static void *create_and_destroy(void *context) {
  struct dit_error err = {0};
  atomic_int *total = context;
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  for (int i = 0; i < 100; i++) {
    void *stream;
    CHECK_OK(vtable->stream_create(0, -1, &stream, &err));
    CHECK_OK(vtable->stream_launch_host(0, stream, count_one, total, &err));
    CHECK_OK(vtable->stream_destroy(0, stream, &err));
  }
  return NULL;
}

static void test_threads(void) {
  struct dit_error err = {0};
  pthread_t threads[4];
  atomic_int total = 0;
  start_host(NULL);
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, i < 3 ? hammer : create_and_destroy, &total) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK(atomic_load(&total) == 3 * 300 + 100);
}

/// Without address space for its stack no worker starts: an error, nothing queued, and later it works. Runs first: the
/// C library keeps the stacks of threads that ended.
static void test_worker_failure(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  printf("skip test_worker_failure: sanitizers need address space themselves\n");
#else
  struct dit_error err = {0};
  struct rlimit old, none;
  int log[2];
  atomic_int length = 0;
  struct note note = {log, &length, 1};
  static const char *const options[] = {"vendor_timeout", "0", NULL};  // which would start a thread before
  start_host(options);
  CHECK(getrlimit(RLIMIT_AS, &old) == 0);
  none = old;
  none.rlim_cur = 1;
  CHECK(setrlimit(RLIMIT_AS, &none) == 0);
  enum dit_status status = dit_stream_launch_host(0, 1, write_note, &note, &err);
  CHECK(setrlimit(RLIMIT_AS, &old) == 0);
  CHECK(status == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "worker thread");
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, write_note, &note, &err));
  CHECK_OK(dit_stream_synchronize(0, 1, &err));
  CHECK(atomic_load(&length) == 1);
#endif
}

int main(void) {
  RUN(test_worker_failure);
  RUN(test_ids);
  RUN(test_current);
  RUN(test_external);
  RUN(test_order);
  RUN(test_independence);
  RUN(test_two_devices);
  RUN(test_no_self_wait);
  RUN(test_launch_from_host_function);
  RUN(test_launch_blocking);
  RUN(test_queue_failure);
  RUN(test_threads);
  dit_runtime_shutdown();
  return 0;
}
