/// Building a record: frame and fields into one growing buffer.
///
/// Invariant: `size` bytes of `data` are a frame whose length, sequence, thread and checksum are still to be filled; a
/// failed builder stays failed until the next begin. Depends on core's alloc.
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "dit/alloc.h"
#include "record/format.h"

int64_t dit_record_get_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void dit_record_builder_init(struct dit_record_builder *builder, void *storage, size_t size) {
  *builder = (struct dit_record_builder){.data = storage, .capacity = storage ? size : 0, .failed = true};
}

void dit_record_builder_reset(struct dit_record_builder *builder) {
  if (builder->on_heap) {
    dit_free(builder->data);
  }
  dit_record_builder_init(builder, NULL, 0);
}

static pthread_key_t local_key;
static pthread_once_t local_once = PTHREAD_ONCE_INIT;
static bool local_ok;

static void destroy_local(void *pointer) {
  dit_record_builder_reset(pointer);
  dit_free(pointer);
}

static void make_local_key(void) {
  local_ok = pthread_key_create(&local_key, destroy_local) == 0;
}

struct dit_record_builder *dit_record_builder_get_local(void) {
  pthread_once(&local_once, make_local_key);
  struct dit_record_builder *builder = local_ok ? pthread_getspecific(local_key) : NULL;
  if (builder || !local_ok) {
    return builder;
  }
  builder = dit_malloc(sizeof(*builder));
  if (builder) {
    dit_record_builder_init(builder, NULL, 0);
    if (pthread_setspecific(local_key, builder) != 0) {
      dit_free(builder);
      builder = NULL;
    }
  }
  return builder;
}

static bool grow(struct dit_record_builder *builder, size_t need) {
  if (need > DIT_RECORD_MAX_BYTES) {
    return false;
  }
  size_t capacity = builder->capacity < 256 ? 256 : builder->capacity;
  while (capacity < need) {
    capacity *= 2;
  }
  unsigned char *data = builder->on_heap ? dit_realloc(builder->data, capacity) : dit_malloc(capacity);
  if (!data) {
    return false;
  }
  if (!builder->on_heap && builder->size > 0) {
    memcpy(data, builder->data, builder->size);
  }
  builder->data = data;
  builder->capacity = capacity;
  builder->on_heap = true;
  return true;
}

/// Where to write the next `room` bytes; NULL spoils the record. Leaves room for the checksum.
static unsigned char *reserve(struct dit_record_builder *builder, size_t room) {
  if (DIT_UNLIKELY(builder->failed || room > DIT_RECORD_MAX_BYTES)) {
    builder->failed = true;
    return NULL;
  }
  size_t need = builder->size + room + DIT_FRAME_CRC_SIZE;
  if (DIT_UNLIKELY(need > builder->capacity) && !grow(builder, need)) {
    builder->failed = true;
    return NULL;
  }
  return builder->data + builder->size;
}

/// Tag and key, with room for `room` bytes of value behind them.
static unsigned char *begin_field(struct dit_record_builder *builder, unsigned char tag, uint32_t key, size_t room) {
  if (DIT_UNLIKELY(key == 0 || room > DIT_RECORD_MAX_BYTES)) {
    builder->failed = true;
    return NULL;
  }
  unsigned char *p = reserve(builder, 1 + DIT_VARINT_MAX + room);
  if (!p) {
    return NULL;
  }
  *p++ = tag;
  return dit_put_varint(p, key);
}

static void end_field(struct dit_record_builder *builder, const unsigned char *end) {
  builder->size = (size_t)(end - builder->data);
}

void dit_record_begin(struct dit_record_builder *builder, uint16_t type, uint16_t flags, int64_t time) {
  builder->size = 0;
  builder->failed = type < DIT_RECORD_TYPE_USER;
  unsigned char *p = reserve(builder, DIT_FRAME_PAYLOAD);
  if (!p) {
    return;
  }
  memset(p, 0, DIT_FRAME_PAYLOAD);
  dit_put_u32(p + DIT_FRAME_MARKER, DIT_FRAME_MARKER_VALUE);
  dit_put_u16(p + DIT_FRAME_TYPE, type);
  dit_put_u16(p + DIT_FRAME_FLAGS, flags);
  dit_put_u64(p + DIT_FRAME_TIME, (uint64_t)(time ? time : dit_record_get_time()));
  builder->size = DIT_FRAME_PAYLOAD;
}

static void put_number(struct dit_record_builder *builder, int type, uint32_t key, uint64_t value) {
  unsigned char *p = begin_field(builder, DIT_TAG(type, DIT_WIRE_VARINT), key, DIT_VARINT_MAX);
  if (p) {
    end_field(builder, dit_put_varint(p, value));
  }
}

void dit_record_field_i64(struct dit_record_builder *builder, uint32_t key, int64_t value) {
  put_number(builder, DIT_RECORD_I64, key, dit_zigzag(value));
}

void dit_record_field_u64(struct dit_record_builder *builder, uint32_t key, uint64_t value) {
  put_number(builder, DIT_RECORD_U64, key, value);
}

void dit_record_field_bool(struct dit_record_builder *builder, uint32_t key, bool value) {
  put_number(builder, DIT_RECORD_BOOL, key, value);
}

void dit_record_field_interned(struct dit_record_builder *builder, uint32_t key, uint32_t id) {
  builder->failed |= id == 0;
  put_number(builder, DIT_RECORD_INTERNED, key, id);
}

void dit_record_field_f64(struct dit_record_builder *builder, uint32_t key, double value) {
  unsigned char *p = begin_field(builder, DIT_TAG(DIT_RECORD_F64, DIT_WIRE_FIXED8), key, 8);
  if (p) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    dit_put_u64(p, bits);
    end_field(builder, p + 8);
  }
}

static void put_sized(struct dit_record_builder *builder, int type, uint32_t key, const void *data, size_t size) {
  if (size > DIT_RECORD_MAX_BYTES) {
    builder->failed = true;
    return;
  }
  unsigned char *p = begin_field(builder, DIT_TAG(type, DIT_WIRE_SIZED), key, DIT_VARINT_MAX + size);
  if (p) {
    p = dit_put_varint(p, size);
    if (size > 0) {
      memcpy(p, data, size);
    }
    end_field(builder, p + size);
  }
}

void dit_record_field_string(struct dit_record_builder *builder, uint32_t key, const char *text, size_t size) {
  put_sized(builder, DIT_RECORD_STRING, key, text, size);
}

void dit_record_field_bytes(struct dit_record_builder *builder, uint32_t key, const void *data, size_t size) {
  put_sized(builder, DIT_RECORD_BYTES, key, data, size);
}

static size_t size_varint(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) {
    size++;
  }
  return size;
}

static size_t size_numbers(const int64_t *values, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; i++) {
    size += size_varint(dit_zigzag(values[i]));
  }
  return size;
}

static unsigned char *put_numbers(unsigned char *p, const int64_t *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    p = dit_put_varint(p, dit_zigzag(values[i]));
  }
  return p;
}

void dit_record_field_i64s(struct dit_record_builder *builder, uint32_t key, const int64_t *values, size_t count) {
  size_t size = count > DIT_RECORD_MAX_BYTES ? count : size_numbers(values, count);
  if (size > DIT_RECORD_MAX_BYTES) {
    builder->failed = true;
    return;
  }
  unsigned char *p = begin_field(builder, DIT_TAG(DIT_RECORD_I64S, DIT_WIRE_SIZED), key, DIT_VARINT_MAX + size);
  if (p) {
    p = dit_put_varint(p, size);
    end_field(builder, put_numbers(p, values, count));
  }
}

void dit_record_field_tensor(struct dit_record_builder *builder, uint32_t key, const struct dit_record_tensor *tensor) {
  if (tensor->ndim < 0 || tensor->ndim > DIT_RECORD_MAX_DIMS) {
    builder->failed = true;
    return;
  }
  size_t ndim = (size_t)tensor->ndim;
  enum { MOST = DIT_VARINT_MAX * (8 + 2 * DIT_RECORD_MAX_DIMS) };
  unsigned char body[MOST], *p = body;
  uint64_t flags = (tensor->requires_grad ? DIT_TENSOR_BODY_GRAD : 0) | (tensor->strides ? DIT_TENSOR_BODY_STRIDES : 0);
  p = dit_put_varint(p, flags);
  p = dit_put_varint(p, dit_zigzag(tensor->dtype));
  p = dit_put_varint(p, tensor->device);
  p = dit_put_varint(p, dit_zigzag(tensor->device_index));
  p = dit_put_varint(p, ndim);
  p = put_numbers(p, tensor->sizes, ndim);
  p = put_numbers(p, tensor->strides, tensor->strides ? ndim : 0);
  p = dit_put_varint(p, tensor->storage_id);
  p = dit_put_varint(p, dit_zigzag(tensor->storage_offset));
  p = dit_put_varint(p, dit_zigzag(tensor->version));
  put_sized(builder, DIT_RECORD_TENSOR, key, body, (size_t)(p - body));
}
