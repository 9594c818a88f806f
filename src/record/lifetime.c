/// The writers of the process: what a fork and the end of the process do to them.
///
/// Invariant: a writer is in the registry from before its thread starts until just before it is freed; the registry's
/// mutex comes before a writer's, and nobody waits for anything else while holding it. In a forked child every writer
/// that existed is closed. Depends on writer, intern and core's log.
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dit/log.h"
#include "record/intern.h"
#include "record/writer.h"

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dit_record_writer *registry;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static atomic_uint fork_generation = 1;
static atomic_int owner;  ///< process that made the newest writer: a child that pthread_atfork missed is another one

void dit_record_lifetime_get_token(char *token) {
  static uint64_t value;
  static int process;
  pthread_mutex_lock(&registry_mutex);
  if (process != (int)getpid()) {
    process = (int)getpid();
    if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != (ssize_t)sizeof(value)) {
      value = (uint64_t)dit_record_get_time() << 22 ^ (uint64_t)process;
    }
  }
  snprintf(token, DIT_RECORD_TOKEN_SIZE, "%016llx", (unsigned long long)value);
  pthread_mutex_unlock(&registry_mutex);
}

unsigned dit_record_lifetime_get_generation(void) {
  return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

static void before_fork(void) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_record_writer *writer = registry; writer; writer = writer->next) {
    pthread_mutex_lock(&writer->mutex);
  }
  dit_intern_lock();
}

static void after_fork_parent(void) {
  dit_intern_unlock();
  for (struct dit_record_writer *writer = registry; writer; writer = writer->next) {
    pthread_mutex_unlock(&writer->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
}

static void after_fork_child(void) {
  atomic_fetch_add(&fork_generation, 1);
  for (struct dit_record_writer *writer = registry; writer; writer = writer->next) {
    writer->forked = true;
    int fd = atomic_exchange(&writer->file.fd, -1);
    if (fd >= 0) {
      close(fd);
    }
    dit_record_writer_init_conditions(writer);  // the waiters are gone
  }
  after_fork_parent();
}

static void install_fork_handlers(void) {
  (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void dit_record_lifetime_add(struct dit_record_writer *writer) {
  pthread_once(&fork_once, install_fork_handlers);
  pthread_mutex_lock(&registry_mutex);
  atomic_store(&owner, (int)getpid());
  writer->next = registry;
  registry = writer;
  pthread_mutex_unlock(&registry_mutex);
}

void dit_record_lifetime_remove(struct dit_record_writer *writer) {
  pthread_mutex_lock(&registry_mutex);
  for (struct dit_record_writer **link = &registry; *link; link = &(*link)->next) {
    if (*link == writer) {
      *link = writer->next;
      break;
    }
  }
  pthread_mutex_unlock(&registry_mutex);
}

/// Asks every thread (once) to write at once from now on. Records still queued of those that were there when it was
/// asked. A lock that is held counts as one: a signal handler that calls exit may have interrupted its holder.
static uint64_t count_queued(void) {
  uint64_t queued = 0;
  if (pthread_mutex_trylock(&registry_mutex) != 0) {
    return 1;
  }
  for (struct dit_record_writer *writer = registry; writer; writer = writer->next) {
    if (pthread_mutex_trylock(&writer->mutex) != 0) {
      queued++;
      continue;
    }
    uint64_t done = writer->counts.written + writer->counts.lost;
    if (!writer->exiting && !writer->forked) {
      writer->exiting = true;
      writer->exit_target = writer->counts.accepted;
      pthread_cond_signal(&writer->work);
    }
    if (!writer->forked && !writer->abandoned && !writer->ended && done < writer->exit_target) {
      queued += writer->exit_target - done;
    }
    pthread_mutex_unlock(&writer->mutex);
  }
  pthread_mutex_unlock(&registry_mutex);
  return queued;
}

/// The process returns from main or calls exit: what is queued goes to the kernel, for at most DIT_RECORD_EXIT_MS.
/// Looks instead of waiting on a condition, so that another thread may destroy a writer meanwhile. Runs after all
/// handlers of atexit, whose records are therefore kept too; never in a child that has this memory but not its threads.
__attribute__((destructor)) static void write_at_exit(void) {
  if (atomic_load(&owner) != (int)getpid()) {
    return;
  }
  int64_t deadline = dit_record_get_time() + DIT_RECORD_EXIT_MS * INT64_C(1000000);
  struct timespec pause = {0, 20000};
  uint64_t queued = count_queued();
  while (queued > 0 && dit_record_get_time() < deadline) {
    nanosleep(&pause, NULL);
    pause.tv_nsec = pause.tv_nsec < 1000000 ? pause.tv_nsec * 2 : pause.tv_nsec;
    queued = count_queued();
  }
  if (queued > 0) {
    dit_log_write(DIT_LOG_ERROR, "%llu records were still unwritten %d ms after the program ended, and are lost",
                  (unsigned long long)queued, DIT_RECORD_EXIT_MS);
  }
}
