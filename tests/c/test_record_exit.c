/// Writers and the end of their process: return from main, exit, _exit, SIGTERM, handlers of atexit, threads that
/// commit or destroy meanwhile, forked children; and a folder that turns unwritable. Every case is a run of this
/// program, because what is tested happens after main.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "record_test.h"

extern char **environ;

enum { RECORDS = 500, LONG_LINGER_MS = 60000 };

static uint32_t key;
static struct dit_record_writer *kept;
static atomic_int errors_logged;

static struct dit_record_writer *create(int linger_ms, uint64_t rotate) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  struct dit_record_options options = {.linger_ms = linger_ms, .rotate_bytes = rotate};
  CHECK_OK(dit_record_writer_create(test_folder, &options, &writer, &err));
  return writer;
}

static size_t padding;

static bool put(struct dit_record_writer *writer, int64_t value) {
  static const char blanks[4096];
  struct dit_record_builder *builder = dit_record_builder_get_local();
  dit_record_begin(builder, TEST_TYPE, 0, 0);
  dit_record_field_i64(builder, key, value);
  dit_record_field_bytes(builder, key, blanks, padding);
  return dit_record_commit(builder, writer, NULL);
}

static void put_many(struct dit_record_writer *writer) {
  for (int64_t i = 0; i < RECORDS; i++) {
    CHECK(put(writer, i));
  }
}

static void count_errors(void *context, enum dit_log_level level, const char *text) {
  (void)context;
  (void)text;
  atomic_fetch_add(&errors_logged, level == DIT_LOG_ERROR);
}

// The cases: what a child does. The number returned from main is its exit status.

static int run_return(void) {
  put_many(create(LONG_LINGER_MS, 0));
  return 0;
}

static void run_late_handler(void) {
  put_many(kept);
}

/// A handler that runs after all those registered later still commits.
static int run_atexit(void) {
  CHECK(atexit(run_late_handler) == 0);
  kept = create(LONG_LINGER_MS, 0);
  return 0;
}

static void *produce(void *pointer) {
  for (int64_t i = 0;; i++) {
    (void)put(pointer, i);
    if (i % 64 == 0) {
      usleep(100);
    }
  }
  return NULL;
}

/// Threads that go on committing do not keep the process alive, and what was there before exit is kept.
static int run_busy(void) {
  pthread_t thread;
  struct dit_record_writer *writer = create(LONG_LINGER_MS, 0);
  put_many(writer);
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&thread, NULL, produce, writer) == 0 && pthread_detach(thread) == 0);
  }
  exit(0);
}

static atomic_bool destroying;

static void *destroy(void *pointer) {
  struct dit_error err = {0};
  atomic_store(&destroying, true);
  (void)dit_record_writer_destroy(pointer, FLUSH_MS, &err);
  return NULL;
}

static int run_destroy(void) {
  pthread_t thread;
  struct dit_record_writer *writers[4];
  padding = 3500;  // so that writing takes longer than exiting
  for (int i = 0; i < 4; i++) {
    writers[i] = create(LONG_LINGER_MS, 0);
  }
  for (int i = 0; i < 4; i++) {
    put_many(writers[i]);
  }
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&thread, NULL, destroy, writers[i]) == 0 && pthread_detach(thread) == 0);
  }
  while (!atomic_load(&destroying)) {
  }
  exit(0);
}

/// A forked child that calls exit neither waits nor writes; a writer of its own is written out.
static int run_fork(void) {
  struct dit_record_writer *writer = create(LONG_LINGER_MS, 0);
  put_many(writer);
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(60);
      (void)put(writer, 7);
      if (i == 2) {
        put_many(create(LONG_LINGER_MS, 0));
      }
      exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  return 0;
}

static int run_immediate(void) {
  put_many(create(LONG_LINGER_MS, 0));
  _exit(0);
}

/// A fatal signal after the batch was written loses nothing.
static int run_signal(void) {
  struct dit_record_writer *writer = create(1, 0);
  struct dit_record_counts counts = {0};
  put_many(writer);
  while (counts.written < RECORDS) {
    usleep(1000);
    dit_record_writer_get_counts(writer, &counts);
  }
  put_many(create(LONG_LINGER_MS, 0));
  raise(SIGTERM);
  return 9;
}

static void remove_files(void) {
  DIR *dir = opendir(test_folder);
  struct dirent *entry = NULL;
  CHECK(dir);
  while ((entry = readdir(dir))) {
    if (strstr(entry->d_name, ".dlog")) {
      CHECK(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
    }
  }
  closedir(dir);
}

/// The folder is gone: said, and the process ends all the same.
static int run_vanished(void) {
  put_many(create(LONG_LINGER_MS, 0));
  remove_files();
  CHECK(rmdir(test_folder) == 0);
  return 0;
}

static void wait_failing(struct dit_record_writer *writer, bool wanted) {
  struct dit_record_counts counts;
  do {
    usleep(1000);
    dit_record_writer_get_counts(writer, &counts);
  } while (counts.failing != wanted);
}

/// No new file can be made while the folder is read-only: said once, counted, goes on; writable again: so does the log.
static int run_unwritable(void) {
  if (geteuid() == 0) {
    CHECK(chown(test_folder, 65534, 65534) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
  }
  struct dit_error err = {0};
  struct dit_record_counts counts;
  struct dit_record_writer *writer = create(1, 4096);
  dit_log_set_sink(count_errors, NULL);
  CHECK(put(writer, 0));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  CHECK(chmod(test_folder, 0500) == 0);
  int64_t count = 1;
  do {
    (void)put(writer, count++);
    dit_record_writer_get_counts(writer, &counts);
  } while (!counts.failing);
  for (int i = 0; i < RECORDS; i++) {
    (void)put(writer, count++);
  }
  dit_record_writer_get_counts(writer, &counts);
  CHECK((int64_t)counts.committed == count && counts.dropped + counts.lost > 0);
  CHECK(dit_record_writer_flush(writer, FLUSH_MS, &err) == DIT_ERR_IO);
  CHECK(chmod(test_folder, 0700) == 0);
  wait_failing(writer, false);
  CHECK(put(writer, count++));
  (void)!dit_record_writer_flush(writer, FLUSH_MS, &err);
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  dit_record_writer_get_counts(writer, &counts);
  CHECK(counts.accepted == counts.written + counts.lost && counts.files >= 2 && atomic_load(&errors_logged) == 1);
  printf("%llu", (unsigned long long)counts.written);
  return 0;
}

static const struct {
  const char *name;
  int (*run)(void);
} cases[] = {{"return", run_return},   {"atexit", run_atexit},     {"busy", run_busy},
             {"destroy", run_destroy}, {"fork", run_fork},         {"immediate", run_immediate},
             {"signal", run_signal},   {"vanished", run_vanished}, {"unwritable", run_unwritable}};

// The parent

static int spawn_case(const char *name, char *output, size_t size) {
  char *arguments[] = {"test_record_exit", (char *)(uintptr_t)name, test_folder, NULL};
  int ends[2], status = 0;
  pid_t child = 0;
  posix_spawn_file_actions_t actions;
  CHECK(pipe(ends) == 0 && posix_spawn_file_actions_init(&actions) == 0);
  CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], 1) == 0);
  CHECK(posix_spawn_file_actions_addclose(&actions, ends[0]) == 0);
  CHECK(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
  close(ends[1]);
  size_t used = 0;
  ssize_t some = 0;
  while (used + 1 < size && (some = read(ends[0], output + used, size - used - 1)) > 0) {
    used += (size_t)some;
  }
  output[used] = '\0';
  close(ends[0]);
  CHECK(waitpid(child, &status, 0) == child);
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

/// Reads all files of the folder and removes them.
static uint64_t read_folder(struct dit_record_read_counts *counts) {
  struct dit_error err = {0};
  char paths[64][PATH_MAX + 300];
  const char *list[64];
  size_t count = 0;
  DIR *dir = opendir(test_folder);
  struct dirent *entry = NULL;
  CHECK(dir);
  while ((entry = readdir(dir)) && count < 64) {
    if (strstr(entry->d_name, ".dlog")) {
      snprintf(paths[count], sizeof(paths[0]), "%s/%s", test_folder, entry->d_name);
      list[count] = paths[count];
      count++;
    }
  }
  closedir(dir);
  struct dit_record_reader *reader = NULL;
  const struct dit_record *record = NULL;
  CHECK_OK(dit_record_reader_open(list, count, &reader, &err));
  do {
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
  } while (record);
  dit_record_reader_get_counts(reader, counts);
  dit_record_reader_close(reader);
  remove_files();
  return counts->records;
}

static uint64_t run_case(const char *name) {
  char output[256];
  struct dit_record_read_counts counts;
  int status = spawn_case(name, output, sizeof(output));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "case %s ended with status %#x: %s\n", name, (unsigned)status, output);
    exit(1);
  }
  uint64_t records = read_folder(&counts);
  CHECK(counts.damages == 0 && counts.unresolved == 0);
  // threads that still commit when the process dies may leave a torn end
  CHECK(counts.truncated_bytes == 0 || strcmp(name, "busy") == 0);
  return records;
}

static void test_return_from_main(void) {
  CHECK(run_case("return") == RECORDS);
}

static void test_handler_commits(void) {
  CHECK(run_case("atexit") == RECORDS);
}

static void test_busy_threads(void) {
  for (int i = 0; i < 10; i++) {
    CHECK(run_case("busy") >= RECORDS);
  }
}

static void test_destroyed_meanwhile(void) {
  for (int i = 0; i < 20; i++) {
    CHECK(run_case("destroy") == 4 * RECORDS);
  }
}

static void test_forked_children(void) {
  if (CHECK_SANITIZED) {
    puts("skipped: sanitizers do not survive a fork with threads");
    return;
  }
  CHECK(run_case("fork") == 2 * RECORDS);
}

static void test_immediate_end(void) {
  CHECK(run_case("immediate") <= RECORDS);
}

static void test_signal(void) {
  char output[256];
  struct dit_record_read_counts counts;
  int status = spawn_case("signal", output, sizeof(output));
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  CHECK(read_folder(&counts) >= RECORDS && counts.damages == 0);
}

static void test_vanished_folder(void) {
  char output[256];
  int status = spawn_case("vanished", output, sizeof(output));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && access(test_folder, F_OK) != 0);
  CHECK(mkdir(test_folder, 0700) == 0);
}

static void test_unwritable_folder(void) {
  char output[256];
  struct dit_record_read_counts counts;
  int status = spawn_case("unwritable", output, sizeof(output));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(read_folder(&counts) == strtoull(output, NULL, 10) && counts.records > 1 && counts.noted_drops > 0);
}

int main(int count, char **arguments) {
  key = intern("value");
  if (count == 3) {
    snprintf(test_folder, sizeof(test_folder), "%s", arguments[2]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
      if (strcmp(cases[i].name, arguments[1]) == 0) {
        return cases[i].run();
      }
    }
    return 8;
  }
  setenv("TSAN_OPTIONS", "atexit_sleep_ms=0 report_thread_leaks=0", 0);  // of the children
  make_folder();
  RUN(test_return_from_main);
  RUN(test_handler_commits);
  RUN(test_busy_threads);
  RUN(test_destroyed_meanwhile);
  RUN(test_forked_children);
  RUN(test_immediate_end);
  RUN(test_signal);
  RUN(test_vanished_folder);
  RUN(test_unwritable_folder);
  remove_folder();
  return 0;
}
