/// The memory checker over the embedded device, under every algorithm: what it finds, what it says, and that it says
/// nothing about programs that are right.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"

#define MIB ((size_t)1 << 20)
#define LINES 512

static struct dit_error err;
static char lines[LINES][512];
static int line_count;
static const char *const names[] = {"torch", "bf", "bs", "raw"};

static void keep_line(void *context, const char *line) {
  (void)context;
  if (line_count < LINES) {
    snprintf(lines[line_count++], sizeof(lines[0]), "%s", line);
  }
}

/// The first line that contains `part`; NULL when there is none.
static const char *find_line(const char *part) {
  for (int i = 0; i < line_count; i++) {
    if (strstr(lines[i], part)) {
      return lines[i];
    }
  }
  return NULL;
}

static struct dit_memory_check_state get_state(void) {
  struct dit_memory_check_state state;
  dit_memory_check_get_state(&state);
  return state;
}

/// Findings so far, of all kinds.
static uint64_t count_findings(void) {
  struct dit_memory_check_state state = get_state();
  return state.damaged + state.double_frees + state.unknown_frees + state.unknown_copies + state.stray_accesses;
}

static void start_checked(const char *algorithm) {
  start_host((const char *[]){"allocator", algorithm, "host_allocator", algorithm, "memory_check", "1",
                              "memory_check_interval", "0", "host_devices", "2", NULL});
  line_count = 0;
}

static char *take(int device, size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_memory_alloc(device, 0, size, &ptr, &err));
  return ptr;
}

static void test_a_right_program_is_silent(void) {
  for (int i = 0; i < 4; i++) {
    start_checked(names[i]);
    uint64_t before = count_findings();
    char *a = take(0, 1000), *b = take(1, 3 * MIB), *c = take(0, 1);
    void *pinned = NULL;
    CHECK_OK(dit_host_alloc(5000, &pinned, &err));
    CHECK((uintptr_t)a % 512 == 0 && get_state().blocks == 4 && get_state().bytes == 1000 + 3 * MIB + 1 + 5000);
    memset(a, 1, 1000);
    memset(pinned, 2, 5000);
    CHECK_OK(dit_memory_copy(b, 1, a, 0, 1000, 0, 0, false, &err));
    CHECK_OK(dit_memory_copy(a, 0, pinned, -1, 1000, 0, 0, true, &err));
    CHECK_OK(dit_memory_copy(pinned, -1, b, 1, 5000, 1, 0, false, &err));
    dit_memory_free(a);
    dit_memory_free(b);
    dit_memory_free(c);
    dit_memory_free(NULL);
    dit_host_free(pinned);
    CHECK(get_state().blocks == 0 && get_state().bytes == 0 && count_findings() == before && line_count == 0);
  }
}

static void test_dipu_11_the_default_algorithm_is_watched(void) {
  start_host((const char *[]){"memory_check", "1", NULL});
  line_count = 0;
  CHECK(dit_memory_get_algorithm() == DIT_ALGORITHM_TORCH);
  uint64_t blocks = get_state().blocks, findings = count_findings();
  char *a = take(0, 100), *b = take(0, 100);
  CHECK(get_state().blocks == blocks + 2);
  CHECK_OK(dit_memory_copy(a, 0, b, 0, 100, 0, 0, false, &err));
  CHECK(count_findings() == findings && !find_line("not found"));
  dit_memory_free(a);
  dit_memory_free(b);
}

static void test_writes_beyond_the_ends(void) {
  for (int i = 0; i < 4; i++) {
    start_checked(names[i]);
    uint64_t before = get_state().damaged;
    char *a = take(1, 1000);
    a[1000] = 0;
    a[1003] = 0;
    dit_memory_free(a);
    CHECK(get_state().damaged == before + 1);
    const char *line = find_line("guard zone damaged: 2 bytes behind the block were written, the nearest 1 bytes away");
    CHECK(line && strncmp(line, DIT_CHECK_PREFIX, strlen(DIT_CHECK_PREFIX)) == 0);
    CHECK_CONTAINS(line, "size = 1000, device 1");
    char *b = take(0, 2 * MIB);
    b[-4] = 0;
    void *pinned = NULL;
    CHECK_OK(dit_host_alloc(700, &pinned, &err));
    ((char *)pinned)[700 + 511] = 0;
    uint64_t damaged;
    CHECK_OK(dit_memory_check_verify(&damaged, &err));
    CHECK(damaged == 2 && find_line("1 bytes in front of the block were written, the nearest 4 bytes away"));
    CHECK(find_line("behind the block were written, the nearest 512 bytes away") &&
          find_line("size = 700, pinned host memory"));
    CHECK_OK(dit_memory_check_verify(&damaged, &err));
    CHECK(damaged == 0);  // each zone is reported once
    dit_memory_free(b);
    dit_host_free(pinned);
    CHECK(get_state().damaged == before + 3);
  }
}

static void test_frees_that_are_wrong(void) {
  for (int i = 0; i < 4; i++) {
    start_checked(names[i]);
    struct dit_memory_check_state before = get_state();
    char *a = take(0, 5000), *b = take(0, 5000), local = 0;
    dit_memory_free(a);
    dit_memory_free(a);
    const char *line = find_line("not found point address going to free, ptr = ");
    CHECK(line);
    CHECK_CONTAINS(line, "freed twice; it was a block of 5000 bytes of device memory");
    dit_memory_free(&local);
    CHECK(find_line("it is not the start of a live block of device memory"));
    dit_memory_free(b + 512);  // inside
    dit_memory_free(b - 512);  // what the allocator knows as the block's start
    dit_host_free(b);          // of the other kind
    CHECK(get_state().blocks == before.blocks + 1);
    CHECK(get_state().double_frees == before.double_frees + 1 && get_state().unknown_frees == before.unknown_frees + 4);
    b[4999] = 1;
    dit_memory_free(b);
    CHECK(get_state().blocks == before.blocks && get_state().damaged == before.damaged);
  }
}

static void test_copies_that_are_wrong(void) {
  for (int i = 0; i < 4; i++) {
    start_checked(names[i]);
    uint64_t before = get_state().unknown_copies;
    char *a = take(0, 1000), *b = take(0, 2000), host[2000];
    CHECK_OK(dit_memory_copy(host, -1, a + 10, 0, 990, 0, 0, false, &err));
    CHECK(get_state().unknown_copies == before);
    CHECK_OK(dit_memory_copy(host, -1, a + 10, 0, 991, 0, 0, false, &err));
    CHECK(get_state().unknown_copies == before + 1 && find_line("a copy of 991 bytes at ptr = "));
    CHECK_OK(dit_memory_set(a, 0, 1, 1000, 0, &err));
    CHECK(get_state().unknown_copies == before + 1);
    dit_memory_free(b);
    if (strcmp(names[i], "raw") != 0) {  // raw memory is gone: nobody can tell whose it is
      CHECK_OK(dit_memory_copy(host, -1, b, 0, 100, 0, 0, false, &err));
      CHECK(get_state().unknown_copies == before + 2);
      CHECK(find_line("not found point address when check, ptr = "));
    }
    dit_memory_free(a);
  }
}

static void test_addresses_are_the_users(void) {
  start_checked("bf");
  void *base;
  size_t size;
  int device;
  char *a = take(1, 3000);
  CHECK(dit_memory_find(a, &base, &size, &device) && base == a && size == 3000 && device == 1);
  CHECK(dit_memory_find(a + 2999, &base, &size, &device) && base == a);
  CHECK(!dit_memory_find(a + 3000, &base, &size, &device) && !dit_memory_find(a - 1, &base, &size, &device));
  int64_t stream;
  CHECK_OK(dit_stream_acquire(1, 0, &stream, &err));
  CHECK_OK(dit_memory_record_stream(a + 5, stream, &err));
  dit_memory_free(a);
}

static void test_work_on_streams_is_waited_for(void) {
  start_checked("torch");
  struct gate gate = GATE_INITIALIZER;
  uint64_t before = get_state().damaged;
  int64_t stream;
  void *a = NULL, *b = NULL;
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
  CHECK_OK(dit_memory_alloc(0, stream, 1000, &a, &err));
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  CHECK_OK(dit_stream_launch_host(0, stream, gate_wait, &gate, &err));
  gate_await(&gate);
  CHECK_OK(dit_memory_set(a, 0, 3, 1001, stream, &err));  // one byte too many, later
  dit_memory_free(a);
  CHECK(get_state().damaged == before);
  CHECK_OK(dit_memory_alloc(0, stream, 1000, &b, &err));  // the same memory, in stream order
  CHECK(b == a);
  CHECK_OK(dit_memory_set(b, 0, 4, 1000, stream, &err));
  gate_open(&gate);
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  CHECK(get_state().damaged == before + 1 && find_line("1 bytes behind the block"));
  dit_memory_free(b);
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  CHECK(get_state().damaged == before + 1);
}

static void test_state_lines_and_leaks(void) {
  start_host((const char *[]){"memory_check", "1", "memory_check_interval", "5", "memory_check_blocks", "12", NULL});
  uint64_t inserts = get_state().inserts;
  line_count = 0;
  char *blocks[30];
  for (int i = 0; i < 30; i++) {
    blocks[i] = take(0, MIB);
  }
  char expected[128];
  snprintf(expected, sizeof(expected),
           "dipu memory checker: current block num = %d, total_size = %dMB, insert count = %llu, max block num = 12, "
           "log interval = 5",
           (int)(5 - inserts % 5), (int)(5 - inserts % 5), (unsigned long long)(inserts + 5 - inserts % 5));
  CHECK(find_line(expected));
  CHECK(find_line("there may be memory leak. current block num = 13"));
  CHECK(find_line("there may be memory leak. current block num = 25"));
  CHECK(!find_line("leak. current block num = 14"));
  for (int i = 2; i < 30; i++) {
    dit_memory_free(blocks[i]);
  }
  line_count = 0;
  dit_memory_check_report();
  CHECK(strcmp(lines[0], "dipu memory checker: there maybe exist memory leak. 2 blocks not released.") == 0);
  snprintf(expected, sizeof(expected), "key: %p, ptr: 1048576, device 0, stream 0, allocation ", (void *)blocks[0]);
  CHECK_CONTAINS(lines[1], expected);
  CHECK(find_line("dipu memory checker: going to destruction. current block num = 2, total_size = 2MB"));
  dit_memory_free(blocks[0]);
  dit_memory_free(blocks[1]);
}

struct seen {
  int count, depth;
  uint64_t last;
  bool ordered;
};

static bool see(void *context, const struct dit_memory_check_block *block) {
  struct seen *seen = context;
  char text[256];
  seen->count++;
  seen->ordered = seen->ordered && block->number > seen->last;
  seen->last = block->number;
  seen->depth = block->depth;
  for (int i = 0; i < block->depth; i++) {
    dit_memory_check_describe_frame(block->frames[i], text, sizeof(text));
    CHECK(text[0]);
  }
  return seen->count < 3;
}

static bool locate(char *text, size_t size) {
  snprintf(text, size, "train.py:12 in step");
  return true;
}

static void test_blocks_since_and_backtrace(void) {
  start_host((const char *[]){"memory_check", "1", "memory_check_backtrace", "1", NULL});
  dit_memory_check_set_locator(locate);
  char *a = take(0, 10);
  uint64_t mark = get_state().inserts;
  char *rest[4];
  for (int i = 0; i < 4; i++) {
    rest[i] = take(0, 10);
  }
  struct seen seen = {.ordered = true};
  CHECK_OK(dit_memory_check_visit(mark + 2, see, &seen, &err));
  CHECK(seen.count == 2 && seen.ordered && seen.depth > 2);
  seen = (struct seen){.ordered = true};
  CHECK_OK(dit_memory_check_visit(0, see, &seen, &err));
  CHECK(seen.count == 3);
  line_count = 0;
  dit_memory_check_report();
  CHECK(find_line("    at train.py:12 in step") && find_line("    #0 "));
  dit_memory_check_set_locator(NULL);
  dit_memory_free(a);
  for (int i = 0; i < 4; i++) {
    dit_memory_free(rest[i]);
  }
}

static void test_starts_and_stops_in_the_middle(void) {
  start_host(NULL);
  CHECK(!dit_memory_check_is_on());
  char *early = take(0, 100);
  struct dit_memory_check_options options = {.guard = 1024};
  CHECK_OK(dit_memory_check_start(&options, &err));
  uint64_t findings = count_findings(), blocks = get_state().blocks;
  char *watched = take(0, 100);
  early[100] = 1;  // has no guard zone
  dit_memory_free(early);
  CHECK(get_state().blocks == blocks + 1 && count_findings() == findings);
  dit_memory_check_stop();
  char *late = take(0, 100);
  CHECK(get_state().blocks == blocks + 1);
  watched[100] = 0;
  dit_memory_free(watched);  // still watched
  CHECK(count_findings() == findings + 1);
  dit_memory_free(late);
  CHECK(get_state().blocks == blocks && count_findings() == findings + 1);
  options.guard = 100;
  CHECK(dit_memory_check_start(&options, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "100 bytes");
  CHECK(!dit_memory_check_is_on());
}

static void test_host_memory_runs_out(void) {
  start_checked("bs");
  for (int after = 0; after < 6; after++) {
    void *ptr = &err;
    int64_t live = dit_alloc_get_live();
    dit_alloc_set_failure(after);
    enum dit_status status = dit_memory_alloc(0, 0, 777 * 512 * (size_t)(after + 1), &ptr, &err);
    dit_alloc_set_failure(-1);
    CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && ptr == &err));
    if (status == DIT_OK) {
      dit_memory_free(ptr);
    }
    CHECK_OK(dit_memory_empty_cache(0, &err));
    CHECK(get_state().blocks == 0 && dit_alloc_get_live() <= live + 4);
  }
}

static void test_shutdown_with_live_blocks(void) {
  start_checked("torch");
  char *a = take(0, 1000);
  a[1000] = 1;
  dit_runtime_shutdown();
  CHECK(find_line("there maybe exist memory leak. 1 blocks not released.") && get_state().blocks == 0);
  dit_memory_free(a);  // its owner is late: nothing happens
  start_checked("torch");
  uint64_t damaged;
  CHECK_OK(dit_memory_check_verify(&damaged, &err));
  CHECK(damaged == 0 && get_state().blocks == 0);
}

// Protected pages

/// Run in a child: its exit status and what it wrote to stderr.
static int run_child(const char *mode, int (*body)(void), char *text, size_t size) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    dit_memory_check_set_writer(NULL, NULL);
    start_host((const char *[]){"memory_protect", mode, NULL});
    _exit(body());
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t got; used + 1 < size && (got = read(ends[0], text + used, size - 1 - used)) > 0; used += (size_t)got) {
  }
  text[used] = '\0';
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

static int use_memory_rightly(void) {
  char host[1000] = {7};
  char *a = take(0, 1000), *b = take(0, 600 * 1024), *c = take(0, 30 * MIB);
  int64_t stream;
  CHECK_OK(dit_memory_copy(a, 0, host, -1, 1000, 0, 0, false, &err));
  CHECK_OK(dit_memory_copy(b, 0, a, 0, 1000, 0, 0, false, &err));
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
  CHECK_OK(dit_memory_set(c, 0, 1, 30 * MIB, stream, &err));
  CHECK_OK(dit_memory_copy(c, 0, b, 0, 1000, 0, stream, true, &err));
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  host[0] = 0;
  CHECK_OK(dit_memory_copy(host, -1, c, 0, 1000, 0, stream, false, &err));
  dit_memory_access_begin();
  int value = c[0];
  dit_memory_access_end();
  dit_memory_free(a);
  dit_memory_free(c);
  CHECK_OK(dit_memory_empty_cache(-1, &err));
  return host[0] == 7 && value == 7 && get_state().stray_accesses == 0 ? 0 : 1;
}

static int touch_memory(void) {
  volatile char *a = take(0, 1000);
  a[5] = 9;
  int seen = a[5];
  char host[1];
  CHECK_OK(dit_memory_copy(host, -1, (const char *)a + 5, 0, 1, 0, 0, false, &err));  // closes the pages again
  a[6] = 1;
  return seen == 9 && host[0] == 9 && get_state().stray_accesses == 2 ? 0 : 1;
}

static int follow_null(void) {
  volatile char *volatile nowhere = NULL;
  take(0, 10);
  nowhere[16] = 1;
  return 0;
}

static void test_protected_pages(void) {
  static char text[65536];
  static const char *const modes[] = {"report", "stop"};
  dit_runtime_shutdown();  // the children start the device themselves
  for (int i = 0; i < 2; i++) {
    int status = run_child(modes[i], use_memory_rightly, text, sizeof(text));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && !strstr(text, "stray"));
  }
  int status = run_child("report", touch_memory, text, sizeof(text));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_CONTAINS(text, "dipu memory checker: stray host access to memory of device 0, ptr = 0x");
  CHECK_CONTAINS(text, "test_memory_check");
  status = run_child("stop", touch_memory, text, sizeof(text));
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  CHECK_CONTAINS(text, "stray host access to memory of device 0");
  status = run_child("report", follow_null, text, sizeof(text));  // not ours: dies as before
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !strstr(text, "stray"));
}

int main(void) {
  dit_memory_check_set_writer(keep_line, NULL);
  if (!CHECK_SANITIZED) {
    RUN(test_protected_pages);
  }
  RUN(test_a_right_program_is_silent);
  RUN(test_dipu_11_the_default_algorithm_is_watched);
  RUN(test_writes_beyond_the_ends);
  RUN(test_frees_that_are_wrong);
  RUN(test_copies_that_are_wrong);
  RUN(test_addresses_are_the_users);
  RUN(test_work_on_streams_is_waited_for);
  RUN(test_state_lines_and_leaks);
  RUN(test_blocks_since_and_backtrace);
  RUN(test_starts_and_stops_in_the_middle);
  RUN(test_host_memory_runs_out);
  RUN(test_shutdown_with_live_blocks);
  dit_memory_check_stop();
  dit_runtime_shutdown();
  return 0;
}
