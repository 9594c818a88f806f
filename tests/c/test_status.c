/// Status names and the version text.
#include "check.h"
#include "dit/status.h"
#include "dit/version.h"

static void test_names(void) {
  static const char *const names[] = {"DIT_OK",         "DIT_ERR_INVALID", "DIT_ERR_UNSUPPORTED", "DIT_ERR_NOMEM",
                                      "DIT_ERR_DEVICE", "DIT_ERR_IO",      "DIT_ERR_CORRUPT",     "DIT_ERR_INTERNAL",
                                      "DIT_ERR_RANGE",  "DIT_ERR_ORDINAL"};
  for (int i = 0; i < DIT_STATUS_COUNT; i++) {
    CHECK(strcmp(dit_status_get_name((enum dit_status)i), names[i]) == 0);
  }
  CHECK(strcmp(dit_status_get_name(DIT_STATUS_COUNT), "DIT_ERR_?") == 0);
}

static enum dit_status pass_on(enum dit_status status, int *after) {
  DIT_RETURN_IF_NOT_OK(status);
  *after += 1;
  return DIT_OK;
}

static void test_return_if_not_ok(void) {
  int after = 0;
  CHECK(pass_on(DIT_ERR_IO, &after) == DIT_ERR_IO && after == 0);
  CHECK(pass_on(DIT_OK, &after) == DIT_OK && after == 1);
}

static void test_version(void) {
  int major = -1, minor = -1, patch = -1;
  CHECK(sscanf(dit_version_get(), "%d.%d.%d", &major, &minor, &patch) == 3);
  CHECK(major >= 0 && minor >= 0 && patch >= 0);
}

int main(void) {
  RUN(test_names);
  RUN(test_return_if_not_ok);
  RUN(test_version);
  return 0;
}
