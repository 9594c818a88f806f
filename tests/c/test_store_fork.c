/// Stores and processes: a fork closes them in the child and leaves them alone in the parent; exit flushes them.
#include <stdio.h>
#include <sys/wait.h>

#include "store_test.h"

static const enum dit_store_layout layouts[] = {DIT_STORE_FILES, DIT_STORE_PACKED};

static void test_fork(void) {
  for (int k = 0; k < 2; k++) {
    struct dit_store_options options = {.layout = layouts[k], .container = "f.dpack"};
    struct dit_store *store = create_store(&options);
    atomic_int released = 0;
    pthread_mutex_lock(&gate);
    put_gate(store, &released);
    CHECK(put_simple(store, "parent.pth", 10, 1, false));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct dit_error err = {0};
      CHECK(!dit_store_is_open(store) && !put_simple(store, "child.pth", 10, 1, true));
      CHECK(dit_store_flush(store, FLUSH_MS, &err) == DIT_ERR_INVALID);
      CHECK_OK(dit_store_destroy(store, FLUSH_MS, &err));
      CHECK(atomic_load(&released) == 0);  // the parent's
      struct dit_store_options own = {.layout = layouts[k], .container = "f.dpack"};
      struct dit_store *mine = create_store(&own);
      CHECK(put_simple(mine, "mine.pth", 10, 1, true));
      exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pthread_mutex_unlock(&gate);
    CHECK(put_simple(store, "after.pth", 10, 1, false));
    destroy_store(store);
    CHECK(atomic_load(&released) == 1);
    if (k == 0) {
      CHECK(access(in_folder("root/parent.pth"), F_OK) == 0 && access(in_folder("root/mine.pth"), F_OK) == 0 &&
            access(in_folder("root/child.pth"), F_OK) != 0);
    } else {
      CHECK(access(in_folder("root/f.1.dpack"), F_OK) == 0);
    }
    remove_tree(in_folder("root"));
  }
  check_released();
}

static void test_exit(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct dit_store_options packed = {.layout = DIT_STORE_PACKED, .container = "e.dpack"};
    struct dit_store *store = create_store(NULL), *other = create_store(&packed);
    for (int i = 0; i < 50; i++) {
      char path[40];
      snprintf(path, sizeof(path), "%d.pth", i);
      CHECK(put_simple(store, path, 1000, i, false) && put_simple(other, path, 1000, i, false));
    }
    exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(count_entries(in_folder("root")) == 51);
  uint64_t written = 0;
  struct dit_error err = {0};
  CHECK_OK(dit_store_unpack(in_folder("root/e.dpack"), in_folder("unpacked"), &written, &err));
  CHECK(written == 50 && count_entries(in_folder("unpacked")) == 50);
  remove_tree(in_folder("root"));
  remove_tree(in_folder("unpacked"));
}

int main(void) {
  if (CHECK_SANITIZED) {
    puts("skipped: sanitizers do not survive a fork with threads");
    return 0;
  }
  make_folder();
  RUN(test_fork);
  RUN(test_exit);
  remove_tree(test_folder);
  return 0;
}
