/// Vendor libraries that fail: every function in turn with every status, names, sizes and counts that make no sense, an
/// init that hangs. A clear error each time, nothing lost, and the device goes on afterwards.
#include <dlfcn.h>

#include "device_test.h"
#include "dit/share.h"
#include "plugin_check.h"

static const char *library(void) {
  return DIT_TEST_VENDORS "/wrong.so";
}

static void choose(const char *defect) {
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK(setenv("WRONG_DEFECT", defect, 1) == 0);
  CHECK(setenv("WRONG_BASE", "host", 1) == 0);
}

/// The library must not start, with these words; nothing stays loaded.
static void expect_refusal(const char *defect, enum dit_status status, const char *words) {
  struct dit_error err = {0};
  choose(defect);
  const enum dit_status got = dit_runtime_init(library(), &err);
  if (got != status) {
    fprintf(stderr, "%s: %s: %s\n", defect, dit_status_get_name(got), err.message);
  }
  CHECK(got == status && err.status == status);
  CHECK_CONTAINS(err.message, words);
  CHECK_CONTAINS(err.message, "wrong.so");
  CHECK(!dit_runtime_is_active() && plugin_count_loaded() == 0);
}

static void test_tables(void) {
  expect_refusal("no_such_defect", DIT_ERR_DEVICE, "returned NULL");
  expect_refusal("old_abi", DIT_ERR_INVALID, "ABI version 0, this ditorch wants 1");
  expect_refusal("new_abi", DIT_ERR_INVALID, "ABI version 2, this ditorch wants 1");
  expect_refusal("small_struct", DIT_ERR_INVALID, "struct_size 64");
  expect_refusal("odd_struct", DIT_ERR_INVALID, "cuts a slot in two");
  expect_refusal("null_required", DIT_ERR_INVALID, "memory_free");
  expect_refusal("null_two", DIT_ERR_INVALID, "copy_async, event_record");
  expect_refusal("null_name", DIT_ERR_INVALID, "no name");
  expect_refusal("bad_name", DIT_ERR_INVALID, "'My Chip!'");
  expect_refusal("old_kernels", DIT_ERR_INVALID, "kernel table has ABI version 1");
}

static void test_starts(void) {
  expect_refusal("init_fails", DIT_ERR_DEVICE, "the driver is not loaded");
  expect_refusal("count_negative", DIT_ERR_DEVICE, "-3 devices");
}

/// The library of this process is chosen once: what was active stays loaded.
static void test_properties(const char *defect) {
  struct dit_error err = {0};
  struct dit_device_properties properties;
  memset(&properties, 0x5a, sizeof properties);
  choose(defect);
  CHECK_OK(dit_runtime_init(library(), &err));
  CHECK_OK(dit_device_get_properties(0, &properties, &err));
  CHECK(memchr(properties.name, 0, sizeof properties.name) && properties.warp_size >= 0);
  CHECK(dit_runtime_get_vtable()->version != NULL);
  dit_runtime_shutdown();
}

// Every function in turn

static int (*set_failure)(const char *slot, int status, bool silent);

/// The first error of a run through the runtime's functions.
struct outcome {
  enum dit_status status;
  struct dit_error err;
};

static void note(struct outcome *outcome, enum dit_status status, const struct dit_error *err) {
  if (status != DIT_OK && outcome->status == DIT_OK) {
    outcome->status = status;
    outcome->err = *err;
  }
}

static void do_nothing(void *argument) {
  (void)argument;
}

static void use_streams(struct outcome *o, void *memory) {
  struct dit_error err = {0};
  struct dit_event *first = NULL, *second = NULL;
  int64_t stream = 0;
  bool idle;
  double milliseconds;
  note(o, dit_stream_acquire(0, 0, &stream, &err), &err);
  note(o, dit_event_create(0, DIT_EVENT_TIMING, &first, &err), &err);
  note(o, dit_event_create(0, DIT_EVENT_TIMING, &second, &err), &err);
  if (memory) {
    note(o, dit_memory_set(memory, 0, 7, 4096, stream, &err), &err);
  }
  note(o, dit_stream_launch_host(0, stream, do_nothing, NULL, &err), &err);
  if (first && second) {
    note(o, dit_event_record(first, 0, stream, &err), &err);
    note(o, dit_event_record(second, 0, stream, &err), &err);
    note(o, dit_event_block(second, 0, 0, &err), &err);
    note(o, dit_event_synchronize(second, &err), &err);
    note(o, dit_event_query(second, &idle, &err), &err);
    note(o, dit_event_get_elapsed(first, second, &milliseconds, &err), &err);
  }
  note(o, dit_stream_query(0, stream, &idle, &err), &err);
  note(o, dit_stream_synchronize(0, stream, &err), &err);
  dit_event_destroy(first);
  dit_event_destroy(second);
}

static void use_memory(struct outcome *o, void *memory) {
  struct dit_error err = {0};
  static char host[65536];
  void *pinned = NULL;
  int64_t stream = 0;
  if (memory) {
    note(o, dit_memory_copy(memory, 0, host, -1, 4096, 0, 0, false, &err), &err);
    note(o, dit_memory_copy(host, -1, memory, 0, 4096, 0, 0, false, &err), &err);
    if (dit_stream_acquire(0, 0, &stream, &err) == DIT_OK) {
      note(o, dit_memory_copy(memory, 0, host, -1, 4096, 0, stream, true, &err), &err);
    }
  }
  note(o, dit_host_alloc(3 << 20, &pinned, &err), &err);
  dit_host_free(pinned);
  dit_host_empty_cache();
  const enum dit_status status = dit_host_register(host, sizeof host, &err);
  note(o, status, &err);
  if (status == DIT_OK) {
    note(o, dit_host_unregister(host, &err), &err);
  }
}

static void keep(void *context) {
  (void)context;
}

static struct outcome use_everything(void) {
  struct outcome o = {0};
  struct dit_error err = {0};
  struct dit_device_properties properties;
  struct dit_device_memory memory_info;
  struct dit_share *share = NULL;
  void *memory = NULL;
  note(&o, dit_device_get_properties(0, &properties, &err), &err);
  note(&o, dit_runtime_get_vtable()->get_memory(0, &memory_info, &err), &err);
  note(&o, dit_memory_alloc(0, 0, 4 << 20, &memory, &err), &err);
  use_memory(&o, memory);
  use_streams(&o, memory);
  if (memory) {
    const enum dit_status status = dit_share_create(0, memory, 4096, keep, NULL, &share, &err);
    note(&o, status, &err);
    if (status == DIT_OK) {
      dit_share_destroy(share);
    }
    dit_memory_free(memory);
  }
  note(&o, dit_device_synchronize(0, &err), &err);
  note(&o, dit_memory_empty_cache(0, &err), &err);
  return o;
}

static void fail_once(const char *slot, enum dit_status status, bool silent) {
  (void)set_failure(slot, (int)status, silent);
  struct outcome o = use_everything();
  const int hits = set_failure(NULL, 0, false);
  if (hits == 0) {
    fprintf(stderr, "%s was not called\n", slot);
  }
  CHECK(hits > 0);
  const bool advisory = strcmp(slot, "host_free") == 0 || strcmp(slot, "memory_free") == 0;
  if (!advisory && o.status != status) {
    fprintf(stderr, "%s with %s: %s: %s\n", slot, dit_status_get_name(status), dit_status_get_name(o.status),
            o.err.message);
    CHECK(o.status == status);
  }
  if (!advisory && !silent) {
    const bool full = status == DIT_ERR_NOMEM && strcmp(slot, "memory_alloc") == 0;  // PyTorch's own words
    CHECK_CONTAINS(o.err.message, full ? "out of memory" : "the driver refuses");
  }
}

static void test_every_function(void) {
  static const char *const slots[] = {
      "stream_create", "get_properties",     "get_memory",    "synchronize",       "memory_alloc",
      "memory_set",    "host_alloc",         "host_register", "host_unregister",   "copy",
      "copy_async",    "stream_synchronize", "stream_query",  "stream_wait_event", "stream_launch_host",
      "event_create",  "event_record",       "event_query",   "event_synchronize", "event_get_elapsed",
      "memory_export"};
  static const enum dit_status statuses[] = {DIT_ERR_INVALID, DIT_ERR_UNSUPPORTED, DIT_ERR_NOMEM,   DIT_ERR_DEVICE,
                                             DIT_ERR_IO,      DIT_ERR_CORRUPT,     DIT_ERR_INTERNAL};
  struct dit_error err = {0};
  choose("errors");
  CHECK_OK(dit_option_set("log_level", "off", &err));
  CHECK_OK(dit_runtime_init(library(), &err));
  void *handle = dlopen(library(), RTLD_NOW | RTLD_NOLOAD);
  void *symbol = handle ? dlsym(handle, "dit_wrong_fail") : NULL;
  CHECK(symbol);
  memcpy(&set_failure, &symbol, sizeof set_failure);
  CHECK(use_everything().status == DIT_OK);
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
    for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++) {
      fail_once(slots[i], statuses[k], false);
    }
    fail_once(slots[i], DIT_ERR_DEVICE, true);
    struct outcome o = use_everything();  // and on, as if nothing had happened
    if (o.status != DIT_OK) {
      fprintf(stderr, "after %s: %s\n", slots[i], o.err.message);
    }
    CHECK(o.status == DIT_OK);
  }
  fail_once("memory_free", DIT_ERR_DEVICE, false);
  fail_once("host_free", DIT_ERR_DEVICE, false);
  CHECK(use_everything().status == DIT_OK);
  dlclose(handle);
}

/// A wrong device never reaches the vendor: every call names the valid ones.
static void test_wrong_device(void) {
  static const int wrong[] = {-1, 1, 64, 1000000};
  for (size_t i = 0; i < 4; i++) {
    struct dit_error err = {0};
    struct dit_device_properties properties;
    struct dit_event *event = NULL;
    void *ptr = NULL;
    int64_t stream = 0;
    CHECK(dit_device_get_properties(wrong[i], &properties, &err) == DIT_ERR_ORDINAL);
    CHECK_CONTAINS(err.message, "valid: 0 to 0");
    CHECK(dit_device_set_current(wrong[i], &err) == DIT_ERR_ORDINAL);
    CHECK(dit_device_synchronize(wrong[i], &err) == DIT_ERR_ORDINAL);
    CHECK(dit_memory_alloc(wrong[i], 0, 512, &ptr, &err) == DIT_ERR_ORDINAL);
    CHECK(dit_stream_acquire(wrong[i], 0, &stream, &err) == DIT_ERR_ORDINAL);
    CHECK(dit_event_create(wrong[i], 0, &event, &err) == DIT_ERR_ORDINAL);
    CHECK(ptr == NULL && event == NULL && stream == 0);
  }
}

static void test_restart_fails(void) {
  struct dit_error err = {0};
  static const char *const slots[] = {"init", "count"};
  for (int i = 0; i < 2; i++) {
    for (int silent = 0; silent < 2; silent++) {
      dit_runtime_shutdown();
      (void)set_failure(slots[i], DIT_ERR_DEVICE, silent);
      CHECK(dit_runtime_init(library(), &err) == DIT_ERR_DEVICE);
      CHECK_CONTAINS(err.message, silent ? "says nothing more" : "the driver refuses");
      CHECK(!dit_runtime_is_active());
      (void)set_failure(NULL, 0, false);
      CHECK_OK(dit_runtime_init(library(), &err));
    }
  }
  CHECK(use_everything().status == DIT_OK);
  dit_runtime_shutdown();
}

/// Last: a thread of this process stays in the library.
static void test_hang(void) {
  struct dit_error err = {0};
  choose("init_hangs");
  CHECK_OK(dit_option_set("vendor_timeout", "1", &err));
  CHECK(dit_runtime_init(library(), &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "has not returned within 1 s");
  CHECK_CONTAINS(err.message, "ditorch doctor --vendor");
  CHECK(!dit_runtime_is_active());
  CHECK_OK(dit_runtime_init("host", &err));  // another vendor can be taken
  dit_runtime_shutdown();
}

int main(int count, char **words) {
  if (count > 1 && strcmp(words[1], "hang") == 0) {
    RUN(test_hang);
    return 0;
  }
  if (count > 1) {
    test_properties(words[1]);
    return 0;
  }
  RUN(test_tables);
  RUN(test_starts);
  RUN(test_every_function);
  RUN(test_wrong_device);
  RUN(test_restart_fails);
  return 0;
}
