/// Stable sorting by keys (see sort.h): insertion for short lines, radix by bytes for the others.
#include "sort.h"

#include <stddef.h>
#include <string.h>

#include "cast.h"
#include "dit/dtype.h"
#include "nest.h"
#include "scalar.h"

#define SHORT 40

bool sort_is_supported(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
    case DIT_DTYPE_I16:
    case DIT_DTYPE_I32:
    case DIT_DTYPE_I64:
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
    case DIT_DTYPE_F32:
    case DIT_DTYPE_F64:
      return true;
    default:
      return false;
  }
}

bool sort_is_packed(int dtype, int64_t count) {
  return (dit_dtype_get_size(dtype) <= 4 || dtype == DIT_DTYPE_I64) && count <= UINT32_MAX;
}

// Keys

KERNEL_INLINE uint32_t key_f32(float value) {
  const uint32_t bits = float_to_bits(value + 0.0f);  // -0 becomes 0
  const uint32_t key = bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
  return value != value ? UINT32_MAX : key;
}

static uint64_t key_f64(double value) {
  uint64_t bits;
  value += 0.0;
  memcpy(&bits, &value, sizeof bits);
  return value != value ? UINT64_MAX : bits ^ (bits >> 63 ? UINT64_MAX : UINT64_C(1) << 63);
}

/// 32-bit keys of at most NEST_BLOCK elements.
static void set_keys(uint32_t *keys, int dtype, const void *data, int64_t count) {
  if (dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16) {
    float room[NEST_BLOCK];
    const float *p = data;
    if (dtype != DIT_DTYPE_F32) {
      cast_block(DIT_DTYPE_F32, room, dtype, data, count);
      p = room;
    }
    for (int64_t i = 0; i < count; i++) {
      keys[i] = key_f32(p[i]);
    }
    return;
  }
  int32_t room[NEST_BLOCK];
  const int32_t *p = data;
  if (dtype != DIT_DTYPE_I32) {
    cast_block(DIT_DTYPE_I32, room, dtype, data, count);
    p = room;
  }
  for (int64_t i = 0; i < count; i++) {
    keys[i] = (uint32_t)p[i] ^ 0x80000000u;
  }
}

static bool set_words_i64(uint64_t *words, const int64_t *p, int64_t count, bool descending) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t i = 0; i < count; i++) {
    low = p[i] < low ? p[i] : low;
    high = p[i] > high ? p[i] : high;
  }
  if (count > 0 && (uint64_t)high - (uint64_t)low > UINT32_MAX) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    const uint64_t key = descending ? (uint64_t)high - (uint64_t)p[i] : (uint64_t)p[i] - (uint64_t)low;
    words[i] = key << 32 | (uint64_t)i;
  }
  return true;
}

bool sort_set_words(uint64_t *words, int dtype, const void *data, int64_t count, bool descending) {
  uint32_t keys[NEST_BLOCK];
  const uint32_t flip = descending ? UINT32_MAX : 0;
  if (dtype == DIT_DTYPE_I64) {
    return set_words_i64(words, data, count, descending);
  }
  const int64_t width = (int64_t)dit_dtype_get_size(dtype);
  for (int64_t at = 0; at < count; at += NEST_BLOCK) {
    const int64_t n = count - at < NEST_BLOCK ? count - at : NEST_BLOCK;
    set_keys(keys, dtype, (const char *)data + at * width, n);
    for (int64_t i = 0; i < n; i++) {
      words[at + i] = (uint64_t)(keys[i] ^ flip) << 32 | (uint64_t)(at + i);
    }
  }
  return true;
}

void sort_set_items(struct sort_item *items, int dtype, const void *data, int64_t count, bool descending) {
  const uint64_t flip = descending ? UINT64_MAX : 0;
  const int64_t width = (int64_t)dit_dtype_get_size(dtype);
  uint32_t keys[NEST_BLOCK];
  for (int64_t at = 0; at < count; at += NEST_BLOCK) {
    const int64_t n = count - at < NEST_BLOCK ? count - at : NEST_BLOCK;
    const char *p = (const char *)data + at * width;
    if (width < 8) {
      set_keys(keys, dtype, p, n);
    }
    for (int64_t i = 0; i < n; i++) {
      uint64_t key = dtype == DIT_DTYPE_F64   ? key_f64(((const double *)p)[i])
                     : dtype == DIT_DTYPE_I64 ? ((const uint64_t *)p)[i] ^ UINT64_C(1) << 63
                     : keys[i] == UINT32_MAX  ? UINT64_MAX
                                              : keys[i];
      items[at + i] = (struct sort_item){key ^ flip, (uint64_t)(at + i)};
    }
  }
}

// Sorting

#define KEY_WORD(item) (item)
#define KEY_ITEM(item) ((item).key)

/// `first` is the lowest byte of the key that counts, `bytes` how many there are.
#define DEFINE_SORT(name, type, KEY, first, bytes)                       \
  static void insert_##name(type *items, int64_t count) {                \
    for (int64_t i = 1; i < count; i++) {                                \
      const type item = items[i];                                        \
      int64_t j = i;                                                     \
      for (; j > 0 && KEY(items[j - 1]) > KEY(item); j--) {              \
        items[j] = items[j - 1];                                         \
      }                                                                  \
      items[j] = item;                                                   \
    }                                                                    \
  }                                                                      \
  void name(type *items, type *room, int64_t count) {                    \
    if (count <= SHORT) {                                                \
      insert_##name(items, count);                                       \
      return;                                                            \
    }                                                                    \
    int64_t places[bytes][256];                                          \
    memset(places, 0, sizeof places);                                    \
    for (int64_t i = 0; i < count; i++) {                                \
      for (int byte = 0; byte < bytes; byte++) {                         \
        places[byte][KEY(items[i]) >> 8 * (first + byte) & 255]++;       \
      }                                                                  \
    }                                                                    \
    type *from = items, *to = room;                                      \
    for (int byte = 0; byte < bytes; byte++) {                           \
      int64_t *place = places[byte], sum = 0;                            \
      if (place[KEY(from[0]) >> 8 * (first + byte) & 255] == count) {    \
        continue;                                                        \
      }                                                                  \
      for (int digit = 0; digit < 256; digit++) {                        \
        const int64_t here = place[digit];                               \
        place[digit] = sum;                                              \
        sum += here;                                                     \
      }                                                                  \
      for (int64_t i = 0; i < count; i++) {                              \
        to[place[KEY(from[i]) >> 8 * (first + byte) & 255]++] = from[i]; \
      }                                                                  \
      type *swap = from;                                                 \
      from = to;                                                         \
      to = swap;                                                         \
    }                                                                    \
    if (from != items) {                                                 \
      memcpy(items, from, sizeof(type) * (size_t)count);                 \
    }                                                                    \
  }
DEFINE_SORT(sort_words, uint64_t, KEY_WORD, 4, 4)
DEFINE_SORT(sort_items, struct sort_item, KEY_ITEM, 0, 8)

static void sift_down(uint64_t *heap, int64_t count) {
  const uint64_t item = heap[0];
  int64_t at = 0;
  for (int64_t child = 1; child < count; child = 2 * at + 1) {
    child += child + 1 < count && heap[child + 1] > heap[child];
    if (heap[child] <= item) {
      break;
    }
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

/// A heap of the smallest so far, the largest of them on top; most words are larger and never enter.
void sort_words_partly(uint64_t *words, uint64_t *room, int64_t count, int64_t keep) {
  if (keep <= 0) {
    return;
  }
  if (keep > count / 8) {
    sort_words(words, room, count);
    return;
  }
  sort_words(words, room, keep);
  for (int64_t i = 0; i < keep / 2; i++) {  // descending order is a heap
    const uint64_t swap = words[i];
    words[i] = words[keep - 1 - i];
    words[keep - 1 - i] = swap;
  }
  for (int64_t i = keep; i < count; i++) {
    if (words[i] < words[0]) {
      words[0] = words[i];
      sift_down(words, keep);
    }
  }
  sort_words(words, room, keep);
}
