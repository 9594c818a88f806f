/// Shared by the tests of opening libraries (vendors, operator libraries): the names and files that must be refused,
/// and how many test libraries are loaded. DIT_TEST_VENDORS is the folder of the test libraries.
#ifndef DIT_TESTS_PLUGIN_CHECK_H
#define DIT_TESTS_PLUGIN_CHECK_H

#include <link.h>
#include <unistd.h>

#include "check.h"
#include "dit/status.h"

/// Opening `name` must fail with this status and these two parts of the message; NULL is a name too.
typedef void plugin_expect(const char *name, enum dit_status status, const char *first, const char *second);

/// "<folder of the test libraries>/<kind>.so"; valid until the next call.
static inline const char *plugin_get_path(const char *kind) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s.so", DIT_TEST_VENDORS, kind);
  return path;
}

static inline int plugin_count_one(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  *(int *)context += strstr(info->dlpi_name, DIT_TEST_VENDORS) != NULL;
  return 0;
}

/// Test libraries that this process holds.
static inline int plugin_count_loaded(void) {
  int count = 0;
  dl_iterate_phdr(plugin_count_one, &count);
  return count;
}

/// `nothing`: part of the message for no name at all.
static inline void plugin_check_names(plugin_expect *expect, const char *nothing) {
  static const char *const bad[] = {"Host", "ho st", "host.so", "h\xc3\xb6st", "host\n", "..", "%s%n"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    expect(bad[i], DIT_ERR_INVALID, "not valid", "a-z");
  }
  expect("", DIT_ERR_INVALID, nothing, "host");
  expect(NULL, DIT_ERR_INVALID, nothing, "host");
  char longest[200];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  expect(longest, DIT_ERR_INVALID, "not valid", "64");
}

/// `prefix`: of the file's name, such as "libdiopi_".
static inline void plugin_check_missing(plugin_expect *expect, const char *prefix) {
  char file[128];
  snprintf(file, sizeof file, "/%sno_such_library.so'", prefix);
  expect("no_such_library", DIT_ERR_IO, file, "loader's path");
  expect("/no/such/file.so", DIT_ERR_IO, "/no/such/file.so", "No such file");
  expect("/tmp/", DIT_ERR_IO, "/tmp/", "directory");
}

static inline void plugin_check_file(plugin_expect *expect, const char *path, const void *data, size_t size,
                                     const char *first, const char *second) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
  expect(path, DIT_ERR_IO, first, second);
}

/// Files that are no library, or one of another machine.
static inline void plugin_check_foreign_files(plugin_expect *expect) {
  char folder[] = "/tmp/dit_plugin_XXXXXX", path[64];
  CHECK(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/text.so", folder);
  plugin_check_file(expect, path, "hello", 5, "not an ELF", "5 bytes");
  plugin_check_file(expect, path, "", 0, "not an ELF", "0 bytes");
#if defined(__x86_64__)
  const unsigned char theirs = 183, ours = 62;
  const char *name = "aarch64", *machine = "x86-64";
#else
  const unsigned char theirs = 62, ours = 183;
  const char *name = "x86-64", *machine = "this machine is";
#endif
  unsigned char header[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  header[16] = 3;
  header[18] = theirs;
  plugin_check_file(expect, path, header, sizeof header, name, machine);
  header[18] = 250;
  plugin_check_file(expect, path, header, sizeof header, "ELF machine 250", "this machine");
  header[4] = 1;  // 32-bit
  header[18] = 3;
  plugin_check_file(expect, path, header, sizeof header, "i386 (32-bit", "64-bit");
#if defined(__x86_64__) || defined(__aarch64__)
  header[4] = 2;
  header[18] = ours;  // the right machine, nothing behind the header
  plugin_check_file(expect, path, header, sizeof header, "cannot load", path);
#else
  (void)ours;
#endif
  unlink(path);
  CHECK(rmdir(folder) == 0);
}

#endif
