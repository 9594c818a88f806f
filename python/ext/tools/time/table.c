// The table of times; see time/table.h.
//
// Rows are found by the binary form of a signature, so that a call formats no text; the text is made with the row.
// Invariant: bucket_count is a power of two and row_count stays below it.
#include "tools/time/table.h"

#include <stdio.h>
#include <string.h>

#include "dit/record.h"

#define LINEAR 128           // values below have a bucket each
#define STEPS 64             // buckets per factor of two above
#define KEY_WORDS 512        // a longer signature is cut: the rest of its tensors only counts
#define SIGNATURE_SIZE 1024  // likewise its text

// Sketch

static int bucket_find(int64_t value) {
  if (value < LINEAR) {
    return value < 0 ? 0 : (int)value;
  }
  int exponent = 63 - __builtin_clzll((unsigned long long)value);
  return LINEAR + (exponent - 7) * STEPS + (int)((value >> (exponent - 6)) & (STEPS - 1));
}

// The middle of a bucket.
static int64_t bucket_get_value(int bucket) {
  if (bucket < LINEAR) {
    return bucket;
  }
  int exponent = (bucket - LINEAR) / STEPS + 7;
  int64_t width = (int64_t)1 << (exponent - 6);
  return ((int64_t)1 << exponent) + (bucket - LINEAR) % STEPS * width + width / 2;
}

// Make room for `bucket`, with some to spare on its side.
static bool sketch_widen(struct time_sketch *sketch, int bucket) {
  enum { SPARE = 8 };
  int first = sketch->first, last = sketch->first + sketch->length;
  if (!sketch->bucket) {
    first = bucket;
    last = bucket + 1;
  } else if (bucket < first) {
    first = bucket > SPARE ? bucket - SPARE : 0;
  } else {
    last = bucket + 1 + SPARE;
  }
  uint32_t *wider = PyMem_Calloc((size_t)(last - first), sizeof *wider);
  if (!wider) {
    return false;
  }
  if (sketch->bucket) {
    memcpy(wider + (sketch->first - first), sketch->bucket, (size_t)sketch->length * sizeof *wider);
    PyMem_Free(sketch->bucket);
  }
  sketch->bucket = wider;
  sketch->first = first;
  sketch->length = last - first;
  return true;
}

void time_sketch_add(struct time_sketch *sketch, int64_t nanoseconds) {
  int64_t value = nanoseconds < 0 ? 0 : nanoseconds;
  int bucket = bucket_find(value);
  sketch->min = !sketch->count || value < sketch->min ? value : sketch->min;
  sketch->max = value > sketch->max ? value : sketch->max;
  sketch->count++;
  sketch->sum += value;
  if ((sketch->bucket && bucket >= sketch->first && bucket < sketch->first + sketch->length) ||
      sketch_widen(sketch, bucket)) {
    uint32_t *count = &sketch->bucket[bucket - sketch->first];
    *count += *count != UINT32_MAX;
  }
}

int64_t time_sketch_get_quantile(const struct time_sketch *sketch, double quantile) {
  uint64_t total = 0, seen = 0;
  for (int i = 0; i < sketch->length; i++) {
    total += sketch->bucket[i];
  }
  double wanted = quantile * (double)total;
  for (int i = 0; i < sketch->length; i++) {
    seen += sketch->bucket[i];
    if (seen && (double)seen >= wanted) {
      int64_t value = bucket_get_value(sketch->first + i);
      return value < sketch->min ? sketch->min : value > sketch->max ? sketch->max : value;
    }
  }
  return sketch->max;
}

void time_sketch_reset(struct time_sketch *sketch) {
  PyMem_Free(sketch->bucket);
  *sketch = (struct time_sketch){0};
}

// Signatures

static size_t key_make(const struct engine_leaves *leaves, int64_t *key) {
  size_t size = 0;
  for (int i = 0; i < leaves->tensor_count; i++) {
    const struct engine_tensor *tensor = &leaves->tensor[i];
    bool known = tensor->flags & ENGINE_TENSOR_STRIDED;
    int ndim = known ? tensor->ndim : 0;
    if (size + 2 + (size_t)ndim > KEY_WORDS) {
      key[size++] = leaves->tensor_count - i;
      break;
    }
    key[size++] = ((int64_t)tensor->dtype << 32) | ((int64_t)known << 16) | ndim;
    for (int d = 0; d < ndim; d++) {
      key[size++] = tensor->sizes[d];
    }
  }
  return size;
}

static uint64_t key_hash(const struct engine_op *op, const int64_t *key, size_t size) {
  uint64_t hash = (uintptr_t)op >> 4;
  for (size_t i = 0; i < size; i++) {
    hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static size_t tensor_write(const struct engine_tensor *tensor, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "%s[", dit_dtype_get_name(tensor->dtype));
  if (!(tensor->flags & ENGINE_TENSOR_STRIDED)) {
    return at + (size_t)snprintf(text + at, size - at, "?]");
  }
  for (int d = 0; d < tensor->ndim && at + 32 < size; d++) {
    at += (size_t)snprintf(text + at, size - at, d ? ",%lld" : "%lld", (long long)tensor->sizes[d]);
  }
  return at + (size_t)snprintf(text + at, size - at, "]");
}

static char *signature_make(const struct engine_leaves *leaves) {
  enum { TENSOR_SIZE = 300 };  // room for one more tensor
  char text[SIGNATURE_SIZE + TENSOR_SIZE];
  size_t at = 0;
  text[0] = 0;
  for (int i = 0; i < leaves->tensor_count; i++) {
    if (at > SIGNATURE_SIZE - 64) {
      at += (size_t)snprintf(text + at, sizeof text - at, ";... %d more", leaves->tensor_count - i);
      break;
    }
    if (i) {
      text[at++] = ';';
    }
    at += tensor_write(&leaves->tensor[i], text + at, TENSOR_SIZE);
  }
  char *copy = PyMem_Malloc(at + 1);
  if (copy) {
    memcpy(copy, text, at);
    copy[at] = 0;
  }
  return copy;
}

// Rows

static void row_destroy(struct time_row *row) {
  for (int d = 0; d < TIME_DIRECTIONS; d++) {
    time_sketch_reset(&row->time[d].host);
    time_sketch_reset(&row->time[d].device);
  }
  PyMem_Free(row->signature);
  PyMem_Free(row);
}

static struct time_row *row_create(struct engine_op *op, char *signature, const int64_t *key, size_t key_size) {
  struct time_row *row = signature ? PyMem_Calloc(1, sizeof *row + key_size * sizeof *key) : NULL;
  if (!row) {
    PyMem_Free(signature);
    return NULL;
  }
  row->op = op;
  row->signature = signature;
  row->key_size = key_size;
  if (key_size) {
    memcpy(row->key, key, key_size * sizeof *key);
  }
  if (dit_record_intern(signature, strlen(signature), &row->signature_key, NULL) != DIT_OK) {
    row->signature_key = 0;
  }
  return row;
}

static bool table_grow(struct time_table *table) {
  size_t count = table->bucket_count ? table->bucket_count * 2 : 256;
  struct time_row **bucket = PyMem_Calloc(count, sizeof(struct time_row *));
  if (!bucket) {
    return false;
  }
  for (size_t i = 0; i < table->bucket_count; i++) {
    while (table->bucket[i]) {
      struct time_row *row = table->bucket[i];
      table->bucket[i] = row->next;
      row->next = bucket[row->hash & (count - 1)];
      bucket[row->hash & (count - 1)] = row;
    }
  }
  PyMem_Free(table->bucket);
  table->bucket = bucket;
  table->bucket_count = count;
  return true;
}

// The shared row of an operator's signatures beyond the limit.
static struct time_row *rest_find(struct time_table *table, struct engine_op *op) {
  for (struct time_row *row = table->rest; row; row = row->next) {
    if (row->op == op) {
      return row;
    }
  }
  char *signature = PyMem_Malloc(4);
  if (signature) {
    memcpy(signature, "...", 4);
  }
  struct time_row *row = row_create(op, signature, NULL, 0);
  if (row) {
    row->next = table->rest;
    table->rest = row;
  }
  return row;
}

struct time_row *time_table_find(struct time_table *table, struct engine_op *op, const struct engine_leaves *leaves) {
  int64_t key[KEY_WORDS + 1];
  size_t size = key_make(leaves, key);
  uint64_t hash = key_hash(op, key, size);
  if (table->bucket_count) {
    for (struct time_row *row = table->bucket[hash & (table->bucket_count - 1)]; row; row = row->next) {
      if (row->hash == hash && row->op == op && row->key_size == size &&
          memcmp(row->key, key, size * sizeof *key) == 0) {
        return row;
      }
    }
  }
  if (table->row_count >= table->row_max) {
    return rest_find(table, op);
  }
  if (table->row_count + 1 >= table->bucket_count && !table_grow(table)) {
    return NULL;
  }
  struct time_row *row = row_create(op, signature_make(leaves), key, size);
  if (row) {
    row->hash = hash;
    row->next = table->bucket[hash & (table->bucket_count - 1)];
    table->bucket[hash & (table->bucket_count - 1)] = row;
    table->row_count++;
  }
  return row;
}

static struct time_row *first_from(const struct time_table *table, size_t bucket) {
  for (size_t i = bucket; i < table->bucket_count; i++) {
    if (table->bucket[i]) {
      return table->bucket[i];
    }
  }
  return table->rest;
}

struct time_row *time_table_next(const struct time_table *table, const struct time_row *row) {
  if (!row) {
    return first_from(table, 0);
  }
  if (row->next) {
    return row->next;
  }
  for (const struct time_row *rest = table->rest; rest; rest = rest->next) {
    if (rest == row) {
      return NULL;
    }
  }
  return first_from(table, (row->hash & (table->bucket_count - 1)) + 1);
}

void time_table_clear(struct time_table *table) {
  for (struct time_row *row = time_table_next(table, NULL); row; row = time_table_next(table, row)) {
    for (int d = 0; d < TIME_DIRECTIONS; d++) {
      time_sketch_reset(&row->time[d].host);
      time_sketch_reset(&row->time[d].device);
    }
  }
}

void time_table_reset(struct time_table *table) {
  while (table->rest) {
    struct time_row *row = table->rest;
    table->rest = row->next;
    row_destroy(row);
  }
  for (size_t i = 0; i < table->bucket_count; i++) {
    while (table->bucket[i]) {
      struct time_row *row = table->bucket[i];
      table->bucket[i] = row->next;
      row_destroy(row);
    }
  }
  PyMem_Free(table->bucket);
  *table = (struct time_table){.row_max = table->row_max};
}
