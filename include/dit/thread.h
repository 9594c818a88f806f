/// Threads that ditorch starts in the program's process.
#ifndef DIT_THREAD_H
#define DIT_THREAD_H

#include <pthread.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// pthread_create for a thread that the program does not know. Signals that are sent to the process are for the
/// program's own threads: this one blocks them. What it causes itself is its own: a fault (SIGSEGV, SIGBUS, SIGFPE,
/// SIGILL ...) reaches its handler, without which the system would end the process although somebody can mend it (a
/// block that is being shared, memory that is watched). 0 or an errno.
DIT_API int dit_thread_create(pthread_t *thread, void *(*run)(void *), void *context);

DIT_EXTERN_C_END

#endif
