/// The runtime: state before init and after shutdown, devices, thread-local state, fork, allocation failures.
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"

static void test_before_init(void) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  struct dit_event *event = NULL;
  struct dit_host_stats stats;
  int64_t stream;
  void *ptr;
  char byte = 0;
  CHECK(!dit_runtime_is_active() && !dit_runtime_is_bad_fork());
  CHECK(dit_device_get_count() == 0 && dit_device_get_current() == 0);
  CHECK(dit_stream_get_current(0) == 0 && dit_stream_get_current_raw(0) == NULL);
  CHECK(dit_device_set_current(0, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "dit_runtime_init");
  CHECK(dit_device_get_properties(0, &properties, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_device_synchronize(0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_acquire(0, 0, &stream, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_create(0, 0, &event, NULL) == DIT_ERR_DEVICE && !event);
  CHECK(dit_memory_copy(&byte, 0, &byte, -1, 1, 0, 0, false, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_memory_set(&byte, 0, 1, 1, 0, NULL) == DIT_ERR_DEVICE && byte == 0);
  CHECK(dit_host_alloc(8, &ptr, NULL) == DIT_ERR_DEVICE);
  CHECK(!dit_host_is_pinned(&byte));
  dit_host_get_stats(&stats);
  CHECK(stats.allocations == 0);
  dit_host_empty_cache();
  dit_host_free(NULL);
  dit_event_destroy(NULL);
  dit_runtime_shutdown();
}

static void test_devices(void) {
  static const char *const two[] = {"host_devices", "2", "host_memory", "64MiB", NULL};
  struct dit_error err = {0};
  struct dit_device_properties first, second;
  start_host(two);
  CHECK(dit_device_get_count() == 2);
  CHECK(dit_device_get_current() == 0);
  CHECK_OK(dit_device_set_current(1, &err));
  CHECK(dit_device_get_current() == 1);
  CHECK(dit_device_set_current(2, &err) == DIT_ERR_ORDINAL);
  CHECK_CONTAINS(err.message, "CUDA error: invalid device ordinal: 2");
  CHECK_CONTAINS(err.message, "0 to 1");
  CHECK(dit_device_check(-1, &err) == DIT_ERR_ORDINAL);
  CHECK(dit_device_synchronize(7, NULL) == DIT_ERR_ORDINAL);
  CHECK(dit_device_get_current() == 1);
  CHECK_OK(dit_device_get_properties(0, &first, &err));
  CHECK_OK(dit_device_get_properties(1, &second, &err));
  CHECK(strcmp(first.uuid, second.uuid) != 0);
  CHECK(first.total_memory == 64 << 20);
  CHECK(dit_stream_get_current_raw(-1) == NULL && dit_stream_get_current_raw(1000) == NULL);
  CHECK(dit_stream_get_current(-1) == 0 && dit_stream_get_current(1000) == 0);
}

static void *read_thread_state(void *context) {
  int *out = context;
  out[0] = dit_device_get_current();
  out[1] = (int)dit_stream_get_current(0);
  out[2] = dit_stream_get_current_raw(0) != NULL;
  return NULL;
}

static void test_threads_start_fresh(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  pthread_t thread;
  int seen[3] = {9, 9, 9};
  start_host(two);
  CHECK_OK(dit_device_set_current(1, &err));
  CHECK_OK(dit_stream_set_current(0, 5, &err));
  CHECK(pthread_create(&thread, NULL, read_thread_state, seen) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(seen[0] == 0 && seen[1] == 0 && seen[2] == 0);
  CHECK(dit_device_get_current() == 1 && dit_stream_get_current(0) == 5);
  CHECK(dit_stream_get_current(1) == 0);
}

static void add_one(void *context) {
  ++*(int *)context;
}

static void test_shutdown(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  void *pinned;
  int calls = 0;
  int64_t live = 0;
  for (int round = 0; round < 3; round++) {
    start_host(NULL);
    CHECK(dit_stream_get_current(0) == 0 && dit_stream_get_current_raw(0) == NULL);
    CHECK_OK(dit_stream_set_current(0, 3, &err));
    CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &event, &err));
    CHECK_OK(dit_host_alloc(100, &pinned, &err));
    for (int i = 0; i < 100; i++) {
      CHECK_OK(dit_stream_launch_host(0, 3, add_one, &calls, &err));
    }
    CHECK_OK(dit_event_record(event, 0, 3, &err));
    dit_runtime_shutdown();
    CHECK(calls == 100 * (round + 1));  // drained
    CHECK(!dit_runtime_is_active());
    dit_runtime_shutdown();
    CHECK(dit_stream_get_current(0) == 0 && dit_stream_get_current_raw(0) == NULL);
    CHECK(!dit_host_is_pinned(pinned));
    dit_host_free(pinned);  // ignored
    start_host(NULL);
    CHECK(dit_event_record(event, 0, 3, &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, "shutdown");
    dit_event_destroy(event);
    dit_runtime_shutdown();
    if (round == 0) {
      live = dit_alloc_get_live();
    }
    CHECK(dit_alloc_get_live() == live);
  }
}

/// In the child of a process that used the device: refuse everything, hang nowhere, free nothing.
static void child_of_active(void *device_memory, void *pinned, struct dit_event *event) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  struct dit_host_stats stats;
  struct dit_event *other = NULL;
  bool flag;
  int64_t stream;
  double time;
  void *ptr;
  CHECK(dit_runtime_is_bad_fork() && !dit_runtime_is_active());
  CHECK(dit_runtime_init("host", &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message,
                 "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
                 "use the 'spawn' start method");
  CHECK(dit_device_set_current(0, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "forked subprocess");
  CHECK(dit_device_check(0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_device_get_properties(0, &properties, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_device_synchronize(0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_get_current(0) == 0 && dit_stream_get_current_raw(0) == NULL && dit_device_get_current() == 0);
  CHECK(dit_stream_acquire(0, 0, &stream, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_get_raw(0, 0, &ptr, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_set_current(0, 0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_query(0, 3, &flag, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_synchronize(0, 3, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_stream_launch_host(0, 0, add_one, NULL, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_create(0, 0, &other, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_record(event, 0, 0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_query(event, &flag, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_synchronize(event, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_block(event, 0, 0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_event_get_elapsed(event, event, &time, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_memory_copy(device_memory, 0, &flag, -1, 1, 0, 0, false, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_memory_set(device_memory, 0, 0, 1, 0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_host_alloc(8, &ptr, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_host_record_stream(pinned, 0, 0, NULL) == DIT_ERR_DEVICE);
  CHECK(dit_host_register(&flag, 1, NULL) == DIT_ERR_DEVICE && dit_host_unregister(&flag, NULL) == DIT_ERR_DEVICE);
  CHECK(!dit_host_is_pinned(pinned));
  dit_host_get_stats(&stats);
  dit_host_reset_peak();
  dit_host_empty_cache();
  dit_host_free(pinned);
  dit_event_destroy(event);
  dit_runtime_shutdown();
  CHECK(dit_runtime_is_bad_fork());
}

static void run_in_child(void (*body)(void *, void *, struct dit_event *), void *a, void *b, struct dit_event *event) {
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    body(a, b, event);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *churn_pinned(void *context) {
  atomic_bool *stop = context;
  struct dit_error err = {0};
  while (!atomic_load(stop)) {
    void *ptr;
    struct dit_event *event;
    CHECK_OK(dit_host_alloc(100, &ptr, &err));
    CHECK_OK(dit_event_create(0, 0, &event, &err));
    dit_event_destroy(event);
    dit_host_free(ptr);
  }
  return NULL;
}

static void test_fork(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  struct gate gate = GATE_INITIALIZER;
  atomic_bool stop = false;
  pthread_t thread;
  void *pinned;
  start_host(NULL);
  void *memory = take_memory(0, 4096);
  CHECK_OK(dit_host_alloc(100, &pinned, &err));
  CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &event, &err));
  CHECK_OK(dit_device_set_current(0, &err));
  CHECK_OK(dit_stream_set_current(0, 3, &err));
  CHECK_OK(dit_stream_launch_host(0, 3, gate_wait, &gate, &err));
  CHECK_OK(dit_event_record(event, 0, 3, &err));
  CHECK(pthread_create(&thread, NULL, churn_pinned, &stop) == 0);  // holds our locks at many of the forks
  for (int i = 0; i < 20; i++) {
    run_in_child(child_of_active, memory, pinned, event);
  }
  atomic_store(&stop, true);
  CHECK(pthread_join(thread, NULL) == 0);
  gate_open(&gate);
  // The parent goes on as if nothing had happened.
  CHECK_OK(dit_event_synchronize(event, &err));
  CHECK(!dit_runtime_is_bad_fork() && dit_host_is_pinned(pinned));
  dit_event_destroy(event);
  dit_host_free(pinned);
  give_memory(0, memory);
}

static void child_of_idle(void *a, void *b, struct dit_event *event) {
  struct dit_error err = {0};
  (void)a;
  (void)b;
  (void)event;
  int calls = 0;
  CHECK(!dit_runtime_is_bad_fork());
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK_OK(dit_stream_launch_host(0, 1, add_one, &calls, &err));
  CHECK_OK(dit_device_synchronize(0, &err));
  CHECK(calls == 1);
  dit_runtime_shutdown();
}

/// The parent had loaded the vendor and asked about its device, no more: the child works with it.
static void child_of_unused(void *a, void *b, struct dit_event *event) {
  struct dit_error err = {0};
  void *ptr = NULL;
  (void)a;
  (void)b;
  (void)event;
  CHECK(!dit_runtime_is_bad_fork() && dit_runtime_is_active() && dit_device_get_count() > 0);
  CHECK_OK(dit_host_alloc(64, &ptr, &err));
  CHECK_OK(dit_device_synchronize(0, &err));
  dit_host_free(ptr);
}

static void test_fork_before_use(void) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  dit_runtime_shutdown();
  run_in_child(child_of_idle, NULL, NULL, NULL);
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK_OK(dit_device_get_properties(0, &properties, &err));
  run_in_child(child_of_unused, NULL, NULL, NULL);
  dit_runtime_shutdown();
}

/// Work at the moment of exit must not crash the process.
static void child_exits_busy(void *a, void *b, struct dit_event *event) {
  static struct gate gate = GATE_INITIALIZER;
  struct dit_error err = {0};
  (void)a;
  (void)b;
  (void)event;
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  static int calls[8];
  for (int stream = 2; stream < 10; stream++) {
    for (int i = 0; i < 1000; i++) {
      CHECK_OK(dit_stream_launch_host(0, stream, add_one, &calls[stream - 2], &err));
    }
  }
  exit(0);
}

static void test_exit_while_busy(void) {
  for (int i = 0; i < 10; i++) {
    run_in_child(child_exits_busy, NULL, NULL, NULL);
  }
}

/// Make the n-th allocation of a whole session fail, for every n until nothing fails any more.
static enum dit_status session(struct dit_error *err) {
  struct dit_event *event = NULL;
  void *pinned = NULL;
  int calls = 0;
  enum dit_status status = dit_runtime_init("host", err);
  if (status == DIT_OK) {
    status = dit_stream_launch_host(0, 1, add_one, &calls, err);
  }
  if (status == DIT_OK) {
    status = dit_event_create(0, 0, &event, err);
  }
  if (status == DIT_OK) {
    status = dit_event_record(event, 0, 1, err);
  }
  if (status == DIT_OK) {
    status = dit_event_block(event, 0, 2, err);
  }
  if (status == DIT_OK) {
    status = dit_event_record(event, 0, 0, err);
  }
  if (status == DIT_OK) {
    status = dit_host_alloc(1000, &pinned, err);
  }
  if (status == DIT_OK) {
    status = dit_host_record_stream(pinned, 0, 1, err);
  }
  dit_host_free(pinned);
  dit_event_destroy(event);
  dit_alloc_set_failure(-1);
  dit_runtime_shutdown();
  return status;
}

static void test_allocation_failures(void) {
  struct dit_error err = {0};
  dit_runtime_shutdown();
  CHECK_OK(session(&err));
  int64_t live = dit_alloc_get_live();
  int failures = 0;
  for (int64_t n = 0;; n++) {
    dit_alloc_set_failure(n);
    enum dit_status status = session(&err);
    CHECK(dit_alloc_get_live() == live);
    CHECK(!dit_runtime_is_active());
    if (status == DIT_OK) {
      break;
    }
    CHECK(status == DIT_ERR_NOMEM);
    failures++;
    CHECK(n < 1000);
  }
  CHECK(failures >= 6);
}

int main(void) {
  RUN(test_before_init);
  RUN(test_devices);
  RUN(test_threads_start_fresh);
  RUN(test_shutdown);
  RUN(test_fork_before_use);
  RUN(test_exit_while_busy);
  RUN(test_fork);
  RUN(test_allocation_failures);
  dit_runtime_shutdown();
  return 0;
}
