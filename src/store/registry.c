/// What happens to all stores of the process: a fork closes them in the child, the exit of the program flushes them.
///
/// Invariant: at a fork all mutexes are held, in the order registry, stores; no thread does input or output with one of
/// them held, so a fork never waits for the disk. Depends on queue and core's log.
#include <stdlib.h>
#include <unistd.h>

#include "dit/log.h"
#include "store/queue.h"

enum { EXIT_MS = 10000 };

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dit_store *registry;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_store *store = registry; store; store = store->next) {
    pthread_mutex_lock(&store->mutex);
  }
}

static void after_fork_parent(void) {
  for (struct dit_store *store = registry; store; store = store->next) {
    pthread_mutex_unlock(&store->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
}

static void after_fork_child(void) {
  for (struct dit_store *store = registry; store; store = store->next) {
    store->forked = true;
    store->waiting = 0;
    dit_pack_forget(&store->pack);
    dit_store_init_conditions(store);  // the waiters are gone
  }
  after_fork_parent();
}

/// A bounded wait for all stores together; the mutex keeps them from being destroyed meanwhile.
static void flush_at_exit(void) {
  pthread_mutex_lock(&registry_mutex);
  int64_t end = dit_record_get_time() + (int64_t)EXIT_MS * 1000000;
  for (struct dit_store *store = registry; store; store = store->next) {
    struct dit_error err = {0};
    int64_t left = (end - dit_record_get_time()) / 1000000;
    if (!store->forked && dit_store_flush(store, left > 0 ? (int)left : 0, &err) != DIT_OK) {
      dit_log_write(DIT_LOG_WARNING, "at exit: %s", err.message);
    }
  }
  pthread_mutex_unlock(&registry_mutex);
}

static void install_handlers(void) {
  (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  (void)atexit(flush_at_exit);
}

void dit_store_register(struct dit_store *store) {
  pthread_once(&once, install_handlers);
  pthread_mutex_lock(&registry_mutex);
  store->next = registry;
  registry = store;
  pthread_mutex_unlock(&registry_mutex);
}

void dit_store_unregister(struct dit_store *store) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_store **link = &registry; *link; link = &(*link)->next) {
    if (*link == store) {
      *link = store->next;
      break;
    }
  }
  pthread_mutex_unlock(&registry_mutex);
}
