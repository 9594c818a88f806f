/// The smallest test harness that does the job: CHECK stops the program with file and line; RUN prints progress.
#ifndef DIT_TESTS_CHECK_H
#define DIT_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/// For calls that return enum dit_status and take &err.
#define CHECK_OK(call)                                                                                      \
  do {                                                                                                      \
    enum dit_status check_status_ = (call);                                                                 \
    if (check_status_ != DIT_OK) {                                                                          \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, dit_status_get_name(check_status_), \
              err.message);                                                                                 \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define CHECK_CONTAINS(text, part)                                                                    \
  do {                                                                                                \
    if (!strstr((text), (part))) {                                                                    \
      fprintf(stderr, "%s:%d: \"%s\" does not contain \"%s\"\n", __FILE__, __LINE__, (text), (part)); \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)

/// 1 under AddressSanitizer or ThreadSanitizer. Their allocators are not safe across a fork of a process with threads:
/// the child may wait for ever.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHECK_SANITIZED 1
#endif
#endif
#ifndef CHECK_SANITIZED
#define CHECK_SANITIZED 0
#endif

/// Processor time is scarce on a busy machine: loops that only repeat end when they have had their share of wall time,
/// so that such a machine is slow and not red.
static inline double check_get_seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define RUN(function)               \
  do {                              \
    function();                     \
    printf("ok   %s\n", #function); \
    fflush(stdout);                 \
  } while (0)

#endif
