/// The process-wide thread pool behind dit_parallel_for.
///
/// One loop has the workers at a time (`busy`); others run inline. The loop's job lives on its caller's stack. A worker
/// joins it only under `mutex` while `job` is set and counts itself in `active`; the caller clears `job` when all
/// chunks are taken and waits until `active` is 0, so no worker touches a job after its caller returned, and a worker
/// that wakes up late costs nobody any time. Chunks are handed out by an atomic counter and are multiples of the grain.
///
/// Invariant: no lock is held while a body runs. Workers start at the first loop that can use them and end only with
/// the library. A forked child starts without workers. Depends on cpu_count.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "core/cpu_count.h"
#include "dit/parallel.h"
#include "dit/thread.h"

enum { MOST_THREADS = 1024, SPIN_NANOSECONDS = 20000, CHUNKS_PER_THREAD = 4 };

struct job {
  void (*body)(void *context, int64_t begin, int64_t end);
  void *context;
  uint64_t begin;  ///< as unsigned: differences of any two int64 fit
  uint64_t count;
  uint64_t chunk;  ///< indices per chunk, a multiple of the grain
  uint64_t chunks;
  _Atomic uint64_t next;  ///< the next chunk nobody has taken
};

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t wake;  ///< workers: there is a job
  pthread_cond_t done;  ///< the caller: `active` became 0
  struct job *job;      ///< guarded by mutex
  int tickets;          ///< guarded by mutex: workers that may still join the job
  int sleeping;         ///< guarded by mutex
  bool stop;            ///< guarded by mutex
  atomic_uint epoch;    ///< changes with every job; written under mutex, spun on without
  atomic_uint active;   ///< workers inside the job; written under mutex, spun on without
  atomic_bool busy;     ///< a loop has the workers: nested loops and other callers run inline
  int started;          ///< guarded by busy
  pthread_t workers[MOST_THREADS];
} pool = {
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static atomic_int chosen_threads;   ///< 0: not set, use the default
static atomic_int default_threads;  ///< 0: not known yet
static atomic_bool may_spin;        ///< two CPUs or more

int dit_parallel_get_threads(void) {
  int threads = atomic_load_explicit(&chosen_threads, memory_order_relaxed);
  if (threads > 0) {
    return threads;
  }
  threads = atomic_load_explicit(&default_threads, memory_order_relaxed);
  if (threads == 0) {
    threads = dit_cpu_count_choose(getenv("OMP_NUM_THREADS"), dit_cpu_count_get());
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    atomic_store_explicit(&default_threads, threads, memory_order_relaxed);
  }
  return threads;
}

void dit_parallel_set_threads(int threads) {
  threads = threads < MOST_THREADS ? threads : MOST_THREADS;
  atomic_store_explicit(&chosen_threads, threads > 0 ? threads : 0, memory_order_relaxed);
}

static void relax_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

static int64_t get_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/// Spin until `*word` is `value` (`equal`) or is something else, for SPIN_NANOSECONDS at most.
static void spin(const atomic_uint *word, unsigned value, bool equal) {
  if (!atomic_load_explicit(&may_spin, memory_order_relaxed)) {
    return;
  }
  int64_t deadline = get_nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 64; i++) {
      if ((atomic_load_explicit(word, memory_order_relaxed) == value) == equal) {
        return;
      }
      relax_cpu();
    }
  } while (get_nanoseconds() < deadline);
}

static void run_chunks(struct job *job) {
  for (;;) {
    uint64_t index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (index >= job->chunks) {
      break;
    }
    uint64_t first = index * job->chunk;
    uint64_t last = index + 1 == job->chunks ? job->count : first + job->chunk;
    job->body(job->context, (int64_t)(job->begin + first), (int64_t)(job->begin + last));
  }
}

/// Waits for an epoch other than `seen` and returns it; the mutex is held on return.
static unsigned wait_for_epoch(unsigned seen) {
  spin(&pool.epoch, seen, false);
  pthread_mutex_lock(&pool.mutex);
  while (atomic_load_explicit(&pool.epoch, memory_order_relaxed) == seen && !pool.stop) {
    pool.sleeping++;
    pthread_cond_wait(&pool.wake, &pool.mutex);
    pool.sleeping--;
  }
  return atomic_load_explicit(&pool.epoch, memory_order_relaxed);
}

/// A worker's life. `argument` is the epoch before the job it was started for.
static void *run_worker(void *argument) {
  unsigned seen = (unsigned)(uintptr_t)argument;
  for (;;) {
    seen = wait_for_epoch(seen);
    if (pool.stop) {
      pthread_mutex_unlock(&pool.mutex);
      return NULL;
    }
    struct job *job = pool.tickets > 0 ? pool.job : NULL;
    if (job) {
      pool.tickets--;
      atomic_fetch_add_explicit(&pool.active, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&pool.mutex);
    if (!job) {
      continue;
    }
    run_chunks(job);
    pthread_mutex_lock(&pool.mutex);
    if (atomic_fetch_sub_explicit(&pool.active, 1, memory_order_release) == 1) {
      pthread_cond_signal(&pool.done);
    }
    pthread_mutex_unlock(&pool.mutex);
  }
}

/// In a forked child only the calling thread exists: forget the workers and whatever they held.
static void reset_after_fork(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  pool.mutex = mutex;
  pool.wake = cond;
  pool.done = cond;
  pool.job = NULL;
  pool.tickets = 0;
  pool.sleeping = 0;
  pool.started = 0;
  atomic_store(&pool.active, 0);
  atomic_store(&pool.busy, false);
}

static void prepare_pool(void) {
  (void)pthread_atfork(NULL, NULL, reset_after_fork);
  atomic_store(&may_spin, dit_cpu_count_get() >= 2);
}

/// Start workers until there are `wanted`, as far as the system allows. The caller has `busy`.
static void start_workers(int wanted) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (pool.started >= wanted) {
    return;
  }
  pthread_once(&once, prepare_pool);
  void *seen = (void *)(uintptr_t)atomic_load_explicit(&pool.epoch, memory_order_relaxed);
  while (pool.started < wanted && dit_thread_create(&pool.workers[pool.started], run_worker, seen) == 0) {
    pthread_setname_np(pool.workers[pool.started], "dit-worker");
    pool.started++;
  }
}

/// Let up to `helpers` workers join.
static void publish_job(struct job *job, int helpers) {
  pthread_mutex_lock(&pool.mutex);
  pool.job = job;
  pool.tickets = helpers;
  atomic_fetch_add_explicit(&pool.epoch, 1, memory_order_relaxed);
  int sleeping = pool.sleeping;
  pthread_mutex_unlock(&pool.mutex);
  if (sleeping > helpers) {
    for (int i = 0; i < helpers; i++) {
      pthread_cond_signal(&pool.wake);
    }
  } else if (sleeping > 0) {
    pthread_cond_broadcast(&pool.wake);
  }
}

/// Close the job to newcomers and wait for those inside. What they wrote is visible afterwards: each left through the
/// mutex.
static void finish_job(void) {
  pthread_mutex_lock(&pool.mutex);
  pool.job = NULL;
  pool.tickets = 0;
  if (atomic_load_explicit(&pool.active, memory_order_acquire) > 0) {
    pthread_mutex_unlock(&pool.mutex);
    spin(&pool.active, 0, true);
    pthread_mutex_lock(&pool.mutex);
  }
  while (atomic_load_explicit(&pool.active, memory_order_acquire) > 0) {
    pthread_cond_wait(&pool.done, &pool.mutex);
  }
  pthread_mutex_unlock(&pool.mutex);
}

/// The loop when there is more than one block and more than one thread.
static void run_parallel(struct job *job, uint64_t grain, int threads) {
  uint64_t blocks = job->count / grain + (job->count % grain != 0);
  uint64_t per_chunk = blocks / ((uint64_t)threads * CHUNKS_PER_THREAD);
  if (per_chunk == 0) {
    per_chunk = 1;
  }
  job->chunk = per_chunk * grain;
  job->chunks = blocks / per_chunk + (blocks % per_chunk != 0);
  uint64_t helpers = (uint64_t)threads - 1 < job->chunks - 1 ? (uint64_t)threads - 1 : job->chunks - 1;
  start_workers((int)helpers);
  if ((uint64_t)pool.started < helpers) {
    helpers = (uint64_t)pool.started;
  }
  if (helpers > 0) {
    publish_job(job, (int)helpers);
  }
  run_chunks(job);
  if (helpers > 0) {
    finish_job();
  }
}

/// The plain load first: a nested loop, which always finds them taken, writes to no shared cache line.
static bool claim_workers(void) {
  return !atomic_load_explicit(&pool.busy, memory_order_relaxed) &&
         !atomic_exchange_explicit(&pool.busy, true, memory_order_acquire);
}

void dit_parallel_for(int64_t begin, int64_t end, int64_t grain,
                      void (*body)(void *context, int64_t begin, int64_t end), void *context) {
  if (begin >= end) {
    return;
  }
  uint64_t count = (uint64_t)end - (uint64_t)begin;
  uint64_t block = grain > 0 ? (uint64_t)grain : 1;
  int threads = 1;
  if (count <= block || (threads = dit_parallel_get_threads()) == 1 || !claim_workers()) {
    body(context, begin, end);
    return;
  }
  struct job job = {.body = body, .context = context, .begin = (uint64_t)begin, .count = count};
  run_parallel(&job, block, threads);
  atomic_store_explicit(&pool.busy, false, memory_order_release);
}

/// When the library goes away its workers must go first. A loop that still runs (another thread at process exit) keeps
/// them: they end with the process.
__attribute__((destructor)) static void stop_workers(void) {
  if (!claim_workers()) {
    return;
  }
  pthread_mutex_lock(&pool.mutex);
  pool.stop = true;
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.mutex);
  for (int i = 0; i < pool.started; i++) {
    pthread_join(pool.workers[i], NULL);
  }
  pool.started = 0;
}
