/// kill -9 at random moments: everything a flush acknowledged is readable, and the torn end is repaired.
#include <signal.h>
#include <sys/wait.h>

#include "record_test.h"

enum { KILLS = 200, SEED = 31, FIELDS = 3 };

/// Writes and flushes until it is killed; tells the parent the last acknowledged number.
static void run_child(int pipe_end, uint64_t round) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  struct dit_record_options options = {.queue_bytes = 16 << 10, .linger_ms = 1};
  struct dit_record_builder builder;
  uint64_t state = round;
  dit_record_builder_init(&builder, NULL, 0);
  if (dit_record_writer_create(test_folder, &options, &writer, &err) != DIT_OK) {
    _exit(9);
  }
  for (uint64_t i = 1;; i++) {
    build_random(&builder, SEED, i, FIELDS);
    uint64_t sequence = 0;
    if (!dit_record_commit(&builder, writer, &sequence) || sequence != i) {
      _exit(8);
    }
    if (draw(&state) % 20 == 0) {
      if (dit_record_writer_flush(writer, FLUSH_MS, &err) != DIT_OK || write(pipe_end, &sequence, 8) != 8) {
        _exit(7);
      }
    }
  }
}

static uint64_t read_all(const char *path) {
  const char *paths[] = {path};
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  CHECK_OK(dit_record_reader_open(paths, 1, &reader, &err));
  uint64_t count = read_random(reader, SEED, FIELDS);
  struct dit_record_read_counts counts;
  dit_record_reader_get_counts(reader, &counts);
  CHECK(counts.damages == 0 && counts.missing == 0 && counts.unresolved == 0 && counts.malformed == 0);
  dit_record_reader_close(reader);
  return count;
}

static uint64_t kill_one(uint64_t round, uint64_t *state, uint64_t *read_back) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], round);
  }
  close(ends[1]);
  uint64_t acknowledged = 0, some = 0, wanted = draw(state) % 30;
  for (uint64_t i = 0; i <= wanted && read(ends[0], &some, 8) == 8; i++) {
    acknowledged = some;
  }
  usleep((useconds_t)(draw(state) % 2000));
  kill(child, SIGKILL);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  while (read(ends[0], &some, 8) == 8) {
    acknowledged = some;
  }
  close(ends[0]);
  char path[PATH_MAX + 64];
  snprintf(path, sizeof(path), "%s/ops-r0-p%d.dlog", test_folder, (int)child);
  uint64_t count = read_all(path), removed = 0;
  if (count < acknowledged) {
    fprintf(stderr, "round %llu: acknowledged %llu, read %llu\n", (unsigned long long)round,
            (unsigned long long)acknowledged, (unsigned long long)count);
  }
  CHECK(count >= acknowledged);
  struct dit_error err = {0};
  CHECK_OK(dit_record_repair(path, &removed, &err));
  CHECK(read_all(path) == count);
  CHECK_OK(dit_record_repair(path, &removed, &err));
  CHECK(removed == 0);
  unlink(path);
  *read_back += count;
  return acknowledged;
}

static void test_kill(void) {
  uint64_t state = 4711, acknowledged = 0, read_back = 0;
  printf("seed %llu\n", (unsigned long long)state);
  for (uint64_t round = 0; round < KILLS; round++) {
    acknowledged += kill_one(round, &state, &read_back);
  }
  printf("%d kills: %llu records acknowledged, %llu read\n", KILLS, (unsigned long long)acknowledged,
         (unsigned long long)read_back);
  CHECK(acknowledged > KILLS);
}

/// A file cut at any place inside its last record is repaired to the record before.
static void test_repair(void) {
  char path[PATH_MAX];
  write_random(SEED, 9, FIELDS, 0, path);
  size_t size = 0;
  unsigned char *data = load_file(path, &size);
  for (size_t cut = size; cut-- > 0;) {
    struct dit_error err = {0};
    int fd = open(path, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, data, cut) == (ssize_t)cut);
    close(fd);
    uint64_t before = read_all(path), removed = 0;
    CHECK_OK(dit_record_repair(path, &removed, &err));
    struct stat info;
    CHECK(stat(path, &info) == 0 && (uint64_t)info.st_size + removed == cut);
    CHECK(read_all(path) == before);
  }
  free(data);
  unlink(path);
}

static void test_repair_refused(void) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  char path[PATH_MAX], link[PATH_MAX + 8];
  CHECK_OK(dit_record_writer_create(test_folder, NULL, &writer, &err));
  dit_record_writer_get_path(writer, path, sizeof(path));
  CHECK(dit_record_repair(path, NULL, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "being written");
  CHECK_OK(dit_record_writer_destroy(writer, FLUSH_MS, &err));
  CHECK_OK(dit_record_repair(path, NULL, &err));
  snprintf(link, sizeof(link), "%s.link", path);
  CHECK(symlink(path, link) == 0);
  CHECK(dit_record_repair(link, NULL, &err) == DIT_ERR_IO);
  FILE *other = fopen(link, "r+");
  CHECK(other && fwrite("something else", 1, 14, other) == 14);
  fclose(other);
  CHECK(truncate(path, 14) == 0 && dit_record_repair(path, NULL, &err) == DIT_ERR_CORRUPT);
  unlink(link);
  unlink(path);
}

int main(void) {
  make_folder();
  RUN(test_kill);
  RUN(test_repair);
  RUN(test_repair_refused);
  remove_folder();
  return 0;
}
