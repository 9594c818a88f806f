/// The opaque vendor: memory that the host cannot touch, queues everywhere, failures that come later and stay.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void start(const char *const *options) {
  struct dit_error err = {0};
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_option_set("host_memory", "64MiB", &err));
  CHECK_OK(dit_option_set("host_devices", "2", &err));
  for (; options && options[0]; options += 2) {
    CHECK_OK(dit_option_set(options[0], options[1], &err));
  }
  CHECK_OK(dit_runtime_init("opaque", &err));
}

static const struct dit_device_vtable *get(void) {
  return dit_runtime_get_vtable();
}

static void copy_in(int device, void *dst, const void *src, size_t size) {
  struct dit_error err = {0};
  CHECK_OK(get()->copy(&(struct dit_copy){dst, src, size, DIT_COPY_HOST_TO_DEVICE, device, 0}, &err));
}

static void copy_out(int device, void *dst, const void *src, size_t size) {
  struct dit_error err = {0};
  CHECK_OK(get()->copy(&(struct dit_copy){dst, src, size, DIT_COPY_DEVICE_TO_HOST, 0, device}, &err));
}

static void fill(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (unsigned char)(i * 31 + seed);
  }
}

static void test_properties(void) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  struct dit_device_memory memory;
  int count = 0;
  start(NULL);
  CHECK_OK(get()->count(&count, &err));
  CHECK(count == 2);
  CHECK_OK(get()->get_properties(1, &properties, &err));
  CHECK(!properties.host_accessible && properties.total_memory == 64 * MIB);
  CHECK_OK(get()->get_memory(1, &memory, &err));
  CHECK(memory.free == memory.total && memory.total == 64 * MIB);
}

/// Ends by a signal when it touches device memory from the host.
static int touch(const volatile char *address, bool write) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    if (write) {
      *(volatile char *)(uintptr_t)address = 1;
    }
    _exit(*address == 1 ? 0 : 0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_host_cannot_touch(void) {
  start(NULL);
  void *small = take_memory(0, 100), *large = take_memory(1, 3 * MIB);
  if (!CHECK_SANITIZED) {
    CHECK(touch(small, false) == SIGSEGV && touch(small, true) == SIGSEGV);
    CHECK(touch((char *)large + 2 * MIB, false) == SIGSEGV);
  }
  give_memory(0, small);
  give_memory(1, large);
}

static void test_copies(void) {
  struct dit_error err = {0};
  static unsigned char in[3 * MIB], out[3 * MIB];
  static const size_t sizes[] = {1, 511, 513, 4096, MIB, 3 * MIB};
  start(NULL);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    const size_t size = sizes[i];
    void *a = take_memory(0, size), *b = take_memory(1, size);
    CHECK((uintptr_t)a % 512 == 0 && (uintptr_t)b % 512 == 0);
    fill(in, size, (unsigned)i);
    memset(out, 0, size);
    copy_in(0, a, in, size);
    CHECK_OK(get()->copy(&(struct dit_copy){b, a, size, DIT_COPY_DEVICE_TO_DEVICE, 1, 0}, &err));
    copy_out(1, out, b, size);
    CHECK(memcmp(in, out, size) == 0);
    CHECK_OK(get()->memory_set(0, NULL, a, 7, size, &err));
    copy_out(0, out, a, size);
    CHECK(out[0] == 7 && out[size - 1] == 7);
    give_memory(0, a);
    give_memory(1, b);
  }
}

/// The default stream is a queue: a copy from pinned memory waits its turn there while the host goes on.
static void test_default_stream_is_a_queue(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  bool idle = true, done = true;
  void *pinned = NULL, *event = NULL;
  start(NULL);
  unsigned char *device = take_memory(0, KIB), out[KIB];
  CHECK_OK(get()->host_alloc(KIB, &pinned, &err));
  fill(pinned, KIB, 3);
  CHECK_OK(get()->event_create(0, DIT_EVENT_TIMING, &event, &err));
  CHECK_OK(get()->stream_launch_host(0, NULL, gate_wait, &gate, &err));
  gate_await(&gate);
  const struct dit_copy copy = {device, pinned, KIB, DIT_COPY_HOST_TO_DEVICE, 0, 0};
  CHECK_OK(get()->copy_async(&copy, 0, NULL, &err));  // returns although the stream stands still
  CHECK_OK(get()->event_record(0, event, NULL, &err));
  CHECK_OK(get()->stream_query(0, NULL, &idle, &err));
  CHECK_OK(get()->event_query(0, event, &done, &err));
  CHECK(!idle && !done);
  gate_open(&gate);
  CHECK_OK(get()->event_synchronize(0, event, &err));
  copy_out(0, out, device, KIB);
  CHECK(memcmp(out, pinned, KIB) == 0);
  get()->event_destroy(0, event);
  CHECK_OK(get()->host_free(pinned, &err));
  CHECK(get()->host_free(pinned, &err) == DIT_ERR_INVALID);
  give_memory(0, device);
}

/// Memory that is not pinned may be used again as soon as the copy returns.
static void test_pageable_copies_block(void) {
  struct dit_error err = {0};
  unsigned char bytes[KIB], out[KIB];
  void *stream = NULL;
  static const char *const slow[] = {"opaque", "slow:3000", NULL};
  start(slow);
  unsigned char *device = take_memory(0, KIB);
  CHECK_OK(get()->stream_create(0, 0, &stream, &err));
  fill(bytes, KIB, 9);
  CHECK_OK(get()->copy_async(&(struct dit_copy){device, bytes, KIB, DIT_COPY_HOST_TO_DEVICE, 0, 0}, 0, stream, &err));
  memset(bytes, 0, KIB);
  CHECK_OK(get()->copy_async(&(struct dit_copy){out, device, KIB, DIT_COPY_DEVICE_TO_HOST, 0, 0}, 0, stream, &err));
  fill(bytes, KIB, 9);
  CHECK(memcmp(out, bytes, KIB) == 0);
  CHECK_OK(get()->host_register(bytes, KIB, &err));
  CHECK_OK(get()->copy_async(&(struct dit_copy){bytes, device, KIB, DIT_COPY_DEVICE_TO_HOST, 0, 0}, 0, stream, &err));
  CHECK_OK(get()->stream_synchronize(0, stream, &err));
  CHECK_OK(get()->host_unregister(bytes, &err));
  CHECK(get()->host_unregister(bytes, &err) == DIT_ERR_INVALID);
  CHECK_OK(get()->stream_destroy(0, stream, &err));
  give_memory(0, device);
}

/// A failure is not reported by the call that caused it, but by the next that waits, and by all after it.
static void test_failures_are_late_and_sticky(void) {
  struct dit_error err = {0};
  static const char *const third[] = {"opaque", "fail:3", NULL};
  void *pinned = NULL, *more = NULL;
  unsigned char out[8];
  start(third);
  unsigned char *device = take_memory(0, KIB), *other = take_memory(1, KIB);
  CHECK_OK(get()->host_alloc(KIB, &pinned, &err));
  fill(pinned, KIB, 1);
  copy_in(0, device, pinned, KIB);
  copy_in(0, device, pinned, KIB);
  CHECK_OK(get()->memory_set(0, NULL, device, 0, KIB, &err));  // the third: nobody knows yet
  CHECK(get()->stream_synchronize(0, NULL, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "opaque device 0: a fill failed");
  for (int i = 0; i < 2; i++) {
    CHECK(get()->synchronize(0, &err) == DIT_ERR_DEVICE && get()->check_last_error(0, &err) == DIT_ERR_DEVICE);
    CHECK(get()->memory_set(0, NULL, device, 0, KIB, &err) == DIT_ERR_DEVICE);
    CHECK(get()->memory_alloc(0, KIB, &more, &err) == DIT_ERR_DEVICE);
  }
  copy_in(1, other, pinned, KIB);  // the other device does not care
  CHECK_OK(get()->synchronize(1, &err));
  CHECK_OK(get()->reset(0, &err));
  copy_out(0, out, device, sizeof out);
  CHECK(out[1] == 32);  // the fill did not happen, nor anything after it
  CHECK_OK(get()->host_free(pinned, &err));
  give_memory(0, device);
  give_memory(1, other);
}

static void test_illegal_addresses(void) {
  struct dit_error err = {0};
  unsigned char here[16] = {0};
  start(NULL);
  CHECK_OK(get()->memory_set(0, NULL, here, 0, sizeof here, &err));
  CHECK(get()->synchronize(0, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "illegal address");
  CHECK_OK(get()->reset(0, &err));
  void *block = take_memory(0, KIB);
  give_memory(0, block);
  CHECK(get()->memory_free(0, block, &err) == DIT_ERR_INVALID);
}

static void test_lost_device(void) {
  struct dit_error err = {0};
  static const char *const lost[] = {"opaque", "lose:2", NULL};
  start(lost);
  unsigned char *device = take_memory(0, KIB), out[8] = {0};
  copy_in(0, device, out, sizeof out);
  for (int i = 0; i < 3; i++) {
    CHECK(get()->copy(&(struct dit_copy){out, device, 8, DIT_COPY_DEVICE_TO_HOST, 0, 0}, &err) == DIT_ERR_DEVICE);
    CHECK_CONTAINS(err.message, "fell off the bus");
    CHECK_OK(get()->reset(0, &err));
  }
  give_memory(0, device);
}

static void test_limits(void) {
  struct dit_error err = {0};
  static const char *const second[] = {"opaque", "nomem:2", NULL};
  void *first = NULL, *next = NULL;
  start(second);
  CHECK_OK(get()->memory_alloc(0, KIB, &first, &err));
  CHECK(get()->memory_alloc(0, KIB, &next, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "allocation 2");
  CHECK(get()->memory_alloc(0, 64 * MIB, &next, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "1024 of 67108864 are in use");
  CHECK(get()->memory_alloc(0, SIZE_MAX - 3, &next, &err) == DIT_ERR_NOMEM);
  CHECK_OK(get()->memory_alloc(1, 64 * MIB, &next, &err));
  CHECK(get()->memory_alloc(1, 1, &first, &err) == DIT_ERR_NOMEM);
  give_memory(1, next);
  give_memory(0, first);
  CHECK_OK(get()->memory_alloc(0, 0, &first, &err));
  CHECK(!first);
}

/// A device that is full stays so until enough was freed; the other one is full at what it holds itself.
static void test_full_device(void) {
  struct dit_error err = {0};
  static const char *const full[] = {"opaque", "nomem:3+", NULL};
  struct dit_device_memory memory;
  void *blocks[3], *next = NULL;
  start(full);
  CHECK_OK(get()->memory_alloc(0, 2 * KIB, &blocks[0], &err));
  CHECK_OK(get()->memory_alloc(0, KIB, &blocks[1], &err));
  for (int i = 0; i < 3; i++) {
    CHECK(get()->memory_alloc(0, KIB, &next, &err) == DIT_ERR_NOMEM && !next);
    CHECK_CONTAINS(err.message, "the device is full from allocation 3 on");
    CHECK(get()->memory_alloc(1, 1, &next, &err) == DIT_ERR_NOMEM);
    CHECK_CONTAINS(err.message, "0 of 0 bytes are in use");
  }
  CHECK_OK(get()->get_memory(0, &memory, &err));
  CHECK(memory.total == 64 * MIB && memory.free == 0);
  give_memory(0, blocks[1]);
  CHECK(get()->memory_alloc(0, KIB + 1, &next, &err) == DIT_ERR_NOMEM);
  CHECK_OK(get()->memory_alloc(0, KIB, &blocks[1], &err));
  CHECK(get()->memory_alloc(0, 1, &next, &err) == DIT_ERR_NOMEM);
  give_memory(0, blocks[1]);
  give_memory(0, blocks[0]);
  CHECK_OK(get()->memory_alloc(0, 3 * KIB, &blocks[2], &err));
  give_memory(0, blocks[2]);
  start(NULL);
  CHECK_OK(get()->memory_alloc(0, 63 * MIB, &next, &err));
  give_memory(0, next);
}

static void test_bad_words(void) {
  struct dit_error err = {0};
  static const char *const words[] = {"slow",     "slow:",   "slow:x",   "slow:-1", "fail:0",   "fails:1",
                                      "fail:1,,", "nomem:+", "nomem:0+", "fail:1+", "nomem:1++"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    dit_runtime_shutdown();
    dit_options_reset();
    CHECK_OK(dit_option_set("opaque", words[i], &err));
    CHECK(dit_runtime_init("opaque", &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, "DITORCH_OPAQUE has");
  }
}

/// Random blocks against a model: none overlaps, contents stay, all bytes come back.
static void test_random_blocks(void) {
  enum { SLOTS = 40, STEPS = 3000 };
  static unsigned char in[200 * KIB], out[200 * KIB];
  struct {
    void *ptr;
    size_t size;
    unsigned seed;
  } slots[SLOTS] = {{0}};
  uint64_t state = 77;
  struct dit_error err = {0};
  struct dit_device_memory memory;
  start(NULL);
  printf("seed %llu\n", (unsigned long long)state);
  for (unsigned step = 0; step < STEPS; step++) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    const size_t slot = (size_t)(state >> 33) % SLOTS;
    if (slots[slot].ptr) {
      copy_out(0, out, slots[slot].ptr, slots[slot].size);
      fill(in, slots[slot].size, slots[slot].seed);
      CHECK(memcmp(in, out, slots[slot].size) == 0);
      give_memory(0, slots[slot].ptr);
      slots[slot].ptr = NULL;
      continue;
    }
    slots[slot].size = 1 + (size_t)(state >> 20) % sizeof in;
    slots[slot].seed = step;
    slots[slot].ptr = take_memory(0, slots[slot].size);
    fill(in, slots[slot].size, step);
    copy_in(0, slots[slot].ptr, in, slots[slot].size);
  }
  for (size_t i = 0; i < SLOTS; i++) {
    give_memory(0, slots[i].ptr);
  }
  CHECK_OK(get()->get_memory(0, &memory, &err));
  CHECK(memory.free == memory.total);
}

static void test_events(void) {
  struct dit_error err = {0};
  static const char *const slow[] = {"opaque", "slow:20000", NULL};
  void *first = NULL, *last = NULL, *stream = NULL;
  double milliseconds = 0;
  start(slow);
  unsigned char *device = take_memory(0, KIB);
  CHECK_OK(get()->event_create(0, DIT_EVENT_TIMING, &first, &err));
  CHECK_OK(get()->event_create(0, DIT_EVENT_TIMING, &last, &err));
  CHECK_OK(get()->stream_create(0, 0, &stream, &err));
  CHECK_OK(get()->event_record(0, first, NULL, &err));
  CHECK_OK(get()->memory_set(0, NULL, device, 1, KIB, &err));
  CHECK_OK(get()->event_record(0, last, NULL, &err));
  CHECK_OK(get()->stream_wait_event(0, stream, last, &err));
  CHECK_OK(get()->stream_synchronize(0, stream, &err));
  CHECK_OK(get()->event_get_elapsed(0, first, last, &milliseconds, &err));
  CHECK(milliseconds >= 20);
  get()->event_destroy(0, first);
  get()->event_destroy(0, last);
  CHECK_OK(get()->stream_destroy(0, stream, &err));
  give_memory(0, device);
}

/// What was exported and mapped again is the same memory, and as closed to the host.
static void test_sharing(void) {
  struct dit_error err = {0};
  struct dit_memory_handle handle;
  void *base = NULL, *mapped = NULL;
  size_t size = 0;
  static unsigned char in[MIB], out[MIB];
  start(NULL);
  unsigned char *device = take_memory(0, 2 * MIB), *small = take_memory(0, 100);
  CHECK_OK(get()->memory_export(0, device + 5000, &handle, &base, &err));
  CHECK(base == device);
  CHECK_OK(get()->memory_import(0, &handle, &mapped, &size, &err));
  CHECK(mapped != device && size == 2 * MIB);
  fill(in, MIB, 5);
  copy_in(0, device + MIB, in, MIB);
  copy_out(0, out, (unsigned char *)mapped + MIB, MIB);
  CHECK(memcmp(in, out, MIB) == 0);
  if (!CHECK_SANITIZED) {
    CHECK(touch(mapped, false) == SIGSEGV);
  }
  CHECK(get()->memory_close(0, device, 2 * MIB, &err) == DIT_ERR_INVALID);
  CHECK_OK(get()->memory_close(0, mapped, size, &err));
  CHECK(get()->memory_export(0, small, &handle, &base, &err) == DIT_ERR_UNSUPPORTED);
  CHECK(get()->memory_export(1, device, &handle, &base, &err) == DIT_ERR_INVALID);
  memset(&handle, 7, sizeof handle);
  CHECK(get()->memory_import(0, &handle, &mapped, &size, &err) != DIT_OK);
  give_memory(0, device);
  give_memory(0, small);
}

int main(void) {
  RUN(test_properties);
  RUN(test_host_cannot_touch);
  RUN(test_copies);
  RUN(test_default_stream_is_a_queue);
  RUN(test_pageable_copies_block);
  RUN(test_failures_are_late_and_sticky);
  RUN(test_illegal_addresses);
  RUN(test_lost_device);
  RUN(test_limits);
  RUN(test_full_device);
  RUN(test_bad_words);
  RUN(test_random_blocks);
  RUN(test_events);
  RUN(test_sharing);
  dit_runtime_shutdown();
  return 0;
}
