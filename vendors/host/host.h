/// The embedded accelerator, seen from its own files: how a kernel is put on a stream.
///
/// A raw stream handle is NULL (the default stream: work runs inline in the caller) or a struct host_stream with one
/// worker thread and a FIFO queue. Private to vendors/host; depends on libdit's core (alloc, error) and on
/// dit_memory_access_begin, which opens protected pages around each piece of work.
#ifndef DIT_VENDORS_HOST_HOST_H
#define DIT_VENDORS_HOST_HOST_H

#include <stddef.h>

#include "dit/error.h"
#include "dit/memory.h"

/// Queue `run` on a side stream: `size` bytes at `arguments` are copied into the queue (aligned for any type) and the
/// worker calls `run` on the copy. DIT_ERR_NOMEM when the task cannot be stored, DIT_ERR_DEVICE when the worker cannot
/// be started: then nothing is queued. With CUDA_LAUNCH_BLOCKING=1 it returns when the work is done.
DIT_API DIT_NODISCARD enum dit_status dit_host_stream_enqueue(void *stream, void (*run)(void *arguments),
                                                              const void *arguments, size_t size,
                                                              struct dit_error *err);

/// For queued work that failed, in the worker that runs it: the first text of a stream is kept, and its next wait fails
/// with it.
DIT_API void dit_host_stream_fail(const char *text);

/// Wait until everything queued on the stream is done; the default stream never has anything queued.
DIT_API DIT_NODISCARD enum dit_status dit_host_stream_wait(void *stream, struct dit_error *err);

/// Launch a kernel. On the default stream `run` is called at once on the caller's own struct: no copy, no lock, never
/// an error. On another stream see dit_host_stream_enqueue; whatever `arguments` points to (device memory) must stay
/// alive until the work is done.
DIT_NODISCARD static inline enum dit_status host_stream_launch(void *stream, void (*run)(void *arguments),
                                                               const void *arguments, size_t size,
                                                               struct dit_error *err) {
  if (DIT_LIKELY(stream == NULL)) {
    dit_memory_access_begin();
    run((void *)arguments);
    dit_memory_access_end();
    return DIT_OK;
  }
  return dit_host_stream_enqueue(stream, run, arguments, size, err);
}

#endif
