/// Parameters of the stable radix sort of keys that carry their places. Plain C.
#ifndef DIT_CUDA_KERNELS_ORDER_H
#define DIT_CUDA_KERNELS_ORDER_H

#include "pointwise.h"

#define ORDER_KERNEL_THREADS 256
#define ORDER_KERNEL_ITEMS 16  ///< per thread
#define ORDER_KERNEL_TILE (ORDER_KERNEL_THREADS * ORDER_KERNEL_ITEMS)
#define ORDER_KERNEL_DIGITS 256

/// One pass by eight bits of the key, or of the number of the line that the place lies in (`length` > 0).
struct order_kernel {
  const void *keys;
  const uint32_t *places;
  void *keys_out;
  uint32_t *places_out;
  uint32_t *counts;  ///< [digit][tile], then [digit]
  int64_t count, length;
  int32_t shift, tiles;
};

#endif
