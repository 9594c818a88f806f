/// The embedded accelerator behind the vendor contract: properties, memory limits and accounting, kernel launches.
///
/// Includes the vendor's stream.c: host_stream_launch is private to the library, so the test has its own copy of it.
#include <unistd.h>

#include "device_test.h"
#include "stream.c"

static const struct dit_device_vtable *vtable;

static void test_contract(void) {
  start_host(NULL);
  vtable = dit_runtime_get_vtable();
  CHECK(vtable->abi_version == DIT_DEVICE_ABI_VERSION && vtable->struct_size == sizeof *vtable);
  CHECK(vtable->version && vtable->version[0]);
  CHECK(!vtable->collectives && !vtable->profiler_start && !vtable->profiler_stop);
  int least = 9, greatest = 9, version = 0;
  struct dit_error err = {0};
  CHECK_OK(vtable->stream_get_priority_range(0, &least, &greatest, &err));
  CHECK(least == 0 && greatest == -1);
  CHECK_OK(vtable->get_driver_version(&version, &err));
  CHECK(version == 12040);
}

static void test_properties(void) {
  static const char *const three[] = {"host_devices", "3", "host_memory", "1.5GiB", NULL};
  struct dit_device_properties p[3];
  struct dit_error err = {0};
  start_host(three);
  for (int i = 0; i < 3; i++) {
    CHECK_OK(vtable->get_properties(i, &p[i], &err));
    CHECK(strcmp(p[i].name, "ditorch host device") == 0 && strcmp(p[i].vendor, "host") == 0);
    CHECK(p[i].total_memory == (uint64_t)3 << 29);
    CHECK(strlen(p[i].uuid) == 36 && p[i].uuid[8] == '-' && p[i].uuid[23] == '-');
    CHECK(i == 0 || strcmp(p[i].uuid, p[i - 1].uuid) != 0);
    CHECK(p[i].pci_bus == i);
  }
  CHECK(p[0].major == 8 && p[0].minor == 0 && p[0].warp_size == 32);
  CHECK(p[0].max_threads_per_multi_processor == 2048 && p[0].max_threads_per_block == 1024);
  CHECK(p[0].shared_memory_per_block == 49152 && p[0].shared_memory_per_multiprocessor == 167936);
  CHECK(p[0].multi_processor_count >= 1 && p[0].multi_processor_count <= sysconf(_SC_NPROCESSORS_CONF));
  CHECK(p[0].host_accessible && p[0].integrated && p[0].architecture[0]);
  CHECK(vtable->can_access_peer(0, 2) && !vtable->can_access_peer(1, 1));
}

static void test_default_size(void) {
  struct dit_error err = {0};
  struct dit_device_memory memory;
  start_host(NULL);
  CHECK_OK(vtable->get_memory(0, &memory, &err));
  uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  CHECK(memory.total > 0 && memory.total <= physical);
  CHECK(memory.free > 0 && memory.free <= memory.total);
}

static uint64_t free_memory(int device) {
  struct dit_device_memory memory;
  struct dit_error err = {0};
  CHECK_OK(vtable->get_memory(device, &memory, &err));
  return memory.free;
}

static void test_memory(void) {
  static const char *const small[] = {"host_devices", "2", "host_memory", "16MiB", NULL};
  static const size_t sizes[] = {1, 511, 512, 513, 100000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5000000, 8 << 20};
  struct dit_error err = {0};
  start_host(small);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    char *ptr = take_memory(0, sizes[i]);
    CHECK((uintptr_t)ptr % 512 == 0);
    CHECK(sizes[i] < (1 << 20) || (uintptr_t)ptr % (size_t)sysconf(_SC_PAGESIZE) == 0);
    memset(ptr, 1, sizes[i]);
    CHECK(free_memory(0) <= (16 << 20) - sizes[i]);
    CHECK(free_memory(1) == 16 << 20);
    give_memory(0, ptr);
    CHECK(free_memory(0) == 16 << 20);
  }
  void *ptr = NULL;
  CHECK_OK(vtable->memory_alloc(0, 0, &ptr, &err));
  CHECK(!ptr);
  CHECK_OK(vtable->memory_free(0, NULL, &err));
}

static void test_memory_limit(void) {
  static const char *const small[] = {"host_devices", "2", "host_memory", "16MiB", NULL};
  struct dit_error err = {0};
  start_host(small);
  void *first = take_memory(0, 10 << 20), *rest = take_memory(0, 6 << 20), *ptr = NULL;
  CHECK(free_memory(0) == 0);
  CHECK(vtable->memory_alloc(0, 1, &ptr, &err) == DIT_ERR_NOMEM && !ptr);
  CHECK_CONTAINS(err.message, "device 0");
  CHECK_CONTAINS(err.message, "16777216 of 16777216");
  CHECK_CONTAINS(err.message, "DITORCH_HOST_MEMORY");
  CHECK(vtable->memory_alloc(1, (16 << 20) + 1, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK(vtable->memory_alloc(1, SIZE_MAX, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK(vtable->memory_alloc(1, SIZE_MAX - 100, &ptr, &err) == DIT_ERR_NOMEM);
  void *other = take_memory(1, 16 << 20);                         // each device has the whole size
  CHECK(vtable->memory_free(1, first, &err) == DIT_ERR_INVALID);  // of the other device
  CHECK_CONTAINS(err.message, "device 1");
  CHECK(vtable->memory_free(0, (char *)first + 512, &err) == DIT_ERR_INVALID);
  CHECK(vtable->host_free(first, &err) == DIT_ERR_INVALID);
  give_memory(0, first);
  CHECK(vtable->memory_free(0, first, &err) == DIT_ERR_INVALID);
  CHECK(free_memory(0) == 10 << 20);
  give_memory(0, rest);
  give_memory(1, other);
}

static void test_memory_failures(void) {
  static const char *const small[] = {"host_memory", "16MiB", NULL};
  struct dit_error err = {0};
  start_host(small);
  static const size_t sizes[] = {100, 2 << 20};
  for (int i = 0; i < 2; i++) {
    int failures = 0;
    for (int n = 0; n < 10; n++) {
      void *ptr = NULL;
      dit_alloc_set_failure(n);
      enum dit_status status = vtable->memory_alloc(0, sizes[i], &ptr, &err);
      dit_alloc_set_failure(-1);
      if (status == DIT_OK) {
        give_memory(0, ptr);
        break;
      }
      CHECK(status == DIT_ERR_NOMEM && !ptr);
      CHECK(free_memory(0) == 16 << 20);
      failures++;
    }
    CHECK(failures == 2);  // the node and the table
  }
}

static void test_many_blocks(void) {
  enum { COUNT = 3000 };
  static void *blocks[COUNT];
  struct dit_error err = {0};
  start_host(NULL);
  int64_t live = dit_alloc_get_live();
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = take_memory(0, 700);
  }
  for (int i = 0; i < COUNT; i++) {
    int j = i * 7 % COUNT;  // 7 and COUNT have no common factor
    CHECK_OK(vtable->memory_free(0, blocks[j], &err));
    CHECK(vtable->memory_free(0, blocks[j], &err) == DIT_ERR_INVALID);
  }
  CHECK(dit_alloc_get_live() == live);
}

// host_stream_launch

struct kernel {
  double value;
  long double aligned;
  int *cell;
  const struct kernel *seen_at;
};

static const struct kernel *last_arguments;

static void run_kernel(void *arguments) {
  struct kernel *kernel = arguments;
  last_arguments = kernel;
  *kernel->cell += (int)kernel->value;
}

static void test_launch(void) {
  struct dit_error err = {0};
  int cell = 0;
  struct kernel kernel = {.value = 1, .cell = &cell};
  void *stream;
  int64_t count = dit_alloc_get_count();
  CHECK_OK(host_stream_launch(NULL, run_kernel, &kernel, sizeof kernel, &err));
  CHECK(cell == 1 && last_arguments == &kernel);  // the caller's own struct, no allocation
  CHECK(dit_alloc_get_count() == count);
  CHECK_OK(host_stream_create(0, -5, &stream, &err));
  for (int i = 0; i < 100; i++) {
    kernel.value = i;
    CHECK_OK(host_stream_launch(stream, run_kernel, &kernel, sizeof kernel, &err));
    kernel.value = 1e6;  // the queue has its own copy
  }
  CHECK_OK(host_stream_synchronize(0, stream, &err));
  CHECK(cell == 1 + 99 * 100 / 2);
  CHECK(last_arguments != &kernel && (uintptr_t)last_arguments % _Alignof(max_align_t) == 0);
  dit_alloc_set_failure(0);
  CHECK(host_stream_launch(stream, run_kernel, &kernel, sizeof kernel, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(-1);
  CHECK(dit_host_stream_enqueue(stream, run_kernel, &kernel, SIZE_MAX, &err) == DIT_ERR_NOMEM);
  CHECK_OK(host_stream_synchronize(0, stream, &err));
  CHECK(cell == 1 + 99 * 100 / 2);
  // CUDA_LAUNCH_BLOCKING
  dit_host_stream_init(true);
  kernel.value = 1;
  for (int i = 0; i < 100; i++) {
    int before = cell;
    CHECK_OK(host_stream_launch(stream, run_kernel, &kernel, sizeof kernel, &err));
    CHECK(cell == before + 1);
  }
  dit_host_stream_init(false);
  // Destroying drains.
  int expected = cell + 200;
  for (int i = 0; i < 200; i++) {
    CHECK_OK(host_stream_launch(stream, run_kernel, &kernel, sizeof kernel, &err));
  }
  CHECK_OK(host_stream_destroy(0, stream, &err));
  CHECK(cell == expected);
}

int main(void) {
  RUN(test_contract);
  RUN(test_properties);
  RUN(test_default_size);
  RUN(test_memory);
  RUN(test_memory_limit);
  RUN(test_memory_failures);
  RUN(test_many_blocks);
  RUN(test_launch);
  dit_runtime_shutdown();
  return 0;
}
