/// Checks of ends: reset, finalize and a second start, the profiler, a process that ends with work pending.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"

/// Allocate, copy, run something: does the device work?
static bool use_device(struct bench *b, int device) {
  static struct slow slow;
  unsigned char bytes[300];
  void *memory = NULL, *stream = NULL, *event = NULL;
  CALL(b, memory_alloc, device, sizeof bytes, &memory);
  CALL(b, stream_create, device, 0, &stream);
  CALL(b, event_create, device, 0, &event);
  bench_fill(bytes, sizeof bytes, 8);
  TRY(bench_put(b, device, memory, bytes, sizeof bytes));
  atomic_store(&slow.done, 0);
  CALL(b, stream_launch_host, device, stream, slow_run, &slow);
  CALL(b, event_record, device, event, stream);
  CALL(b, stream_synchronize, device, stream);
  memset(bytes, 0, sizeof bytes);
  TRY(bench_get(b, device, bytes, memory, sizeof bytes));
  WANT(b, atomic_load(&slow.done) == 1 && bench_compare(bytes, sizeof bytes, 8) == sizeof bytes, "a device that works",
       "what is left from before", "device %d does not do what it did before", device);
  b->v.event_destroy(device, event);
  CALL(b, stream_destroy, device, stream);
  CALL(b, memory_free, device, memory);
  return true;
}

static bool check_reset(struct bench *b) {
  TRY(use_device(b, 0));
  CALL(b, reset, 0);
  b->blame = "reset";
  TRY(use_device(b, 0));
  b->blame = NULL;
  return true;
}

static bool check_profiler(struct bench *b) {
  char path[] = "/tmp/dit_doctor_XXXXXX";
  const int file = mkstemp(path);
  WANT(b, file >= 0, "a file in /tmp", "the rights of /tmp", "no file");
  close(file);
  struct dit_error err = bench_make_error();
  CALL(b, profiler_start, path, 0);
  const bool right = use_device(b, 0);
  const enum dit_status status = b->v.profiler_stop(&err);
  unlink(path);
  return right && bench_is_ok(b, "profiler_stop", status, &err);
}

static bool check_finalize(struct bench *b) {
  int count = -1;
  TRY(bench_start(b));
  for (int round = 0; round < 2; round++) {
    for (int device = 0; device < b->count; device++) {
      TRY(use_device(b, device));
    }
    b->blame = "finalize";
    b->v.finalize();
    struct dit_error err = bench_make_error();
    const enum dit_status status = b->v.init(&err);
    WANT(b, status == DIT_OK, "init may come again after finalize", "what finalize leaves half torn down",
         "init after finalize returned %s: %.300s", dit_status_get_name(status), err.message);
    CALL(b, count, &count);
    WANT(b, count == b->count, "the same number of devices", "what finalize forgets",
         "%d devices before finalize, %d after init", b->count, count);
  }
  b->v.finalize();
  b->blame = NULL;
  return true;
}

static void stand_still(void *argument) {
  (void)argument;
  bench_sleep(600);
}

/// exit() with a stream at work: programs end like this when they are interrupted.
static bool check_exit(struct bench *b) {
  const pid_t child = fork();
  WANT(b, child >= 0, "a process", "ulimit -u", "no process");
  if (child == 0) {
    bool queued = false;
    void *stream = NULL;
    struct dit_error err;
    close(b->progress);
    if (bench_load(b) && bench_start(b) && b->count > 0 && bench_is_queued(b, &queued) && queued &&
        b->v.stream_create(0, 0, &stream, &err) == DIT_OK) {
      (void)b->v.stream_launch_host(0, stream, stand_still, NULL, &err);
    }
    exit(0);
  }
  int status = 0;
  const double limit = b->timeout / 2, end = bench_get_seconds() + limit;
  pid_t ended = 0;
  while (ended == 0 && bench_get_seconds() < end) {
    ended = waitpid(child, &status, WNOHANG);
    bench_sleep(2e-3);
  }
  WANT(b, ended == child, "a process may end while a stream is at work", "destructors and atexit handlers that wait",
       "exit() did not return within %.0f s, because a host function on a stream had not ended", limit);
  WANT(b, WIFEXITED(status) && WEXITSTATUS(status) == 0, "exit status 0", "destructors and atexit handlers",
       "a process that called exit(0) while a stream was at work ended with %s %d",
       WIFSIGNALED(status) ? "signal" : "exit status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return true;
}

#define BASE                                                                                                       \
  "memory_alloc memory_free copy stream_create stream_launch_host stream_synchronize stream_destroy event_create " \
  "event_record"

static const struct check checks[] = {
    {"profiler_start", "start, work, stop", "profiler_stop " BASE, check_profiler, 0},
    {"reset", "the device works afterwards", BASE, check_reset, 0},
    {"finalize", "init may come again", BASE, check_finalize, CHECK_NOT_STARTED},
    {"library", "a process may end with work pending",
     "stream_create stream_launch_host stream_synchronize stream_destroy", check_exit,
     CHECK_NOT_LOADED | CHECK_NOT_STARTED},
};
const struct check_group end_group = {checks, sizeof checks / sizeof checks[0]};
