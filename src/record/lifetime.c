/// The process that writes records: its random name, and whether it was forked since.
///
/// Invariant: no lock of record is left held in a forked child. Depends on intern.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "record/intern.h"
#include "record/writer.h"

static pthread_mutex_t token_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static atomic_uint fork_generation = 1;

static void before_fork(void) {
  pthread_mutex_lock(&token_mutex);
  dit_intern_lock();
}

static void after_fork_parent(void) {
  dit_intern_unlock();
  pthread_mutex_unlock(&token_mutex);
}

static void after_fork_child(void) {
  atomic_fetch_add(&fork_generation, 1);
  after_fork_parent();
}

static void install_fork_handlers(void) {
  (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void dit_record_lifetime_get_token(char *token) {
  static uint64_t value;
  static int process;
  pthread_once(&fork_once, install_fork_handlers);
  pthread_mutex_lock(&token_mutex);
  if (process != (int)getpid()) {
    process = (int)getpid();
    if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != (ssize_t)sizeof(value)) {
      value = (uint64_t)dit_record_get_time() << 22 ^ (uint64_t)process;
    }
  }
  snprintf(token, DIT_RECORD_TOKEN_SIZE, "%016llx", (unsigned long long)value);
  pthread_mutex_unlock(&token_mutex);
}

unsigned dit_record_lifetime_get_generation(void) {
  return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}
