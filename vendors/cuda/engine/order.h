/// Sorting on the device: keys that carry their places, stable (kernels/order.cu).
#ifndef DIT_CUDA_ENGINE_ORDER_H
#define DIT_CUDA_ENGINE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/error.h"

struct diopiContext;
/// Device memory of the call's context. Keys are uint32, or uint64 where `is_wide`.
struct order {
  void *keys, *key_room;
  uint32_t *places, *place_room;
  uint32_t *counts;
  int64_t count;
  bool is_wide;
};

/// Room for `count` items, fewer than 2^32: the caller fills keys and places. DIT_ERR_UNSUPPORTED, DIT_ERR_NOMEM.
DIT_NODISCARD enum dit_status order_init(struct order *order, struct diopiContext *context, int64_t count, bool is_wide,
                                         struct dit_error *err);
/// Ascending by the lowest `bits` of the keys; the result is in keys and places.
DIT_NODISCARD enum dit_status order_sort(struct order *order, void *stream, int bits, struct dit_error *err);
/// By the line that places lie in, `length` items each, `lines` of them.
DIT_NODISCARD enum dit_status order_sort_lines(struct order *order, void *stream, int64_t length, int64_t lines,
                                               struct dit_error *err);
/// Bits of numbers below `limit`.
int order_get_bits(uint64_t limit);

#endif
