/// Events: query, host wait, stream wait across streams and devices, the version rule, timing, destruction while
/// pending.
#include <unistd.h>

#include "device_test.h"

static void set_cell(void *context) {
  *(int *)context = 42;
}

static void test_basic(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  bool done = false;
  start_host(NULL);
  CHECK(dit_event_create(0, 1u << 9, &event, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "0x200");
  CHECK(dit_event_create(3, 0, &event, &err) == DIT_ERR_ORDINAL);
  CHECK_OK(dit_event_create(0, 0, &event, &err));
  CHECK(dit_event_get_device(event) == 0);
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(done);  // never recorded
  CHECK_OK(dit_event_synchronize(event, &err));
  CHECK_OK(dit_event_block(event, 0, 1, &err));
  CHECK_OK(dit_event_block(event, 0, 0, &err));
  CHECK_OK(dit_event_record(event, 0, 0, &err));
  done = false;
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(done);  // inline work is done when it returns
  CHECK(dit_event_record(event, 0, 65, &err) == DIT_ERR_INVALID);
  CHECK(dit_event_record(NULL, 0, 0, &err) == DIT_ERR_INVALID);
  dit_event_destroy(event);
}

static void test_pending(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  struct gate gate = GATE_INITIALIZER;
  bool done;
  int cell = 0;
  start_host(NULL);
  CHECK_OK(dit_event_create(0, DIT_EVENT_BLOCKING, &event, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, set_cell, &cell, &err));
  CHECK_OK(dit_event_record(event, 0, 1, &err));
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(!done);
  gate_open(&gate);
  CHECK_OK(dit_event_synchronize(event, &err));
  CHECK(cell == 42);
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(done);
  dit_event_destroy(event);
}

struct reading {
  const int *from;
  int seen;
};

static void read_cell(void *context) {
  struct reading *reading = context;
  reading->seen = *reading->from;
}

/// Stream 2 reads what stream 1 wrote, because it waits; the event dies in between.
static void test_stream_wait(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  start_host(two);
  for (int reader = 0; reader < 2; reader++) {  // same device, other device
    struct dit_event *event;
    struct gate gate = GATE_INITIALIZER;
    int cell = 0;
    struct reading reading = {&cell, -1};
    bool idle;
    CHECK_OK(dit_event_create(0, 0, &event, &err));
    CHECK_OK(dit_stream_launch_host(reader, 2, set_cell, &cell, &err));  // its worker is up
    CHECK_OK(dit_stream_synchronize(reader, 2, &err));
    cell = 0;
    CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
    CHECK_OK(dit_stream_launch_host(0, 1, set_cell, &cell, &err));
    CHECK_OK(dit_event_record(event, 0, 1, &err));
    CHECK_OK(dit_event_block(event, reader, 2, &err));
    CHECK_OK(dit_stream_launch_host(reader, 2, read_cell, &reading, &err));
    dit_event_destroy(event);
    CHECK_OK(dit_stream_query(reader, 2, &idle, &err));
    CHECK(!idle);
    usleep(5000);  // time in which a wait that does not wait would be seen
    gate_open(&gate);
    CHECK_OK(dit_stream_synchronize(reader, 2, &err));
    CHECK(reading.seen == 42);
  }
}

static void *open_soon(void *context) {
  usleep(20000);
  gate_open(context);
  return NULL;
}

/// The default stream has no worker: the caller itself waits.
static void test_default_stream_wait(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  struct gate gate = GATE_INITIALIZER;
  pthread_t thread;
  int cell = 0;
  start_host(NULL);
  CHECK_OK(dit_event_create(0, 0, &event, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, set_cell, &cell, &err));
  CHECK_OK(dit_event_record(event, 0, 1, &err));
  CHECK(pthread_create(&thread, NULL, open_soon, &gate) == 0);
  CHECK_OK(dit_event_block(event, 0, 0, &err));
  CHECK(cell == 42);
  CHECK(pthread_join(thread, NULL) == 0);
  dit_event_destroy(event);
}

/// A wait keeps the recording it saw: recording the event again, behind a closed gate, must not hold it back.
static void test_version(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  struct gate first = GATE_INITIALIZER, second = GATE_INITIALIZER;
  int cell = 0;
  bool done;
  start_host(NULL);
  CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &event, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &first, &err));
  CHECK_OK(dit_event_record(event, 0, 1, &err));
  CHECK_OK(dit_event_block(event, 0, 3, &err));  // the recording behind the first gate
  CHECK_OK(dit_stream_launch_host(0, 2, gate_wait, &second, &err));
  CHECK_OK(dit_event_record(event, 0, 2, &err));
  CHECK_OK(dit_stream_launch_host(0, 3, set_cell, &cell, &err));
  gate_open(&first);
  CHECK_OK(dit_stream_synchronize(0, 3, &err));
  CHECK(cell == 42);
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(!done);  // the event itself means the later recording
  // And the other way round: re-recorded on the default stream it is done, while stream 3 waits for the second gate.
  CHECK_OK(dit_event_block(event, 0, 3, &err));
  cell = 0;
  CHECK_OK(dit_stream_launch_host(0, 3, set_cell, &cell, &err));
  CHECK_OK(dit_event_record(event, 0, 0, &err));
  CHECK_OK(dit_event_query(event, &done, &err));
  CHECK(done);
  bool idle;
  CHECK_OK(dit_stream_query(0, 3, &idle, &err));
  CHECK(!idle);
  gate_open(&second);
  CHECK_OK(dit_stream_synchronize(0, 3, &err));
  CHECK(cell == 42);
  dit_event_destroy(event);
}

static void sleep_a_little(void *context) {
  (void)context;
  usleep(5000);
}

static void test_timing(void) {
  struct dit_error err = {0};
  struct dit_event *start, *end, *plain;
  struct gate gate = GATE_INITIALIZER;
  double time = -1;
  start_host(NULL);
  CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &start, &err));
  CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &end, &err));
  CHECK_OK(dit_event_create(0, 0, &plain, &err));
  CHECK(dit_event_get_elapsed(start, end, &time, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "start event was never recorded");
  CHECK_OK(dit_event_record(start, 0, 1, &err));
  CHECK(dit_event_get_elapsed(start, plain, &time, &err) != DIT_OK);
  CHECK_OK(dit_event_synchronize(start, &err));
  CHECK(dit_event_get_elapsed(start, plain, &time, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "enable_timing=True");
  CHECK_OK(dit_stream_launch_host(0, 1, sleep_a_little, NULL, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  CHECK_OK(dit_event_record(end, 0, 1, &err));
  CHECK(dit_event_get_elapsed(start, end, &time, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "not complete");
  CHECK(time == -1);
  gate_open(&gate);
  CHECK_OK(dit_event_synchronize(end, &err));
  CHECK_OK(dit_event_get_elapsed(start, end, &time, &err));
  CHECK(time >= 5);  // the stream slept that long: a lower bound only
  double back;
  CHECK_OK(dit_event_get_elapsed(end, start, &back, &err));
  CHECK(back == -time);
  // Inline recordings are timed too.
  CHECK_OK(dit_event_record(start, 0, 0, &err));
  CHECK_OK(dit_stream_launch_host(0, 0, sleep_a_little, NULL, &err));
  CHECK_OK(dit_event_record(end, 0, 0, &err));
  CHECK_OK(dit_event_get_elapsed(start, end, &time, &err));
  CHECK(time >= 5);
  dit_event_destroy(start);
  dit_event_destroy(end);
  dit_event_destroy(plain);
}

static void test_devices(void) {
  static const char *const two[] = {"host_devices", "2", NULL};
  struct dit_error err = {0};
  struct dit_event *zero, *one;
  double time;
  start_host(two);
  CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &zero, &err));
  CHECK_OK(dit_event_create(1, DIT_EVENT_TIMING, &one, &err));
  CHECK(dit_event_get_device(one) == 1);
  CHECK(dit_event_record(zero, 1, 0, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "Event device 0 does not match recording stream's device 1");
  CHECK_OK(dit_event_record(zero, 0, 0, &err));
  CHECK_OK(dit_event_record(one, 1, 2, &err));
  CHECK_OK(dit_event_synchronize(one, &err));
  CHECK(dit_event_get_elapsed(zero, one, &time, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "0 and 1");
  dit_event_destroy(zero);
  dit_event_destroy(one);
}

static void test_destroy_pending(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  start_host(NULL);
  int64_t live = dit_alloc_get_live();
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  for (int i = 0; i < 100; i++) {
    struct dit_event *event;
    CHECK_OK(dit_event_create(0, DIT_EVENT_TIMING, &event, &err));
    CHECK_OK(dit_event_record(event, 0, 1, &err));
    CHECK_OK(dit_event_block(event, 0, 2 + i % 3, &err));
    CHECK_OK(dit_event_record(event, 0, 1, &err));
    dit_event_destroy(event);
  }
  gate_open(&gate);
  CHECK_OK(dit_device_synchronize(0, &err));
  // Only the streams that were created meanwhile (1, 2, 3, 4) are left.
  CHECK(dit_alloc_get_live() == live + 4);
}

/// A failed record leaves the event as it was.
static void test_failures(void) {
  struct dit_error err = {0};
  struct dit_event *event;
  struct gate gate = GATE_INITIALIZER;
  bool done;
  start_host(NULL);
  dit_alloc_set_failure(0);
  CHECK(dit_event_create(0, 0, &event, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(1);
  CHECK(dit_event_create(0, 0, &event, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(-1);
  CHECK_OK(dit_event_create(0, 0, &event, &err));
  CHECK_OK(dit_stream_launch_host(0, 1, gate_wait, &gate, &err));
  gate_await(&gate);
  dit_alloc_set_failure(0);
  CHECK(dit_event_record(event, 0, 0, &err) == DIT_ERR_NOMEM);
  for (int after = 0; after < 2; after++) {
    dit_alloc_set_failure(after);
    CHECK(dit_event_record(event, 0, 1, &err) == DIT_ERR_NOMEM);
    dit_alloc_set_failure(-1);
    CHECK_OK(dit_event_query(event, &done, &err));
    CHECK(done);
  }
  CHECK_OK(dit_event_record(event, 0, 1, &err));
  CHECK_OK(dit_stream_launch_host(0, 2, sleep_a_little, NULL, &err));
  dit_alloc_set_failure(0);
  CHECK(dit_event_block(event, 0, 2, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(-1);
  CHECK_OK(dit_stream_synchronize(0, 2, &err));  // would hang, were the wait queued
  gate_open(&gate);
  CHECK_OK(dit_device_synchronize(0, &err));
  dit_event_destroy(event);
}

int main(void) {
  RUN(test_basic);
  RUN(test_pending);
  RUN(test_stream_wait);
  RUN(test_default_stream_wait);
  RUN(test_version);
  RUN(test_timing);
  RUN(test_devices);
  RUN(test_destroy_pending);
  RUN(test_failures);
  dit_runtime_shutdown();
  return 0;
}
