/// Bytes on their way into a file: small pieces are gathered, large ones go straight from the caller's memory.
///
/// Past the page cache (`direct_fd`) everything is gathered, and goes out in whole blocks: the kernel copies nothing
/// and needs no memory for it. Internal to store; one thread at a time. A failure sticks: everything after it is a
/// no-op, `error` holds errno.
#ifndef DIT_STORE_SINK_H
#define DIT_STORE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIT_SINK_BLOCK = 4096 };  ///< of memory, offsets and sizes past the page cache

struct dit_sink {
  int fd;
  int direct_fd;  ///< the same file past the page cache; -1: through it
  int error;
  unsigned char *buffer;
  size_t used, capacity;
  uint64_t written;              ///< bytes of the file that are with the kernel
  double spent_ns, spent_bytes;  ///< the time that writing took, the latest most
};

/// `buffer` is the caller's; `start` is the size of the file, whose offset is there.
void dit_sink_init(struct dit_sink *sink, int fd, void *buffer, size_t capacity, uint64_t start);
/// Nanoseconds per byte of writing so far; 0 when nothing was written.
static inline double dit_sink_get_speed(const struct dit_sink *sink) {
  return sink->spent_bytes > 0 ? sink->spent_ns / sink->spent_bytes : 0;
}
/// Where the next byte will lie in the file.
static inline uint64_t dit_sink_get_position(const struct dit_sink *sink) {
  return sink->written + sink->used;
}
void dit_sink_put(struct dit_sink *sink, const void *data, size_t size);
void dit_sink_fill(struct dit_sink *sink, int byte, size_t count);
/// As put; returns the CRC-32 of the bytes, taken piece by piece so that they are read from memory once.
uint32_t dit_sink_put_crc(struct dit_sink *sink, const void *data, size_t size);
/// From now on past the page cache by `fd`, or through it again (-1). What is gathered goes out before; `buffer` must
/// be aligned to blocks, its capacity and the position a multiple of them. A file system that refuses is written to
/// through the page cache: `direct_fd` is -1 then.
void dit_sink_set_direct(struct dit_sink *sink, int fd);
/// Hand everything to the kernel; past the page cache only where the position is a multiple of blocks, else what is
/// left goes through it. False after a failure.
bool dit_sink_flush(struct dit_sink *sink);

#endif
