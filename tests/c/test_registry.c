/// The registry: every way in which loading a vendor library can go wrong, and what may differ in a good one.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device_test.h"

static char folder[256];

static const char *vendor_path(const char *defect) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s.so", DIT_TEST_VENDORS, defect);
  return path;
}

static int count_library(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  if (strstr(info->dlpi_name, DIT_TEST_VENDORS)) {
    ++*(int *)context;
  }
  return 0;
}

static int loaded_test_vendors(void) {
  int count = 0;
  dl_iterate_phdr(count_library, &count);
  return count;
}

/// Loading must fail with this status and these words, leave nothing active and nothing loaded.
static void expect_failure(const char *vendor, enum dit_status status, const char *first, const char *second) {
  struct dit_error err = {0};
  int before = loaded_test_vendors();
  enum dit_status got = dit_runtime_init(vendor, &err);
  if (got != status) {
    fprintf(stderr, "%s: %s: %s\n", vendor ? vendor : "(null)", dit_status_get_name(got), err.message);
  }
  CHECK(got == status);
  CHECK(err.status == status);
  CHECK_CONTAINS(err.message, first);
  CHECK_CONTAINS(err.message, second);
  CHECK(!dit_runtime_is_active());
  CHECK(dit_runtime_get_vtable() == NULL);
  CHECK(dit_runtime_get_kernels() == NULL);
  CHECK(strcmp(dit_runtime_get_path(), "") == 0);
  CHECK(dit_device_get_count() == 0);
  CHECK(loaded_test_vendors() == before);
  CHECK(dit_runtime_init(vendor, NULL) == status);  // err is nullable
}

static void write_file(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void test_names(void) {
  static const char *const bad[] = {"", "Host", "ho st", "host.so", "h\xc3\xb6st", "host\n", "..", "%s%n"};
  for (size_t i = 1; i < sizeof bad / sizeof bad[0]; i++) {
    expect_failure(bad[i], DIT_ERR_INVALID, "not valid", "a-z");
  }
  expect_failure("", DIT_ERR_INVALID, "no vendor", "host");
  expect_failure(NULL, DIT_ERR_INVALID, "no vendor", "host");
  char longest[200];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  expect_failure(longest, DIT_ERR_INVALID, "not valid", "64");
}

static void test_missing(void) {
  expect_failure("no_such_vendor", DIT_ERR_IO, "/libdit_vendor_no_such_vendor.so'", "loader's path");
  expect_failure("/no/such/file.so", DIT_ERR_IO, "/no/such/file.so", "No such file");
  expect_failure("/tmp/", DIT_ERR_IO, "/tmp/", "directory");
}

static void test_foreign_files(void) {
  char path[300];
  snprintf(path, sizeof path, "%s/text.so", folder);
  write_file(path, "hello", 5);
  expect_failure(path, DIT_ERR_IO, "not an ELF", "5 bytes");
  write_file(path, "", 0);
  expect_failure(path, DIT_ERR_IO, "not an ELF", "0 bytes");
  unsigned char header[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  header[16] = 3;
#if defined(__x86_64__)
  header[18] = 183;
  const char *theirs = "aarch64", *ours = "x86-64";
#else
  header[18] = 62;
  const char *theirs = "x86-64", *ours = "this machine is";
#endif
  write_file(path, header, sizeof header);
  expect_failure(path, DIT_ERR_IO, theirs, ours);
  header[4] = 1;  // 32-bit
  header[18] = 3;
  write_file(path, header, sizeof header);
  expect_failure(path, DIT_ERR_IO, "i386 (32-bit", "64-bit");
  header[18] = 250;
  write_file(path, header, sizeof header);
  expect_failure(path, DIT_ERR_IO, "ELF machine 250", "this machine");
#if defined(__x86_64__)
  header[4] = 2;
  header[18] = 62;
  write_file(path, header, sizeof header);  // right machine, nothing behind the header
  expect_failure(path, DIT_ERR_IO, "cannot load", path);
#endif
  unlink(path);
}

static void test_broken_tables(void) {
  expect_failure(vendor_path("no_symbol"), DIT_ERR_INVALID, "dit_vendor_get_device", "does not export");
  expect_failure(vendor_path("null_table"), DIT_ERR_DEVICE, "dit_vendor_get_device", "NULL");
  expect_failure(vendor_path("wrong_abi"), DIT_ERR_INVALID, "version 77", "wants 1");
  expect_failure(vendor_path("small_struct"), DIT_ERR_INVALID, "struct_size 16", "at least");
  expect_failure(vendor_path("null_slots"), DIT_ERR_INVALID, "memory_free, event_record", "null_slots.so");
  expect_failure(vendor_path("no_name"), DIT_ERR_INVALID, "no name", "no_name.so");
  expect_failure(vendor_path("bad_kernels"), DIT_ERR_INVALID, "kernel table", "version 9");
}

static void test_broken_starts(void) {
  expect_failure(vendor_path("init_fails"), DIT_ERR_DEVICE, "the driver says no", "init_fails.so");
  expect_failure(vendor_path("too_many"), DIT_ERR_DEVICE, "65 devices", "0 to 64");
}

static void test_other_sizes(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init(vendor_path("old_struct"), &err));
  CHECK(dit_runtime_get_vtable()->profiler_start == NULL);
  CHECK(dit_runtime_get_vtable()->profiler_stop == NULL);
  CHECK(dit_runtime_get_vtable()->collectives == NULL);
  CHECK(dit_runtime_get_vtable()->event_get_elapsed != NULL);
  CHECK(dit_runtime_get_kernels() == NULL);
  CHECK(dit_device_get_count() == 2);
  dit_runtime_shutdown();
  CHECK_OK(dit_runtime_init(vendor_path("grown_struct"), &err));
  CHECK(strcmp(dit_runtime_get_vtable()->name, "test") == 0);
  CHECK(dit_runtime_get_vtable()->collectives == NULL);
  dit_runtime_shutdown();
}

static void test_no_devices(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init(vendor_path("no_devices"), &err));
  CHECK(dit_device_get_count() == 0);
  CHECK(dit_device_set_current(0, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "invalid device ordinal");
  CHECK_CONTAINS(err.message, "no devices");
  dit_runtime_shutdown();
}

static void test_good_vendor(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK(dit_runtime_is_active());
  const char *path = dit_runtime_get_path();
  CHECK(path[0] == '/');
  CHECK_CONTAINS(path, "libdit_vendor_host.so");
  CHECK(strcmp(dit_runtime_get_vtable()->name, "host") == 0);
  // The same vendor again, by name and by path, is fine; another one is not, and disturbs nothing.
  CHECK_OK(dit_runtime_init("host", &err));
  char same[4096];
  snprintf(same, sizeof same, "%s", path);
  CHECK_OK(dit_runtime_init(same, &err));
  CHECK(dit_runtime_init(vendor_path("grown_struct"), &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "'host'");
  CHECK_CONTAINS(err.message, "grown_struct.so");
  CHECK(dit_runtime_init(NULL, &err) == DIT_ERR_INVALID);
  CHECK(dit_runtime_is_active() && dit_device_get_count() == 1);
  dit_runtime_shutdown();
  // Started by path, asked for by name.
  CHECK_OK(dit_runtime_init(same, &err));
  CHECK_OK(dit_runtime_init("host", &err));
  dit_runtime_shutdown();
}

int main(void) {
  snprintf(folder, sizeof folder, "/tmp/dit_registry_XXXXXX");
  CHECK(mkdtemp(folder));
  RUN(test_names);
  RUN(test_missing);
  RUN(test_foreign_files);
  RUN(test_broken_tables);
  RUN(test_broken_starts);
  RUN(test_other_sizes);
  RUN(test_no_devices);
  RUN(test_good_vendor);
  CHECK(rmdir(folder) == 0);
  return 0;
}
