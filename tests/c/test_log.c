/// Log: levels, sinks, long texts, once-only messages, threads, a sink that logs, fork.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/log.h"

struct record {
  int count;  ///< not atomic on purpose: the log promises not to call the sink concurrently
  enum dit_log_level level;
  char last[8192];
};

static void keep(void *context, enum dit_log_level level, const char *text) {
  static atomic_bool inside;
  CHECK(!atomic_exchange(&inside, true));
  struct record *record = context;
  record->count++;
  record->level = level;
  snprintf(record->last, sizeof(record->last), "%s", text);
  sched_yield();
  atomic_store(&inside, false);
}

static struct record record;

static void test_levels(void) {
  CHECK(dit_log_get_level() == DIT_LOG_WARNING);
  record.count = 0;
  for (int level = DIT_LOG_DEBUG; level <= DIT_LOG_OFF; level++) {
    dit_log_set_level((enum dit_log_level)level);
    CHECK(dit_log_get_level() == (enum dit_log_level)level);
    record.count = 0;
    for (int message = DIT_LOG_DEBUG; message <= DIT_LOG_OFF; message++) {
      dit_log_write((enum dit_log_level)message, "message %d", message);
    }
    CHECK(record.count == DIT_LOG_OFF - level);
  }
  dit_log_set_level(DIT_LOG_WARNING);
  dit_log_write(DIT_LOG_ERROR, "%s %d", "seven", 7);
  CHECK(record.level == DIT_LOG_ERROR && strcmp(record.last, "seven 7") == 0);
}

static void test_long(void) {
  char text[5000];
  memset(text, 'x', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  int64_t live = dit_alloc_get_live();
  dit_log_write(DIT_LOG_ERROR, "%s", text);
  CHECK(strcmp(record.last, text) == 0);
  dit_alloc_set_failure(0);
  dit_log_write(DIT_LOG_ERROR, "%s", text);
  dit_alloc_set_failure(-1);
  CHECK(strlen(record.last) == 1023 && dit_alloc_get_live() == live);
}

static void test_once(void) {
  record.count = 0;
  dit_log_write_once("test.key", DIT_LOG_INFO, "dropped: does not use up the key");
  CHECK(record.count == 0);
  for (int i = 0; i < 3; i++) {
    dit_log_write_once("test.key", DIT_LOG_WARNING, "once %d", i);
  }
  CHECK(record.count == 1 && strcmp(record.last, "once 0") == 0);
  char same[] = "test.key";  // the text counts, not the address
  dit_log_write_once(same, DIT_LOG_WARNING, "again");
  CHECK(record.count == 1);
  dit_log_write_once("test.other", DIT_LOG_WARNING, "other");
  CHECK(record.count == 2);
}

static void *write_many(void *unused) {
  (void)unused;
  for (int i = 0; i < 1000; i++) {
    dit_log_write(DIT_LOG_ERROR, "message %d", i);
    dit_log_write_once("test.threads", DIT_LOG_ERROR, "one");
    dit_log_set_level(DIT_LOG_WARNING);
  }
  return NULL;
}

static void test_threads(void) {
  record.count = 0;
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, write_many, NULL) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  CHECK(record.count == 4001);
}

static void log_again(void *context, enum dit_log_level level, const char *text) {
  keep(context, level, text);
  dit_log_write(DIT_LOG_ERROR, "from inside a sink (expected on stderr)");
  dit_log_set_sink(keep, context);
}

static void test_sink_that_logs(void) {
  dit_log_set_sink(log_again, &record);
  record.count = 0;
  dit_log_write(DIT_LOG_ERROR, "outer");
  CHECK(record.count == 1 && strcmp(record.last, "outer") == 0);
  dit_log_write(DIT_LOG_ERROR, "after");
  CHECK(record.count == 2 && strcmp(record.last, "after") == 0);
}

/// The default sink: one line on stderr.
static void test_stderr(void) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  fflush(NULL);
  int saved = dup(2);
  CHECK(saved >= 0 && dup2(pipes[1], 2) >= 0);
  dit_log_set_sink(NULL, NULL);
  dit_log_write(DIT_LOG_WARNING, "text %d", 1);
  CHECK(dup2(saved, 2) >= 0);
  close(saved);
  close(pipes[1]);
  dit_log_set_sink(keep, &record);
  char text[256] = "";
  ssize_t size = read(pipes[0], text, sizeof(text) - 1);
  close(pipes[0]);
  CHECK(size > 0);
  CHECK(strcmp(text, "ditorch: warning: text 1\n") == 0);
}

static void slow_sink(void *context, enum dit_log_level level, const char *text) {
  (void)level;
  (void)text;
  int *pipes = context;
  char byte = 'x';
  CHECK(write(pipes[1], &byte, 1) == 1);  // "I am inside"
  CHECK(read(pipes[2], &byte, 1) == 1);   // stay until told to go
}

static void *write_one(void *unused) {
  (void)unused;
  dit_log_write(DIT_LOG_ERROR, "held");
  return NULL;
}

/// Fork while another thread is inside the sink: the child can still log.
static void test_fork(void) {
  int inside[2], leave[2];
  CHECK(pipe(inside) == 0 && pipe(leave) == 0);
  int pipes[3] = {inside[0], inside[1], leave[0]};
  dit_log_set_sink(slow_sink, pipes);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, write_one, NULL) == 0);
  char byte = 0;
  CHECK(read(inside[0], &byte, 1) == 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    dit_log_set_sink(keep, &record);
    record.count = 0;
    dit_log_write(DIT_LOG_ERROR, "child");
    _exit(record.count == 1 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(write(leave[1], &byte, 1) == 1);
  CHECK(pthread_join(thread, NULL) == 0);
  dit_log_set_sink(keep, &record);
  for (int i = 0; i < 2; i++) {
    close(inside[i]);
    close(leave[i]);
  }
}

int main(void) {
  dit_log_set_sink(keep, &record);
  RUN(test_levels);
  RUN(test_long);
  RUN(test_once);
  RUN(test_threads);
  RUN(test_sink_that_logs);
  RUN(test_stderr);
  RUN(test_fork);
  return 0;
}
