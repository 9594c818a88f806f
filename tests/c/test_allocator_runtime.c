/// dit/memory.h over the embedded device: real memory, real streams, two devices, fork.
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/memory.h"
#include "dit/options.h"
#include "dit/runtime.h"

#define MIB ((size_t)1 << 20)

static struct dit_error err;
static char last_log[512];
static int log_lines;

static void keep_log(void *context, enum dit_log_level level, const char *text) {
  (void)context;
  (void)level;
  log_lines++;
  snprintf(last_log, sizeof(last_log), "%s", text);
}

static void *take(int device, int64_t stream, size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_memory_alloc(device, stream, size, &ptr, &err));
  return ptr;
}

static struct dit_memory_stats stats(int device) {
  struct dit_memory_stats out;
  CHECK_OK(dit_memory_get_stats(device, &out, &err));
  return out;
}

static void test_before_init(void) {
  void *ptr;
  int foreign;
  CHECK(dit_memory_alloc(0, 0, 1, &ptr, &err) != DIT_OK);
  CHECK(dit_memory_get_fraction(0) == 1.0);
  CHECK_OK(dit_memory_empty_cache(-1, &err));
  dit_memory_free(&foreign);  // no device, no complaint
  CHECK(log_lines == 0);
}

static void test_memory_is_real(void) {
  void *base;
  size_t size;
  int device;
  char *block = take(0, 0, 3 * MIB), *other = take(1, 0, 3 * MIB);
  memset(block, 7, 3 * MIB);
  memset(other, 8, 3 * MIB);
  CHECK(block[0] == 7 && block[3 * MIB - 1] == 7);
  CHECK(dit_memory_find(block + 5, &base, &size, &device) && base == block && size == 3 * MIB && device == 0);
  CHECK(dit_memory_find(other, &base, &size, &device) && device == 1);
  CHECK((uintptr_t)block % 512 == 0);
  dit_memory_free(block);
  CHECK(stats(0).allocated_bytes[DIT_POOL_ALL].current == 0 &&
        stats(1).allocated_bytes[DIT_POOL_ALL].current == (int64_t)(3 * MIB));
  dit_memory_free(other);
  CHECK_OK(dit_memory_empty_cache(-1, &err));
  CHECK(stats(0).reserved_bytes[DIT_POOL_ALL].current == 0 && stats(1).reserved_bytes[DIT_POOL_ALL].current == 0);
}

static atomic_bool gate;

static void wait_at_gate(void *argument) {
  (void)argument;
  while (!atomic_load(&gate)) {
    usleep(100);
  }
}

static void test_record_stream(void) {
  int64_t side;
  CHECK_OK(dit_stream_acquire(0, 0, &side, &err));
  atomic_store(&gate, false);
  char *block = take(0, 0, 2 * MIB);
  CHECK_OK(dit_stream_launch_host(0, side, wait_at_gate, NULL, &err));
  CHECK_OK(dit_memory_record_stream(block + 100, side, &err));
  dit_memory_free(block);
  CHECK(stats(0).active[DIT_POOL_ALL].current == 1);
  char *second = take(0, 0, 2 * MIB);
  CHECK(second != block);
  atomic_store(&gate, true);
  CHECK_OK(dit_stream_synchronize(0, side, &err));
  CHECK(take(0, 0, 2 * MIB) == block);
  dit_memory_free(block);
  dit_memory_free(second);
}

static void allocate_and_free(void *argument) {
  void *ptr = NULL;
  *(enum dit_status *)argument = dit_memory_alloc(0, 0, 4096, &ptr, NULL);
  dit_memory_free(ptr);
}

/// A stream's own work may use the allocator while another thread waits for that stream inside empty_cache.
static void test_allocator_inside_stream_work(void) {
  int64_t side;
  enum dit_status status = DIT_ERR_INTERNAL;
  CHECK_OK(dit_stream_acquire(0, 0, &side, &err));
  dit_memory_free(take(0, side, 30 * MIB));
  CHECK_OK(dit_stream_launch_host(0, side, allocate_and_free, &status, &err));
  CHECK_OK(dit_memory_empty_cache(0, &err));
  CHECK_OK(dit_stream_synchronize(0, side, &err));
  CHECK(status == DIT_OK);
}

static void test_out_of_memory(void) {
  void *ptr = NULL;
  CHECK(dit_memory_alloc(0, 0, 300 * MIB, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message,
                 "CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of 256.00 MiB");
  CHECK_CONTAINS(err.message, "DITORCH_HOST_MEMORY");
  CHECK_CONTAINS(err.message, "empty_cache");
  CHECK_CONTAINS(err.message, "PYTORCH_CUDA_ALLOC_CONF");
  void *cached = take(0, 0, 200 * MIB);
  dit_memory_free(cached);
  ptr = take(0, 0, 220 * MIB);
  CHECK(stats(0).num_alloc_retries == 1 && stats(0).num_ooms == 1);
  dit_memory_free(ptr);
}

static void test_foreign_free_is_logged_once(void) {
  int foreign;
  log_lines = 0;
  void *block = take(0, 0, 100);
  dit_memory_free((char *)block + 512);
  CHECK(log_lines == 1);
  CHECK_CONTAINS(last_log, "not the start of a live block");
  dit_memory_free(&foreign);
  dit_memory_free(NULL);
  dit_memory_free(block);
  dit_memory_free(block);
  CHECK(log_lines == 1);
}

static void test_configuration(void) {
  CHECK(strcmp(dit_memory_get_configuration(), "") == 0);
  CHECK_OK(dit_memory_configure("max_split_size_mb:64", &err));
  CHECK(strcmp(dit_memory_get_configuration(), "max_split_size_mb:64") == 0 &&
        stats(1).max_split_size == (int64_t)(64 * MIB));
  CHECK(dit_memory_configure("max_split_size_mb:64,colour:red", &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "colour");
  CHECK(strcmp(dit_memory_get_configuration(), "max_split_size_mb:64") == 0);
  CHECK_OK(dit_memory_configure("backend:raw", &err));
  CHECK_OK(dit_memory_empty_cache(0, &err));
  dit_memory_free(take(0, 0, 5000));
  CHECK(stats(0).reserved_bytes[DIT_POOL_ALL].current == 0);
  CHECK_OK(dit_memory_configure(NULL, &err));
  CHECK(strcmp(dit_memory_get_configuration(), "") == 0 && stats(0).max_split_size == -1);
}

static void test_fraction_and_bad_devices(void) {
  void *ptr;
  struct dit_memory_stats out;
  CHECK(dit_memory_set_fraction(0, 0.0, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "0 < fraction <= 1");
  CHECK(dit_memory_set_fraction(0, 1.01, &err) == DIT_ERR_INVALID);
  CHECK_OK(dit_memory_set_fraction(1, 0.25, &err));
  CHECK(dit_memory_get_fraction(1) == 0.25 && dit_memory_get_fraction(0) == 1.0);
  CHECK(dit_memory_alloc(1, 0, 100 * MIB, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "64.00 MiB allowed; ");
  CHECK_OK(dit_memory_set_fraction(1, 1.0, &err));
  int bad[] = {-1, 2, 64, 1000};
  for (int i = 0; i < 4; i++) {
    CHECK(dit_memory_alloc(bad[i], 0, 1, &ptr, &err) == DIT_ERR_ORDINAL);
    CHECK(dit_memory_get_stats(bad[i], &out, &err) == DIT_ERR_ORDINAL);
    CHECK(dit_memory_set_fraction(bad[i], 0.5, &err) == DIT_ERR_ORDINAL);
  }
  CHECK(dit_memory_empty_cache(2, &err) == DIT_ERR_ORDINAL);
}

static bool count_segment(void *context, const struct dit_memory_segment *segment) {
  int *counts = context;
  counts[segment->device]++;
  return true;
}

static void test_visit(void) {
  int all[2] = {0}, one[2] = {0};
  void *a = take(0, 0, 1), *b = take(1, 0, 1);
  CHECK_OK(dit_memory_visit(-1, count_segment, all, &err));
  CHECK(all[0] >= 1 && all[1] == 1);
  CHECK_OK(dit_memory_visit(1, count_segment, one, &err));
  CHECK(one[0] == 0 && one[1] == 1);
  dit_alloc_set_failure(0);
  CHECK(dit_memory_visit(-1, count_segment, all, &err) == DIT_ERR_NOMEM);
  dit_alloc_set_failure(-1);
  dit_memory_free(a);
  dit_memory_free(b);
  CHECK_OK(dit_memory_reset_peak(0, &err));
  CHECK_OK(dit_memory_reset_accumulated(0, &err));
  CHECK(stats(0).num_device_alloc == 0);
}

static void test_forked_child(void) {
  void *block = take(0, 0, 100);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    void *ptr = NULL, *base;
    size_t size;
    int device;
    log_lines = 0;
    dit_memory_free(block);
    bool correct = log_lines == 0 && dit_runtime_is_bad_fork() &&
                   dit_memory_alloc(0, 0, 1, &ptr, &err) == DIT_ERR_DEVICE && strstr(err.message, "forked") &&
                   !dit_memory_find(block, &base, &size, &device) &&
                   dit_memory_record_stream(block, 1, &err) == DIT_ERR_DEVICE;
    _exit(correct ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(stats(0).allocation[DIT_POOL_ALL].current == 1);
  dit_memory_free(block);
}

static void test_shutdown_with_live_blocks(void) {
  void *ptr, *live = take(0, 0, 100);
  log_lines = 0;
  dit_runtime_shutdown();
  dit_memory_free(live);
  CHECK(log_lines == 0);
  CHECK(dit_memory_alloc(0, 0, 1, &ptr, &err) != DIT_OK);
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK(stats(0).allocation[DIT_POOL_ALL].current == 0 && stats(0).allocation[DIT_POOL_ALL].allocated == 0);
  dit_memory_free(take(0, 0, 100));
  dit_runtime_shutdown();
}

int main(void) {
  CHECK_OK(dit_option_set("host_devices", "2", &err));
  CHECK_OK(dit_option_set("host_memory", "256MiB", &err));
  dit_log_set_sink(keep_log, NULL);
  RUN(test_before_init);
  int64_t live = dit_alloc_get_live();
  CHECK_OK(dit_runtime_init("host", &err));
  RUN(test_memory_is_real);
  RUN(test_record_stream);
  RUN(test_allocator_inside_stream_work);
  RUN(test_out_of_memory);
  RUN(test_foreign_free_is_logged_once);
  RUN(test_configuration);
  RUN(test_fraction_and_bad_devices);
  RUN(test_visit);
  RUN(test_forked_child);
  RUN(test_shutdown_with_live_blocks);
  CHECK(dit_alloc_get_live() == live);
  return 0;
}
