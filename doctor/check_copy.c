/// Checks of synchronous copies and of what memory holds: every kind, many sizes, any alignment, fills.
#include <stdlib.h>

#include "doctor.h"

static const size_t sizes[] = {0, 1, 2, 3, 7, 64, 511, 4096, 4097, 65537, MIB + 3, 8 * MIB + 1};
enum { SIZES = sizeof sizes / sizeof sizes[0], EDGE = 64 };

/// Host memory with an edge of known bytes on both sides.
struct room {
  unsigned char *bytes;  ///< size + 2 * EDGE + 64
};

static bool make_room(struct bench *b, struct room *room, size_t size) {
  room->bytes = malloc(size + 2 * EDGE + 64);
  WANT(b, room->bytes, "host memory", "ulimit -v", "no host memory");
  memset(room->bytes, 0xee, size + 2 * EDGE + 64);
  return true;
}

static bool edges_are_whole(const struct room *room, size_t offset, size_t size) {
  for (size_t i = 0; i < EDGE; i++) {
    if (room->bytes[offset + i] != 0xee || room->bytes[offset + EDGE + size + i] != 0xee) {
      return false;
    }
  }
  return true;
}

/// To the device and back, `skew` bytes off any alignment on both sides.
static bool round_trip(struct bench *b, int device, size_t size, size_t skew) {
  struct room room;
  void *memory = NULL;
  TRY(make_room(b, &room, size));
  unsigned char *source = malloc(size + 64);
  WANT(b, source, "host memory", "ulimit -v", "no host memory");
  bench_fill(source + skew, size, (unsigned)size);
  CALL(b, memory_alloc, device, size + 64, &memory);
  TRY(bench_put(b, device, (char *)memory + skew, source + skew, size));
  WANT(b, bench_compare(source + skew, size, (unsigned)size) == size, "the source stays as it is", "dst and src",
       "a copy of %zu bytes to device %d changed its source", size, device);
  memset(source, 0x77, size + 64);  // a synchronous copy is done with it
  TRY(bench_get(b, device, room.bytes + skew + EDGE, (char *)memory + skew, size));
  const size_t same = bench_compare(room.bytes + skew + EDGE, size, (unsigned)size);
  WANT(b, same == size, "the bytes that were put there",
       "offsets, sizes that are no multiple of a word, a copy that is not done when copy returns",
       "%zu bytes, %zu bytes off the alignment, to device %d and back: byte %zu differs", size, skew, device, same);
  WANT(b, edges_are_whole(&room, skew, size), "size bytes and no more", "sizes that are rounded up",
       "%zu bytes from device %d: bytes beside the destination changed", size, device);
  CALL(b, memory_free, device, memory);
  free(source);
  free(room.bytes);
  return true;
}

static bool check_round_trips(struct bench *b) {
  for (int device = 0; device < b->count && device < 2; device++) {
    for (size_t i = 0; i < SIZES; i++) {
      TRY(round_trip(b, device, sizes[i], 0));
    }
  }
  return true;
}

static bool check_unaligned(struct bench *b) {
  static const size_t skews[] = {1, 3, 8, 13};
  for (size_t i = 0; i < 4; i++) {
    TRY(round_trip(b, 0, 1, skews[i]));
    TRY(round_trip(b, 0, 4099, skews[i]));
  }
  return true;
}

/// Device to device, from `from` to `to`, `skew` off the alignment.
static bool across(struct bench *b, int from, int to, size_t size, size_t skew) {
  void *first = NULL, *second = NULL;
  unsigned char *bytes = malloc(size + 64);
  WANT(b, bytes, "host memory", "ulimit -v", "no host memory");
  CALL(b, memory_alloc, from, size + 64, &first);
  CALL(b, memory_alloc, to, size + 64, &second);
  memset(bytes, 0xee, size + 64);
  TRY(bench_put(b, to, second, bytes, size + 64));
  bench_fill(bytes, size, 9);
  TRY(bench_put(b, from, first, bytes, size));
  const struct dit_copy copy = {(char *)second + skew, first, size, DIT_COPY_DEVICE_TO_DEVICE, to, from};
  CALL(b, copy, &copy);
  memset(bytes, 0, size + 64);
  TRY(bench_get(b, to, bytes, second, size + 64));
  const size_t same = bench_compare(bytes + skew, size, 9);
  WANT(b, same == size, "the bytes of the source", "dst_device and src_device of the copy; copies between devices",
       "%zu bytes from device %d to device %d: byte %zu differs", size, from, to, same);
  for (size_t i = 0; i < 64; i++) {
    const size_t at = i < skew ? i : size + i;
    WANT(b, bytes[at] == 0xee, "size bytes and no more", "sizes that are rounded up",
         "%zu bytes from device %d to device %d: a byte beside the destination changed", size, from, to);
  }
  CALL(b, memory_free, from, first);
  CALL(b, memory_free, to, second);
  free(bytes);
  return true;
}

static bool check_on_device(struct bench *b) {
  for (size_t i = 1; i < SIZES; i++) {
    TRY(across(b, 0, 0, sizes[i], i % 3));
  }
  return true;
}

static bool check_between_devices(struct bench *b) {
  for (int from = 0; from < b->count && from < 3; from++) {
    for (int to = 0; to < b->count && to < 3; to++) {
      if (from != to) {
        TRY(across(b, from, to, 65537, 1));
      }
    }
  }
  return true;
}

/// Blocks that live at the same time hold what was put into each.
static bool check_blocks_apart(struct bench *b) {
  enum { BLOCKS = 48 };
  void *blocks[BLOCKS];
  static unsigned char bytes[8192];
  for (int i = 0; i < BLOCKS; i++) {
    const size_t size = 100 + (size_t)i * 150;
    blocks[i] = NULL;
    CALL(b, memory_alloc, i % b->count, size, &blocks[i]);
    bench_fill(bytes, size, (unsigned)i);
    TRY(bench_put(b, i % b->count, blocks[i], bytes, size));
  }
  for (int i = 0; i < BLOCKS; i++) {
    const size_t size = 100 + (size_t)i * 150;
    TRY(bench_get(b, i % b->count, bytes, blocks[i], size));
    WANT(b, bench_compare(bytes, size, (unsigned)i) == size, "live blocks do not overlap", "sizes of neighbours",
         "block %d of %d (%zu bytes) lost what was put there when others were filled", i, BLOCKS, size);
  }
  for (int i = 0; i < BLOCKS; i++) {
    CALL(b, memory_free, i % b->count, blocks[i]);
  }
  return true;
}

static bool check_host_accessible(struct bench *b) {
  struct dit_device_properties properties;
  void *memory = NULL;
  unsigned char bytes[256];
  CALL(b, get_properties, 0, &properties);
  if (!properties.host_accessible) {
    return true;
  }
  CALL(b, memory_alloc, 0, sizeof bytes, &memory);
  bench_fill(memory, sizeof bytes, 5);
  TRY(bench_get(b, 0, bytes, memory, sizeof bytes));
  WANT(b, bench_compare(bytes, sizeof bytes, 5) == sizeof bytes,
       "host_accessible says that the host may read and write device addresses", "host_accessible: is it false?",
       "what the host wrote to a device address is not what copy reads there");
  CALL(b, memory_free, 0, memory);
  return true;
}

// Fills

static bool fill(struct bench *b, void *stream, size_t offset, size_t size, int value) {
  static unsigned char bytes[MIB + 256];
  void *memory = NULL;
  CALL(b, memory_alloc, 0, sizeof bytes, &memory);
  bench_fill(bytes, sizeof bytes, 3);
  TRY(bench_put(b, 0, memory, bytes, sizeof bytes));
  CALL(b, memory_set, 0, stream, (char *)memory + offset, value, size);
  CALL(b, stream_synchronize, 0, stream);
  TRY(bench_get(b, 0, bytes, memory, sizeof bytes));
  for (size_t i = 0; i < sizeof bytes; i++) {
    const bool inside = i >= offset && i < offset + size;
    const unsigned char before = (unsigned char)(i * 31 + (i >> 8) * 7 + 3);
    WANT(b, bytes[i] == (inside ? (unsigned char)value : before),
         "size bytes become the lowest byte of value, the others stay", "memset's rules: bytes, not words",
         "%zu bytes at offset %zu set to %d: byte %zu is %u", size, offset, value, i, bytes[i]);
  }
  CALL(b, memory_free, 0, memory);
  return true;
}

static bool check_fills(struct bench *b) {
  void *stream = NULL;
  CALL(b, stream_create, 0, 0, &stream);
  TRY(fill(b, NULL, 0, MIB, 0));
  TRY(fill(b, NULL, 1, 3, 255));
  TRY(fill(b, NULL, 5, 0, 1));
  TRY(fill(b, stream, 7, 4097, 0x5a));
  TRY(fill(b, stream, 0, MIB + 1, -1));
  TRY(fill(b, stream, 512, 1, 256 + 17));
  CALL(b, stream_destroy, 0, stream);
  return true;
}

/// Work on the default stream and synchronous copies take turns.
static bool check_default_order(struct bench *b) {
  static struct slow slow;
  void *memory = NULL;
  unsigned char bytes[512];
  CALL(b, memory_alloc, 0, sizeof bytes, &memory);
  atomic_store(&slow.done, 0);
  CALL(b, stream_launch_host, 0, NULL, slow_run, &slow);
  CALL(b, memory_set, 0, NULL, memory, 0x41, sizeof bytes);
  TRY(bench_get(b, 0, bytes, memory, sizeof bytes));
  WANT(b, atomic_load(&slow.done) == 1, "copy comes after all earlier work of the default stream",
       "copy must be put behind the default stream's work", "copy returned before an earlier host function had ended");
  WANT(b, bytes[0] == 0x41 && bytes[511] == 0x41, "copy comes after all earlier work of the default stream",
       "copy must be put behind the default stream's work", "copy did not see a fill that was asked for before it");
  CALL(b, memory_free, 0, memory);
  return true;
}

#define BASE "memory_alloc memory_free"

static const struct check checks[] = {
    {"copy", "to the device and back, all sizes", BASE, check_round_trips, 0},
    {"memory_alloc", "live blocks do not overlap", "copy memory_free", check_blocks_apart, 0},
    {"copy", "addresses off any alignment", BASE, check_unaligned, 0},
    {"copy", "on one device", BASE, check_on_device, 0},
    {"copy", "between devices", BASE, check_between_devices, 0},
    {"get_properties", "host_accessible is true only where the host can read device addresses", "copy " BASE,
     check_host_accessible, 0},
    {"memory_set", "fills of all sizes and offsets", "copy stream_create stream_synchronize " BASE, check_fills, 0},
    {"copy", "it keeps the order of the default stream", "memory_set stream_launch_host " BASE, check_default_order, 0},
};
const struct check_group copy_group = {checks, sizeof checks / sizeof checks[0]};
