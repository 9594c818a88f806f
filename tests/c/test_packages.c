/// Libraries that are looked up at run time by a list of their functions (vendors/host/engine/packages.h).
#include <string.h>

#include "check.h"
#include "dit/options.h"
#include "engine/packages.h"

// This program's own folder counts as one of a package: two above it is the build folder.
#define PLACE "tests/c/vendors/"

static void (*addresses[2])(void);

static struct packages_library describe(const char *const *places, const char *const *functions) {
  static const char *const names[] = {"libno_such_library.so.1", "libno_such_library.so", NULL};
  memset(addresses, 0, sizeof addresses);
  return (struct packages_library){"host_onednn", places, names, functions, addresses};
}

static void choose(const char *text) {
  struct dit_error err;
  CHECK_OK(dit_option_set("host_onednn", text, &err));
}

static const char *const places[] = {PLACE "absent.so", PLACE "onednn_whole.so", NULL};
static const char *const functions[] = {"dnnl_engine_create", "dnnl_version", NULL};

static void test_found_in_a_package(void) {
  char text[512];
  const struct packages_library wanted = describe(places, functions);
  choose("");
  CHECK(packages_load_library(&wanted, text, sizeof text));
  CHECK(addresses[0] && addresses[1] && addresses[0] != addresses[1]);
  CHECK(strstr(text, PLACE "onednn_whole.so") && !packages_is_named(&wanted));
}

static void test_named(void) {
  char text[512];
  const struct packages_library wanted = describe(places, functions);
  choose(DIT_TEST_VENDORS "/onednn_whole.so");
  CHECK(packages_load_library(&wanted, text, sizeof text) && packages_is_named(&wanted));
  CHECK(strcmp(text, DIT_TEST_VENDORS "/onednn_whole.so") == 0);
  choose("/no/such/file.so");
  CHECK(!packages_load_library(&wanted, text, sizeof text));
  CHECK(strstr(text, "/no/such/file.so") && strstr(text, "No such file"));
}

static void test_none(void) {
  char text[512];
  const struct packages_library wanted = describe(places, functions);
  choose("none");
  CHECK(!packages_load_library(&wanted, text, sizeof text) && !packages_is_named(&wanted));
  CHECK(strcmp(text, "option host_onednn is \"none\"") == 0 && !addresses[0]);
}

static void test_missing(void) {
  static const char *const nowhere[] = {PLACE "absent.so", NULL}, *const incomplete[] = {PLACE "onednn_whole.so", NULL};
  static const char *const lacking[] = {"dnnl_version", "dnnl_no_such_function", NULL};
  char text[512];
  choose("");
  struct packages_library wanted = describe(nowhere, functions);
  CHECK(!packages_load_library(&wanted, text, sizeof text));
  CHECK(strcmp(text, "no libno_such_library.so.1 found") == 0);
  wanted = describe(incomplete, lacking);
  CHECK(!packages_load_library(&wanted, text, sizeof text));
  CHECK(strstr(text, "onednn_whole.so' lacks dnnl_no_such_function"));
}

int main(void) {
  RUN(test_found_in_a_package);
  RUN(test_named);
  RUN(test_none);
  RUN(test_missing);
  return 0;
}
