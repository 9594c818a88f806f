/// Checks of the process slots: init, count, versions, description.
#include <stdlib.h>

#include "doctor.h"

static bool check_count_early(struct bench *b) {
  int count = -12345;
  CALL(b, count, &count);
  WANT(b, count != -12345, "the number of devices in *count", "the assignment to *count",
       "before init it returned DIT_OK and wrote nothing");
  WANT(b, count >= 0 && count <= DIT_MAX_DEVICES, "0 to 64", "how the vendor's runtime counts",
       "before init it says %d", count);
  b->facts->devices = count;
  return true;
}

static bool check_init(struct bench *b) {
  return bench_start(b);
}

static bool check_count_late(struct bench *b) {
  int first = -12345, second = -12345;
  CALL(b, count, &first);
  TRY(bench_start(b));
  CALL(b, count, &second);
  WANT(b, first == second, "the same number before and after init", "what init changes, and what count looks at",
       "%d before init, %d after", first, second);
  WANT(b, second >= 0 && second <= DIT_MAX_DEVICES, "0 to 64", "how the vendor's runtime counts", "it says %d", second);
  return true;
}

static bool check_driver(struct bench *b) {
  int version = -12345;
  CALL(b, get_driver_version, &version);
  WANT(b, version > 0, "a number such as 12040 for 12.4", "the assignment to *version", "it says %d", version);
  return true;
}

static bool check_runtime(struct bench *b) {
  int version = -12345;
  CALL(b, get_runtime_version, &version);
  WANT(b, version > 0, "a number such as 12040 for 12.4", "the assignment to *version", "it says %d", version);
  return true;
}

static bool check_describe(struct bench *b) {
  static const size_t sizes[] = {256, 16, 1};
  char text[260];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    memset(text, 0x5a, sizeof text);
    b->v.describe(text, sizes[i]);
    WANT(b, memchr(text, '\0', sizes[i]), "a text that ends with NUL within `size` bytes", "snprintf(text, size, ...)",
         "with a size of %zu there is no NUL", sizes[i]);
    WANT(b, text[sizes[i]] == 0x5a, "nothing behind `size` bytes", "snprintf(text, size, ...)",
         "with a size of %zu it wrote behind the end", sizes[i]);
    WANT(b, !strchr(text, '\n'), "one line", "the text", "it has a line break");
  }
  return true;
}

static const struct check checks[] = {
    {"count", "count before init", "", check_count_early, CHECK_NOT_STARTED},
    {"init", "init succeeds", "", check_init, CHECK_NOT_STARTED},
    {"count", "count says the same before and after init", "", check_count_late, CHECK_NOT_STARTED},
    {"get_driver_version", "a number", "", check_driver, 0},
    {"get_runtime_version", "a number", "", check_runtime, 0},
    {"describe", "one line, cut to the size that is given", "", check_describe, 0},
};
const struct check_group process_group = {checks, sizeof checks / sizeof checks[0]};
