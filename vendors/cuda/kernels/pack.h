/// Parameters of counting, listing and packing the elements that are not zero, and of masked_fill. Plain C.
#ifndef DIT_CUDA_KERNELS_PACK_H
#define DIT_CUDA_KERNELS_PACK_H

#include "pointwise.h"

#define PACK_KERNEL_THREADS 256
#define PACK_KERNEL_ITEMS 8  ///< neighbours per thread
#define PACK_KERNEL_TILE (PACK_KERNEL_THREADS * PACK_KERNEL_ITEMS)
#define PACK_KERNEL_DIMS 12

/// `walk`: operand 0 is tested, 1 is moved; row-major order. `starts`: elements before each tile, then their number.
struct pack_kernel {
  struct pointwise_strided walk;
  int64_t *starts;
  int64_t tiles;
  uint64_t bits;  ///< of an element that matter
  int32_t width;  ///< of an element that is tested
  int32_t ndim;
  int64_t sizes[PACK_KERNEL_DIMS];  ///< of the tensor, outermost first
  int64_t *list;
  int64_t row_step, dim_step;
  char *packed;
  int64_t packed_step, packed_count;
  int32_t is_unpack;
};

#endif
