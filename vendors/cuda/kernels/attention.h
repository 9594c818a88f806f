/// Parameters of attention and its gradients. Plain C.
#ifndef DIT_CUDA_KERNELS_ATTENTION_H
#define DIT_CUDA_KERNELS_ATTENTION_H

#include <stdint.h>

#define ATTENTION_SCALAR_THREADS 256
#define ATTENTION_MATRIX_THREADS 128
#define ATTENTION_DELTA_THREADS 256
#define ATTENTION_FLASH_ROWS 128     ///< queries of a block in the common form for half types
#define ATTENTION_FLASH_COLUMNS 64   ///< keys of a tile there
#define ATTENTION_GRADIENT_KEYS 128  ///< keys of a block in the common form's gradient, queries of a tile, threads
#define ATTENTION_GRADIENT_QUERIES(width) ((width) <= 64 ? 32 : 64)
#define ATTENTION_GRADIENT_THREADS(width) ((width) <= 64 ? 128 : 256)
#define ATTENTION_WIDTH 256  ///< the widest head

/// (sequence, row, head, element): strides in elements, that of elements is 1. With ends, rows of all sequences follow
/// each other.
struct attention_operand {
  char *data;
  int64_t sequence, row, head;
  int32_t is_aligned;  ///< every row begins at a multiple of 16 bytes
  int32_t reserved;
};

/// Where sequences begin and end: `sequences` + 1 numbers on the device, or NULL.
struct attention_ends {
  const char *data;
  int64_t stride, rows;  ///< of the tensor: no end is believed to lie beyond
  int32_t dtype, reserved;
};

struct attention_kernel {
  struct attention_operand q, k, v, out, grad, grad_q, grad_k, grad_v;
  struct attention_ends query_ends, key_ends;
  char *lse;  ///< (sequence, head, query)
  int64_t lse_strides[3];
  void *delta;      ///< sums of grad * out per (sequence, head, query), packed, in the work type
  float *sums;      ///< of the gradient of queries, where blocks add to it (attention_flash_gradient.cuh)
  uint32_t *turns;  ///< there: blocks that have started; then, per tile of queries, blocks that have added
  const float *slopes;
  int64_t slope_sequence, slope_head;
  int64_t sequences, heads, key_heads;
  int64_t queries, keys;  ///< of a sequence, at most
  int64_t left, right;    ///< keys seen before and after a query's own position; -1: all
  int64_t tiles;          ///< of rows per sequence and head
  int64_t query_tiles;    ///< those of queries, where blocks have rows of keys
  double scale, keep;     ///< keep: what a kept probability is multiplied by
  uint64_t keep_limit;    ///< a number below it keeps; 2^32 and dropout 0 when there is none
  uint64_t seed, offset;
  int32_t width, lse_dtype, has_dropout, parts;
};

#endif
