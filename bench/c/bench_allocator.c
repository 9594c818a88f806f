/// Nanoseconds for a pair of allocation and free of a cached block: the device allocator under each algorithm, without
/// and with observers of memory (checker with guard zones, metrics), against aligned_alloc/free of the C library.
///
/// Rounds of all are interleaved in one run; printed are the median and the range from the 10th to the 90th percentile
/// over the rounds, and the ratio of the median to the C library's. Two forms: "pair" frees at once; "window" keeps 64
/// blocks alive and frees the oldest, which is nearer to a training step. Usage: bench_allocator [rounds [vendor]]
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/memory.h"
#include "dit/memory_check.h"
#include "dit/metrics.h"
#include "dit/runtime.h"

#define MAX_ROUNDS 1001
#define WINDOW 64

struct subject {
  const char *name;
  void *(*take)(size_t size);
  void (*give)(void *ptr);
  const char *configuration;  ///< of the device allocator; NULL: none
  bool check, metrics;
};

static void *device_take(size_t size) {
  void *ptr = NULL;
  if (dit_memory_alloc(0, 0, size, &ptr, NULL) != DIT_OK) {
    fprintf(stderr, "out of device memory\n");
    exit(1);
  }
  return ptr;
}

static void *libc_take(size_t size) {
  return aligned_alloc(512, (size + 511) / 512 * 512);
}

static const struct subject subjects[] = {
    {"libc", libc_take, free, NULL, false, false},
    {"torch", device_take, dit_memory_free, "backend:native", false, false},
    {"bf", device_take, dit_memory_free, "backend:bf", false, false},
    {"bs", device_take, dit_memory_free, "backend:bs", false, false},
    {"raw", device_take, dit_memory_free, "backend:raw", false, false},
    {"metrics", device_take, dit_memory_free, "backend:native", false, true},
    {"check", device_take, dit_memory_free, "backend:native", true, false},
};
enum { SUBJECTS = sizeof(subjects) / sizeof(subjects[0]) };

/// What the subject needs of the device allocator.
static void prepare(const struct subject *subject) {
  struct dit_error err = {0};
  struct dit_memory_check_options options = {.guard = 512};
  enum dit_status status = subject->configuration ? dit_memory_configure(subject->configuration, &err) : DIT_OK;
  dit_metrics_enable(subject->metrics);
  dit_memory_check_stop();
  if (status == DIT_OK && subject->check) {
    status = dit_memory_check_start(&options, &err);
  }
  if (status != DIT_OK) {
    fprintf(stderr, "%s\n", err.message);
    exit(1);
  }
}

struct job {
  const struct subject *subject;
  size_t size;
  int window, pairs;
  pthread_barrier_t *barrier;
  double nanoseconds;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void *run_job(void *argument) {
  struct job *job = argument;
  void *blocks[WINDOW];
  for (int i = 0; i < job->window; i++) {
    blocks[i] = job->subject->take(job->size);
  }
  pthread_barrier_wait(job->barrier);
  double start = now();
  for (int i = 0; i < job->pairs; i++) {
    if (job->window) {
      job->subject->give(blocks[i % job->window]);
      blocks[i % job->window] = job->subject->take(job->size);
    } else {
      void *block = job->subject->take(job->size);
      __asm__ volatile("" : : "r"(block) : "memory");  // keep the pair
      job->subject->give(block);
    }
  }
  job->nanoseconds = (now() - start) / job->pairs;
  for (int i = 0; i < job->window; i++) {
    job->subject->give(blocks[i]);
  }
  return NULL;
}

/// Mean over the threads of one round.
static double run_round(const struct subject *subject, size_t size, int window, int threads, int pairs) {
  pthread_barrier_t barrier;
  pthread_t handles[8];
  struct job jobs[8];
  double sum = 0;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    jobs[i] = (struct job){subject, size, window, pairs, &barrier, 0};
    if (i > 0 && pthread_create(&handles[i], NULL, run_job, &jobs[i]) != 0) {
      fprintf(stderr, "cannot start thread %d\n", i);
      exit(1);
    }
  }
  run_job(&jobs[0]);
  for (int i = 0; i < threads; i++) {
    if (i > 0) {
      pthread_join(handles[i], NULL);
    }
    sum += jobs[i].nanoseconds;
  }
  pthread_barrier_destroy(&barrier);
  return sum / threads;
}

static int compare_doubles(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void run_case(const char *label, size_t size, int window, int threads, int rounds) {
  static double times[SUBJECTS][MAX_ROUNDS];
  int pairs = size > (1u << 20) ? 500 : 5000;
  if (threads > 1) {
    pairs *= 20;  // longer than a time slice, or the threads would run one after the other on a busy machine
    rounds = (rounds + 2) / 3;
  }
  for (int round = -1; round < rounds; round++) {  // round -1 warms up
    for (int s = 0; s < SUBJECTS; s++) {
      prepare(&subjects[s]);
      times[s][round < 0 ? 0 : round] = run_round(&subjects[s], size, window, threads, pairs);
    }
  }
  for (int s = 0; s < SUBJECTS; s++) {
    qsort(times[s], (size_t)rounds, sizeof(double), compare_doubles);
    printf("%-7s %-7s %d        %-8s %9.1f [%8.1f .. %9.1f]  %8.2f\n", label, window ? "window" : "pair", threads,
           subjects[s].name, times[s][rounds / 2], times[s][rounds / 10], times[s][rounds * 9 / 10],
           times[s][rounds / 2] / times[0][rounds / 2]);
  }
  fflush(stdout);
}

int main(int argc, char **argv) {
  static const struct {
    const char *label;
    size_t size;
  } sizes[] = {{"64 B", 64}, {"4 KiB", 4096}, {"1 MiB", 1 << 20}, {"64 MiB", 64 << 20}};
  struct dit_error err = {0};
  int rounds = argc > 1 ? atoi(argv[1]) : 51;
  if (rounds < 1 || rounds > MAX_ROUNDS) {
    fprintf(stderr, "rounds is %d; valid: 1 to %d\n", rounds, MAX_ROUNDS);
    return 2;
  }
  if (dit_runtime_init(argc > 2 ? argv[2] : "host", &err) != DIT_OK) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  printf("ns per allocation and free, median [10 %% .. 90 %%] of %d rounds (a third of that with threads)\n", rounds);
  printf("size    form    threads  subject     median                             ratio to libc\n");
  for (int threads = 1; threads <= 2; threads++) {
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
      for (int window = 0; window <= (sizes[i].size <= (1 << 20) ? WINDOW : 0); window += WINDOW) {
        run_case(sizes[i].label, sizes[i].size, window, threads, rounds);
      }
    }
  }
  dit_runtime_shutdown();
  return 0;
}
