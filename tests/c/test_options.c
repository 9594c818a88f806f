/// Options: schema, parsing of every type, precedence of the sources, errors that name the remedy, and failure without
/// change.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/options.h"

extern char **environ;

/// Unset everything the schema knows and every DITORCH_* variable; options back to the defaults.
static void start_clean(void) {
  for (int i = 0; i < dit_option_get_count(); i++) {
    unsetenv(dit_option_get_info(i)->environment);
  }
  for (char **entry = environ; entry && *entry;) {
    if (strncmp(*entry, "DITORCH_", 8) == 0) {
      char name[256];
      snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
      unsetenv(name);
      entry = environ;
    } else {
      entry++;
    }
  }
  dit_options_reset();
}

enum { BACKEND_HOST = 8, BACKEND_NONE = 9 };  ///< places among the choices

static const char *get_text(const char *name) {
  return dit_option_get_text(dit_option_find(name));
}

static int64_t get_int(const char *name) {
  return dit_option_get_int(dit_option_find(name));
}

static enum dit_option_source get_source(const char *name) {
  return dit_option_get_source(dit_option_find(name));
}

static char toml_path[] = "/tmp/dit_options_XXXXXX";

static const char *put_toml(const char *text) {
  FILE *file = fopen(toml_path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
  return toml_path;
}

static void test_schema(void) {
  start_clean();
  CHECK(dit_option_get_count() > 30);
  struct dit_error err = {0};
  for (int i = 0; i < dit_option_get_count(); i++) {
    const struct dit_option_info *info = dit_option_get_info(i);
    CHECK(dit_option_find(info->name) == i && dit_option_find(info->environment) == i);
    CHECK((info->type == DIT_OPTION_CHOICE) == (info->choices != NULL));
    CHECK(info->help[0] && info->help[strlen(info->help) - 1] == '.');
    CHECK(strcmp(dit_option_get_text(i), info->default_text) == 0);
    CHECK(dit_option_get_source(i) == DIT_SOURCE_DEFAULT);
    int64_t number = dit_option_get_int(i);
    CHECK_OK(dit_option_set(info->name, info->default_text, &err));  // every default is a valid value of its type
    CHECK(dit_option_get_int(i) == number && strcmp(dit_option_get_text(i), info->default_text) == 0);
    CHECK(dit_option_get_source(i) == DIT_SOURCE_ARGUMENT);
  }
  dit_options_reset();
  CHECK(dit_option_find("nonsense") == -1 && dit_option_find(NULL) == -1);
  CHECK(!dit_option_get_info(-1) && !dit_option_get_info(dit_option_get_count()));
  CHECK(strcmp(dit_option_get_text(-1), "") == 0 && dit_option_get_int(999) == 0);
  CHECK(dit_option_get_source(-1) == DIT_SOURCE_DEFAULT);
  CHECK(get_int("log_level") == DIT_LOG_WARNING && get_int("show_device_as_cuda") == 1 && get_int("host_devices") == 1);
}

static void check_refused(const char *name, const char *text, const char *part) {
  struct dit_error err = {0};
  char before[256];
  snprintf(before, sizeof(before), "%s", get_text(name));
  int64_t number = get_int(name);
  CHECK(dit_option_set(name, text, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, part);
  CHECK(strcmp(get_text(name), before) == 0 && get_int(name) == number);
}

static void test_types(void) {
  start_clean();
  struct dit_error err = {0};
  static const char *const on[] = {"1", "true", "ON", "Yes", "True"}, *const off[] = {"0", "false", "off", "NO",
                                                                                      "False"};
  for (int i = 0; i < 5; i++) {
    CHECK_OK(dit_option_set("ledger", on[i], &err));
    CHECK(get_int("ledger") == 1 && strcmp(get_text("ledger"), "1") == 0);
    CHECK_OK(dit_option_set("ledger", off[i], &err));
    CHECK(get_int("ledger") == 0 && strcmp(get_text("ledger"), "0") == 0);
  }
  check_refused("ledger", "2", "option 'ledger' is '2'; valid values are 1, true, on, yes and 0, false, off, no");
  check_refused("ledger", "", "is ''");
  CHECK_OK(dit_option_set("backend", "host", &err));
  CHECK(get_int("backend") == BACKEND_HOST);
  CHECK_OK(dit_option_set("DITORCH_BACKEND", "CUDA", &err));
  CHECK(get_int("backend") == 1 && strcmp(get_text("backend"), "cuda") == 0);
  check_refused("backend", "auto|cuda", "valid values are auto|cuda|nvidia|npu|mlu|biren|dipu|musa|host|none");
  check_refused("backend", "hos", "is 'hos'");
  CHECK_OK(dit_option_set("host_devices", "64", &err));
  CHECK(get_int("host_devices") == 64);
  check_refused("host_devices", "65", "from 1 to 64");
  check_refused("host_devices", "0", "is '0'");
  check_refused("host_devices", "2x", "not a whole number");
  check_refused("host_devices", " 2", "not a whole number");
  check_refused("host_devices", "99999999999999999999", "not a whole number");
  CHECK_OK(dit_option_set("disable_mock", "5", &err));
  CHECK(get_int("disable_mock") == 5);
  check_refused("disable_mock", "yes", "not a whole number");
  check_refused("disable_mock", "-1", "from 0 to");
  CHECK_OK(dit_option_set("vendor", "/a b/lib\xC3\xA9.so", &err));
  CHECK(strcmp(get_text("vendor"), "/a b/lib\xC3\xA9.so") == 0);
  CHECK(dit_option_set("vendor", NULL, &err) == DIT_ERR_INVALID);
  CHECK_OK(dit_option_set("host_memory", "2048 MiB", &err));
  CHECK(get_int("host_memory") == INT64_C(2) << 30 && strcmp(get_text("host_memory"), "2GiB") == 0);
  check_refused("host_memory", "2 parsecs", "option 'host_memory': '2 parsecs' is not a size");
}

static void test_size(void) {
  static const struct {
    const char *text;
    int64_t bytes;
  } good[] = {{"0", 0},
              {"1048576", 1048576},
              {"2GiB", INT64_C(2) << 30},
              {"512 MB", 512000000},
              {"1.5G", 3 << 29},
              {"1k", 1024},
              {"3 kb", 3000},
              {"7B", 7},
              {"1TiB", INT64_C(1) << 40},
              {"0.5KiB", 512},
              {"2tb", INT64_C(2000000000000)},
              {"1.000001MB", 1000001},
              {"1.0", 1},
              {"9223372036854775807", INT64_MAX}};
  static const char *const bad[] = {"",           "GiB",       "-1",   "1.5",   "1.5B",       "2GiBs",
                                    "2 G B",      "1e9",       "0x10", "1..5G", "1.G",        ".5G",
                                    "2gb ",       " 2gb",      "nan",  "1,5G",  "1.1234567G", "9223372036854775808",
                                    "9999999TiB", "8388608TiB"};
  struct dit_error err = {0};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    int64_t bytes = -1;
    CHECK_OK(dit_size_parse(good[i].text, &bytes, &err));
    CHECK(bytes == good[i].bytes);
  }
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    int64_t bytes = 77;
    CHECK(dit_size_parse(bad[i], &bytes, &err) == DIT_ERR_INVALID && bytes == 77);
    CHECK_CONTAINS(err.message, bad[i]);
  }
}

static void test_environment(void) {
  start_clean();
  struct dit_error err = {0};
  setenv("DITORCH_BACKEND", "none", 1);
  setenv("DITORCH_HOST_MEMORY", "1GB", 1);
  setenv("DITORCH_ALIAS", "", 1);  // empty is unset
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(get_int("backend") == BACKEND_NONE && get_source("backend") == DIT_SOURCE_ENVIRONMENT);
  CHECK(get_int("host_memory") == 1000000000);
  CHECK(get_int("launch_blocking") == 1);
  CHECK(strcmp(get_text("alias"), "binary") == 0 && get_source("alias") == DIT_SOURCE_DEFAULT);
  CHECK(get_source("visible_devices") == DIT_SOURCE_DEFAULT);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // "no device" in CUDA's own language
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(get_source("visible_devices") == DIT_SOURCE_ENVIRONMENT && strcmp(get_text("visible_devices"), "") == 0);
  unsetenv("DITORCH_BACKEND");
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(get_int("backend") == 0 && get_source("backend") == DIT_SOURCE_DEFAULT);
}

static void test_environment_errors(void) {
  start_clean();
  struct dit_error err = {0};
  CHECK_OK(dit_option_set("alias", "off", &err));
  setenv("DITORCH_BACKND", "host", 1);
  CHECK(dit_options_load(NULL, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "DITORCH_BACKND");
  CHECK_CONTAINS(err.message, "did you mean DITORCH_BACKEND?");
  setenv("DITORCH_BACKND", "", 1);
  CHECK_OK(dit_options_load(NULL, &err));
  unsetenv("DITORCH_BACKND");
  setenv("DITORCH_LEDGER", "1", 1);
  setenv("DITORCH_LOG_LEVEL", "loud", 1);
  CHECK(dit_options_load(NULL, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message,
                 "environment variable DITORCH_LOG_LEVEL is 'loud'; valid values are debug|info|warning|error|off");
  CHECK(get_int("ledger") == 0);  // nothing changed, not even the good ones
  CHECK(get_int("alias") == 2);
}

static void test_precedence(void) {
  start_clean();
  struct dit_error err = {0};
  const char *path = put_toml("[ditorch]\nbackend = 'host'\nalias = 'python'\nledger = true\nhost_memory = 4096\n");
  CHECK_OK(dit_options_load(path, &err));
  CHECK(get_int("backend") == BACKEND_HOST && get_source("backend") == DIT_SOURCE_FILE);
  CHECK(get_int("ledger") == 1 && get_int("host_memory") == 4096);
  setenv("DITORCH_ALIAS", "off", 1);
  CHECK_OK(dit_options_load(path, &err));
  CHECK(get_int("alias") == 2 && get_source("alias") == DIT_SOURCE_ENVIRONMENT && get_int("backend") == BACKEND_HOST);
  CHECK_OK(dit_option_set("alias", "binary", &err));
  CHECK_OK(dit_options_load(path, &err));  // arguments outlive a load
  CHECK(get_int("alias") == 0 && get_source("alias") == DIT_SOURCE_ARGUMENT);
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(get_int("backend") == 0 && get_int("ledger") == 0);
  setenv("DITORCH_CONFIG", path, 1);
  CHECK_OK(dit_options_load(NULL, &err));
  CHECK(get_int("backend") == BACKEND_HOST && get_source("backend") == DIT_SOURCE_FILE);
  dit_options_reset();
  CHECK(get_int("alias") == 0 && get_source("alias") == DIT_SOURCE_DEFAULT);
}

static void check_file_refused(const char *text, enum dit_status expected, const char *part) {
  struct dit_error err = {0};
  const char *path = put_toml(text);
  enum dit_status status = dit_options_load(path, &err);
  if (status != expected) {
    fprintf(stderr, "%s: %s: %s\n", text, dit_status_get_name(status), err.message);
  }
  CHECK(status == expected);
  CHECK_CONTAINS(err.message, part);
  CHECK(strncmp(err.message, path, strlen(path)) == 0);
  CHECK(get_int("backend") == 0 && get_source("backend") == DIT_SOURCE_DEFAULT);
}

static void test_file_errors(void) {
  start_clean();
  struct dit_error err = {0};
  CHECK_OK(dit_options_load(put_toml("other = 1\n[tool.x]\nbackend = 'anything'\n[ditorchx]\nfoo = 1\n"), &err));
  check_file_refused("[ditorch]\nbackend = 'host'\nbakend = 'x'\n", DIT_ERR_INVALID,
                     ":3:1: 'bakend' is not an option; did you mean 'backend'?");
  check_file_refused("[ditorch]\nbackend = 'host'\nalias = 'x'\n", DIT_ERR_INVALID,
                     ":3:1: option 'alias' is 'x'; valid values are binary|python|off");
  check_file_refused("[ditorch]\nbackend = 3\n", DIT_ERR_INVALID,
                     "option 'backend' is an integer; it must be a string");
  check_file_refused("[ditorch]\n  ledger = [true]\n", DIT_ERR_INVALID, ":2:3: option 'ledger' is an array");
  check_file_refused("[ditorch]\nhost_devices = 2.0\n", DIT_ERR_INVALID, "is a float; it must be a whole number");
  check_file_refused("[ditorch]\nhost_devices = true\n", DIT_ERR_INVALID, "is a boolean");
  check_file_refused("[ditorch]\nhost_devices = 65\n", DIT_ERR_INVALID, "from 1 to 64");
  check_file_refused("[ditorch.sub]\nbackend = 'host'\n", DIT_ERR_INVALID, "'sub.backend' is not an option");
  check_file_refused("[ditorch]\nDITORCH_BACKEND = 'host'\n", DIT_ERR_INVALID, "'DITORCH_BACKEND' is not an option");
  check_file_refused("backend = 'host'\n", DIT_ERR_INVALID, "outside of the table [ditorch]");
  check_file_refused("ditorch = 'host'\n", DIT_ERR_INVALID, "must be a table");
  check_file_refused("[ditorch]\nconfig = 'x'\n", DIT_ERR_INVALID, "cannot be set in it");
  check_file_refused("[ditorch]\nbackend = host\n", DIT_ERR_CORRUPT, ":2:11: 'host' is not a value");
  CHECK(dit_options_load("/nonexistent/file.toml", &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "/nonexistent/file.toml");
  CHECK(dit_options_load("/tmp", &err) == DIT_ERR_IO);
}

static void test_effects(void) {
  start_clean();
  struct dit_error err = {0};
  CHECK_OK(dit_option_set("log_level", "error", &err));
  CHECK(dit_log_get_level() == DIT_LOG_ERROR);
  CHECK_OK(dit_option_set("backend", "host", &err));
  CHECK(dit_log_get_level() == DIT_LOG_ERROR);
  dit_options_reset();
  CHECK(dit_log_get_level() == DIT_LOG_WARNING);
}

/// Every allocation on the way of a load and of a set fails once: no leak, no change.
static void test_no_memory(void) {
  start_clean();
  struct dit_error err = {0};
  const char *path = put_toml("[ditorch]\nbackend = 'host'\nvendor = 'a'\n[other]\nlist = [1, 'two', 3.0]\n");
  setenv("DITORCH_FAULT", "x", 1);
  CHECK_OK(dit_option_set("host_blas", "none", &err));
  int64_t live = dit_alloc_get_live();
  enum dit_status status = DIT_ERR_NOMEM;
  int failures = 0;
  while (status != DIT_OK) {
    dit_alloc_set_failure(failures);
    status = dit_options_load(path, &err);
    dit_alloc_set_failure(-1);
    if (status != DIT_OK) {
      CHECK(status == DIT_ERR_NOMEM && dit_alloc_get_live() == live);
      CHECK(get_int("backend") == 0 && strcmp(get_text("host_blas"), "none") == 0);
      CHECK(++failures < 1000);
    }
  }
  CHECK(failures > 10 && get_int("backend") == BACKEND_HOST && strcmp(get_text("fault"), "x") == 0);
  dit_alloc_set_failure(0);
  status = dit_option_set("vendor", "b", &err);
  dit_alloc_set_failure(-1);
  CHECK(status == DIT_ERR_NOMEM && strcmp(get_text("vendor"), "a") == 0);
  start_clean();
  CHECK(dit_alloc_get_live() == live - 1);
}

static void *read_and_write(void *unused) {
  (void)unused;
  for (int i = 0; i < 500; i++) {
    CHECK(dit_option_set("host_devices", i % 2 ? "2" : "3", NULL) == DIT_OK);
    int64_t value = get_int("host_devices");
    CHECK(value == 2 || value == 3);
    CHECK(dit_options_load(NULL, NULL) == DIT_OK);
    CHECK(get_source("host_devices") == DIT_SOURCE_ARGUMENT);
  }
  return NULL;
}

static void test_threads(void) {
  start_clean();
  pthread_t threads[3];
  CHECK(dit_option_set("host_devices", "2", NULL) == DIT_OK);
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&threads[i], NULL, read_and_write, NULL) == 0);
  }
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

#if !defined(__SANITIZE_THREAD__)
static char pipe_path[64];

static void *load_pipe(void *unused) {
  (void)unused;
  CHECK(dit_options_load(pipe_path, NULL) == DIT_OK);
  return NULL;
}

static void *close_later(void *descriptor) {
  usleep(50000);
  close(*(int *)descriptor);
  return NULL;
}

/// A child forked while another thread is in the middle of a load (it reads a named pipe that nobody has closed yet)
/// can use the options.
static void test_fork(void) {
  start_clean();
  pthread_t loader, closer;
  snprintf(pipe_path, sizeof(pipe_path), "/tmp/dit_options_pipe_%ld", (long)getpid());
  CHECK(mkfifo(pipe_path, 0600) == 0);
  CHECK(pthread_create(&loader, NULL, load_pipe, NULL) == 0);
  int descriptor = -1;
  while ((descriptor = open(pipe_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
    CHECK(errno == ENXIO);  // the loader has not opened it yet
    usleep(1000);
  }
  CHECK(pthread_create(&closer, NULL, close_later, &descriptor) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(20);
    _exit(strcmp(get_text("backend"), "auto") == 0 && dit_options_load(NULL, NULL) == DIT_OK ? 0 : 1);
  }
  CHECK(pthread_join(loader, NULL) == 0 && pthread_join(closer, NULL) == 0);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(unlink(pipe_path) == 0);
}
#endif

int main(void) {
  int file = mkstemp(toml_path);
  CHECK(file >= 0);
  close(file);
  RUN(test_schema);
  RUN(test_types);
  RUN(test_size);
  RUN(test_environment);
  RUN(test_environment_errors);
  RUN(test_precedence);
  RUN(test_file_errors);
  RUN(test_effects);
  RUN(test_no_memory);
  RUN(test_threads);
#if defined(__SANITIZE_THREAD__)
  printf("skip test_fork: ThreadSanitizer reports the parent's finished threads as leaks of the child\n");
#else
  RUN(test_fork);
#endif
  start_clean();
  CHECK(unlink(toml_path) == 0);
  return 0;
}
