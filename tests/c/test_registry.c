/// The registry: every way in which loading a vendor library can go wrong, and what may differ in a good one.
#include "device_test.h"
#include "dit/graph.h"
#include "plugin_check.h"

/// Loading must fail with this status and these words, leave nothing active and nothing loaded.
static void expect_failure(const char *vendor, enum dit_status status, const char *first, const char *second) {
  struct dit_error err = {0};
  int before = plugin_count_loaded();
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
  CHECK(plugin_count_loaded() == before);
  CHECK(dit_runtime_init(vendor, NULL) == status);  // err is nullable
}

static void test_names(void) {
  plugin_check_names(expect_failure, "no vendor");
}

static void test_missing(void) {
  plugin_check_missing(expect_failure, "libdit_vendor_");
}

static void test_foreign_files(void) {
  plugin_check_foreign_files(expect_failure);
}

static void test_broken_tables(void) {
  expect_failure(plugin_get_path("no_symbol"), DIT_ERR_INVALID, "dit_vendor_get_device", "does not export");
  expect_failure(plugin_get_path("null_table"), DIT_ERR_DEVICE, "dit_vendor_get_device", "NULL");
  expect_failure(plugin_get_path("wrong_abi"), DIT_ERR_INVALID, "version 77", "wants 1");
  expect_failure(plugin_get_path("small_struct"), DIT_ERR_INVALID, "struct_size 16", "at least");
  expect_failure(plugin_get_path("null_slots"), DIT_ERR_INVALID, "memory_free, event_record", "null_slots.so");
  expect_failure(plugin_get_path("no_name"), DIT_ERR_INVALID, "no name", "no_name.so");
  expect_failure(plugin_get_path("bad_kernels"), DIT_ERR_INVALID, "kernel table", "version 9");
  expect_failure(plugin_get_path("half_engine"), DIT_ERR_INVALID, "graph engine lacks supports_node", "half_engine.so");
}

static void test_broken_starts(void) {
  expect_failure(plugin_get_path("init_fails"), DIT_ERR_DEVICE, "the driver says no", "init_fails.so");
  expect_failure(plugin_get_path("too_many"), DIT_ERR_DEVICE, "65 devices", "0 to 64");
}

static void test_other_sizes(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init(plugin_get_path("old_struct"), &err));
  CHECK(dit_runtime_get_vtable()->profiler_start == NULL);
  CHECK(dit_runtime_get_vtable()->profiler_stop == NULL);
  CHECK(dit_runtime_get_vtable()->collectives == NULL);
  CHECK(dit_runtime_get_vtable()->event_get_elapsed != NULL);
  CHECK(dit_runtime_get_kernels() == NULL);
  CHECK(dit_device_get_count() == 2);
  dit_runtime_shutdown();
  CHECK_OK(dit_runtime_init(plugin_get_path("grown_struct"), &err));
  CHECK(strcmp(dit_runtime_get_vtable()->name, "test") == 0);
  CHECK(dit_runtime_get_vtable()->collectives == NULL);
  dit_runtime_shutdown();
}

static void test_an_older_graph_engine(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init(plugin_get_path("old_engine"), &err));
  const struct dit_graph_engine *engine = dit_runtime_get_graph_engine();
  CHECK(engine && engine->compile && engine->run && !engine->supports_node && !engine->compile_graph && !engine->load);
  dit_runtime_shutdown();
  CHECK_OK(dit_runtime_init(plugin_get_path("grown_struct"), &err));
  CHECK(dit_runtime_get_graph_engine() == NULL);
  dit_runtime_shutdown();
}

static void test_no_devices(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init(plugin_get_path("no_devices"), &err));
  CHECK(dit_device_get_count() == 0);
  CHECK(dit_device_set_current(0, &err) == DIT_ERR_ORDINAL);
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
  CHECK(dit_runtime_init(plugin_get_path("grown_struct"), &err) == DIT_ERR_INVALID);
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
  RUN(test_names);
  RUN(test_missing);
  RUN(test_foreign_files);
  RUN(test_broken_tables);
  RUN(test_broken_starts);
  RUN(test_other_sizes);
  RUN(test_an_older_graph_engine);
  RUN(test_no_devices);
  RUN(test_good_vendor);
  return 0;
}
