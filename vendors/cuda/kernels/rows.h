/// Rows that fit into registers (rows.cuh): what the host side needs to know. Plain C.
#ifndef DIT_CUDA_KERNELS_ROWS_H
#define DIT_CUDA_KERNELS_ROWS_H

#include <stdint.h>

#define ROW_VECTORS 4     ///< of 16 bytes, for a thread
#define ROW_THREADS 1024  ///< of a row, at most
#define ROW_SMALL 256     ///< threads of a block of several rows

/// Threads for a row of `vectors` of 16 bytes; 0 when it is too long.
static inline int row_get_lanes(int64_t vectors) {
  const int64_t wanted = (vectors + ROW_VECTORS - 1) / ROW_VECTORS;
  int lanes = 1;
  while (lanes < 32 && lanes < wanted) {
    lanes *= 2;
  }
  return wanted <= 32 ? lanes : wanted <= ROW_THREADS ? (int)((wanted + 31) / 32 * 32) : 0;
}

#endif
