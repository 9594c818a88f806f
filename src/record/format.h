/// The bytes of the record log: constants and little-endian, varint primitives. Internal to record.
///
/// docs/record-format.md is the authority; a change here is a change of the format. Depends on libc only.
#ifndef DIT_RECORD_FORMAT_H
#define DIT_RECORD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dit/record.h"

#define DIT_RECORD_MAGIC \
  "\x8A"                 \
  "DLOG\r\n\x1A"
enum { DIT_RECORD_MAGIC_SIZE = 8, DIT_RECORD_MAJOR = 1, DIT_RECORD_MINOR = 0 };

/// Offsets in the file header.
enum {
  DIT_HEADER_MAJOR = 8,
  DIT_HEADER_MINOR = 10,
  DIT_HEADER_LENGTH = 12,
  DIT_HEADER_WALL = 16,
  DIT_HEADER_MONOTONIC = 24,
  DIT_HEADER_PID = 32,
  DIT_HEADER_RANK = 36,
  DIT_HEADER_WORLD = 40,
  DIT_HEADER_INDEX = 44,
  DIT_HEADER_SALT = 48,
  DIT_HEADER_PAIRS = 52,
  DIT_HEADER_FIXED = 56,
};

/// Offsets in a record's frame; the payload is followed by the checksum.
enum {
  DIT_FRAME_MARKER = 0,
  DIT_FRAME_LENGTH = 4,
  DIT_FRAME_TYPE = 8,
  DIT_FRAME_FLAGS = 10,
  DIT_FRAME_THREAD = 12,
  DIT_FRAME_SEQUENCE = 16,
  DIT_FRAME_TIME = 24,
  DIT_FRAME_PAYLOAD = 32,
  DIT_FRAME_CRC_SIZE = 4,
  DIT_FRAME_MIN = DIT_FRAME_PAYLOAD + DIT_FRAME_CRC_SIZE,
};
#define DIT_FRAME_MARKER_VALUE UINT32_C(0xA5C31EDB)  ///< first byte in the file: 0xDB

/// Structural record types.
enum { DIT_RECORD_TYPE_SYNC = 1, DIT_RECORD_TYPE_STRING = 2, DIT_RECORD_TYPE_DROPS = 3 };

/// A field's tag: type in the low five bits, how its value is laid out in the high three.
enum { DIT_WIRE_VARINT = 0, DIT_WIRE_FIXED8 = 1, DIT_WIRE_SIZED = 2, DIT_WIRE_SHIFT = 5, DIT_WIRE_TYPE_MASK = 31 };
#define DIT_TAG(type, wire) ((unsigned char)((type) | (wire) << DIT_WIRE_SHIFT))

/// Flags in a tensor's body.
enum { DIT_TENSOR_BODY_GRAD = 1, DIT_TENSOR_BODY_STRIDES = 2 };

enum { DIT_VARINT_MAX = 10 };

static inline void dit_put_u16(unsigned char *p, uint16_t v) {
  p[0] = (unsigned char)v;
  p[1] = (unsigned char)(v >> 8);
}

static inline void dit_put_u32(unsigned char *p, uint32_t v) {
  dit_put_u16(p, (uint16_t)v);
  dit_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void dit_put_u64(unsigned char *p, uint64_t v) {
  dit_put_u32(p, (uint32_t)v);
  dit_put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t dit_get_u16(const unsigned char *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t dit_get_u32(const unsigned char *p) {
  return (uint32_t)dit_get_u16(p) | (uint32_t)dit_get_u16(p + 2) << 16;
}

static inline uint64_t dit_get_u64(const unsigned char *p) {
  return (uint64_t)dit_get_u32(p) | (uint64_t)dit_get_u32(p + 4) << 32;
}

static inline uint64_t dit_zigzag(int64_t v) {
  return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

static inline int64_t dit_unzigzag(uint64_t v) {
  uint64_t bits = v >> 1 ^ (v & 1 ? UINT64_MAX : 0);
  int64_t value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Writes at most DIT_VARINT_MAX bytes; the new end.
static inline unsigned char *dit_put_varint(unsigned char *p, uint64_t v) {
  while (v >= 0x80) {
    *p++ = (unsigned char)(v | 0x80);
    v >>= 7;
  }
  *p++ = (unsigned char)v;
  return p;
}

/// A bounded position in bytes read from outside.
struct dit_cursor {
  const unsigned char *at, *end;
};

/// False at the end of the bytes or for more than 64 bits; the cursor then stays somewhere inside.
static inline bool dit_take_varint(struct dit_cursor *cursor, uint64_t *value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
    unsigned char byte = *cursor->at++;
    if (shift == 63 && byte > 1) {
      return false;
    }
    result |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return false;
}

static inline bool dit_take_signed(struct dit_cursor *cursor, int64_t *value) {
  uint64_t raw = 0;
  if (!dit_take_varint(cursor, &raw)) {
    return false;
  }
  *value = dit_unzigzag(raw);
  return true;
}

/// One field as it lies in a payload. `body` is the value of FIXED8 and SIZED fields.
struct dit_raw_field {
  int type;
  int wire;
  uint64_t key;
  uint64_t number;  ///< VARINT
  struct dit_cursor body;
};

/// False at a malformed field. Unknown types pass: their wire says how long they are.
static inline bool dit_take_field(struct dit_cursor *cursor, struct dit_raw_field *field) {
  if (cursor->at >= cursor->end) {
    return false;
  }
  unsigned char tag = *cursor->at++;
  field->type = tag & DIT_WIRE_TYPE_MASK;
  field->wire = tag >> DIT_WIRE_SHIFT;
  field->number = 0;
  if (!dit_take_varint(cursor, &field->key)) {
    return false;
  }
  uint64_t size = 8;
  if (field->wire == DIT_WIRE_VARINT) {
    field->body.at = field->body.end = cursor->at;
    return dit_take_varint(cursor, &field->number);
  }
  if (field->wire == DIT_WIRE_SIZED) {
    if (!dit_take_varint(cursor, &size)) {
      return false;
    }
  } else if (field->wire != DIT_WIRE_FIXED8) {
    return false;
  }
  if (size > (uint64_t)(cursor->end - cursor->at)) {
    return false;
  }
  field->body.at = cursor->at;
  field->body.end = cursor->at += size;
  return true;
}

#endif
