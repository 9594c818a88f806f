/// fill_kv_cache: row t of key and value goes to slot kv_indices[t] of the caches (blocks, block, Hk, D) of any
/// strides. -1 writes nothing; rows are written in order, so of equal slots the last one stays. int8: q =
/// clamp(round(x / scale - zero)). All slots are checked before the first row is written.
#include <math.h>
#include <string.h>

#include "dit/tensor.h"
#include "engine/scratch.h"
#include "infer.h"
#include "row.h"

struct fill {
  const struct dit_tensor_view *rows, *cache, *slots;
  float scale, zero;
  bool quantized;
};

/// Slots lie in a list (T) or, one sequence each, in a column (T, 1): packed but for the stride of the first.
static int64_t get_slot(const struct dit_tensor_view *slots, int64_t token) {
  int64_t at = 0;
  for (int dim = slots->ndim - 1; dim >= 0; dim--) {
    at += token % slots->sizes[dim] * slots->strides[dim];
    token /= slots->sizes[dim];
  }
  return row_index(slots, at);
}

static void store_row(const struct fill *f, int64_t from, int64_t to, int64_t count, float *room) {
  if (!f->quantized) {
    memcpy(row_at(f->cache, to), row_at(f->rows, from), (size_t)(count * dit_dtype_get_size(f->cache->dtype)));
    return;
  }
  const float *x = row_read(f->rows, from, count, room);
  int8_t *out = (int8_t *)row_at(f->cache, to);
  for (int64_t i = 0; i < count; i++) {
    const float value = rintf(x[i] / f->scale - f->zero);
    out[i] = (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
  }
}

static void fill(const struct fill *f, float *room) {
  const int64_t block = f->cache->sizes[1], *strides = f->cache->strides;
  for (int64_t token = 0; token < f->rows->sizes[0]; token++) {
    const int64_t slot = get_slot(f->slots, token);
    for (int64_t head = 0; head < f->rows->sizes[1] && slot >= 0; head++) {
      store_row(f, token * f->rows->strides[0] + head * f->rows->strides[1],
                slot / block * strides[0] + slot % block * strides[1] + head * strides[2], f->rows->sizes[2], room);
    }
  }
}

/// Elements from the first of a token to behind its last.
static int64_t get_extent(const struct dit_tensor_view *cache) {
  return (cache->sizes[2] - 1) * cache->strides[2] + cache->sizes[3];
}

/// The value cache of MLA is a part of each token of the key cache. (Pages of keys and of values may take turns in one
/// storage: such caches overlap as a whole, and their tokens do not.)
static bool lies_inside(const struct dit_tensor_view *value, const struct dit_tensor_view *key) {
  const int64_t size = (int64_t)dit_dtype_get_size(key->dtype);
  const int64_t offset = (const char *)value->data - (const char *)key->data;
  return value->storage == key->storage && value->strides[0] == key->strides[0] &&
         value->strides[1] == key->strides[1] && offset >= 0 &&
         offset + get_extent(value) * size <= get_extent(key) * size;
}

enum dit_status infer_fill_kv_cache(const struct dit_infer_fill_kv_cache *call, struct dit_error *err) {
  const int64_t count = call->key_cache.sizes[0] * call->key_cache.sizes[1], tokens = call->key.sizes[0];
  const int64_t width = call->key.sizes[2] > call->value.sizes[2] ? call->key.sizes[2] : call->value.sizes[2];
  for (int64_t i = 0; i < tokens; i++) {
    const int64_t slot = get_slot(&call->kv_indices, i);
    if (slot < -1 || slot >= count) {
      return dit_error_set(err, DIT_ERR_INVALID, "'kv_indices' has slot %lld at %lld; valid: -1 to %lld",
                           (long long)slot, (long long)i, (long long)count - 1);
    }
  }
  float *room = scratch_take(sizeof(float) * (size_t)(width + 1));
  if (!room) {
    return INFER_NO_MEMORY(err);
  }
  struct fill f = {&call->key, &call->key_cache, &call->kv_indices, 1, 0, call->quant_bits == 8};
  f.scale = call->key_scale.handle ? row_number(&call->key_scale, 0) : 1;
  f.zero = call->key_zero.handle ? row_number(&call->key_zero, 0) : 0;
  fill(&f, room);
  if (!lies_inside(&call->value_cache, &call->key_cache)) {
    f.rows = &call->value;
    f.cache = &call->value_cache;
    f.scale = call->value_scale.handle ? row_number(&call->value_scale, 0) : 1;
    f.zero = call->value_zero.handle ? row_number(&call->value_zero, 0) : 0;
    fill(&f, room);
  }
  scratch_give(room);
  return DIT_OK;
}
