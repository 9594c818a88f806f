/// Threads of ditorch's own: signals of the process pass them by, their own faults do not.
#include <signal.h>

#include "check.h"
#include "dit/thread.h"

static void *read_mask(void *context) {
  pthread_sigmask(SIG_SETMASK, NULL, context);
  return NULL;
}

static void test_signals(void) {
  sigset_t before, mask, after;
  pthread_t thread;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
  CHECK(dit_thread_create(&thread, read_mask, &mask) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
  static const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF, SIGXFSZ};
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
    CHECK(sigismember(&mask, sent[i]) == 1);
    CHECK(sigismember(&after, sent[i]) == sigismember(&before, sent[i]));
  }
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    CHECK(sigismember(&mask, own[i]) == 0);
  }
}

int main(void) {
  RUN(test_signals);
  return 0;
}
