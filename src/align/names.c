/// Texts by number, for the runs that are compared.
///
/// Invariant: texts lie one behind the other, text n between ends[n - 1] and ends[n]; the table holds numbers, at most
/// half full. Nothing is ever removed. Depends on core's alloc.
#include <string.h>

#include "dit/align.h"
#include "dit/alloc.h"

#define MAX_TEXT (UINT64_C(1) << 30)

struct dit_align_names {
  char *text;
  size_t *ends;     // ends[0] = 0
  uint32_t *table;  // 0: empty
  size_t text_capacity, count, capacity, table_size;
};

static uint64_t bytes_hash(const void *data, size_t size) {
  const unsigned char *p = data;
  uint64_t value = UINT64_C(0xCBF29CE484222325);
  for (size_t i = 0; i < size; i++) {
    value = (value ^ p[i]) * UINT64_C(0x100000001B3);
  }
  return value ^ value >> 29;
}

enum dit_status dit_align_names_create(struct dit_align_names **out, struct dit_error *err) {
  struct dit_align_names *names = dit_calloc(1, sizeof(*names));
  if (names) {
    names->table_size = 1024;
    names->table = dit_calloc(names->table_size, sizeof(*names->table));
    names->capacity = 256;
    names->ends = dit_calloc(names->capacity, sizeof(*names->ends));
    names->text_capacity = 4096;
    names->text = dit_malloc(names->text_capacity);
  }
  if (!names || !names->table || !names->ends || !names->text) {
    dit_align_names_destroy(names);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the names of two runs");
  }
  *out = names;
  return DIT_OK;
}

void dit_align_names_destroy(struct dit_align_names *names) {
  if (names) {
    dit_free(names->text);
    dit_free(names->ends);
    dit_free(names->table);
    dit_free(names);
  }
}

struct dit_record_text dit_align_names_get(const struct dit_align_names *names, uint32_t number) {
  if (number == 0 || number > names->count) {
    return (struct dit_record_text){"", 0};
  }
  size_t begin = names->ends[number - 1];
  return (struct dit_record_text){names->text + begin, names->ends[number] - begin};
}

size_t dit_align_names_get_count(const struct dit_align_names *names) {
  return names->count;
}

static size_t slot_find(const struct dit_align_names *names, const void *text, size_t size) {
  size_t at = bytes_hash(text, size) & (names->table_size - 1);
  for (; names->table[at]; at = (at + 1) & (names->table_size - 1)) {
    struct dit_record_text known = dit_align_names_get(names, names->table[at]);
    if (known.size == size && memcmp(known.data, text, size) == 0) {
      break;
    }
  }
  return at;
}

static bool table_grow(struct dit_align_names *names) {
  uint32_t *old = names->table;
  uint32_t *grown = dit_calloc(names->table_size * 2, sizeof(*grown));
  if (!grown) {
    return false;
  }
  names->table = grown;
  names->table_size *= 2;
  for (uint32_t i = 1; i <= names->count; i++) {
    struct dit_record_text text = dit_align_names_get(names, i);
    grown[slot_find(names, text.data, text.size)] = i;
  }
  dit_free(old);
  return true;
}

static bool room_make(struct dit_align_names *names, size_t size) {
  size_t used = names->ends[names->count];
  if (used + size > names->text_capacity) {
    size_t capacity = (used + size) * 2;
    char *grown = capacity / 2 > MAX_TEXT ? NULL : dit_realloc(names->text, capacity);
    if (!grown) {
      return false;
    }
    names->text = grown;
    names->text_capacity = capacity;
  }
  if (names->count + 2 > names->capacity) {
    size_t *grown = dit_realloc(names->ends, names->capacity * 2 * sizeof(*grown));
    if (!grown) {
      return false;
    }
    names->ends = grown;
    names->capacity *= 2;
  }
  return (names->count + 1) * 2 < names->table_size || table_grow(names);
}

enum dit_status dit_align_names_take(struct dit_align_names *names, const void *text, size_t size, uint32_t *number,
                                     struct dit_error *err) {
  if (size == 0) {
    *number = 0;
    return DIT_OK;
  }
  size_t at = slot_find(names, text, size);
  if (names->table[at] == 0) {
    if (!room_make(names, size)) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the names of two runs (%zu so far)", names->count);
    }
    at = slot_find(names, text, size);
    memcpy(names->text + names->ends[names->count], text, size);
    names->ends[names->count + 1] = names->ends[names->count] + size;
    names->table[at] = (uint32_t)++names->count;
  }
  *number = names->table[at];
  return DIT_OK;
}
