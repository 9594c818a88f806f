// How often each (operator, tensor signature) was seen: the "first n calls" selection. Signatures are 64-bit hashes of
// the operator and the tensors' dtypes and shapes.
#include <string.h>

#include "engine/internal.h"

struct engine_signatures {
  struct {
    uint64_t hash;  // 0: free
    int64_t count;
  } *entries;
  size_t capacity, used;
};

struct engine_signatures *engine_signatures_create(void) {
  struct engine_signatures *s = PyMem_Calloc(1, sizeof *s);
  if (s) {
    s->capacity = 256;
    s->entries = PyMem_Calloc(s->capacity, sizeof *s->entries);
    if (!s->entries) {
      PyMem_Free(s);
      s = NULL;
    }
  }
  if (!s) {
    PyErr_NoMemory();
  }
  return s;
}

void engine_signatures_destroy(struct engine_signatures *s) {
  if (s) {
    PyMem_Free(s->entries);
    PyMem_Free(s);
  }
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  hash *= 0xFF51AFD7ED558CCDu;
  return hash ^ (hash >> 32);
}

static uint64_t call_hash(const struct engine_call *call) {
  uint64_t hash = mix(0x243F6A8885A308D3u, (uint64_t)(uintptr_t)call->op);
  for (int i = 0; i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    hash = mix(hash, (uint64_t)(uint16_t)tensor->dtype << 32 | (uint32_t)tensor->ndim);
    for (int d = 0; d < tensor->ndim; d++) {
      hash = mix(hash, (uint64_t)tensor->sizes[d]);
    }
  }
  return hash ? hash : 1;
}

static size_t slot_find(const struct engine_signatures *s, uint64_t hash) {
  size_t at = hash & (s->capacity - 1);
  while (s->entries[at].hash && s->entries[at].hash != hash) {
    at = (at + 1) & (s->capacity - 1);
  }
  return at;
}

static void table_grow(struct engine_signatures *s) {
  struct engine_signatures grown = {.capacity = s->capacity * 2, .used = s->used};
  grown.entries = PyMem_Calloc(grown.capacity, sizeof *grown.entries);
  if (!grown.entries) {
    return;  // denser, still right: at most capacity - 1 entries are used
  }
  for (size_t i = 0; i < s->capacity; i++) {
    if (s->entries[i].hash) {
      grown.entries[slot_find(&grown, s->entries[i].hash)] = s->entries[i];
    }
  }
  PyMem_Free(s->entries);
  *s = grown;
}

bool engine_signatures_count(struct engine_signatures *s, const struct engine_call *call, int64_t limit) {
  uint64_t hash = call_hash(call);
  size_t at = slot_find(s, hash);
  if (!s->entries[at].hash) {
    if (s->used * 4 >= s->capacity * 3) {
      table_grow(s);
      at = slot_find(s, hash);
    }
    if (s->used + 1 >= s->capacity) {
      return true;  // no room: show the call rather than hide it
    }
    s->entries[at].hash = hash;
    s->used++;
  }
  return s->entries[at].count++ < limit;
}
