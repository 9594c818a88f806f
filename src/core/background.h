/// A thread that writes behind the program: its lock and conditions, what a fork does to it, and what the end of the
/// process waits for. Record writers and capture stores have one as their first member. Internal to libdit.
#ifndef DIT_CORE_BACKGROUND_H
#define DIT_CORE_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "dit/error.h"

struct dit_background;

struct dit_background_class {
  const char *owner;   ///< "record writer", for messages
  const char *things;  ///< "records", likewise
  /// The body of the thread: works until `closing` and nothing is left. Called with the mutex held, and returns so.
  void (*run)(struct dit_background *background);
  /// In a forked child, with the mutex held: what belongs to the parent is let go.
  void (*fork)(struct dit_background *background);
  /// Frees the object around it, after the thread ended.
  void (*free)(struct dit_background *background);
};

/// Every member belongs to `mutex`. `accepted` and `finished` are counted by the owner; whoever waits for `finished`
/// waits at `done`.
struct dit_background {
  const struct dit_background_class *class;
  struct dit_background *next;
  pthread_mutex_t mutex;
  pthread_cond_t work;   ///< to the thread
  pthread_cond_t space;  ///< to producers that wait
  pthread_cond_t done;   ///< to those who flush and close
  pthread_t thread;
  uint64_t accepted, finished;
  uint64_t exit_target;  ///< accepted when the process began to end
  int exit_pass;
  bool idle, hurry, exiting, closing, ended, abandoned, forked;
};

/// CLOCK_MONOTONIC in `ms` from now, the clock of all conditions here.
struct timespec dit_background_get_deadline(int ms);

void dit_background_init(struct dit_background *background, const struct dit_background_class *class);
/// Destroys what init made; for objects whose thread never started, and for `free`.
void dit_background_reset(struct dit_background *background);
/// DIT_ERR_NOMEM when there is no thread to be had.
DIT_NODISCARD enum dit_status dit_background_start(struct dit_background *background, struct dit_error *err);

/// Wakes the thread for work that should not wait for company. The mutex is held.
void dit_background_hurry(struct dit_background *background);
/// Asks the thread to end and waits for it, at most `timeout_ms`. Returns with the mutex held, so that the owner can
/// see what was left undone; `forked` and `abandoned` say why.
void dit_background_close(struct dit_background *background, int timeout_ms);
/// Gives the mutex up and the object back: now, or when the thread returns from the system call that it hangs in.
void dit_background_release(struct dit_background *background);

#endif
