/// Gathering and writing (contract in sink.h).
///
/// Invariant: written + used bytes were put, in order; the first `written` of them are with the kernel. Depends on
/// crc32.
#include "store/sink.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "store/crc32.h"

/// Pieces of this size and more are not copied; large ones are cut so that the checksum leaves them in the cache.
enum { DIRECT_BYTES = 32 << 10, CHUNK_BYTES = 512 << 10, RECENT_BYTES = 64 << 20 };

void dit_sink_init(struct dit_sink *sink, int fd, void *buffer, size_t capacity, uint64_t start) {
  *sink = (struct dit_sink){.fd = fd, .direct_fd = -1, .buffer = buffer, .capacity = capacity, .written = start};
}

static double get_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void note_speed(struct dit_sink *sink, double start, size_t bytes) {
  if (sink->spent_bytes > RECENT_BYTES) {
    sink->spent_bytes /= 2;
    sink->spent_ns /= 2;
  }
  sink->spent_ns += get_ns() - start;
  sink->spent_bytes += (double)bytes;
}

/// The whole blocks of the buffer past the page cache. What is left stays at its begin.
static void write_blocks(struct dit_sink *sink) {
  size_t size = sink->used / DIT_SINK_BLOCK * DIT_SINK_BLOCK, begin = 0;
  double start = get_ns();
  while (!sink->error && sink->direct_fd >= 0 && begin < size) {
    ssize_t done = pwrite(sink->direct_fd, sink->buffer + begin, size - begin, (off_t)sink->written);
    if (done < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
      sink->direct_fd = -1;  // not on this file system, or not in blocks of this size
    } else if (done <= 0) {
      sink->error = done < 0 ? (errno == EINTR ? 0 : errno) : ENOSPC;
    } else {
      sink->written += (uint64_t)done;
      begin += (size_t)done;
    }
  }
  note_speed(sink, start, begin);
  memmove(sink->buffer, sink->buffer + begin, sink->used - begin);
  sink->used -= begin;
}

void dit_sink_set_direct(struct dit_sink *sink, int fd) {
  if (sink->direct_fd != fd && dit_sink_flush(sink)) {
    sink->direct_fd = fd;
  }
}

/// The buffer and then `size` bytes more, with as few calls as the kernel allows.
static bool write_out(struct dit_sink *sink, const void *data, size_t size) {
  struct iovec parts[2] = {{sink->buffer, sink->used}, {(void *)(uintptr_t)data, size}};
  int first = sink->used > 0 ? 0 : 1;
  double start = get_ns();
  uint64_t before = sink->written;
  while (!sink->error && first < 2 && parts[first].iov_len > 0) {
    ssize_t done = writev(sink->fd, parts + first, (size > 0 ? 2 : 1) - first);
    if (done <= 0) {
      sink->error = done < 0 ? (errno == EINTR ? 0 : errno) : ENOSPC;
      continue;
    }
    sink->written += (uint64_t)done;
    for (size_t rest = (size_t)done; rest > 0;) {
      size_t part = rest < parts[first].iov_len ? rest : parts[first].iov_len;
      parts[first].iov_base = (char *)parts[first].iov_base + part;
      parts[first].iov_len -= part;
      rest -= part;
      first += parts[first].iov_len == 0 && first == 0;
    }
  }
  sink->used = 0;
  note_speed(sink, start, (size_t)(sink->written - before));
  return !sink->error;
}

bool dit_sink_flush(struct dit_sink *sink) {
  if (sink->direct_fd >= 0) {
    write_blocks(sink);
  }
  return write_out(sink, NULL, 0);
}

/// Gathers everything, so that whole blocks go out.
static void put_direct(struct dit_sink *sink, const unsigned char *data, size_t size) {
  while (size > 0 && !sink->error && sink->direct_fd >= 0) {
    size_t room = sink->capacity - sink->used, piece = size < room ? size : room;
    memcpy(sink->buffer + sink->used, data, piece);
    sink->used += piece;
    data += piece;
    size -= piece;
    if (sink->used == sink->capacity) {
      write_blocks(sink);
    }
  }
  if (size > 0) {  // refused on the way
    dit_sink_put(sink, data, size);
  }
}

void dit_sink_put(struct dit_sink *sink, const void *data, size_t size) {
  if (sink->error || size == 0) {
    return;
  }
  if (sink->direct_fd >= 0) {
    put_direct(sink, data, size);
    return;
  }
  if (sink->used + size > sink->capacity) {
    if (size >= DIRECT_BYTES || size > sink->capacity) {
      write_out(sink, data, size);
      return;
    }
    write_out(sink, NULL, 0);
  }
  memcpy(sink->buffer + sink->used, data, size);
  sink->used += size;
}

void dit_sink_fill(struct dit_sink *sink, int byte, size_t count) {
  unsigned char some[64];
  memset(some, byte, sizeof(some));
  for (; count > 0; count -= count < sizeof(some) ? count : sizeof(some)) {
    dit_sink_put(sink, some, count < sizeof(some) ? count : sizeof(some));
  }
}

uint32_t dit_sink_put_crc(struct dit_sink *sink, const void *data, size_t size) {
  const unsigned char *p = data;
  uint32_t crc = 0;
  while (size > 0 && !sink->error) {
    size_t piece = size < CHUNK_BYTES ? size : (size_t)CHUNK_BYTES;
    crc = dit_crc32(crc, p, piece);
    dit_sink_put(sink, p, piece);
    p += piece;
    size -= piece;
  }
  return crc;
}
