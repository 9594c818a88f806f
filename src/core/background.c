/// The threads that write behind the program.
///
/// Invariant: an object is in the registry from before its thread starts until just before it is freed; the registry's
/// mutex comes before an object's, and nobody waits for anything else while holding one, so a fork never waits for a
/// disk. In a forked child every object that existed is closed. Depends on error and log.
#include "core/background.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dit/log.h"
#include "dit/thread.h"

enum { EXIT_MS = 10000 };  ///< longest delay of the end of the process

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dit_background *registry;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int process;  ///< that started the newest thread: a child that pthread_atfork missed is another one

struct timespec dit_background_get_deadline(int ms) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += ms / 1000;
  at.tv_nsec += (long)(ms % 1000) * 1000000;
  if (at.tv_nsec >= 1000000000) {
    at.tv_nsec -= 1000000000;
    at.tv_sec++;
  }
  return at;
}

static void init_conditions(struct dit_background *background) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&background->work, &attributes);
  pthread_cond_init(&background->space, &attributes);
  pthread_cond_init(&background->done, &attributes);
  pthread_condattr_destroy(&attributes);
}

void dit_background_init(struct dit_background *background, const struct dit_background_class *class) {
  background->class = class;
  pthread_mutex_init(&background->mutex, NULL);
  init_conditions(background);
}

void dit_background_reset(struct dit_background *background) {
  pthread_mutex_destroy(&background->mutex);
  pthread_cond_destroy(&background->work);
  pthread_cond_destroy(&background->space);
  pthread_cond_destroy(&background->done);
}

// Fork

static void before_fork(void) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_background *b = registry; b; b = b->next) {
    pthread_mutex_lock(&b->mutex);
  }
}

static void after_fork_parent(void) {
  for (struct dit_background *b = registry; b; b = b->next) {
    pthread_mutex_unlock(&b->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
}

static void after_fork_child(void) {
  for (struct dit_background *b = registry; b; b = b->next) {
    b->forked = true;
    init_conditions(b);  // the waiters are gone
    b->class->fork(b);
  }
  after_fork_parent();
}

// The end of the process

/// Asks every thread, once a pass, to write at once from now on, and counts what is still queued of what was there when
/// it was asked. A lock that is held counts as one: a signal handler that calls exit may have interrupted its holder.
static uint64_t count_unfinished(int pass, const char **things) {
  uint64_t left = 0;
  if (pthread_mutex_trylock(&registry_mutex) != 0) {
    return 1;
  }
  for (struct dit_background *b = registry; b; b = b->next) {
    if (pthread_mutex_trylock(&b->mutex) != 0) {
      left++;
      continue;
    }
    if (b->exit_pass != pass) {
      b->exit_pass = pass;
      b->exiting = true;
      b->exit_target = b->accepted;
      pthread_cond_signal(&b->work);
    }
    if (!b->forked && !b->abandoned && !b->ended && b->finished < b->exit_target) {
      left += b->exit_target - b->finished;
      *things = b->class->things;
    }
    pthread_mutex_unlock(&b->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
  return left;
}

static int64_t get_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/// What is queued goes to the kernel, for at most EXIT_MS in all passes. Looks instead of waiting on a condition, so
/// that another thread may close an object meanwhile. Never in a child that has this memory but not its threads.
static void finish_pass(int pass) {
  static int64_t deadline;
  if (atomic_load(&process) != (int)getpid()) {
    return;
  }
  const char *things = "pieces of work";
  struct timespec pause = {0, 20000};
  uint64_t left = count_unfinished(pass, &things);
  if (left > 0 && !deadline) {
    deadline = get_ms() + EXIT_MS;
  }
  while (left > 0 && get_ms() < deadline) {
    nanosleep(&pause, NULL);
    pause.tv_nsec = pause.tv_nsec < 1000000 ? pause.tv_nsec * 2 : pause.tv_nsec;
    left = count_unfinished(pass, &things);
  }
  if (left > 0) {
    dit_log_write(DIT_LOG_ERROR, "%llu %s were still unwritten %d ms after the program ended, and are lost",
                  (unsigned long long)left, things, EXIT_MS);
  }
}

/// While devices whose memory is being written still work.
static void finish_early(void) {
  finish_pass(1);
}

/// After all handlers of atexit, whose records are therefore kept too.
__attribute__((destructor)) static void finish_late(void) {
  finish_pass(2);
}

static void install_handlers(void) {
  (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  (void)atexit(finish_early);
}

// The thread

static void add(struct dit_background *background) {
  pthread_once(&once, install_handlers);
  pthread_mutex_lock(&registry_mutex);
  atomic_store(&process, (int)getpid());
  background->next = registry;
  registry = background;
  pthread_mutex_unlock(&registry_mutex);
}

static void take_out(struct dit_background *background) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_background **link = &registry; *link; link = &(*link)->next) {
    if (*link == background) {
      *link = background->next;
      break;
    }
  }
  pthread_mutex_unlock(&registry_mutex);
}

static void *run_thread(void *pointer) {
  struct dit_background *background = pointer;
  pthread_mutex_lock(&background->mutex);
  background->class->run(background);
  background->ended = true;
  bool abandoned = background->abandoned;
  pthread_cond_broadcast(&background->done);
  pthread_mutex_unlock(&background->mutex);
  if (abandoned) {
    take_out(background);
    background->class->free(background);
  }
  return NULL;
}

enum dit_status dit_background_start(struct dit_background *background, struct dit_error *err) {
  add(background);
  int failed = dit_thread_create(&background->thread, run_thread, background);
  if (failed) {
    take_out(background);
    return dit_error_set(err, DIT_ERR_NOMEM, "the thread of a %s cannot be started: %s", background->class->owner,
                         strerror(failed));
  }
  return DIT_OK;
}

void dit_background_hurry(struct dit_background *background) {
  background->hurry = true;
  pthread_cond_signal(&background->work);
}

void dit_background_close(struct dit_background *background, int timeout_ms) {
  struct timespec deadline = dit_background_get_deadline(timeout_ms);
  pthread_mutex_lock(&background->mutex);
  if (background->forked) {
    return;
  }
  background->closing = true;
  pthread_cond_signal(&background->work);
  pthread_cond_broadcast(&background->space);
  while (!background->ended && pthread_cond_timedwait(&background->done, &background->mutex, &deadline) == 0) {
  }
  background->abandoned = !background->ended;
}

void dit_background_release(struct dit_background *background) {
  bool forked = background->forked, ended = background->ended;
  pthread_t thread = background->thread;
  pthread_mutex_unlock(&background->mutex);
  if (!forked && !ended) {
    pthread_detach(thread);  // it frees the object when it is done
    return;
  }
  if (!forked) {
    pthread_join(thread, NULL);
  }
  take_out(background);  // only now: a fork or an exit in the meantime still knew of it
  background->class->free(background);
}
