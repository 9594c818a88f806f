/// See dit/thread.h.
#include "dit/thread.h"

#include <signal.h>

int dit_thread_create(pthread_t *thread, void *(*run)(void *), void *context) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    sigdelset(&blocked, own[i]);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int code = pthread_create(thread, NULL, run, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return code;
}
