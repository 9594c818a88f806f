/// The parallel loop: every index once, borders on the grain, nesting, many callers, fork, thread counts; CPU counting.
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "core/cpu_count.c"  // internal: not exported by libdit
#include "dit/options.h"
#include "dit/parallel.h"

enum { MOST = 5000 };

struct coverage {
  atomic_int visits[MOST];
  int64_t begin, end, grain;
};

static void visit(void *context, int64_t begin, int64_t end) {
  struct coverage *coverage = context;
  CHECK(begin < end && begin >= coverage->begin && end <= coverage->end);
  CHECK((begin - coverage->begin) % coverage->grain == 0);
  CHECK(end == coverage->end || (end - coverage->begin) % coverage->grain == 0);
  for (int64_t i = begin; i < end; i++) {
    atomic_fetch_add(&coverage->visits[i - coverage->begin], 1);
  }
}

static void check_coverage(struct coverage *coverage, int64_t begin, int64_t end, int64_t grain) {
  memset(coverage->visits, 0, sizeof(coverage->visits));
  coverage->begin = begin;
  coverage->end = end;
  coverage->grain = grain > 0 ? grain : 1;
  dit_parallel_for(begin, end, grain, visit, coverage);
  for (int64_t i = 0; i < MOST; i++) {
    CHECK(atomic_load(&coverage->visits[i]) == (i < end - begin ? 1 : 0));
  }
}

static uint64_t state = 99;

static uint32_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static void test_coverage(void) {
  static struct coverage coverage;
  printf("seed %llu\n", (unsigned long long)state);
  static const int threads[] = {1, 2, 3, 8, 17};
  for (int t = 0; t < 5; t++) {
    dit_parallel_set_threads(threads[t]);
    CHECK(dit_parallel_get_threads() == threads[t]);
    for (int i = 0; i < 100; i++) {
      int64_t count = draw() % MOST, begin = (int64_t)(draw() % 1000) - 500;
      check_coverage(&coverage, begin, begin + count, (int64_t)(draw() % 300) - 5);
    }
    check_coverage(&coverage, 0, MOST, 1);
    check_coverage(&coverage, INT64_MAX - 100, INT64_MAX, 7);
    check_coverage(&coverage, INT64_MIN, INT64_MIN + 100, 7);
    check_coverage(&coverage, 5, 5, 1);
    check_coverage(&coverage, 0, 10, INT64_MAX);
  }
  dit_parallel_for(9, 3, 1, visit, NULL);  // nothing to do: the body is not called
}

static void add_range(void *context, int64_t begin, int64_t end) {
  atomic_fetch_add((_Atomic uint64_t *)context, (uint64_t)end - (uint64_t)begin);
}

/// The widest range there is: differences do not fit into int64.
static void test_widest(void) {
  _Atomic uint64_t total = 0;
  dit_parallel_set_threads(4);
  dit_parallel_for(INT64_MIN, INT64_MAX, INT64_MAX / 100, add_range, &total);
  CHECK(atomic_load(&total) == UINT64_MAX);
}

struct meeting {
  pthread_t caller;
  sem_t helper_came;
  atomic_bool met;
  bool mask_full;
  bool left;  ///< plain memory, written by the worker at its very end
};

static void meet(void *context, int64_t begin, int64_t end) {
  (void)begin;
  (void)end;
  struct meeting *meeting = context;
  if (!pthread_equal(pthread_self(), meeting->caller)) {
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    if (!atomic_exchange(&meeting->met, true)) {
      meeting->mask_full = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1;
      sem_post(&meeting->helper_came);
      usleep(500);  // longer than anybody spins: the caller must really wait
      meeting->left = true;
    }
  } else if (!atomic_load(&meeting->met)) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    while (sem_timedwait(&meeting->helper_came, &limit) != 0) {
      CHECK(errno == EINTR);  // no worker came to help
    }
  }
}

/// A caller that stays in its first chunk until a worker came: there is real parallelism, again and again.
static void test_workers_help(void) {
  dit_parallel_set_threads(3);
  for (int i = 0; i < 200; i++) {
    struct meeting meeting = {.caller = pthread_self()};
    CHECK(sem_init(&meeting.helper_came, 0, 0) == 0);
    dit_parallel_for(0, 64, 1, meet, &meeting);
    CHECK(atomic_load(&meeting.met) && meeting.mask_full && meeting.left);
    sem_destroy(&meeting.helper_came);
    if (i % 50 == 0) {
      usleep(2000);  // let the workers fall asleep once in a while
    }
  }
}

static void check_inline(void *context, int64_t begin, int64_t end) {
  pthread_t *outer = context;
  CHECK(pthread_equal(*outer, pthread_self()) && begin == 0 && end == 1000);
}

static void nest(void *context, int64_t begin, int64_t end) {
  pthread_t self = pthread_self();
  dit_parallel_for(0, 1000, 1, check_inline, &self);
  atomic_fetch_add((_Atomic uint64_t *)context, (uint64_t)(end - begin));
}

static void test_inline(void) {
  pthread_t self = pthread_self();
  dit_parallel_set_threads(4);
  dit_parallel_for(0, 1000, 1000, check_inline, &self);  // one grain
  _Atomic uint64_t total = 0;
  dit_parallel_for(0, 100, 1, nest, &total);  // nested
  CHECK(atomic_load(&total) == 100);
  dit_parallel_set_threads(1);
  dit_parallel_for(0, 1000, 1, check_inline, &self);  // one thread
}

struct elementwise {
  const double *in;
  double *out;  ///< plain memory: the loop must make it visible to the caller
};

static void square(void *context, int64_t begin, int64_t end) {
  struct elementwise *job = context;
  for (int64_t i = begin; i < end; i++) {
    job->out[i] = job->in[i] * job->in[i] + 1;
  }
}

static void *call_many(void *unused) {
  (void)unused;
  double in[2000], out[2000];
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < 2000; i++) {
      in[i] = i + round;
      out[i] = 0;
    }
    struct elementwise job = {in, out};
    dit_parallel_for(0, 2000, 10, square, &job);
    for (int i = 0; i < 2000; i++) {
      CHECK(out[i] == in[i] * in[i] + 1);
    }
    if (round % 20 == 0) {
      dit_parallel_set_threads(2 + round / 20 % 4);
    }
  }
  return NULL;
}

static void test_many_callers(void) {
  pthread_t threads[4];
  dit_parallel_set_threads(4);
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, call_many, NULL) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

/// ThreadSanitizer refuses to start threads in the child of a process that had several.
static void test_fork(void) {
#if defined(__SANITIZE_THREAD__)
  printf("skipped under ThreadSanitizer: it cannot start threads after a fork\n");
#else
  dit_parallel_set_threads(4);
  call_many(NULL);
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(100);
    test_workers_help();  // fails when the child believes in the parent's workers
    call_many(NULL);
    exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  call_many(NULL);
#endif
}

static void test_thread_counts(void) {
  struct dit_error err = {0};
  dit_parallel_set_threads(100000);
  CHECK(dit_parallel_get_threads() == 1024);
  CHECK_OK(dit_option_set("num_threads", "3", &err));
  CHECK(dit_parallel_get_threads() == 3);
  dit_options_reset();
  int automatic = dit_parallel_get_threads();
  CHECK(automatic >= 1);
  dit_parallel_set_threads(5);
  dit_parallel_set_threads(-1);
  CHECK(dit_parallel_get_threads() == automatic);
  CHECK(dit_cpu_count_choose(NULL, 6) == 6 && dit_cpu_count_choose("", 6) == 6);
  CHECK(dit_cpu_count_choose("4", 6) == 4 && dit_cpu_count_choose("12", 6) == 12);
  CHECK(dit_cpu_count_choose("4,2", 6) == 4 && dit_cpu_count_choose("0", 6) == 6);
  CHECK(dit_cpu_count_choose("-3", 6) == 6 && dit_cpu_count_choose("x", 6) == 6);
  CHECK(dit_cpu_count_choose("4x", 6) == 6 && dit_cpu_count_choose("99999999999999999999", 6) == 6);
}

static void put_file(const char *folder, const char *name, const char *text) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void remove_file(const char *folder, const char *name) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  CHECK(remove(path) == 0);
}

static void test_quota(void) {
  char root[] = "/tmp/dit_quota_XXXXXX", group[64], inner[64], list[64];
  CHECK(mkdtemp(root));
  snprintf(group, sizeof(group), "%s/a", root);
  snprintf(inner, sizeof(inner), "%s/a/b", root);
  snprintf(list, sizeof(list), "%s/cgroup", root);
  CHECK(mkdir(group, 0700) == 0 && mkdir(inner, 0700) == 0);
  put_file(root, "cgroup", "0::/a/b\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 0);
  put_file(inner, "cpu.max", "max 100000\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 0);
  put_file(inner, "cpu.max", "350000 100000\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 4);
  put_file(group, "cpu.max", "150000 100000\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 2);  // a parent's limit counts
  put_file(group, "cpu.max", "nonsense\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 4);
  put_file(root, "cgroup", "0::/not/here\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 0);
  put_file(root, "cpu.max", "50000 100000\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 1);  // a container sees its own group as the root
  CHECK(dit_cpu_count_get_quota("/nonexistent/file", root) == 0);
  CHECK(dit_cpu_count_get() >= 1);
  remove_file(inner, "cpu.max");
  remove_file(group, "cpu.max");
  remove_file(root, "cpu.max");
  remove_file(root, "cgroup");
  CHECK(rmdir(inner) == 0 && rmdir(group) == 0 && rmdir(root) == 0);
}

/// Version 1: one mount per set of controllers.
static void test_quota_old(void) {
  char root[] = "/tmp/dit_quota_XXXXXX", mount[64], group[128], list[64];
  CHECK(mkdtemp(root));
  snprintf(mount, sizeof(mount), "%s/cpu,cpuacct", root);
  snprintf(group, sizeof(group), "%s/job", mount);
  snprintf(list, sizeof(list), "%s/cgroup", root);
  CHECK(mkdir(mount, 0700) == 0 && mkdir(group, 0700) == 0);
  put_file(root, "cgroup", "5:cpuset:/job\n4:cpu,cpuacct:/job\nbroken line\n");
  put_file(group, "cpu.cfs_quota_us", "-1\n");
  put_file(group, "cpu.cfs_period_us", "100000\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 0);
  put_file(group, "cpu.cfs_quota_us", "200001\n");
  CHECK(dit_cpu_count_get_quota(list, root) == 3);
  remove_file(group, "cpu.cfs_quota_us");
  remove_file(group, "cpu.cfs_period_us");
  remove_file(root, "cgroup");
  CHECK(rmdir(group) == 0 && rmdir(mount) == 0 && rmdir(root) == 0);
}

int main(void) {
  RUN(test_coverage);
  RUN(test_widest);
  RUN(test_workers_help);
  RUN(test_inline);
  RUN(test_many_callers);
  RUN(test_fork);
  RUN(test_thread_counts);
  RUN(test_quota);
  RUN(test_quota_old);
  return 0;
}
