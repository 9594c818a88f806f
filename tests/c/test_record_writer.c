/// The writer: names and modes, back-pressure with exact counts, threads, a full or vanished disk, fork, rotation,
/// failing allocations.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "record_test.h"

static uint32_t key;
static atomic_int errors_logged;

static void count_errors(void *context, enum dit_log_level level, const char *text) {
  (void)context;
  (void)text;
  atomic_fetch_add(&errors_logged, level == DIT_LOG_ERROR);
}

static struct dit_record_writer *create(const struct dit_record_options *options) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  CHECK_OK(dit_record_writer_create(test_folder, options, &writer, &err));
  return writer;
}

static void destroy(struct dit_record_writer *writer) {
  struct dit_error err = {0};
  CHECK_OK(dit_record_writer_destroy(writer, FLUSH_MS, &err));
}

static bool put(struct dit_record_writer *writer, int64_t value, size_t padding) {
  static const char blanks[8192];
  struct dit_record_builder *builder = dit_record_builder_get_local();
  CHECK(builder);
  dit_record_begin(builder, TEST_TYPE, 0, 0);
  dit_record_field_i64(builder, key, value);
  if (padding > 0) {
    dit_record_field_bytes(builder, key, blanks, padding);
  }
  return dit_record_commit(builder, writer, NULL);
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
  CHECK_OK(dit_record_reader_open(list, count, &reader, &err));
  const struct dit_record *record = NULL;
  uint64_t records = 0;
  CHECK_OK(dit_record_reader_next(reader, &record, &err));
  for (; record; records++) {
    CHECK_OK(dit_record_reader_next(reader, &record, &err));
  }
  dit_record_reader_get_counts(reader, counts);
  dit_record_reader_close(reader);
  for (size_t i = 0; i < count; i++) {
    unlink(list[i]);
  }
  return records;
}

static void check_sums(const struct dit_record_counts *counts) {
  CHECK(counts->committed == counts->accepted + counts->dropped);
  CHECK(counts->accepted >= counts->written + counts->lost);
}

static void test_names(void) {
  char expected[PATH_MAX + 64], path[PATH_MAX], link[PATH_MAX + 64], target[PATH_MAX + 16];
  struct dit_record_options options = {.rank = 5};
  struct dit_record_read_counts counts;
  struct stat info;
  struct dit_record_writer *first = create(&options), *second = create(&options);
  dit_record_writer_get_path(first, path, sizeof(path));
  snprintf(expected, sizeof(expected), "%s/ops-r5-p%d.dlog", test_folder, (int)getpid());
  CHECK(strcmp(path, expected) == 0 && stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
  dit_record_writer_get_path(second, path, sizeof(path));
  snprintf(expected, sizeof(expected), "%s/ops-r5-p%d.1.dlog", test_folder, (int)getpid());
  CHECK(strcmp(path, expected) == 0);
  destroy(first);
  destroy(second);
  CHECK(read_folder(&counts) == 0 && counts.truncated_bytes == 0);
  // a link in the way is a taken name, never followed
  snprintf(link, sizeof(link), "%s/ops-r0-p%d.dlog", test_folder, (int)getpid());
  snprintf(target, sizeof(target), "%s/target", test_folder);
  CHECK(symlink(target, link) == 0);
  first = create(NULL);
  destroy(first);
  CHECK(access(target, F_OK) != 0);
  unlink(link);
  read_folder(&counts);
}

static void test_refusals(void) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  struct dit_record_options options = {.queue_bytes = 100};
  CHECK(dit_record_writer_create(test_folder, &options, &writer, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "queue_bytes is 100");
  options = (struct dit_record_options){.rank = -1};
  CHECK(dit_record_writer_create(test_folder, &options, &writer, &err) == DIT_ERR_INVALID);
  CHECK(dit_record_writer_create("/nowhere/at/all", NULL, &writer, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "/nowhere/at/all");
  char *long_value = calloc(1, 70000);
  memset(long_value, 'x', 69999);
  struct dit_record_pair pair = {"key", long_value};
  options = (struct dit_record_options){.metadata = &pair, .metadata_count = 1};
  CHECK(dit_record_writer_create(test_folder, &options, &writer, &err) == DIT_ERR_INVALID);
  free(long_value);
  uint32_t id = 0;
  CHECK(dit_record_intern("x", DIT_RECORD_MAX_STRING + 1, &id, &err) == DIT_ERR_INVALID);
  CHECK(!writer && intern("same") == intern("same") && intern("same") != intern("other"));
}

/// What cannot become a record is counted as dropped and leaves no trace.
static void test_spoiled(void) {
  struct dit_record_writer *writer = create(NULL);
  struct dit_record_builder builder;
  unsigned char storage[64];
  struct dit_record_counts counts;
  struct dit_record_read_counts read;
  struct dit_error err = {0};
  dit_record_builder_init(&builder, storage, sizeof(storage));
  CHECK(!dit_record_commit(&builder, writer, NULL));  // no begin
  dit_record_begin(&builder, DIT_RECORD_TYPE_USER - 1, 0, 0);
  CHECK(!dit_record_commit(&builder, writer, NULL));  // a type of the format
  dit_record_begin(&builder, TEST_TYPE, 0, 0);
  dit_record_field_i64(&builder, 0, 1);
  CHECK(!dit_record_commit(&builder, writer, NULL));  // no key
  dit_record_begin(&builder, TEST_TYPE, 0, 0);
  dit_record_field_bytes(&builder, key, storage, (size_t)DIT_RECORD_MAX_BYTES + 1);
  CHECK(!dit_record_commit(&builder, writer, NULL));  // too long
  dit_record_begin(&builder, TEST_TYPE, 0, 0);
  dit_record_field_string(&builder, key, "from caller's storage to the heap, because it is longer than that", 65);
  CHECK(dit_record_commit(&builder, writer, NULL) && !dit_record_commit(&builder, writer, NULL));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  dit_record_writer_get_counts(writer, &counts);
  CHECK(counts.committed == 6 && counts.dropped == 5 && counts.written == 1 && counts.lost == 0);
  dit_record_builder_reset(&builder);
  destroy(writer);
  CHECK(read_folder(&read) == 1 && read.noted_drops == 5 && read.missing == 4);
}

/// A queue that cannot keep up: what is written plus what was dropped is what was committed, to the record.
static void test_drop(void) {
  struct dit_record_options options = {.queue_bytes = 8192, .pressure = DIT_RECORD_DROP, .linger_ms = 50};
  struct dit_record_writer *writer = create(&options);
  struct dit_record_counts counts;
  struct dit_record_read_counts read;
  struct dit_error err = {0};
  uint64_t accepted = 0;
  for (int64_t i = 0; i < 20000; i++) {
    accepted += put(writer, i, 200);
  }
  CHECK(!put(writer, 0, 5000));  // more than half of the queue
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  dit_record_writer_get_counts(writer, &counts);
  check_sums(&counts);
  CHECK(counts.committed == 20001 && counts.accepted == accepted && counts.written == accepted && counts.lost == 0);
  CHECK(counts.dropped == 20001 - accepted && counts.dropped > 0);
  destroy(writer);
  CHECK(read_folder(&read) == accepted && read.noted_drops == counts.dropped && read.damages == 0);
}

struct producer {
  struct dit_record_writer *writer;
  pthread_t thread;
  int count;
};

static void *produce(void *pointer) {
  struct producer *producer = pointer;
  for (int i = 0; i < producer->count; i++) {
    CHECK(put(producer->writer, i, (size_t)i % 300));
    if (i % 500 == 0) {
      struct dit_error err = {0};
      CHECK_OK(dit_record_writer_flush(producer->writer, FLUSH_MS, &err));
    }
  }
  return NULL;
}

/// Blocking: nothing is dropped, whatever the size of the queue; the file has rising numbers without a gap.
static void test_threads(void) {
  struct dit_record_options options = {.queue_bytes = 8192, .linger_ms = 1};
  struct dit_record_writer *writer = create(&options);
  struct producer producers[4];
  for (int i = 0; i < 4; i++) {
    producers[i] = (struct producer){.writer = writer, .count = 4000};
    CHECK(pthread_create(&producers[i].thread, NULL, produce, &producers[i]) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(producers[i].thread, NULL);
  }
  struct dit_record_counts counts;
  struct dit_record_read_counts read;
  dit_record_writer_get_counts(writer, &counts);
  check_sums(&counts);
  CHECK(counts.accepted == 16000 && counts.dropped == 0 && counts.batches > 1);
  destroy(writer);
  CHECK(read_folder(&read) == 16000 && read.missing == 0 && read.damages == 0 && read.unresolved == 0);
}

static void wait_failing(struct dit_record_writer *writer, bool wanted) {
  struct dit_record_counts counts;
  for (int i = 0; i < 3000; i++) {
    dit_record_writer_get_counts(writer, &counts);
    if (counts.failing == wanted) {
      return;
    }
    usleep(10000);
  }
  CHECK(!"the writer never changed its state");
}

/// A file that may not grow: said once, counted, producers go on; room again: so does the file.
static void test_full_disk(void) {
  struct rlimit old, small = {.rlim_cur = 20000};
  CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
  small.rlim_max = old.rlim_max;
  struct dit_record_options options = {.linger_ms = 1};
  struct dit_record_writer *writer = create(&options);
  struct dit_error err = {0};
  struct dit_record_counts counts;
  struct dit_record_read_counts read;
  atomic_store(&errors_logged, 0);
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);  // the writer's thread has SIGXFSZ blocked
  uint64_t accepted = 0;
  for (int i = 0; i < 400; i++) {
    accepted += put(writer, i, 200);
    if (i % 10 == 0) {
      (void)!dit_record_writer_flush(writer, FLUSH_MS, &err);
    }
  }
  wait_failing(writer, true);
  CHECK(dit_record_writer_flush(writer, FLUSH_MS, &err) == DIT_ERR_IO);
  dit_record_writer_get_counts(writer, &counts);
  check_sums(&counts);
  CHECK(counts.committed == 400 && counts.accepted == accepted && counts.written > 0 && counts.lost > 0);
  CHECK(counts.accepted == counts.written + counts.lost && counts.dropped > 0 && atomic_load(&errors_logged) == 1);
  CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
  wait_failing(writer, false);
  CHECK(put(writer, 1, 200));
  (void)!dit_record_writer_flush(writer, FLUSH_MS, &err);
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  dit_record_writer_get_counts(writer, &counts);
  CHECK(counts.committed == 401 && !counts.failing && counts.accepted == counts.written + counts.lost);
  CHECK(dit_record_writer_destroy(writer, FLUSH_MS, &err) == DIT_ERR_IO);
  CHECK(read_folder(&read) == counts.written && read.truncated_bytes == 0 && read.unresolved == 0);
  CHECK(read.damages == 0);  // what was written in part was cut off again
  CHECK(read.noted_drops == counts.dropped + counts.lost && read.missing == counts.dropped + counts.lost);
}

static void test_vanished_folder(void) {
  char kept[PATH_MAX], inner[PATH_MAX + 16];
  memcpy(kept, test_folder, sizeof(kept));
  snprintf(inner, sizeof(inner), "%s/inner", kept);
  snprintf(test_folder, sizeof(test_folder), "%.*s", PATH_MAX - 1, inner);
  CHECK(mkdir(inner, 0700) == 0);
  struct dit_record_options options = {.linger_ms = 1};
  struct dit_record_writer *writer = create(&options);
  struct dit_error err = {0};
  struct dit_record_counts counts;
  struct dit_record_read_counts read;
  atomic_store(&errors_logged, 0);
  CHECK(put(writer, 1, 0));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  remove_folder();
  CHECK(put(writer, 2, 0) && dit_record_writer_flush(writer, FLUSH_MS, &err) == DIT_ERR_IO);
  for (int i = 0; i < 100; i++) {
    CHECK(!put(writer, i, 0));
  }
  dit_record_writer_get_counts(writer, &counts);
  CHECK(counts.written == 1 && counts.lost == 1 && counts.dropped == 100 && atomic_load(&errors_logged) == 1);
  CHECK(mkdir(inner, 0700) == 0);
  wait_failing(writer, false);
  CHECK(put(writer, 3, 0));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  CHECK(dit_record_writer_destroy(writer, FLUSH_MS, &err) == DIT_ERR_IO);
  CHECK(read_folder(&read) == 1);
  remove_folder();
  memcpy(test_folder, kept, sizeof(kept));
}

/// The child's commits are counted and never reach the parent's file; a writer of its own works.
static void test_fork(void) {
  if (CHECK_SANITIZED) {
    puts("skipped: sanitizers do not survive a fork with threads");
    return;
  }
  struct dit_record_writer *writer = create(NULL);
  struct dit_record_read_counts read;
  struct dit_error err = {0};
  CHECK(put(writer, 1, 0));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    struct dit_record_counts counts;
    bool refused = !put(writer, 2, 0) && !put(writer, 3, 0);
    dit_record_writer_get_counts(writer, &counts);
    bool right = refused && counts.dropped == 2 && dit_record_writer_flush(writer, 100, &err) == DIT_ERR_INVALID;
    struct dit_record_writer *own = NULL;
    right = right && dit_record_writer_create(test_folder, NULL, &own, &err) == DIT_OK && put(own, 4, 0);
    right = right && dit_record_writer_destroy(own, FLUSH_MS, &err) == DIT_OK;
    right = right && dit_record_writer_destroy(writer, FLUSH_MS, &err) == DIT_OK;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(put(writer, 5, 0));
  destroy(writer);
  CHECK(read_folder(&read) == 3 && read.missing == 0);
}

static void test_rotation(void) {
  char path[PATH_MAX];
  struct dit_record_read_counts read;
  write_random(8, 500, 6, 20000, path);
  CHECK(strstr(path, ".dlog") && access(path, F_OK) == 0);
  CHECK(read_folder(&read) == 500 && read.missing == 0 && read.unresolved == 0 && read.damages == 0);
  struct dit_record_options options = {.sync = DIT_RECORD_SYNC_FLUSH};
  struct dit_error err = {0};
  struct dit_record_writer *writer = create(&options);
  CHECK(put(writer, 1, 0));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));  // nothing new: still ends
  destroy(writer);
  CHECK(read_folder(&read) == 1);
}

static void test_allocation(void) {
  int64_t live = dit_alloc_get_live();
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  enum dit_status status = DIT_ERR_NOMEM;
  int64_t after = 0;
  for (; status != DIT_OK; after++) {
    dit_alloc_set_failure(after);
    status = dit_record_writer_create(test_folder, NULL, &writer, &err);
    dit_alloc_set_failure(-1);
    CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && !writer && dit_alloc_get_live() == live));
  }
  CHECK(after > 4);
  struct dit_record_builder builder;
  dit_record_builder_init(&builder, NULL, 0);
  dit_alloc_set_failure(0);
  dit_record_begin(&builder, TEST_TYPE, 0, 0);
  dit_alloc_set_failure(-1);
  CHECK(!dit_record_commit(&builder, writer, NULL));
  dit_record_builder_reset(&builder);
  struct dit_record_read_counts read;
  destroy(writer);
  CHECK(dit_alloc_get_live() == live && read_folder(&read) == 0 && read.noted_drops == 1);
}

static atomic_bool released;

static void hold_thread(void *context, enum dit_log_level level, const char *text) {
  (void)context;
  (void)level;
  (void)text;
  while (!atomic_load(&released)) {
    usleep(1000);
  }
}

/// A thread that does not come back (here: held in the message about its removed file): nobody waits for ever, and it
/// frees the writer when it does come back.
static void test_stuck(void) {
  struct dit_record_options options = {.queue_bytes = 8192, .block_ms = 20, .linger_ms = 1};
  struct dit_error err = {0};
  char path[PATH_MAX];
  int64_t live = dit_alloc_get_live();
  struct dit_record_writer *writer = create(&options);
  dit_log_set_sink(hold_thread, NULL);
  dit_record_writer_get_path(writer, path, sizeof(path));
  CHECK(unlink(path) == 0);
  int accepted = 0;
  while (put(writer, accepted, 200)) {
    accepted++;
    CHECK(accepted < 1000);
  }
  CHECK(accepted > 0 && dit_record_writer_flush(writer, 20, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "20 ms");
  CHECK(dit_record_writer_destroy(writer, 20, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "without");
  atomic_store(&released, true);
  for (int i = 0; i < 3000 && dit_alloc_get_live() != live; i++) {
    usleep(10000);
  }
  CHECK(dit_alloc_get_live() == live);
  dit_log_set_sink(count_errors, NULL);
}

/// The steady state allocates nothing.
static void test_steady_state(void) {
  struct dit_record_writer *writer = create(NULL);
  struct dit_error err = {0};
  CHECK(put(writer, 0, 100));
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  int64_t before = dit_alloc_get_count();
  for (int i = 0; i < 5000; i++) {
    CHECK(put(writer, i, 100));
  }
  CHECK_OK(dit_record_writer_flush(writer, FLUSH_MS, &err));
  CHECK(dit_alloc_get_count() == before);
  destroy(writer);
  struct dit_record_read_counts read;
  CHECK(read_folder(&read) == 5001);
}

int main(void) {
  make_folder();
  key = intern("value");
  dit_log_set_sink(count_errors, NULL);
  RUN(test_names);
  RUN(test_refusals);
  RUN(test_spoiled);
  RUN(test_drop);
  RUN(test_threads);
  RUN(test_full_disk);
  RUN(test_vanished_folder);
  RUN(test_fork);
  RUN(test_rotation);
  RUN(test_allocation);
  RUN(test_steady_state);
  RUN(test_stuck);
  remove_folder();
  return 0;
}
