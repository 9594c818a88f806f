/// The process's interned strings: one table behind a mutex, numbers from 1, nothing is ever removed.
///
/// Invariant: entry i and the bytes it points to never change once given out; the table is bounded in entries and bytes
/// (DIT_RECORD_MAX_STRINGS, DIT_RECORD_MAX_INTERNED). Depends on core's alloc and error.
#include "record/intern.h"

#include <pthread.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/record.h"

struct entry {
  char *text;
  size_t size;
  uint64_t hash;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;  ///< [0] is unused
static size_t entry_count = 1, entry_capacity;
static uint32_t *slots;  ///< open addressing, 0 is free
static size_t slot_count;
static size_t total_bytes;

static uint64_t hash_text(const char *text, size_t size) {
  uint64_t hash = UINT64_C(0xCBF29CE484222325) ^ size;
  for (size_t i = 0; i < size; i++) {
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
  }
  return hash ^ hash >> 29;
}

static size_t find_slot(const char *text, size_t size, uint64_t hash) {
  size_t slot = hash & (slot_count - 1);
  while (slots[slot]) {
    const struct entry *entry = &entries[slots[slot]];
    if (entry->hash == hash && entry->size == size && memcmp(entry->text, text, size) == 0) {
      break;
    }
    slot = (slot + 1) & (slot_count - 1);
  }
  return slot;
}

/// Room for one more entry; the slots stay at most half full.
static bool grow(void) {
  if (entry_count + 1 > entry_capacity) {
    size_t capacity = entry_capacity ? entry_capacity * 2 : 64;
    struct entry *grown = dit_realloc(entries, capacity * sizeof(*grown));
    if (!grown) {
      return false;
    }
    entries = grown;
    entry_capacity = capacity;
  }
  if ((entry_count + 1) * 2 <= slot_count) {
    return true;
  }
  size_t count = slot_count ? slot_count * 2 : 256;
  uint32_t *fresh = dit_calloc(count, sizeof(*fresh));
  if (!fresh) {
    return false;
  }
  for (size_t i = 1; i < entry_count; i++) {
    size_t slot = entries[i].hash & (count - 1);
    while (fresh[slot]) {
      slot = (slot + 1) & (count - 1);
    }
    fresh[slot] = (uint32_t)i;
  }
  dit_free(slots);
  slots = fresh;
  slot_count = count;
  return true;
}

static enum dit_status intern_locked(const char *text, size_t size, uint32_t *id, struct dit_error *err) {
  uint64_t hash = hash_text(text, size);
  if (slot_count > 0) {
    uint32_t found = slots[find_slot(text, size, hash)];
    if (found) {
      *id = found;
      return DIT_OK;
    }
  }
  if (entry_count > DIT_RECORD_MAX_STRINGS || total_bytes + size > DIT_RECORD_MAX_INTERNED) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "the table of interned strings is full (%zu strings, %zu bytes); write the text inline",
                         entry_count - 1, total_bytes);
  }
  char *copy = grow() ? dit_malloc(size + 1) : NULL;
  if (!copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to intern a string of %zu bytes", size);
  }
  memcpy(copy, text, size);
  copy[size] = '\0';
  entries[entry_count] = (struct entry){.text = copy, .size = size, .hash = hash};
  slots[find_slot(text, size, hash)] = (uint32_t)entry_count;
  total_bytes += size;
  *id = (uint32_t)entry_count++;
  return DIT_OK;
}

enum dit_status dit_record_intern(const char *text, size_t size, uint32_t *id, struct dit_error *err) {
  if (size > DIT_RECORD_MAX_STRING) {
    return dit_error_set(err, DIT_ERR_INVALID, "a string of %zu bytes cannot be interned (at most %d); write it inline",
                         size, DIT_RECORD_MAX_STRING);
  }
  pthread_mutex_lock(&mutex);
  enum dit_status status = intern_locked(text, size, id, err);
  pthread_mutex_unlock(&mutex);
  return status;
}

bool dit_intern_get(uint32_t id, const char **text, size_t *size) {
  pthread_mutex_lock(&mutex);
  bool known = id > 0 && id < entry_count;
  if (known) {
    *text = entries[id].text;
    *size = entries[id].size;
  }
  pthread_mutex_unlock(&mutex);
  return known;
}

void dit_intern_lock(void) {
  pthread_mutex_lock(&mutex);
}

void dit_intern_unlock(void) {
  pthread_mutex_unlock(&mutex);
}
