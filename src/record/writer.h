/// The inside of a writer, shared by writer.c (queue and thread) and lifetime.c (registry, fork, exit). Internal to
/// record.
#ifndef DIT_RECORD_WRITER_H
#define DIT_RECORD_WRITER_H

#include <pthread.h>

#include "record/file.h"

struct dit_record_buffer {
  unsigned char *data;
  size_t size;
  uint64_t records;
};

struct dit_record_writer {
  pthread_mutex_t mutex;
  pthread_cond_t work;   ///< to the thread
  pthread_cond_t space;  ///< to producers that wait: a buffer is free or the file fails
  pthread_cond_t done;   ///< to flush and destroy
  struct dit_record_writer *next;
  struct dit_record_buffer buffers[2];
  int active;
  size_t half;  ///< capacity of one buffer
  enum dit_record_pressure pressure;
  enum dit_record_sync sync;
  int block_ms, linger_ms, retry_ms;
  struct dit_record_counts counts;
  uint64_t lost_seen;  ///< by flush
  uint64_t sync_wanted, synced;
  uint64_t exit_target;  ///< accepted when the process began to exit
  bool idle, hurry, exiting, closing, ended, abandoned, forked, reported;
  pthread_t thread;
  char path[PATH_MAX + 64];
  struct dit_record_file file;
};

enum { DIT_RECORD_TOKEN_SIZE = 17 };

void dit_record_writer_init_conditions(struct dit_record_writer *writer);

/// A new writer becomes known to fork and exit.
void dit_record_lifetime_add(struct dit_record_writer *writer);
void dit_record_lifetime_remove(struct dit_record_writer *writer);
/// A random name of this process, DIT_RECORD_TOKEN_SIZE bytes with the NUL.
void dit_record_lifetime_get_token(char *token);
/// Changes in a forked child.
unsigned dit_record_lifetime_get_generation(void);

#endif
