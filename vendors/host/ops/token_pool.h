/// Rows of a pool of keys or values (tokens of many sequences in any order), as attention of new tokens reads them.
///
/// A row is heads x width elements. Rows are fetched one by one into the work type, so that a pool of a half type is
/// never converted as a whole: a step of decoding reads what its sequences hold.
#ifndef DIT_HOST_OPS_TOKEN_POOL_H
#define DIT_HOST_OPS_TOKEN_POOL_H

#include "engine/cast.h"
#include "frame.h"

struct token_pool {
  const char *data;
  int64_t rows, heads, width;
  int64_t row_stride, head_stride, stride;  ///< in elements
  int dtype, work;                          ///< work: F32 or F64
};

/// `count` elements of head `head` of a row, as the work type.
static inline void token_pool_fetch(const struct token_pool *pool, int64_t row, int64_t head, void *out) {
  const size_t size = dit_dtype_get_size(pool->dtype);
  const char *from = pool->data + (size_t)(row * pool->row_stride + head * pool->head_stride) * size;
  if (pool->stride == 1 || pool->width <= 1) {
    cast_block(pool->work, out, pool->dtype, from, pool->width);
    return;
  }
  const size_t wide = dit_dtype_get_size(pool->work);
  for (int64_t i = 0; i < pool->width; i++) {
    cast_block(pool->work, (char *)out + (size_t)i * wide, pool->dtype, from + (size_t)(i * pool->stride) * size, 1);
  }
}

#endif
