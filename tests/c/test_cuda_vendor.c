/// The CUDA vendor over the emulated driver (tests/cuda_emulator): every slot of the device table.
///
/// The emulated driver lets work wait until somebody synchronises, so an order that only hardware would break is seen
/// here too.
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"

#define SIZE ((size_t)4096)

static void *emulator;

static void load_emulator(void) {
  emulator = dlopen(DIT_TEST_EMULATOR, RTLD_NOW | RTLD_GLOBAL);
  CHECK(emulator != NULL);
}

static void start(void) {
  struct dit_error err = {0};
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_runtime_init("cuda", &err));
}

static const struct dit_device_vtable *get(void) {
  return dit_runtime_get_vtable();
}

static void fill(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (unsigned char)(i * 31 + seed);
  }
}

static void copy(enum dit_copy_kind kind, void *dst, const void *src, int dst_device, int src_device) {
  struct dit_error err = {0};
  CHECK_OK(get()->copy(&(struct dit_copy){dst, src, SIZE, kind, dst_device, src_device}, &err));
}

static void copy_async(enum dit_copy_kind kind, void *dst, const void *src, void *stream) {
  struct dit_error err = {0};
  CHECK_OK(get()->copy_async(&(struct dit_copy){dst, src, SIZE, kind, 0, 0}, 0, stream, &err));
}

static void test_properties(void) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  struct dit_device_memory memory, less;
  int count = 0, version = 0;
  char text[128] = "";
  start();
  CHECK_OK(get()->count(&count, &err));
  CHECK(count == 2);
  CHECK_OK(get()->get_properties(1, &properties, &err));
  CHECK(strcmp(properties.name, "Emulated GPU 1") == 0 && strcmp(properties.vendor, "NVIDIA") == 0);
  CHECK(strcmp(properties.architecture, "sm_90") == 0 && properties.major == 9 && properties.warp_size == 32);
  CHECK(strcmp(properties.uuid, "e1e1e1e1-e1e1-e1e1-e1e1-e1e1e1e1e1e1") == 0 && !properties.host_accessible);
  CHECK_OK(get()->get_driver_version(&version, &err));
  CHECK(version == 13000);
  get()->describe(text, sizeof text);
  CHECK(strstr(text, "13.0") && strstr(text, "2 devices"));
  CHECK_OK(get()->get_memory(0, &memory, &err));
  void *block = take_memory(0, 1 << 20);
  CHECK((uintptr_t)block % 512 == 0);
  CHECK_OK(get()->get_memory(0, &less, &err));
  CHECK(less.free == memory.free - (1 << 20) && less.total == memory.total);
  give_memory(0, block);
  CHECK(get()->memory_alloc(0, (size_t)1 << 40, &block, &err) == DIT_ERR_NOMEM);
  CHECK(strstr(err.message, "CUDA_ERROR_OUT_OF_MEMORY"));
  CHECK(get()->can_access_peer(0, 1) && !get()->can_access_peer(0, 0));
}

static void test_copies(void) {
  struct dit_error err = {0};
  unsigned char in[SIZE], back[SIZE];
  void *a = take_memory(0, SIZE), *b = take_memory(1, SIZE);
  fill(in, SIZE, 1);
  copy(DIT_COPY_HOST_TO_DEVICE, a, in, 0, 0);
  copy(DIT_COPY_DEVICE_TO_DEVICE, b, a, 1, 0);
  copy(DIT_COPY_DEVICE_TO_HOST, back, b, 0, 1);
  CHECK(memcmp(in, back, SIZE) == 0);
  CHECK_OK(get()->memory_set(1, NULL, b, 0x5A, SIZE, &err));
  copy(DIT_COPY_DEVICE_TO_HOST, back, b, 0, 1);
  CHECK(back[0] == 0x5A && back[SIZE - 1] == 0x5A);
  give_memory(0, a);
  give_memory(1, b);
}

/// Pinned memory is used when the work runs, pageable memory when it was asked for.
static void test_pinned(void) {
  struct dit_error err = {0};
  unsigned char *pinned = NULL, pageable[SIZE], back[SIZE];
  void *a = take_memory(0, SIZE), *b = take_memory(0, SIZE), *stream = NULL;
  CHECK_OK(get()->host_alloc(SIZE, (void **)&pinned, &err));
  CHECK((uintptr_t)pinned % 64 == 0);
  CHECK_OK(get()->stream_create(0, 0, &stream, &err));
  fill(pinned, SIZE, 2);
  memcpy(pageable, pinned, SIZE);
  copy_async(DIT_COPY_HOST_TO_DEVICE, a, pageable, stream);
  copy_async(DIT_COPY_HOST_TO_DEVICE, b, pinned, stream);
  memset(pageable, 0, SIZE);
  pinned[0] = 77;
  CHECK_OK(get()->stream_synchronize(0, stream, &err));
  copy(DIT_COPY_DEVICE_TO_HOST, back, a, 0, 0);
  CHECK(back[0] == 2);
  copy(DIT_COPY_DEVICE_TO_HOST, back, b, 0, 0);
  CHECK(back[0] == 77);
  CHECK_OK(get()->host_register(pageable, SIZE, &err));
  copy_async(DIT_COPY_HOST_TO_DEVICE, a, pageable, stream);
  pageable[0] = 78;
  CHECK_OK(get()->stream_destroy(0, stream, &err));
  CHECK_OK(get()->host_unregister(pageable, &err));
  copy(DIT_COPY_DEVICE_TO_HOST, back, a, 0, 0);
  CHECK(back[0] == 78);
  CHECK_OK(get()->host_free(pinned, &err));
  give_memory(0, a);
  give_memory(0, b);
}

static void count_up(void *argument) {
  ++*(int *)argument;
}

static void test_streams_and_events(void) {
  struct dit_error err = {0};
  void *first = NULL, *second = NULL, *event = NULL, *end = NULL, *memory = take_memory(0, SIZE);
  unsigned char *pinned = NULL;
  int calls = 0, least = 0, greatest = 0;
  bool idle = true, done = true;
  double elapsed = -1;
  CHECK_OK(get()->stream_get_priority_range(0, &least, &greatest, &err));
  CHECK(least == 0 && greatest == -5);
  CHECK_OK(get()->stream_create(0, 0, &first, &err));
  CHECK_OK(get()->stream_create(0, -100, &second, &err));
  CHECK_OK(get()->event_create(0, DIT_EVENT_TIMING | DIT_EVENT_BLOCKING, &event, &err));
  CHECK_OK(get()->event_create(0, DIT_EVENT_TIMING, &end, &err));
  CHECK_OK(get()->host_alloc(SIZE, (void **)&pinned, &err));
  CHECK_OK(get()->event_query(0, event, &done, &err));
  CHECK(done);  // never recorded
  CHECK_OK(get()->memory_set(0, first, memory, 3, SIZE, &err));
  CHECK_OK(get()->stream_launch_host(0, first, count_up, &calls, &err));
  CHECK_OK(get()->event_record(0, event, first, &err));
  CHECK_OK(get()->stream_query(0, first, &idle, &err));
  CHECK(!idle);
  CHECK_OK(get()->event_query(0, event, &done, &err));
  CHECK(!done);
  // the second stream sees the first one's bytes only because it waits
  CHECK_OK(get()->stream_wait_event(0, second, event, &err));
  copy_async(DIT_COPY_DEVICE_TO_HOST, pinned, memory, second);
  CHECK_OK(get()->event_record(0, end, second, &err));
  CHECK_OK(get()->event_synchronize(0, end, &err));
  CHECK(calls == 1 && pinned[0] == 3 && pinned[SIZE - 1] == 3);
  CHECK_OK(get()->event_get_elapsed(0, event, end, &elapsed, &err));
  CHECK(elapsed >= 0);
  CHECK_OK(get()->synchronize(0, &err));
  CHECK_OK(get()->stream_destroy(0, first, &err));
  CHECK_OK(get()->stream_destroy(0, second, &err));
  get()->event_destroy(0, event);
  get()->event_destroy(0, end);
  CHECK_OK(get()->host_free(pinned, &err));
  give_memory(0, memory);
}

/// A failure comes with the next wait, in the driver's words, and stays until the device is reset.
static void test_sticky_failure(void) {
  struct dit_error err = {0};
  void (*fail)(int, void *, int);
  void *memory = NULL;
  *(void **)&fail = dlsym(emulator, "emulator_fail");
  CHECK(fail != NULL);
  fail(1, NULL, 719);
  CHECK(get()->synchronize(1, &err) == DIT_ERR_DEVICE);
  CHECK(strstr(err.message, "CUDA_ERROR_LAUNCH_FAILED (719)"));
  CHECK(get()->memory_alloc(1, SIZE, &memory, &err) == DIT_ERR_DEVICE && !memory);
  CHECK(get()->check_last_error(1, &err) == DIT_ERR_DEVICE);
  CHECK_OK(get()->check_last_error(0, &err));
  CHECK_OK(get()->reset(1, &err));
  CHECK_OK(get()->check_last_error(1, &err));
}

static int run_child(int from, int to) {
  struct dit_memory_handle handle;
  struct dit_error err = {0};
  unsigned char bytes[SIZE];
  void *base = NULL;
  size_t size = 0;
  char done = 0;
  if (read(from, &handle, sizeof handle) != (ssize_t)sizeof handle) {
    return 1;
  }
  start();
  if (get()->memory_import(0, &handle, &base, &size, &err) != DIT_OK || size < SIZE) {
    return 2;
  }
  copy(DIT_COPY_DEVICE_TO_HOST, bytes, base, 0, 0);
  const int right = bytes[1] == 31 + 9;
  memset(bytes, 99, SIZE);
  copy(DIT_COPY_HOST_TO_DEVICE, base, bytes, 0, 0);
  if (get()->memory_close(0, base, size, &err) != DIT_OK || write(to, &done, 1) != 1) {
    return 3;
  }
  return right ? 0 : 4;
}

/// The child starts before this process has a device.
static void test_other_process(void) {
  int down[2], up[2], status = 0;
  char done;
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    _exit(run_child(down[0], up[1]));
  }
  struct dit_error err = {0};
  struct dit_memory_handle handle;
  unsigned char bytes[SIZE];
  void *base = NULL;
  start();
  char *memory = take_memory(0, SIZE);
  fill(bytes, SIZE, 9);
  copy(DIT_COPY_HOST_TO_DEVICE, memory, bytes, 0, 0);
  CHECK_OK(get()->memory_export(0, memory + 100, &handle, &base, &err));
  CHECK(base == memory);
  CHECK(write(down[1], &handle, sizeof handle) == (ssize_t)sizeof handle && read(up[0], &done, 1) == 1);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  copy(DIT_COPY_DEVICE_TO_HOST, bytes, memory, 0, 0);
  CHECK(bytes[0] == 99 && bytes[SIZE - 1] == 99);
  give_memory(0, memory);
}

int main(void) {
  load_emulator();
  RUN(test_other_process);
  RUN(test_properties);
  RUN(test_copies);
  RUN(test_pinned);
  RUN(test_streams_and_events);
  RUN(test_sticky_failure);
  dit_runtime_shutdown();
  return 0;
}
