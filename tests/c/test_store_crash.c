/// kill -9 at random moments: everything a flush or a write-ahead put acknowledged is readable, in both layouts; a
/// `.pth` that has its name is complete.
#include <signal.h>
#include <sys/wait.h>

#include "record/format.h"
#include "store_test.h"

enum { KILLS = 24, SEED = 33 };

/// Puts and acknowledges until it is killed; tells the parent the number of items acknowledged.
static void run_child(int pipe_end, enum dit_store_layout layout, uint64_t round) {
  static struct random_item random;
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  struct dit_store_options options = {.layout = layout, .container = "k.dpack", .queue_bytes = 4 << 20};
  uint64_t state = round;
  if (dit_store_create(in_folder("root"), &options, &store, &err) != DIT_OK) {
    _exit(9);
  }
  for (uint64_t i = 0;; i++) {
    bool now = draw(&state) % 12 == 0, kept = false;
    make_random(&random, SEED, i);
    if (dit_store_put(store, &random.item, now, &kept, &err) != DIT_OK || !kept) {
      _exit(8);
    }
    bool flushed = draw(&state) % 15 == 0;
    if (flushed && dit_store_flush(store, FLUSH_MS, &err) != DIT_OK) {
      _exit(7);
    }
    uint64_t done = i + 1;
    if ((now || flushed) && write(pipe_end, &done, 8) != 8) {
      _exit(6);
    }
  }
}

/// Items are written in order, so the first `acknowledged` ones are there.
static uint64_t read_container(uint64_t acknowledged) {
  struct dit_error err = {0};
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  struct dit_store_read_counts counts;
  uint64_t read = 0;
  CHECK_OK(dit_store_reader_open(in_folder("root/k.dpack"), &reader, &err));
  CHECK_OK(dit_store_reader_next(reader, &item, &err));
  for (; item; read++) {
    CHECK(check_random(item, SEED) == read);
    CHECK_OK(dit_store_reader_next(reader, &item, &err));
  }
  dit_store_reader_get_counts(reader, &counts);
  CHECK(counts.damaged == 0 && read >= acknowledged);
  dit_store_reader_close(reader);
  return read;
}

/// A file is whole when it ends as an archive does and is as long as its directory says.
static bool is_archive(const char *path) {
  size_t size = 0;
  unsigned char *data = load_file(path, &size);
  const unsigned char *end = data + size - 22;
  bool whole =
      size > 98 && memcmp(end, "PK\5\6", 4) == 0 && (size_t)dit_get_u32(end + 12) + dit_get_u32(end + 16) + 98 == size;
  free(data);
  return whole;
}

static uint64_t read_files(uint64_t acknowledged) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < acknowledged + 2000; i++) {
    static struct random_item random;
    char path[120];
    make_random(&random, SEED, i);
    snprintf(path, sizeof(path), "root/%s", random.path);
    bool there = access(in_folder(path), F_OK) == 0;
    CHECK(there || i >= acknowledged);
    if (there) {
      CHECK(is_archive(in_folder(path)));
      found++;
    }
    snprintf(path, sizeof(path), "root/%s.json", random.path);
    CHECK(!there || (access(in_folder(path), F_OK) == 0) == (random.item.json != NULL));
    drop_random(&random);
    if (!there) {
      break;
    }
  }
  return found;
}

static void kill_one(enum dit_store_layout layout, uint64_t round, uint64_t *state, uint64_t *acknowledged,
                     uint64_t *read_back) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], layout, round);
  }
  close(ends[1]);
  uint64_t last = 0, some = 0, wanted = draw(state) % 8;
  for (uint64_t i = 0; i <= wanted && read(ends[0], &some, 8) == 8; i++) {
    last = some;
  }
  usleep((useconds_t)(draw(state) % 3000));
  kill(child, SIGKILL);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  while (read(ends[0], &some, 8) == 8) {
    last = some;
  }
  close(ends[0]);
  *acknowledged += last;
  *read_back += layout == DIT_STORE_PACKED ? read_container(last) : read_files(last);
  remove_tree(in_folder("root"));
}

static void test_kill(void) {
  uint64_t state = 4711;
  printf("seed %llu\n", (unsigned long long)state);
  for (int k = 0; k < 2; k++) {
    uint64_t acknowledged = 0, read_back = 0;
    enum dit_store_layout layout = k ? DIT_STORE_PACKED : DIT_STORE_FILES;
    for (uint64_t round = 0; round < KILLS; round++) {
      kill_one(layout, round, &state, &acknowledged, &read_back);
    }
    printf("%s: %d kills, %llu items acknowledged, %llu read\n", k ? "packed" : "files", KILLS,
           (unsigned long long)acknowledged, (unsigned long long)read_back);
    CHECK(acknowledged > KILLS && read_back >= acknowledged);
  }
}

int main(void) {
  make_folder();
  RUN(test_kill);
  remove_tree(test_folder);
  return 0;
}
