/// Messages to the person at the terminal.
///
/// Invariant: the sink runs under one mutex, so never concurrently with itself; a message written from inside a sink
/// goes straight to stderr instead of waiting for itself. A forked child starts with the mutex free. Depends on alloc.
#include "dit/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/utf8.h"
#include "dit/alloc.h"

enum { LOG_BUFFER_SIZE = 1024, ONCE_SLOTS = 1024 };

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static atomic_int current_level = DIT_LOG_WARNING;
static pthread_mutex_t sink_mutex = PTHREAD_MUTEX_INITIALIZER;
static void (*current_sink)(void *context, enum dit_log_level level, const char *text);
static void *current_context;
static _Thread_local bool inside_sink;

/// Hashes of the keys already written; 0 is a free slot. Open addressing, never emptied.
static _Atomic uint64_t once_keys[ONCE_SLOTS];

static void reset_after_fork(void) {
  if (!inside_sink) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    sink_mutex = fresh;
  }
}

static void install_fork_handler(void) {
  (void)pthread_atfork(NULL, NULL, reset_after_fork);
}

void dit_log_set_level(enum dit_log_level level) {
  atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum dit_log_level dit_log_get_level(void) {
  return (enum dit_log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

void dit_log_set_sink(void (*sink)(void *context, enum dit_log_level level, const char *text), void *context) {
  if (inside_sink) {
    current_sink = sink;
    current_context = context;
    return;
  }
  pthread_mutex_lock(&sink_mutex);
  current_sink = sink;
  current_context = context;
  pthread_mutex_unlock(&sink_mutex);
}

static void write_stderr(enum dit_log_level level, const char *text) {
  fprintf(stderr, "ditorch: %s: %s\n", level_names[level], text);
}

static void deliver(enum dit_log_level level, const char *text) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (inside_sink) {
    write_stderr(level, text);
    return;
  }
  pthread_once(&once, install_fork_handler);
  pthread_mutex_lock(&sink_mutex);
  if (current_sink) {
    inside_sink = true;
    current_sink(current_context, level, text);
    inside_sink = false;
  } else {
    write_stderr(level, text);
  }
  pthread_mutex_unlock(&sink_mutex);
}

static bool is_wanted(enum dit_log_level level) {
  return level >= DIT_LOG_DEBUG && level < DIT_LOG_OFF && level >= dit_log_get_level();
}

/// A text that does not fit the stack buffer goes to the heap; when that fails it is cut.
static void write_arguments(enum dit_log_level level, const char *format, va_list args) {
  char buffer[LOG_BUFFER_SIZE];
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(buffer, sizeof(buffer), format, args);
  char *text = buffer;
  char *heap = NULL;
  if (length < 0) {
    buffer[0] = '\0';
  } else if ((size_t)length >= sizeof(buffer)) {
    heap = dit_malloc((size_t)length + 1);
    if (heap) {
      vsnprintf(heap, (size_t)length + 1, format, again);
      text = heap;
    } else {
      buffer[dit_utf8_cut(buffer, sizeof(buffer) - 1)] = '\0';
    }
  }
  va_end(again);
  deliver(level, text);
  dit_free(heap);
}

void dit_log_write(enum dit_log_level level, const char *format, ...) {
  if (!is_wanted(level)) {
    return;
  }
  va_list args;
  va_start(args, format);
  write_arguments(level, format, args);
  va_end(args);
}

/// True the first time a key is seen. By content, not by address: two libraries may hold the same literal. A full table
/// (more keys than the source has literals) counts every key as new.
static bool claim_key(const char *key) {
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (const unsigned char *p = (const unsigned char *)key; *p; p++) {
    hash = (hash ^ *p) * UINT64_C(0x100000001B3);
  }
  hash |= hash == 0;
  for (size_t probe = 0; probe < ONCE_SLOTS; probe++) {
    _Atomic uint64_t *slot = &once_keys[(hash + probe) % ONCE_SLOTS];
    uint64_t seen = 0;
    if (atomic_compare_exchange_strong(slot, &seen, hash)) {
      return true;
    }
    if (seen == hash) {
      return false;
    }
  }
  return true;
}

void dit_log_write_once(const char *key, enum dit_log_level level, const char *format, ...) {
  if (!is_wanted(level) || !claim_key(key)) {
    return;
  }
  va_list args;
  va_start(args, format);
  write_arguments(level, format, args);
  va_end(args);
}
