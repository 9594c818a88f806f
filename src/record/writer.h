/// The inside of a writer, and what a process is to its records (lifetime.c). Internal to record.
#ifndef DIT_RECORD_WRITER_H
#define DIT_RECORD_WRITER_H

#include "core/background.h"
#include "record/file.h"

struct dit_record_buffer {
  unsigned char *data;
  size_t size;
  uint64_t records;
};

struct dit_record_writer {
  struct dit_background thread;  ///< space: a buffer is free or the file fails
  struct dit_record_buffer buffers[2];
  int active;
  size_t half;  ///< capacity of one buffer
  enum dit_record_pressure pressure;
  enum dit_record_sync sync;
  int block_ms, linger_ms, retry_ms;
  struct dit_record_counts counts;
  uint64_t lost_seen;  ///< by flush
  uint64_t sync_wanted, synced;
  bool reported;
  char path[PATH_MAX + 64];
  struct dit_record_file file;
};

enum { DIT_RECORD_TOKEN_SIZE = 17 };

/// A random name of this process, DIT_RECORD_TOKEN_SIZE bytes with the NUL.
void dit_record_lifetime_get_token(char *token);
/// Changes in a forked child.
unsigned dit_record_lifetime_get_generation(void);

#endif
