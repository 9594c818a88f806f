/// Operator libraries: every way in which opening one can go wrong, what is taken from a good one, and which library
/// the process's device uses.
#include "dit/alloc.h"
#include "dit/diopi.h"
#include "plugin_check.h"

static struct dit_diopi_library *open_library(const char *name) {
  struct dit_error err = {0};
  struct dit_diopi_library *library = NULL;
  CHECK_OK(dit_diopi_library_open(name, &library, &err));
  CHECK(library);
  return library;
}

/// Opening must fail with this status and these words, leave nothing loaded, nothing allocated and `out` as it was.
static void expect_failure(const char *name, enum dit_status status, const char *first, const char *second) {
  struct dit_error err = {0};
  struct dit_diopi_library *mark = (struct dit_diopi_library *)&err, *library = mark;
  const int before = plugin_count_loaded();
  const int64_t live = dit_alloc_get_live();
  const enum dit_status got = dit_diopi_library_open(name, &library, &err);
  if (got != status) {
    fprintf(stderr, "%s: %s: %s\n", name ? name : "(null)", dit_status_get_name(got), err.message);
  }
  CHECK(got == status);
  CHECK(err.status == status);
  CHECK_CONTAINS(err.message, first);
  CHECK_CONTAINS(err.message, second);
  CHECK(library == mark);
  CHECK(plugin_count_loaded() == before);
  CHECK(dit_alloc_get_live() == live);
  CHECK(dit_diopi_library_open(name, &library, NULL) == status);  // err is nullable
}

static void test_names(void) {
  plugin_check_names(expect_failure, "no operator library given");
}

static void test_missing(void) {
  plugin_check_missing(expect_failure, "libdiopi_");
  expect_failure("/no/such/file.so", DIT_ERR_IO, "operator library '/no/such/file.so'", "No such file");
}

static void test_foreign_files(void) {
  plugin_check_foreign_files(expect_failure);
}

static void test_exports_nothing(void) {
  expect_failure(plugin_get_path("diopi_nothing"), DIT_ERR_INVALID, "is not an operator library", "exports none");
  expect_failure(plugin_get_path("diopi_nothing"), DIT_ERR_INVALID, "diopi_nothing.so", "541");
}

static void test_plain_library(void) {
  struct dit_diopi_library *library = open_library(plugin_get_path("diopi_plain"));
  CHECK(library->implemented == 3);
  CHECK_CONTAINS(library->path, "diopi_plain.so");
  CHECK(strcmp(library->refused, "") == 0);
  CHECK(!library->ext_get_version && !library->ext_get_support && !library->ext_get_last_error);
  CHECK(!library->ext_infer_outputs);
  CHECK(strcmp(library->functions.diopiGetVendorName(), "small") == 0);
  CHECK(strcmp(dit_diopi_library_get_error(library), "the library's own text") == 0);
  CHECK(library->functions.diopiAbs && !library->functions.diopiNeg);
  const int function = dit_diopi_find_function("diopiAbs"), missing = dit_diopi_find_function("diopiNeg");
  CHECK(function >= 0 && missing >= 0);
  CHECK(dit_diopi_library_get(library, function) == (void (*)(void))library->functions.diopiAbs);
  CHECK(dit_diopi_library_get(library, missing) == NULL);
  CHECK(dit_diopi_library_get(library, -1) == NULL && dit_diopi_library_get(library, DIT_DIOPI_COUNT) == NULL);
  CHECK(dit_diopi_library_get(NULL, function) == NULL);
  dit_diopi_library_close(library);
  CHECK(plugin_count_loaded() == 0);
  dit_diopi_library_close(NULL);
}

/// A function is called by number: the library reaches the runtime of this process.
static void test_invoke(void) {
  struct dit_diopi_library *library = open_library(plugin_get_path("diopi_plain"));
  float in[3] = {1, -2, 4}, out[3] = {0};
  const int64_t size = 3;
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t from = dit_diopi_tensor_create(in, 1, &size, NULL, DIT_DTYPE_F32, 0);
  diopiTensorHandle_t to = dit_diopi_tensor_create(out, 1, &size, NULL, DIT_DTYPE_F32, 0);
  union dit_diopi_value values[] = {{.context = context}, {.tensor = to}, {.tensor = from}};
  CHECK(dit_diopi_invoke(&library->functions, DIT_DIOPI_diopiAbs, values) == diopiSuccess);
  CHECK(out[0] == 2 && out[1] == -4 && out[2] == 8);
  values[1].tensor = NULL;
  CHECK(dit_diopi_invoke(&library->functions, DIT_DIOPI_diopiAbs, values) == diopiErrorOccurred);
  CHECK(dit_diopi_invoke(&library->functions, DIT_DIOPI_diopiNeg, values) == diopiNoImplement);
  CHECK(dit_diopi_invoke(&library->functions, DIT_DIOPI_diopiGetVendorName, values) == diopiNoImplement);
  CHECK(dit_diopi_invoke(&library->functions, -1, values) == diopiNoImplement);
  CHECK(dit_diopi_invoke(&library->functions, DIT_DIOPI_COUNT, values) == diopiNoImplement);
  CHECK(dit_diopi_invoke(NULL, DIT_DIOPI_diopiAbs, values) == diopiNoImplement);
  dit_diopi_tensor_destroy(from);
  dit_diopi_tensor_destroy(to);
  dit_diopi_context_destroy(context);
  dit_diopi_library_close(library);
}

static void test_extension_versions(void) {
  struct dit_diopi_library *library = open_library(plugin_get_path("diopi_other_version"));
  char own[32];
  snprintf(own, sizeof own, "knows %d.%d", DIOPI_EXT_MAJOR, DIOPI_EXT_MINOR);
  CHECK_CONTAINS(library->refused, "7.5");
  CHECK_CONTAINS(library->refused, own);
  CHECK(!library->ext_get_version && !library->ext_get_support && !library->ext_get_last_error);
  CHECK(library->functions.diopiAbs);
  CHECK(strcmp(dit_diopi_library_get_error(library), "") == 0);  // its own text is NULL
  dit_diopi_library_close(library);
  static const char *const good[] = {"diopi_whole", "diopi_newer_minor"};
  for (int i = 0; i < 2; i++) {
    diopiExtSupport_t support = {.struct_size = sizeof support};
    library = open_library(plugin_get_path(good[i]));
    CHECK(strcmp(library->refused, "") == 0);
    CHECK(library->ext_get_version && library->ext_get_version() / 65536 == DIOPI_EXT_MAJOR);
    CHECK(library->ext_get_support("diopiAbs", &support) == diopiSuccess);
    CHECK(support.dtypes == 1u << diopi_dtype_float32);
    CHECK(library->ext_infer_outputs == NULL);
    CHECK(strcmp(dit_diopi_library_get_error(library), "the extension's text") == 0);
    dit_diopi_library_close(library);
  }
  CHECK(strcmp(dit_diopi_library_get_error(NULL), "") == 0);
}

static void test_function_table(void) {
  int count = 0;
  const struct dit_diopi_info *infos = dit_diopi_get_functions(&count);
  CHECK(count == DIT_DIOPI_COUNT && count == 541);
  CHECK(dit_diopi_get_functions(NULL) == infos);
  for (int i = 0; i < count; i++) {
    CHECK(dit_diopi_find_function(infos[i].name) == i);
    CHECK(infos[i].kinds[0] == '\0' || infos[i].kinds[0] == 'c');
  }
  CHECK(strcmp(infos[DIT_DIOPI_diopiAbs].name, "diopiAbs") == 0);
  CHECK(strcmp(infos[DIT_DIOPI_diopiAbs].kinds, "cot") == 0);
  CHECK(dit_diopi_find_function("diopiNoSuchThing") == -1);
  CHECK(dit_diopi_find_function("") == -1 && dit_diopi_find_function(NULL) == -1);
}

static void test_allocation_failure(void) {
  struct dit_error err = {0};
  struct dit_diopi_library *library = NULL;
  const int64_t live = dit_alloc_get_live();
  dit_alloc_set_failure(0);
  const enum dit_status status = dit_diopi_library_open(plugin_get_path("diopi_plain"), &library, &err);
  dit_alloc_set_failure(-1);
  CHECK(status == DIT_ERR_NOMEM);
  CHECK(library == NULL && dit_alloc_get_live() == live && plugin_count_loaded() == 0);
  CHECK_CONTAINS(err.message, "no memory");
}

static void test_active(void) {
  struct dit_error err = {0};
  CHECK(dit_diopi_get_active() == NULL);
  CHECK(dit_diopi_activate("no_such_library", &err) == DIT_ERR_IO);
  CHECK(dit_diopi_get_active() == NULL);
  CHECK_OK(dit_diopi_activate(plugin_get_path("diopi_plain"), &err));
  const struct dit_diopi_library *first = dit_diopi_get_active();
  CHECK(first && first->functions.diopiAbs);
  CHECK_OK(dit_diopi_activate(plugin_get_path("diopi_plain"), &err));
  CHECK(dit_diopi_get_active() == first);  // the same file: nothing changes
  CHECK(dit_diopi_activate(plugin_get_path("diopi_nothing"), &err) == DIT_ERR_INVALID);
  CHECK(dit_diopi_get_active() == first);
  CHECK_OK(dit_diopi_activate(plugin_get_path("diopi_whole"), &err));
  CHECK(dit_diopi_get_active() != first);
  CHECK_CONTAINS(dit_diopi_get_active()->path, "diopi_whole.so");
  CHECK(strcmp(first->functions.diopiGetVendorName(), "small") == 0);  // stays loaded for calls inside it
}

static void test_host_library(void) {
  struct dit_diopi_library *library = open_library("host");
  CHECK_CONTAINS(library->path, "libdiopi_host.so");
  CHECK(strcmp(library->functions.diopiGetVendorName(), "host") == 0);
  CHECK(library->ext_get_version && library->ext_get_support && library->ext_infer_outputs);
  diopiExtSupport_t support = {.struct_size = sizeof support};
  CHECK(library->ext_get_support("diopiSoftmax", &support) == diopiSuccess);
  CHECK(support.dtypes & 1u << diopi_dtype_float32 && support.layouts & diopiExtStrided);
  CHECK(library->ext_get_support("diopiNoSuchThing", &support) == diopiNoImplement);
  CHECK(library->ext_get_support(NULL, &support) == diopiErrorOccurred);
  support.struct_size = 4;
  CHECK(library->ext_get_support("diopiSoftmax", &support) == diopiErrorOccurred);
  CHECK(library->functions.diopiSoftmax(NULL, NULL, NULL, 0) == diopiErrorOccurred);
  CHECK_CONTAINS(dit_diopi_library_get_error(library), "diopiSoftmax");
  CHECK_CONTAINS(dit_diopi_library_get_error(library), "ctx");
  dit_diopi_library_close(library);
}

int main(void) {
  RUN(test_names);
  RUN(test_missing);
  RUN(test_foreign_files);
  RUN(test_exports_nothing);
  RUN(test_plain_library);
  RUN(test_invoke);
  RUN(test_extension_versions);
  RUN(test_function_table);
  RUN(test_allocation_failure);
  RUN(test_host_library);
  RUN(test_active);
  return 0;
}
