/// The background store: exact counts, back-pressure, caps, write-ahead, blobs that do not arrive, a failing disk, a
/// removed folder, threads, failing allocations. Every blob is released exactly once on every path.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "store_test.h"

static atomic_int warnings;
static char last_warning[2048];

static void take_log(void *context, enum dit_log_level level, const char *text) {
  (void)context;
  if (level >= DIT_LOG_WARNING) {
    atomic_fetch_add(&warnings, 1);
    snprintf(last_warning, sizeof(last_warning), "%s", text);
  }
}

static struct dit_store_counts get_counts(struct dit_store *store) {
  struct dit_store_counts counts;
  dit_store_get_counts(store, &counts);
  CHECK(counts.put == counts.accepted + counts.dropped);
  CHECK(counts.accepted >= counts.written + counts.lost);
  return counts;
}

static void flush(struct dit_store *store) {
  struct dit_error err = {0};
  CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
}

static const enum dit_store_layout layouts[] = {DIT_STORE_FILES, DIT_STORE_PACKED};

static void test_counts(void) {
  static struct random_item random;
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .container = "c.dpack"};
    struct dit_store *store = create_store(&options);
    struct dit_error err = {0};
    for (uint64_t i = 0; i < 200; i++) {
      bool kept = false;
      make_random(&random, 1, i);
      CHECK_OK(dit_store_put(store, &random.item, i % 50 == 0, &kept, &err));
      CHECK(kept);
    }
    flush(store);
    struct dit_store_counts counts = get_counts(store);
    CHECK(counts.put == 200 && counts.written == 200 && counts.lost == 0 && counts.problem[0] == '\0');
    CHECK((counts.shared > 0) == (k == 1) && counts.bytes > 0 && dit_store_is_open(store));
    char path[PATH_MAX];
    dit_store_get_path(store, path, sizeof(path));
    CHECK(strcmp(path, in_folder(k ? "root/c.dpack" : "root")) == 0);
    destroy_store(store);
    check_released();
    CHECK(atomic_load(&blobs_waited) > 0);
    remove_tree(in_folder("root"));
  }
}

static void test_drop(void) {
  struct dit_store_options options = {.pressure = DIT_RECORD_DROP, .queue_bytes = 10000};
  struct dit_store *store = create_store(&options);
  atomic_int released = 0;
  int kept = 0;
  pthread_mutex_lock(&gate);
  put_gate(store, &released);
  for (int i = 0; i < 20; i++) {
    kept += put_simple(store, "a.pth", 1000, i, false);
  }
  CHECK(kept > 4 && kept < 10);
  struct dit_store_counts counts = get_counts(store);
  CHECK(counts.dropped == 20 - (uint64_t)kept && counts.accepted == (uint64_t)kept + 1 && counts.written == 0);
  pthread_mutex_unlock(&gate);
  flush(store);
  counts = get_counts(store);
  CHECK(counts.written == counts.accepted && atomic_load(&released) == 1);
  CHECK(put_simple(store, "larger-than-the-queue.pth", 50000, 1, false));
  destroy_store(store);
  check_released();
  CHECK(access(in_folder("root/larger-than-the-queue.pth"), F_OK) == 0);
  remove_tree(in_folder("root"));
}

static void test_block(void) {
  struct dit_store_options options = {.queue_bytes = 3000};
  struct dit_store *store = create_store(&options);
  atomic_int released = 0;
  for (int i = 0; i < 300; i++) {
    CHECK(put_simple(store, i % 2 ? "a.pth" : "b/c.pth", 1000, i, false));
  }
  flush(store);
  CHECK(get_counts(store).written == 300);
  destroy_store(store);
  options.block_ms = 20;
  store = create_store(&options);
  pthread_mutex_lock(&gate);
  put_gate(store, &released);
  while (put_simple(store, "a.pth", 1000, 1, false)) {
  }
  CHECK(get_counts(store).dropped == 1);  // after block_ms
  CHECK(!put_simple(store, "now.pth", 10, 1, true));
  pthread_mutex_unlock(&gate);
  flush(store);
  destroy_store(store);
  check_released();
  CHECK(atomic_load(&released) == 1);
  remove_tree(in_folder("root"));
}

static void test_write_ahead(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .container = "w.dpack"};
    struct dit_store *store = create_store(&options);
    for (int i = 0; i < 20; i++) {
      char path[40];
      snprintf(path, sizeof(path), "%d/input.pth", i);
      CHECK(put_simple(store, path, 100, i, true));
      CHECK(get_counts(store).written == (uint64_t)i + 1);
      struct stat info;
      CHECK(stat(in_folder(k ? "root/w.dpack" : "root"), &info) == 0);
      char full[80];
      snprintf(full, sizeof(full), "root/%s", path);
      CHECK(k == 1 ? info.st_size > 200 * (i + 1) : access(in_folder(full), F_OK) == 0);
    }
    destroy_store(store);
    remove_tree(in_folder("root"));
  }
  check_released();
}

static void test_bytes_that_do_not_arrive(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k]};
    struct dit_store *store = create_store(&options);
    struct dit_error err = {0};
    struct dit_store_blob blobs[2] = {make_blob(10, 1), make_blob(10, 2)};
    struct dit_store_item item = {.path = "a.pth", .pickle = "p", .pickle_size = 1, .blobs = blobs, .blob_count = 2};
    bool kept = true;
    ((struct test_blob *)blobs[1].context)->arrives = false;
    CHECK_OK(dit_store_put(store, &item, true, &kept, &err));
    CHECK(!kept && put_simple(store, "b.pth", 10, 1, true));
    struct dit_store_counts counts = get_counts(store);
    CHECK(counts.lost == 1 && counts.written == 1 && !counts.failing);
    CHECK_CONTAINS(counts.problem, "did not arrive");
    CHECK(dit_store_flush(store, FLUSH_MS, &err) == DIT_ERR_IO);
    flush(store);  // said once
    CHECK(dit_store_destroy(store, FLUSH_MS, &err) == DIT_ERR_IO);
    CHECK_CONTAINS(err.message, "without 1 of 2 items");
    remove_tree(in_folder("root"));
  }
  check_released();
}

static void test_bad_items(void) {
  struct dit_store *store = create_store(NULL);
  static char endless[5000];
  memset(endless, 'x', sizeof(endless) - 1);
  const char *const paths[] = {"",        "/abs.pth", "../up.pth", "a/../b.pth", "a/..",
                               "./a.pth", "a//b.pth", "a/",        endless,      NULL};
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
    struct dit_error err = {0};
    struct dit_store_blob blob = make_blob(10, 1);
    struct dit_store_item item = {.path = paths[i], .pickle = "p", .pickle_size = 1, .blobs = &blob, .blob_count = 1};
    bool kept = true;
    CHECK(dit_store_put(store, &item, false, &kept, &err) == DIT_ERR_INVALID && !kept);
    CHECK_CONTAINS(err.message, "path '");
  }
  check_released();
  CHECK(put_simple(store, "..a/b...pth", 1, 1, true) && get_counts(store).put == 1);
  destroy_store(store);
  remove_tree(in_folder("root"));
}

/// Puts until one is kept again: the store tries again after a while.
static void wait_for_recovery(struct dit_store *store) {
  for (int i = 0; !put_simple(store, "recovered.pth", 10, i, true); i++) {
    CHECK(i < 3000);
    usleep(10000);
  }
}

static void test_disk_full(void) {
  struct rlimit old, small;
  CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
  signal(SIGXFSZ, SIG_IGN);
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .container = "d.dpack"};
    struct dit_store *store = create_store(&options);
    struct dit_error err = {0};
    int before = atomic_load(&warnings);
    CHECK(put_simple(store, "first.pth", 2000, 1, true));
    small = old;
    small.rlim_cur = 60000;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(!put_simple(store, "second.pth", 100000, 2, true));
    for (int i = 0; i < 100; i++) {
      (void)put_simple(store, "third.pth", 2000000, i, false);
    }
    struct dit_store_counts counts = get_counts(store);
    CHECK(counts.failing && counts.lost > 0 && counts.dropped + counts.lost >= 50);
    CHECK_CONTAINS(counts.problem, "File too large");
    CHECK(atomic_load(&warnings) == before + 1);
    CHECK_CONTAINS(last_warning, "the program goes on");
    CHECK(dit_store_flush(store, FLUSH_MS, &err) == DIT_ERR_IO);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    wait_for_recovery(store);
    CHECK(put_simple(store, "last.pth", 100000, 4, true) && !get_counts(store).failing);
    CHECK(atomic_load(&warnings) == before + 1);
    CHECK(dit_store_destroy(store, FLUSH_MS, &err) == DIT_ERR_IO);
    check_released();
    if (k == 0) {
      CHECK(count_entries(in_folder("root")) == 3);  // first, recovered, last; nothing temporary
    } else {
      struct dit_store_reader *reader = NULL;
      const struct dit_store_item *item = NULL;
      struct dit_store_read_counts read;
      CHECK_OK(dit_store_reader_open(in_folder("root/d.dpack"), &reader, &err));
      for (const char *const *path = (const char *const[]){"first.pth", "recovered.pth", "last.pth", NULL}; *path;
           path++) {
        CHECK_OK(dit_store_reader_next(reader, &item, &err));
        CHECK(item && strcmp(item->path, *path) == 0);
      }
      CHECK_OK(dit_store_reader_next(reader, &item, &err));
      dit_store_reader_get_counts(reader, &read);
      CHECK(!item && read.damaged == 0 && read.torn_bytes == 0);
      dit_store_reader_close(reader);
    }
    remove_tree(in_folder("root"));
  }
}

/// The folder is taken away during the run: a file stands in its place, then it may be made again.
static void test_removed_folder(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .container = "r.dpack"};
    struct dit_store *store = create_store(&options);
    struct dit_error err = {0};
    CHECK(put_simple(store, "a/b.pth", 10, 1, true));
    remove_tree(in_folder("root"));
    save_file(in_folder("root"), "in the way", 10);
    CHECK(!put_simple(store, "a/b.pth", 10, 2, true));
    CHECK(get_counts(store).failing && !dit_store_is_open(store));
    CHECK(unlink(in_folder("root")) == 0);
    wait_for_recovery(store);
    CHECK(put_simple(store, "a/b.pth", 10, 3, true));
    remove_tree(in_folder("root/a"));
    CHECK(put_simple(store, "a/b.pth", 10, 3, true));
    CHECK(dit_store_destroy(store, FLUSH_MS, &err) == DIT_ERR_IO);
    CHECK(access(in_folder(k ? "root/r.dpack" : "root/a/b.pth"), F_OK) == 0);
    remove_tree(in_folder("root"));
  }
  check_released();
}

/// A name that cannot be is a problem of its item alone.
static void test_item_in_the_way(void) {
  struct dit_store *store = create_store(NULL);
  struct dit_error err = {0};
  int before = atomic_load(&warnings);
  CHECK(put_simple(store, "a.pth", 10, 1, true) && !put_simple(store, "a.pth/b.pth", 10, 1, true));
  CHECK(!put_simple(store, "a.pth/c.pth", 10, 1, true) && put_simple(store, "b.pth", 10, 1, true));
  CHECK(!get_counts(store).failing && get_counts(store).lost == 2 && atomic_load(&warnings) == before + 1);
  CHECK(dit_store_destroy(store, FLUSH_MS, &err) == DIT_ERR_IO);
  check_released();
  remove_tree(in_folder("root"));
}

static void test_create_failures(void) {
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  save_file(in_folder("file"), "x", 1);
  CHECK(dit_store_create(in_folder("file"), NULL, &store, &err) == DIT_ERR_IO && !store);
  CHECK_CONTAINS(err.message, "file");
  CHECK(dit_store_create("/proc/nowhere", NULL, &store, &err) == DIT_ERR_IO);
  CHECK(dit_store_create("", NULL, &store, &err) == DIT_ERR_INVALID);
  struct dit_store_options bad[] = {{.layout = 7},       {.pressure = 9},      {.block_ms = -1},   {.rank = -1},
                                    {.queue_bytes = -1}, {.container = "a/b"}, {.container = ".."}};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    CHECK(dit_store_create(in_folder("root"), &bad[i], &store, &err) == DIT_ERR_INVALID && !store);
  }
  CHECK(dit_store_destroy(NULL, 0, NULL) == DIT_OK);
}

static void test_allocation_failures(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k]};
    int64_t live = dit_alloc_get_live();
    struct dit_store *store = NULL;
    for (int64_t after = 0; !store; after++) {
      struct dit_error err = {0};
      dit_alloc_set_failure(after);
      enum dit_status status = dit_store_create(in_folder("root"), &options, &store, &err);
      dit_alloc_set_failure(-1);
      CHECK((status == DIT_OK) == (store != NULL) && (store || status == DIT_ERR_NOMEM));
      CHECK(store || dit_alloc_get_live() == live);
    }
    for (int64_t after = 0;; after++) {
      struct dit_error err = {0};
      struct dit_store_blob blobs[50];
      for (int i = 0; i < 50; i++) {
        blobs[i] = make_blob(10, i);
      }
      struct dit_store_item item = {.path = "a.pth", .pickle = "p", .pickle_size = 1, .blobs = blobs, .blob_count = 50};
      bool kept = false;
      dit_alloc_set_failure(after);
      CHECK_OK(dit_store_put(store, &item, true, &kept, &err));
      dit_alloc_set_failure(-1);
      check_released();
      if (kept) {
        CHECK(after >= 2);
        break;
      }
      usleep(150000);  // "no memory" counts as a failing disk for a moment
    }
    struct dit_error err = {0};
    (void)dit_store_destroy(store, FLUSH_MS, &err);
    CHECK(dit_alloc_get_live() == live);
    remove_tree(in_folder("root"));
  }
}

/// The thread is stuck in a blob's wait: destroy gives up in time and the thread cleans up later.
static void test_abandoned(void) {
  struct dit_store *store = create_store(NULL);
  struct dit_error err = {0};
  atomic_int released = 0;
  int64_t live = dit_alloc_get_live();
  pthread_mutex_lock(&gate);
  put_gate(store, &released);
  CHECK(put_simple(store, "never.pth", 10, 1, false));
  CHECK(dit_store_flush(store, 20, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "2 items are not written after 20 ms");
  CHECK(dit_store_destroy(store, 20, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "without 2 of 2");
  pthread_mutex_unlock(&gate);
  for (int i = 0; dit_alloc_get_live() >= live; i++) {
    CHECK(i < 6000);
    usleep(10000);
  }
  CHECK(atomic_load(&released) == 1);
  check_released();
  remove_tree(in_folder("root"));
}

enum { THREADS = 4, PER_THREAD = 150 };

static void *run_producer(void *pointer) {
  struct dit_store *store = pointer;
  static atomic_int producers;
  int id = atomic_fetch_add(&producers, 1);
  for (int i = 0; i < PER_THREAD; i++) {
    char path[60];
    snprintf(path, sizeof(path), "%d/%d/input.pth", id, i);
    (void)dit_store_is_open(store);
    CHECK(put_simple(store, path, (size_t)(i % 7) * 1000, i, i % 40 == 0));
    if (i % 50 == 0) {
      struct dit_error err = {0};
      struct dit_store_counts counts;
      dit_store_get_counts(store, &counts);
      CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
    }
  }
  return NULL;
}

static void test_threads(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .queue_bytes = 20000, .container = "t.dpack"};
    struct dit_store *store = create_store(&options);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
      CHECK(pthread_create(&threads[i], NULL, run_producer, store) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
      CHECK(pthread_join(threads[i], NULL) == 0);
    }
    flush(store);
    CHECK(get_counts(store).written == THREADS * PER_THREAD);
    destroy_store(store);
    remove_tree(in_folder("root"));
  }
  check_released();
}

int main(void) {
  make_folder();
  dit_log_set_sink(take_log, NULL);
  RUN(test_counts);
  RUN(test_drop);
  RUN(test_block);
  RUN(test_write_ahead);
  RUN(test_bytes_that_do_not_arrive);
  RUN(test_bad_items);
  RUN(test_disk_full);
  RUN(test_removed_folder);
  RUN(test_item_in_the_way);
  RUN(test_create_failures);
  RUN(test_allocation_failures);
  RUN(test_abandoned);
  RUN(test_threads);
  remove_tree(test_folder);
  return 0;
}
