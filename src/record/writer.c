/// The writer: a bounded queue of two buffers that producers fill in turn, and the thread that empties them.
///
/// Invariant: all members but `file` belong to `mutex`; `file` belongs to the thread (to the creator before it starts
/// and after it ends). committed = accepted + dropped and accepted = written + lost + queued hold whenever the mutex is
/// free. No lock is held during input or output, so a fork never waits for the disk. Depends on file, lifetime and
/// core's background, alloc, error and log.
#include "record/writer.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/log.h"

enum { FIRST_RETRY_MS = 100, LAST_RETRY_MS = 5000, DEFAULT_BLOCK_MS = 10000, DEFAULT_LINGER_MS = 10 };

static uint32_t get_thread_id(void) {
  static _Thread_local uint32_t id;
  static _Thread_local unsigned generation;
  unsigned now = dit_record_lifetime_get_generation();
  if (DIT_UNLIKELY(generation != now)) {
    id = (uint32_t)syscall(SYS_gettid);
    generation = now;
  }
  return id;
}

/// Waits for room in the active buffer. False: drop.
static bool wait_for_space(struct dit_record_writer *writer, size_t size) {
  if (writer->pressure == DIT_RECORD_DROP) {
    return false;
  }
  struct timespec deadline = dit_background_get_deadline(writer->block_ms);
  while (writer->buffers[writer->active].size + size > writer->half) {
    if (writer->thread.closing || writer->counts.failing || writer->thread.forked) {
      return false;
    }
    dit_background_hurry(&writer->thread);
    if (pthread_cond_timedwait(&writer->thread.space, &writer->thread.mutex, &deadline) == ETIMEDOUT &&
        writer->buffers[writer->active].size + size > writer->half) {
      return false;
    }
  }
  return !writer->counts.failing;
}

static bool may_accept(struct dit_record_writer *writer, size_t size) {
  if (writer->thread.forked || writer->thread.closing || writer->counts.failing || size > writer->half) {
    return false;
  }
  return writer->buffers[writer->active].size + size <= writer->half || wait_for_space(writer, size);
}

static void enqueue(struct dit_record_writer *writer, const unsigned char *frame, size_t size) {
  struct dit_record_buffer *buffer = &writer->buffers[writer->active];
  unsigned char *p = buffer->data + buffer->size;
  size_t before = buffer->size, mark = writer->half / 2;
  memcpy(p, frame, size - DIT_FRAME_CRC_SIZE);
  dit_put_u64(p + DIT_FRAME_SEQUENCE, writer->counts.committed);
  buffer->size += size;
  buffer->records++;
  writer->thread.accepted = ++writer->counts.accepted;
  if (writer->thread.idle || (before < mark && buffer->size >= mark)) {
    pthread_cond_signal(&writer->thread.work);
  }
}

bool dit_record_commit(struct dit_record_builder *builder, struct dit_record_writer *writer, uint64_t *sequence) {
  bool sound = !builder->failed && builder->size >= DIT_FRAME_PAYLOAD;
  size_t size = builder->size + DIT_FRAME_CRC_SIZE;
  if (sound) {
    dit_put_u32(builder->data + DIT_FRAME_LENGTH, (uint32_t)size);
    dit_put_u32(builder->data + DIT_FRAME_THREAD, get_thread_id());
  }
  pthread_mutex_lock(&writer->thread.mutex);
  bool accepted = sound && may_accept(writer, size);
  writer->counts.committed++;
  if (sequence) {
    *sequence = writer->counts.committed;
  }
  if (accepted) {
    enqueue(writer, builder->data, size);
  } else {
    writer->counts.dropped++;
  }
  pthread_mutex_unlock(&writer->thread.mutex);
  builder->size = 0;
  builder->failed = true;
  return accepted;
}

/// The thread's sleep: for work, then for company. Returns when there is something to do.
static void wait_for_work(struct dit_record_writer *writer) {
  const struct dit_record_buffer *active = &writer->buffers[writer->active];
  if (writer->counts.failing) {
    struct timespec deadline = dit_background_get_deadline(writer->retry_ms);
    while (!writer->thread.closing && !(writer->thread.exiting && active->size > 0) &&
           pthread_cond_timedwait(&writer->thread.work, &writer->thread.mutex, &deadline) == 0) {
    }
    return;
  }
  writer->thread.idle = true;
  while (!writer->thread.closing && !writer->thread.hurry && active->size == 0) {
    pthread_cond_wait(&writer->thread.work, &writer->thread.mutex);
  }
  writer->thread.idle = false;
  struct timespec deadline = dit_background_get_deadline(writer->linger_ms);
  while (!writer->thread.closing && !writer->thread.hurry && !writer->thread.exiting &&
         active->size < writer->half / 2) {
    if (pthread_cond_timedwait(&writer->thread.work, &writer->thread.mutex, &deadline) == ETIMEDOUT) {
      break;
    }
  }
}

/// Called without the mutex: says once per writer that the file fails.
static void report_failure(const struct dit_record_file *file) {
  if (file->error) {
    dit_log_write(DIT_LOG_ERROR,
                  "record file '%s' cannot be written: %s; the program goes on, records are counted but not kept until "
                  "it can be written again (free some space, or make the directory writable)",
                  file->path, strerror(file->error));
  } else {
    dit_log_write(DIT_LOG_ERROR,
                  "record file '%s' was removed while in use; the program goes on, records are counted but not kept "
                  "until a new file can be made in '%s'",
                  file->path, file->directory);
  }
}

/// The outcome of the file's work into the counts; the mutex is held.
static void take_outcome(struct dit_record_writer *writer, bool ok) {
  const struct dit_record_file *file = &writer->file;
  struct dit_record_counts *counts = &writer->counts;
  counts->written = file->written;
  counts->lost = file->lost;
  writer->thread.finished = counts->written + counts->lost;
  counts->bytes = file->bytes;
  counts->batches = file->batches;
  counts->files = file->files;
  if (!ok && !counts->failing) {
    counts->failures++;
  }
  if (!ok && counts->failing) {
    writer->retry_ms = writer->retry_ms * 2 > LAST_RETRY_MS ? LAST_RETRY_MS : writer->retry_ms * 2;
  }
  counts->failing = !ok;
  memcpy(writer->path, file->path, sizeof(writer->path));
  pthread_cond_broadcast(&writer->thread.space);
  pthread_cond_broadcast(&writer->thread.done);
}

/// One round: take the filled buffer, write it without the mutex. Called and returns with the mutex held.
static void run_round(struct dit_record_writer *writer) {
  struct dit_record_buffer *full = &writer->buffers[writer->active];
  bool failing = writer->counts.failing;
  uint64_t drops = writer->counts.dropped + writer->counts.lost, wanted = writer->sync_wanted;
  bool must_sync = writer->sync == DIT_RECORD_SYNC_BATCH || wanted > writer->synced;
  writer->active = !writer->active;
  writer->thread.hurry = false;
  pthread_cond_broadcast(&writer->thread.space);
  pthread_mutex_unlock(&writer->thread.mutex);
  bool ok = true;
  if (failing && !dit_record_file_recover(&writer->file)) {
    writer->file.lost += full->records;
    ok = false;
  } else {
    ok = dit_record_file_append(&writer->file, full->data, full->size, full->records, drops);
  }
  ok = ok && (!must_sync || dit_record_file_sync(&writer->file));
  bool report = !ok && !writer->reported;
  if (report) {
    report_failure(&writer->file);
  }
  pthread_mutex_lock(&writer->thread.mutex);
  writer->reported |= report;
  if (ok && !failing && full->records > 0) {
    writer->retry_ms = FIRST_RETRY_MS;  // not at once after a recovery: the next batch may fail again
  }
  full->size = 0;
  full->records = 0;
  writer->synced = wanted;
  take_outcome(writer, ok);
}

static void free_writer(struct dit_background *thread) {
  struct dit_record_writer *writer = (struct dit_record_writer *)thread;
  dit_record_file_reset(&writer->file);
  dit_free(writer->buffers[0].data);
  dit_free(writer->buffers[1].data);
  dit_background_reset(thread);
  dit_free(writer);
}

static void run_writer(struct dit_background *thread) {
  struct dit_record_writer *writer = (struct dit_record_writer *)thread;
  for (;;) {
    wait_for_work(writer);
    bool last = thread->closing && writer->buffers[writer->active].size == 0;
    run_round(writer);
    if (last || (thread->closing && thread->abandoned)) {
      break;
    }
  }
}

static void fork_writer(struct dit_background *thread) {
  int fd = atomic_exchange(&((struct dit_record_writer *)thread)->file.fd, -1);
  if (fd >= 0) {
    close(fd);
  }
}

static const struct dit_background_class writer_class = {
    .owner = "record writer", .things = "records", .run = run_writer, .fork = fork_writer, .free = free_writer};

static enum dit_status check_options(const struct dit_record_options *options, struct dit_error *err) {
  size_t queue = options->queue_bytes;
  if (queue != 0 && (queue < DIT_RECORD_MIN_QUEUE_BYTES || queue > (size_t)1 << 32)) {
    return dit_error_set(err, DIT_ERR_INVALID, "queue_bytes is %zu; valid: %d to 4294967296, or 0 for %d", queue,
                         DIT_RECORD_MIN_QUEUE_BYTES, DIT_RECORD_QUEUE_BYTES);
  }
  if (options->block_ms < 0 || options->linger_ms < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "block_ms is %d and linger_ms %d; both must be 0 or more",
                         options->block_ms, options->linger_ms);
  }
  if (options->rank < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "rank is %d; it must be 0 or more", (int)options->rank);
  }
  return DIT_OK;
}

enum dit_status dit_record_writer_create(const char *directory, const struct dit_record_options *options,
                                         struct dit_record_writer **out, struct dit_error *err) {
  static const struct dit_record_options defaults;
  options = options ? options : &defaults;
  DIT_RETURN_IF_NOT_OK(check_options(options, err));
  struct dit_record_writer *writer = dit_calloc(1, sizeof(*writer));
  if (!writer) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record writer");
  }
  dit_background_init(&writer->thread, &writer_class);
  atomic_store(&writer->file.fd, -1);
  writer->half = (options->queue_bytes ? options->queue_bytes : DIT_RECORD_QUEUE_BYTES) / 2;
  writer->pressure = options->pressure;
  writer->sync = options->sync;
  writer->block_ms = options->block_ms ? options->block_ms : DEFAULT_BLOCK_MS;
  writer->linger_ms = options->linger_ms ? options->linger_ms : DEFAULT_LINGER_MS;
  writer->retry_ms = FIRST_RETRY_MS;
  writer->buffers[0].data = dit_malloc(writer->half);
  writer->buffers[1].data = dit_malloc(writer->half);
  enum dit_status status = DIT_OK;
  if (!writer->buffers[0].data || !writer->buffers[1].data) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record queue of %zu bytes", writer->half * 2);
  } else {
    char process[DIT_RECORD_TOKEN_SIZE];
    dit_record_lifetime_get_token(process);
    status = dit_record_file_init(&writer->file, directory, options, process,
                                  writer->half + (size_t)DIT_RECORD_OUT_EXTRA, err);
  }
  if (status == DIT_OK) {
    take_outcome(writer, true);
    status = dit_background_start(&writer->thread, err);
    if (status != DIT_OK) {
      unlink(writer->path);
    }
  }
  if (status != DIT_OK) {
    free_writer(&writer->thread);
    return status;
  }
  *out = writer;
  return DIT_OK;
}

enum dit_status dit_record_writer_flush(struct dit_record_writer *writer, int timeout_ms, struct dit_error *err) {
  struct timespec deadline = dit_background_get_deadline(timeout_ms);
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&writer->thread.mutex);
  uint64_t target = writer->counts.accepted, sync_target = 0;
  if (writer->sync == DIT_RECORD_SYNC_FLUSH) {
    sync_target = ++writer->sync_wanted;
  }
  const struct dit_record_counts *counts = &writer->counts;
  while (!writer->thread.forked && (counts->written + counts->lost < target || writer->synced < sync_target)) {
    dit_background_hurry(&writer->thread);
    if (pthread_cond_timedwait(&writer->thread.done, &writer->thread.mutex, &deadline) == ETIMEDOUT) {
      break;
    }
  }
  if (writer->thread.forked) {
    status = dit_error_set(err, DIT_ERR_INVALID, "record file '%s' belongs to the parent process; create a new writer",
                           writer->path);
  } else if (counts->written + counts->lost < target || writer->synced < sync_target) {
    status = dit_error_set(err, DIT_ERR_IO, "record file '%s' is not written after %d ms", writer->path, timeout_ms);
  } else if (counts->lost > writer->lost_seen || counts->failing) {
    status = dit_error_set(err, DIT_ERR_IO, "record file '%s' did not take %llu records", writer->path,
                           (unsigned long long)(counts->lost - writer->lost_seen));
  }
  writer->lost_seen = counts->lost;
  pthread_mutex_unlock(&writer->thread.mutex);
  return status;
}

enum dit_status dit_record_writer_destroy(struct dit_record_writer *writer, int timeout_ms, struct dit_error *err) {
  if (!writer) {
    return DIT_OK;
  }
  dit_background_close(&writer->thread, timeout_ms);
  uint64_t kept = writer->counts.written, accepted = writer->counts.accepted;
  enum dit_status status = DIT_OK;
  if (!writer->thread.forked && kept < accepted) {
    status = dit_error_set(err, DIT_ERR_IO, "record file '%s' was closed without %llu of %llu records", writer->path,
                           (unsigned long long)(accepted - kept), (unsigned long long)accepted);
  }
  dit_background_release(&writer->thread);
  return status;
}

void dit_record_writer_get_counts(struct dit_record_writer *writer, struct dit_record_counts *counts) {
  pthread_mutex_lock(&writer->thread.mutex);
  *counts = writer->counts;
  pthread_mutex_unlock(&writer->thread.mutex);
}

void dit_record_writer_get_path(struct dit_record_writer *writer, char *path, size_t size) {
  pthread_mutex_lock(&writer->thread.mutex);
  snprintf(path, size, "%s", writer->path);
  pthread_mutex_unlock(&writer->thread.mutex);
}
