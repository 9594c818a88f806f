/// The text of the memory checker: where lines go, backtraces, names of frames.
///
/// Invariant: the writer runs under one lock, never concurrently with itself; a line that is written from inside it is
/// dropped. Frames are addresses until somebody reads the report: taking a backtrace costs no symbol search. Depends on
/// glibc's backtrace and dladdr.
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/memory_watch.h"

#define LINE_SIZE 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*writer)(void *context, const char *line);
static void *writer_context;
static _Thread_local bool inside;
static _Atomic(bool (*)(char *, size_t)) locator;

void dit_memory_check_set_writer(void (*write)(void *context, const char *line), void *context) {
  pthread_mutex_lock(&lock);
  writer = write;
  writer_context = context;
  pthread_mutex_unlock(&lock);
}

void dit_memory_check_set_locator(bool (*locate)(char *text, size_t size)) {
  atomic_store(&locator, locate);
}

static void reset_lock(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void watch_forks(void) {
  (void)pthread_atfork(NULL, NULL, reset_lock);
}

void dit_check_write(const char *format, ...) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  char line[LINE_SIZE];
  va_list args;
  pthread_once(&once, watch_forks);
  va_start(args, format);
  vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  if (inside) {
    return;
  }
  pthread_mutex_lock(&lock);
  inside = true;
  if (writer) {
    writer(writer_context, line);
  } else {
    fprintf(stderr, "%s\n", line);
  }
  inside = false;
  pthread_mutex_unlock(&lock);
}

int dit_check_get_trace(void **frames, int most, char *place) {
  enum { OWN_FRAMES = 2 };  // this function and the observer that calls it
  void *found[DIT_CHECK_DEPTH + OWN_FRAMES];
  bool (*locate)(char *, size_t) = atomic_load(&locator);
  place[0] = '\0';
  if (locate && !locate(place, DIT_CHECK_PLACE_SIZE)) {
    place[0] = '\0';
  }
  int depth = backtrace(
      found, most + OWN_FRAMES < DIT_CHECK_DEPTH + OWN_FRAMES ? most + OWN_FRAMES : DIT_CHECK_DEPTH + OWN_FRAMES);
  depth = depth > OWN_FRAMES ? depth - OWN_FRAMES : 0;
  memcpy(frames, found + OWN_FRAMES, (size_t)depth * sizeof(void *));
  return depth;
}

void dit_memory_check_describe_frame(const void *frame, char *text, size_t size) {
  Dl_info info;
  if (dladdr(frame, &info) == 0 || !info.dli_fname) {
    snprintf(text, size, "%p", frame);
    return;
  }
  const char *slash = strrchr(info.dli_fname, '/');
  const char *file = slash ? slash + 1 : info.dli_fname;
  if (info.dli_sname) {
    snprintf(text, size, "%s(%s+0x%zx)", file, info.dli_sname,
             (size_t)((const char *)frame - (const char *)info.dli_saddr));
  } else {
    snprintf(text, size, "%s+0x%zx", file, (size_t)((const char *)frame - (const char *)info.dli_fbase));
  }
}

void dit_check_write_trace(const char *place, void *const *frames, int depth) {
  if (place && *place) {
    dit_check_write("    at %s", place);
  }
  for (int i = 0; i < depth; i++) {
    char text[512];
    dit_memory_check_describe_frame(frames[i], text, sizeof(text));
    dit_check_write("    #%d %s", i, text);
  }
}
